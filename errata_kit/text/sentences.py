"""Sentences and Markdown units of a text, with their spans.

A rule-based splitter, because its cuts must be the same on every machine and explainable from the text alone.
Every pass looks at each character a bounded number of times, so a hostile document of some megabytes costs
seconds at most.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Final, Literal

Kind = Literal["prose", "code", "table", "heading", "list"]

_FENCE: Final = re.compile(r"[ \t>]{0,12}(`{3,}|~{3,})")
_HEADING: Final = re.compile(r"[ ]{0,3}#{1,6}[ \t]+")
_ITEM: Final = re.compile(r"[ \t>]{0,24}(?:[-*+•]|\d{1,3}[.)])[ \t]+")
_TABLE: Final = re.compile(r"[ \t]{0,12}\|")
_TABLE_RULE: Final = re.compile(r"[\s|:\-]+")
_INLINE_CODE: Final = re.compile(r"`[^`\n]+`")
# A terminator run with its closing quotes, brackets or emphasis marks. It matches wherever it starts, so no
# backtracking.
_TERMINATOR: Final = re.compile(r"(?:[.!?…]+[\"'”’»)\]*_]*|[。！？]+[」』”]*)")
_CITATIONS: Final = re.compile(r"(?:[ \t]{0,2}\[\d{1,3}(?:[ ]?,[ ]?\d{1,3}){0,9}\]){1,20}(?=\s|$)")
_LETTER_DOTS: Final = re.compile(r"(?:[^\W\d_]\.)*[^\W\d_]\Z")

# Abbreviations that a name, a number or the rest of the sentence follows: never an end.
_NEVER_LAST_TEXT: Final = (
    "e.g i.e cf vs dr mr mrs ms prof st fig figs eq eqs sec ch vol no nos pp ca approx viz resp incl gen col sgt rev"
)
_NEVER_LAST: Final = frozenset(_NEVER_LAST_TEXT.split())
# Abbreviations that may also close a sentence: an end only before a word that opens sentences.
_MAYBE_LAST_TEXT: Final = "etc al inc ltd co corp jr sr dept est jan feb mar apr jun jul aug sep sept oct nov dec"
_MAYBE_LAST: Final = frozenset(_MAYBE_LAST_TEXT.split())
_OPENERS_TEXT: Final = (
    "the a an this that these those it its he she they we you i there here in on at for to by from with "
    "as if when while after before however also but and or so because although since each all some many "
    "most no not"
)
_OPENERS: Final = frozenset(_OPENERS_TEXT.split())
_LOOK_BACK: Final = 24
# A line this much shorter than its paragraph's longest, without closing punctuation, is a title, not wrapped
# prose.
_TITLE_RATIO: Final = 0.6


@dataclass(frozen=True, slots=True)
class Sentence:
    """A unit of a text. `text == source[start:end]`; `start` and `end` are half-open *character* offsets."""

    text: str
    start: int
    end: int
    kind: Kind


@dataclass(frozen=True, slots=True)
class _Region:
    start: int
    end: int
    kind: Kind


def split_sentences(text: str) -> tuple[Sentence, ...]:
    """Return the units of `text` in order.

    Sentences of prose, and Markdown's own units, which no sentence crosses.

    A fenced code block, a heading and a table row are one unit each; a list item is cut into its sentences,
    without its marker. Units never overlap, are never blank, and together cover every word outside list
    markers. Plain and space-tokenised text ("flight , or on the ground . Types") are both understood. Linear
    in the text's length.
    """
    found: list[Sentence] = []
    for region in _regions(text):
        cuts = _cuts(text, region) if region.kind in ("prose", "list") else iter((region.end,))
        start = region.start
        for cut in cuts:
            unit = _trimmed(text, start, cut, region.kind)
            if unit is not None:
                found.append(unit)
            start = cut
    return tuple(found)


def byte_span(text: str, start: int, end: int) -> tuple[int, int]:
    """Turn half-open character offsets into half-open UTF-8 byte offsets, the unit of the contracts."""
    first = len(text[:start].encode("utf-8", "surrogatepass"))
    return first, first + len(text[start:end].encode("utf-8", "surrogatepass"))


def _regions(text: str) -> Iterator[_Region]:
    """Group lines into regions that sentences cannot cross."""
    fence: str | None = None
    fence_start = 0
    open_region: _Region | None = None
    position = 0
    for line in text.splitlines(keepends=True):
        start, end = position, position + len(line)
        position = end
        mark = _FENCE.match(line)
        if fence is not None:
            if mark and mark[1].startswith(fence) and not line[mark.end() :].strip():
                yield _Region(fence_start, end, "code")
                fence = None
            continue
        kind, body = _line_kind(line, start)
        if not mark and kind == "prose" and open_region is not None and line.strip():
            open_region = _Region(open_region.start, end, open_region.kind)
            continue
        if open_region is not None:
            yield open_region
            open_region = None
        if mark:
            fence, fence_start = mark[1], start
        elif kind in ("prose", "list") and line.strip():
            open_region = _Region(body, end, kind)
        elif line.strip() and not _TABLE_RULE.fullmatch(line):
            yield _Region(body, end, kind)
    if fence is not None:
        yield _Region(fence_start, position, "code")
    elif open_region is not None:
        yield open_region


def _line_kind(line: str, start: int) -> tuple[Kind, int]:
    """Name a line's kind and where its words begin, after a heading's or an item's marker."""
    if heading := _HEADING.match(line):
        return "heading", start + heading.end()
    if item := _ITEM.match(line):
        return "list", start + item.end()
    if _TABLE.match(line):
        return "table", start
    return "prose", start


