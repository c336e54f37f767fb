"""Fills chunks from the blocks of one section: whole where they fit, with some of the prose before as
overlap.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from services.retriever.chunking.blocks import Block, BlockKind

# A table's rows still make sense when its head is repeated; code does so less, and is kept whole up to a
# larger size.
_TABLE_FACTOR: Final = 2
_SENTENCE_START: Final = re.compile(r"(?:(?<=[.!?:;])[ \t]+|\n[ \t]*)(?=\S)")
_WORD_START: Final = re.compile(r"\s+(?=\S)")


@dataclass(frozen=True, slots=True)
class ChunkSizes:
    """Lengths in characters. Code is kept whole up to `hard_maximum`, tables up to twice `target`; the rest
    of a chunk is at most `target` plus `overlap` long. A section shorter than `minimum` takes its next
    subsection along."""

    target: int = 800
    overlap: int = 150
    hard_maximum: int = 3200
    minimum: int = 200

    def __post_init__(self) -> None:
        if not 0 <= self.overlap < self.target <= self.hard_maximum or not 0 <= self.minimum <= self.target:
            raise ValueError("chunk sizes must satisfy 0 <= overlap < target <= hard_maximum, minimum <= target")


@dataclass(frozen=True, slots=True)
class Span:
    """Characters `start` to `end` of the text, between an opening and a closing that a part of a cut block
    needs.
    """

    start: int
    end: int
    has_code: bool = False
    opening: str = ""
    closing: str = ""

    def render(self, text: str) -> str:
        """Return what the chunk says: the span's characters, in their frame where there is one."""
        return self.opening + text[self.start : self.end] + self.closing


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a block that goes into a chunk whole."""

    span: Span
    kind: BlockKind


class Packer:
    """Packs the blocks of a section.

    `starts` are the offsets of the text's lines, with the text's length + 1 last.
    """

    def __init__(self, text: str, starts: Sequence[int], sizes: ChunkSizes) -> None:
        self._text = text
        self._starts = starts
        self._sizes = sizes

    def pack(self, blocks: Sequence[Block]) -> list[Span]:
        """Return the spans of the section's chunks, in order."""
        spans: list[Span] = []
        current: Span | None = None
        prose_from: int | None = None
        for piece in (piece for block in blocks for piece in self._pieces(block)):
            span = piece.span
            if span.opening or span.closing:
                spans.extend([current, span] if current else [span])
                current, prose_from = None, None
                continue
            if current is None:
                current, prose_from = span, None
            elif self._joins(current, span):
                current = Span(current.start, span.end, current.has_code or span.has_code)
            else:
                spans.append(current)
                begin = span.start if prose_from is None else self._overlap_start(prose_from, current.end)
                current, prose_from = Span(begin, span.end, span.has_code), min(begin, span.start)
            if piece.kind is not BlockKind.PROSE:
                prose_from = None
            elif prose_from is None:
                prose_from = span.start
        if current:
            spans.append(current)
        return spans

    def _joins(self, current: Span, span: Span) -> bool:
        # What is shorter than an overlap would be repeated whole, so it goes along even where it does not
        # fit.
        fits = span.end - current.start <= self._sizes.target
        return fits or current.end - current.start <= self._sizes.overlap

    def _overlap_start(self, prose_from: int, end: int) -> int:
        """Return where the next chunk begins: at a sentence, else a word, of the prose that ended the last
        chunk.
        """
        earliest = end - self._sizes.overlap
        if prose_from >= earliest:
            return prose_from
        for boundary in (_SENTENCE_START, _WORD_START):
            match = boundary.search(self._text, earliest - 1, end)
            if match:
                return match.end()
        return earliest

    def _pieces(self, block: Block) -> Iterator[Piece]:
        start, end = self._starts[block.start], self._starts[block.end] - 1
        whole = Span(start, end, block.kind is BlockKind.CODE)
        if end - start <= self._limit(block.kind):
            yield Piece(whole, block.kind)
        elif block.kind in (BlockKind.CODE, BlockKind.TABLE):
            yield from (Piece(span, block.kind) for span in self._framed(block))
        else:
            cuts = self._prose_cuts(start, end)
            yield from (Piece(Span(*self._trim(*cut)), BlockKind.PROSE) for cut in pairwise(cuts))

    def _limit(self, kind: BlockKind) -> int:
        if kind is BlockKind.CODE:
            return self._sizes.hard_maximum
        return self._sizes.target * _TABLE_FACTOR if kind is BlockKind.TABLE else self._sizes.target

    def _framed(self, block: Block) -> Iterator[Span]:
        """Cut a fence or table between its lines; every part but the first repeats the opening."""
        is_code = block.kind is BlockKind.CODE
        opening = block.opening + "\n" if block.opening and len(block.opening) < self._sizes.target else ""
        closing = "\n" + block.closing if block.closing else ""
        parts = [part for run in self._line_runs(block.start, block.end) if (part := self._strip(*run))]
        if len(parts) > 1 and is_code and self._text[slice(*parts[-1])].strip() == block.closing.strip():
            # A closing fence alone is no part: it ends the part before it.
            parts[-2:] = [(parts[-2][0], parts[-1][1])]
        for number, (start, end) in enumerate(parts):
            last = number == len(parts) - 1
            yield Span(start, end, is_code, opening if number else "", "" if last else closing)

    def _strip(self, start: int, end: int) -> tuple[int, int] | None:
        """Leave out blank lines at both ends; the first line keeps its indentation.

        Nothing is left of blank text.
        """
        while start < end and self._text[end - 1].isspace():
            end -= 1
        while (newline := self._text.find("\n", start, end)) >= 0 and self._text[start:newline].isspace() | (newline == start):
            start = newline + 1
        return (start, end) if start < end else None

    def _line_runs(self, first: int, last: int) -> Iterator[tuple[int, int]]:
        begin = self._starts[first]
        for line in range(first, last):
            line_start, line_end = self._starts[line], self._starts[line + 1] - 1
            if line_end - begin > self._sizes.target and line_start > begin:
                yield begin, line_start - 1
                begin = line_start
            while line_end - begin > self._sizes.target:
                yield begin, begin + self._sizes.target
                begin += self._sizes.target
        if begin < self._starts[last] - 1:
            yield begin, self._starts[last] - 1

    def _prose_cuts(self, start: int, end: int) -> list[int]:
        """Return offsets from `start` to `end` no more than a target apart: between sentences, else words,
        else any.
        """
        cuts = [start]
        for match in _SENTENCE_START.finditer(self._text, start, end):
            self._cut_until(cuts, match.end())
        self._cut_until(cuts, end)
        return cuts

    def _cut_until(self, cuts: list[int], stop: int) -> None:
        target = self._sizes.target
        while stop - cuts[-1] > target:
            reach = cuts[-1] + target
            space = max(self._text.rfind(" ", cuts[-1] + target // 2, reach), -1)
            cuts.append(space + 1 if space > 0 else reach)
        if stop > cuts[-1]:
            cuts.append(stop)

    def _trim(self, start: int, end: int) -> tuple[int, int]:
        while end > start + 1 and self._text[end - 1].isspace():
            end -= 1
        return start, end
