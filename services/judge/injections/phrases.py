"""Patterns of sentences, written with plain blanks, and searched only where a text has one of their words."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

# Everything is bounded and possessive, so that no text makes a search long: a gap holds no letters, a word nothing else.
_GAP: Final = r"[\W_]{1,16}+"
_WORD: Final = r"[^\W_]{1,24}+"
_FEW: Final = re.compile(r"…(\d?)")


@dataclass(frozen=True, slots=True)
class Phrase:
    """A pattern, and beginnings of words of which every match has one: looking for those costs a tenth."""

    stems: tuple[str, ...]
    pattern: re.Pattern[str]

    def is_in(self, text: str) -> bool:
        """Whether a text in lower case says it."""
        return any(stem in text for stem in self.stems) and self.pattern.search(text) is not None


def phrases(*written: tuple[str, str]) -> tuple[Phrase, ...]:
    """Phrases from pairs: stems, parted by blanks, and a regular expression. In the latter a blank stands for anything but
    letters and digits, up to 16 characters; … for up to four words with the gap before each, …2 for up to two, and ~ for one
    word.
    """
    return tuple(Phrase(tuple(stems.split()), re.compile(_spelled(pattern))) for stems, pattern in written)


def any_in(text: str, known: Iterable[Phrase]) -> bool:
    """Whether a text in lower case says one of the phrases."""
    return any(phrase.is_in(text) for phrase in known)


def _spelled(pattern: str) -> str:
    gaps = pattern.replace("~", _WORD).replace(" ", _GAP)
    return _FEW.sub(lambda few: rf"(?:{_GAP}{_WORD}){{0,{few[1] or 4}}}?", gaps)
