"""Cuts a text that is still being written into segments of whole sentences. Pure: it asks nobody."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from errata_kit.text.sentences import Sentence, split_sentences

# A tail that is longer than this, such as a long code block, is read again only when it has grown by the second number of
# characters: a text that comes in small pieces would otherwise be read from its start with each of them.
_SHORT: Final = 4096
_GROWN: Final = 512


@dataclass(frozen=True, slots=True)
class Segment:
    """A piece of the text. number counts from 1; start is the character of the text at which it begins."""

    number: int
    start: int
    text: str


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
        if tail > _SHORT and len(self._text) - self._said < _GROWN:
            return [], []
        complete: list[Segment] = []
        pieces: list[Piece] = []
        for end in self._ends():
            pieces += self._pieces(end)
            complete.append(self._closed(end))
        return [*pieces, *self._pieces(len(self._text))], complete

    def end(self) -> tuple[list[Piece], list[Segment]]:
        """The same for what is left at the end of the text; blanks make no segment."""
        pieces = self._pieces(len(self._text))
        return pieces, [self._closed(len(self._text))] if self._text[self._begin :].strip() else []

    def _pieces(self, end: int) -> list[Piece]:
        text = self._text[self._said : end]
        self._said = max(self._said, end)
        return [Piece(self._number, text)] if text else []

    def _closed(self, end: int) -> Segment:
        segment = Segment(self._number, self._begin, self._text[self._begin : end])
        self._begin, self._number = end, self._number + 1
        return segment

    def _ends(self) -> Iterator[int]:
        """Where segments end, in the whole text. The last sentence may still grow, and is in none."""
        begin = self._begin
        sentences = 0
        units = split_sentences(self._text[begin:])
        for unit, following in pairwise(units):
            sentences += unit.kind != "heading"
            # What was shown as part of this segment stays in it, up to the end of its sentence.
            end = begin + _behind(self._text[begin:], unit, following)
            if sentences >= self._size and end >= self._said:
                sentences = 0
                yield end


def _behind(text: str, unit: Sentence, following: Sentence) -> int:
    """Where the text behind a unit goes on: its blanks are its own, the marker of a following list item is not."""
    end = unit.end
    while end < following.start and text[end].isspace():
        end += 1
    return end
