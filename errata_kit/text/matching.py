"""Finding one text inside another when they differ only in typography: case, quotes, dashes, blanks."""

import re
from dataclasses import dataclass
from typing import Final

# One for one, so that offsets stay the same. "İ" is the one letter whose lower case is two characters.
_TYPOGRAPHY: Final = str.maketrans(
    "‘’‚‛′“”„«»″‐‑‒–—−\u00ad…İ\u00a0\u202f\u2009\u200b",
    '\'\'\'\'\'""""""-------.i    ',
)
_BLANKS: Final = re.compile(r"\s+")
_BESIDE_PUNCTUATION: Final = re.compile(r" ?([^\w\s]) ?")


@dataclass(frozen=True, slots=True)
class FoldedText:
    """A text reduced to what comparing needs. `origin[i]` is the source's character offset of `folded[i]`."""

    folded: str
    origin: tuple[int, ...]
    length: int

    def source_span(self, start: int, end: int) -> tuple[int, int]:
        """Turn a non-empty span of `folded` into the half-open character span of the source that it came
        from.
        """
        return self.origin[start], self.origin[end - 1] + 1


def fold(text: str) -> str:
    """Return `text` in lower case, with plain quotes and dashes, single blanks, and no blank beside
    punctuation.

    Tokenised text thus equals what it was made from: "air - to - air ," and "Air-to-air," are the same.
    """
    plain = _BLANKS.sub(" ", text.translate(_TYPOGRAPHY).lower()).strip()
    return _BESIDE_PUNCTUATION.sub(r"\1", plain)


def fold_with_origin(text: str) -> FoldedText:
    """Do what `fold` does, and keep where each character came from. Linear in the text's length."""
    folded: list[str] = []
    origin: list[int] = []
    plain = text.translate(_TYPOGRAPHY)
    for index, character in enumerate(plain):
        lowered = character.lower()
        if character.isspace():
            if folded and _is_word(folded[-1]):
                folded.append(" ")
                origin.append(index)
            continue
        if folded and folded[-1] == " " and not _is_word(lowered):
            folded.pop()
            origin.pop()
        folded.append(lowered)
        origin.append(index)
    if folded and folded[-1] == " ":
        folded.pop()
        origin.pop()
    return FoldedText("".join(folded), tuple(origin), len(text))


def occurs(needle: str, haystack: str) -> bool:
    """Whether the folded `needle` stands in the folded `haystack`, not merely as a part of a longer word or
    name.
    """
    return find_whole(needle, haystack) is not None


def find_whole(needle: str, haystack: str) -> int | None:
    """Return where the folded `needle` first stands whole in the folded `haystack`, or None.

    Empty is nowhere.
    """
    position = haystack.find(needle) if needle else -1
    while position >= 0:
        end = position + len(needle)
        joined_left = position > 0 and _is_word(needle[0]) and _is_word(haystack[position - 1])
        joined_right = end < len(haystack) and _is_word(needle[-1]) and _is_word(haystack[end])
        if not joined_left and not joined_right:
            return position
        position = haystack.find(needle, position + 1)
    return None


def _is_word(character: str) -> bool:
    return character.isalnum() or character == "_"
