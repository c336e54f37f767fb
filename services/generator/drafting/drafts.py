"""A text that cites passages, and how its citations are read."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from errata_kit.passages import Citation, Passage, Span
from errata_kit.text.sentences import Sentence, byte_span, split_sentences

# Citations stand between blanks or punctuation, alone or in a row as in [1][3], so `rows[0]` in running text is none.
_MARKERS: Final = re.compile(r"(?<![\w\])])(?:\[\d{1,3}(?:[ ]?,[ ]?\d{1,3}){0,9}\])+(?![\w(\[:])")
_MARKER: Final = re.compile(r"\[([\d, ]+)\]")
_ROW: Final = re.compile(rf"[ \t]?{_MARKERS.pattern}")
_EDGES: Final = " \t_.,;:!?…。！？\"'“”‘’"


def find_markers(text: str, start: int = 0, end: int | None = None) -> Iterator[re.Match[str]]:
    """Yield the citation marks in text[start:end]; group 1 holds the numbers, parted by commas."""
    for row in _MARKERS.finditer(text, start, len(text) if end is None else end):
        yield from _MARKER.finditer(text, row.start(), row.end())


def without_markers(text: str) -> str:
    """The text without its citation marks and the blank before each."""
    return _ROW.sub("", text)


def said(text: str) -> str:
    """What a sentence says, to compare it with another: without citations, emphasis, case, and what differs at its edges."""
    return " ".join(without_markers(text).replace("*", "").casefold().split()).strip(_EDGES)


def without_stray_markers(text: str, passages: int) -> str:
    """Remove citations of passages that were not given, outside code."""
    pieces: list[str] = []
    position = 0
    for unit in split_sentences(text):
        if unit.kind == "code":
            continue
        for marker in find_markers(text, unit.start, unit.end):
            numbers = [number.strip() for number in marker[1].split(",")]
            valid = [number for number in numbers if 1 <= int(number) <= passages]
            if len(valid) == len(numbers):
                continue
            blank = marker.start() - 1 if not valid and text[marker.start() - 1 : marker.start()] == " " else marker.start()
            pieces.append(text[position:blank] + (f"[{', '.join(valid)}]" if valid else ""))
            position = marker.end()
    return "".join((*pieces, text[position:]))


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


def cited(text: str, passages: Sequence[Passage]) -> CitedText:
    """A text with the citations that its own markers make."""
    return CitedText(text, read_citations(text, tuple(passage.passage_id for passage in passages)))


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
