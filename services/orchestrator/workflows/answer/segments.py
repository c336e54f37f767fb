"""Cuts a text that is still being written into segments of whole sentences. Pure: it asks nobody."""

import re
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from errata_kit.text.sentences import Sentence, split_sentences

# A tail that is longer than this, such as a long code block, is read again only when it has grown by an eighth: a text that
# comes in small pieces would otherwise be read from its start with each of them.
_SHORT: Final = 2048
_GROWTH: Final = 8
# Characters before a segment that go along with it, for what "It" and "This" in it mean.
_PRECEDING: Final = 1000
# What may come behind a sentence and still change where it ends: citations that are its own, and a first word that is cut off,
# of which the splitter looks at no more than so much.
_UNSETTLED: Final = re.compile(r"\s*+(?:\[[\d, ]*+\]?+[ \t]*+)*+\S{0,23}")
# What opens a block of Markdown at the start of a line, and is a word like any other within one.
_MARKER: Final = re.compile(r"(?:[-*+•]|#{1,6}|\d{1,3}[.)])\s|`{3}|~{3}|[|>]")


@dataclass(frozen=True, slots=True)
class Segment:
    """A piece of the text. number counts from 1; start is the character of the text at which it begins; preceding is the end
    of what stands before it.
    """

    number: int
    start: int
    text: str
    preceding: str = ""


@dataclass(frozen=True, slots=True)
class Piece:
    """Text that has just come, and the segment that it belongs to."""

    segment: int
    text: str


class Segmenter:
    """Takes a text in pieces, and gives the segments that are complete.

    A segment ends behind its size-th sentence. What may still grow is never in a complete segment, with one exception: where a
    sentence ends can depend on what the text says much later, as for a title above its paragraph. Such a segment holds other
    sentences than the whole text, and whoever relies on its sentences has to compare.
    """

    def __init__(self, size: int) -> None:
        """size: sentences of a segment, from 1; headings do not count."""
        self._size = size
        self._text = ""
        self._begin = 0
        self._said = 0
        self._number = 1

    def take(self, piece: str) -> tuple[list[Piece], list[Segment]]:
        """The text that is ready to be shown, as pieces of one segment each, and the segments that are complete with it."""
        self._text += piece
        tail = len(self._text) - self._begin
        if tail > _SHORT and len(self._text) - self._said < tail // _GROWTH:
            return [], []
        complete: list[Segment] = []
        pieces: list[Piece] = []
        ends, ready = self._ends()
        for end in ends:
            pieces += self._pieces(end)
            complete.append(self._closed(end))
        return [*pieces, *self._pieces(ready)], complete

    def end(self) -> tuple[list[Piece], list[Segment]]:
        """The same for what is left at the end of the text; blanks make no segment."""
        pieces = self._pieces(len(self._text))
        return pieces, [self._closed(len(self._text))] if self._text[self._begin :].strip() else []

    def _pieces(self, end: int) -> list[Piece]:
        text = self._text[self._said : end]
        self._said = max(self._said, end)
        return [Piece(self._number, text)] if text else []

    def _closed(self, end: int) -> Segment:
        before = self._text[max(0, self._begin - _PRECEDING) : self._begin]
        segment = Segment(self._number, self._begin, self._text[self._begin : end], before)
        self._begin, self._number = end, self._number + 1
        return segment

    def _ends(self) -> tuple[list[int], int]:
        """Where segments end, and up to where the text can be shown: what may belong to this segment or the next one waits."""
        begin, tail = self._begin, self._text[self._begin :]
        ends: list[int] = []
        sentences = 0
        # The last sentence may still grow, and is in none.
        for unit, following in pairwise(split_sentences(tail)):
            sentences += unit.kind != "heading"
            end = begin + _behind(tail, unit, following)
            # What was shown as part of this segment stays in it, up to the end of its sentence.
            if sentences < self._size or end < self._said or _must_stay(tail, unit, following):
                continue
            if _UNSETTLED.fullmatch(tail, unit.end):
                return ends, end
            sentences = 0
            ends.append(end)
        return ends, len(self._text)


def _must_stay(text: str, unit: Sentence, following: Sentence) -> bool:
    """Whether what follows a unit would be read as something else without it, or is in its code."""
    if "\n" in text[unit.end : following.start]:
        return False
    line = text[text.rfind("\n", 0, unit.end) + 1 : unit.end]
    in_code = line.count("`") % 2 == 1 and "\n" not in text[unit.end :]
    return in_code or _MARKER.match(text, following.start) is not None


def _behind(text: str, unit: Sentence, following: Sentence) -> int:
    """Where the text behind a unit goes on: its blanks are its own, the marker of a following list item is not."""
    end = unit.end
    while end < following.start and text[end].isspace():
        end += 1
    return end