def _cuts(text: str, region: _Region) -> Iterator[int]:
    """Yield where the sentences of a region end, the region's own end last."""
    inside = text[region.start : region.end]
    titles = _title_breaks(inside)
    code = [match.span() for match in _INLINE_CODE.finditer(inside)]
    next_code = next_title = 0
    for match in _TERMINATOR.finditer(inside):
        while next_code < len(code) and code[next_code][1] <= match.start():
            next_code += 1
        while next_title < len(titles) and titles[next_title] <= match.start():
            yield region.start + titles[next_title]
            next_title += 1
        in_code = next_code < len(code) and code[next_code][0] < match.start()
        if not in_code and _ends_sentence(inside, match.start(), match.end()):
            citations = _CITATIONS.match(inside, match.end())
            yield region.start + (citations.end() if citations else match.end())
    yield from (region.start + cut for cut in titles[next_title:])
    yield region.end


def _title_breaks(inside: str) -> list[int]:
    """Return the line breaks that end a title line standing directly above its text."""
    if "\n" not in inside.strip():
        return []
    lines = inside.splitlines(keepends=True)
    longest = max(len(line) for line in lines)
    breaks, position = [], 0
    for line, following in pairwise(lines):
        position += len(line)
        words, after = line.rstrip(), following.lstrip()
        if words and words[-1] not in ",;-" and after[:1].isupper() and len(words) < _TITLE_RATIO * longest:
            breaks.append(position)
    return breaks


def _ends_sentence(inside: str, start: int, end: int) -> bool:
    if inside[start] in "。！？":
        return True
    if end < len(inside) and not inside[end].isspace():
        return False
    citations = _CITATIONS.match(inside, end)
    following = _first_word(inside, citations.end() if citations else end)
    if not following:
        return True
    if start and inside[start - 1].isspace():
        return following[0] not in ",;:)."
    if not _may_open(following):
        return False
    return inside[start:end].strip("\"'”’»)]*_") != "." or not _is_abbreviation(inside, start, following)


def _first_word(inside: str, position: int) -> str:
    """Return the next blank-separated word after `position`, at most `_LOOK_BACK` characters of it.

    "" at the end.
    """
    while position < len(inside) and inside[position].isspace():
        position += 1
    return inside[position : position + _LOOK_BACK].split(maxsplit=1)[0] if position < len(inside) else ""


def _may_open(word: str) -> bool:
    """Whether a sentence may begin with this word.

    Not in lower case, unless it is an identifier or is marked up.
    """
    bare = word.lstrip("*_\"'“‘«([")
    if not bare:
        return True
    if bare[0].islower():
        return "_" in bare or any(character.isdigit() for character in bare)
    return bare[0].isalnum() or bare[0] in "`$-<~/#>"


def _is_abbreviation(inside: str, dot: int, following: str) -> bool:
    """Whether the full stop at `dot` belongs to the word before it."""
    words = inside[max(0, dot - _LOOK_BACK) : dot].split()
    word = words[-1].lstrip("(\"'“‘[*_") if words else ""
    lowered = word.lower()
    opener = following.strip("*_\"'“‘(,").lower() in _OPENERS
    if lowered in _NEVER_LAST:
        # "No." is a number's sign only before a number; otherwise it is an answer.
        return lowered not in ("no", "nos") or following[:1].isdigit()
    if lowered in _MAYBE_LAST:
        return lowered not in ("may", "mar") and not opener
    if word.isdigit():
        return len(words) == 1 and dot <= _LOOK_BACK
    return bool(_LETTER_DOTS.match(word)) and not opener


def _trimmed(text: str, start: int, end: int, kind: Kind) -> Sentence | None:
    """Return the unit without blanks at its ends, or None when nothing is left."""
    piece = text[start:end]
    left = len(piece) - len(piece.lstrip())
    words = piece.strip()
    if not words:
        return None
    return Sentence(words, start + left, start + left + len(words), kind)


class ByteOffsets:
    """Turns character offsets of one text into UTF-8 byte offsets, many of them in linear time."""

    def __init__(self, text: str) -> None:
        # In ASCII, the most frequent case, the two are the same.
        self._before: list[int] | None = None
        if not text.isascii():
            self._before = [0, *accumulate(len(character.encode("utf-8", "surrogatepass")) for character in text)]

    def span(self, start: int, end: int) -> tuple[int, int]:
        """The half-open byte offsets of half-open character offsets."""
        return (start, end) if self._before is None else (self._before[start], self._before[end])
