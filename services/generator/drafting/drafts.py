"""A text that cites passages, and how its citations are read."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from errata_kit.passages import Citation, Span
from errata_kit.text.sentences import Sentence, byte_span, split_sentences

# Citations stand between blanks or punctuation, alone or in a row as in [1][3], so `rows[0]` in running text is none.
_MARKERS: Final = re.compile(r"(?<![\w\])])(?:\[\d{1,3}(?:[ ]?,[ ]?\d{1,3}){0,9}\])+(?![\w(\[:])")
_MARKER: Final = re.compile(r"\[([\d, ]+)\]")


def find_markers(text: str, start: int = 0, end: int | None = None) -> Iterator[re.Match[str]]:
    """Yield the citation marks in text[start:end]; group 1 holds the numbers, parted by commas."""
    for row in _MARKERS.finditer(text, start, len(text) if end is None else end):
        yield from _MARKER.finditer(text, row.start(), row.end())


@dataclass(frozen=True, slots=True)
class CitedText:
    """A text and its citations, in the text's order. One without text answers nothing."""

    text: str
    citations: tuple[Citation, ...] = ()

    def pieces(self) -> Iterator[str]:
        """Yield the text in readable pieces, one per sentence or block; joined they are the text."""
        position = 0
        for unit in split_sentences(self.text)[1:]:
            yield self.text[position : unit.start]
            position = unit.start
        if self.text[position:]:
            yield self.text[position:]


def read_citations(text: str, passage_ids: tuple[str, ...]) -> tuple[Citation, ...]:
    """Return the citations that a text's own markers make; markers that name no passage given make none."""
    found = []
    for unit in split_sentences(text):
        for number, (start, end) in _cited(unit):
            if 1 <= number <= len(passage_ids):
                found.append(Citation(number, passage_ids[number - 1], Span(*byte_span(text, start, end))))
    return tuple(found)


def _cited(unit: Sentence) -> Iterator[tuple[int, tuple[int, int]]]:
    """Yield each number cited in a unit with the character span that it backs: the unit up to its closing
    markers.
    """
    if unit.kind == "code":
        return
    markers = list(find_markers(unit.text))
    closing = len(unit.text)
    for marker in reversed(markers):
        if unit.text[marker.end() : closing].strip():
            break
        closing = marker.start()
    span = (unit.start, unit.start + len(unit.text[:closing].rstrip()))
    if span[0] < span[1]:
        for marker in markers:
            yield from ((int(number), span) for number in marker[1].split(","))
