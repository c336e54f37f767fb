"""Takes units out of a Markdown text, with the blanks, list markers and line breaks that are theirs alone.

Nothing else changes: what stays is byte for byte what it was.
"""

import re
from bisect import bisect_right
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Final

from errata_kit.text.sentences import Sentence

_INTRODUCES: Final = re.compile(r":[*_]*(?:\s*\[[\d, ]+\])*\Z")
_ROWS: Final = frozenset(["list", "table"])
_FLOWING: Final = frozenset(["prose", "list"])
_TABLE_RULE: Final = re.compile(r"[ \t]*\|?[ \t:|]*-[ \t:|-]*")


@dataclass(frozen=True, slots=True)
class Change:
    """Characters start to end of a text give way to after. place: the unit for whose sake."""

    start: int
    end: int
    after: str
    place: int


def made(text: str, changes: Sequence[Change]) -> str:
    """The text with its changes made; they are in order and do not overlap."""
    pieces: list[str] = []
    position = 0
    for change in changes:
        pieces += (text[position : change.start], change.after)
        position = change.end
    return "".join((*pieces, text[position:]))


def orphans(text: str, units: Sequence[Sentence], gone: Collection[int]) -> set[int]:
    """The places of what introduces nothing once some units are gone: lead-ins of a vanished block, headings of nothing."""
    dropped = set(gone)
    below: Sentence | None = None
    for place in range(len(units) - 1, -1, -1):
        unit = units[place]
        if place not in dropped and place + 1 in dropped:
            if unit.kind == "heading":
                bare = below is None or (below.kind == "heading" and level(text, below) <= level(text, unit))
            else:
                bare = bool(_INTRODUCES.search(unit.text)) and _block_is_gone(units, place + 1, dropped)
            if bare and unit.kind in ("heading", "prose", "list"):
                dropped.add(place)
        if place not in dropped:
            below = unit
    return dropped - set(gone)


def level(text: str, heading: Sentence) -> int:
    """The level of a heading, from 1."""
    line_start = text.rfind("\n", 0, heading.start) + 1
    return text[line_start : heading.start].count("#")


def line_head(text: str, unit: Sentence) -> str:
    """What stands before a unit in its line when that is no other unit's: an item's or a heading's marker."""
    head = f"{text[: unit.start]}|".splitlines()[-1][:-1]
    return "" if any(character.isalpha() for character in head) else head


def cuts(text: str, units: Sequence[Sentence], gone: Collection[int]) -> list[Change]:
    """One change for each unit that goes, in order. Where a whole paragraph goes, the blank lines around it become those of
    one gap. A table keeps a head of empty cells when only its head goes.
    """
    lines = _Lines(text)
    found: list[Change] = []
    for run in (part for whole in _runs(gone) for part in _parts(text, units, whole)):
        start, end = _run_span(text, units, lines, run)
        bounds = [start, *(_between(text, units[one], units[other]) for one, other in pairwise(run)), end]
        found += (Change(left, right, "", place) for (left, right), place in zip(pairwise(bounds), run, strict=True))
        if _is_head_of_more(text, units, lines, run[-1]):
            last = found.pop()
            row = units[run[-1]]
            cells = max(1, row.text.count("|") - row.text.endswith("|"))
            found.append(Change(last.start if len(run) > 1 else row.start, row.end, "|" + "  |" * cells, run[-1]))
    return found


class _Lines:
    """Where the lines of a text begin and end, by the rule by which it is split into units."""

    def __init__(self, text: str) -> None:
        self._starts = [0, *accumulate(map(len, text.splitlines(keepends=True)))]

    def begin(self, position: int) -> int:
        """Where the line begins in which a position lies."""
        return self._starts[bisect_right(self._starts, position) - 1]

    def end(self, position: int) -> int:
        """Where the line behind the one begins in which a position lies."""
        return self._starts[min(bisect_right(self._starts, position), len(self._starts) - 1)]


def _block_is_gone(units: Sequence[Sentence], first: int, dropped: set[int]) -> bool:
    """Whether nothing is left of the run of units of one kind that starts at `first`."""
    kind = units[first].kind
    for place in range(first, len(units)):
        if units[place].kind != kind:
            return True
        if place not in dropped:
            return False
        if kind not in _ROWS:
            return True
    return True


def _runs(places: Collection[int]) -> Iterator[list[int]]:
    run: list[int] = []
    for place in sorted(places):
        if run and place != run[-1] + 1:
            yield run
            run = []
        run.append(place)
    if run:
        yield run


def _parts(text: str, units: Sequence[Sentence], run: Sequence[int]) -> Iterator[Sequence[int]]:
    """A run cut at the ends of a paragraph that only partly goes."""
    first, last = 0, len(run)
    if run[0] and in_one_paragraph(text, units[run[0] - 1], units[run[0]]):
        first = 1
        while first < last and in_one_paragraph(text, units[run[first - 1]], units[run[first]]):
            first += 1
    if first < last and run[-1] + 1 < len(units) and in_one_paragraph(text, units[run[-1]], units[run[-1] + 1]):
        last -= 1
        while last > first and in_one_paragraph(text, units[run[last - 1]], units[run[last]]):
            last -= 1
    yield from (part for part in (run[:first], run[first:last], run[last:]) if part)


def _between(text: str, one: Sentence, other: Sentence) -> int:
    """Where, between two units that both go, the second one's own line or words begin."""
    gap = text[one.end : other.start]
    *whole, _ = f"{gap}x".splitlines(keepends=True)
    return one.end + sum(map(len, whole)) if whole else other.start


def _run_span(text: str, units: Sequence[Sentence], lines: _Lines, run: Sequence[int]) -> tuple[int, int]:
    """What goes with a run of units that follow each other."""
    first, last = units[run[0]], units[run[-1]]
    before = units[run[0] - 1] if run[0] else None
    after = units[run[-1] + 1] if run[-1] + 1 < len(units) else None
    if before is None and after is None:
        return 0, len(text)
    joined_before = before is not None and in_one_paragraph(text, before, first)
    joined_after = after is not None and in_one_paragraph(text, last, after)
    if after is not None and joined_after:
        return first.start, after.start
    if before is not None and joined_before:
        return before.end, last.end
    return _line_span(text, lines, (before, first, last, after))


def in_one_paragraph(text: str, one: Sentence, other: Sentence) -> bool:
    """Whether nothing but blanks, or the line break of a wrapped line, stands between two units that follow each other."""
    gap = text[one.end : other.start]
    flowing = one.kind == other.kind and one.kind in _FLOWING
    return flowing and not gap.strip() and len(f"{gap}x".splitlines()) <= 2


def _line_span(
    text: str, lines: _Lines, around: tuple[Sentence | None, Sentence, Sentence, Sentence | None]
) -> tuple[int, int]:
    """The whole lines of units beside which nothing stands in them."""
    before, first, last, after = around
    start, end = lines.begin(first.start), lines.end(last.end - 1)
    if before is None or (after is None and not text[last.end :].strip()):
        while start and text[start - 1].isspace():
            start -= 1
    if after is None and not text[last.end :].strip():
        return start, last.end
    if not start or _is_blank(text, lines, start - 1):
        while end < len(text) and _is_blank(text, lines, end):
            end = lines.end(end)
        return start, end
    flows = before is not None and after is not None and before.kind in _FLOWING and after.kind == "prose"
    # Without a blank line between them the text behind would become part of the paragraph or item before.
    return start, last.end if flows and after is not None and lines.begin(after.start) == end else end


def _is_blank(text: str, lines: _Lines, position: int) -> bool:
    return not text[lines.begin(position) : lines.end(position)].strip()


def _is_head_of_more(text: str, units: Sequence[Sentence], lines: _Lines, place: int) -> bool:
    """Whether a unit that goes is the head of a table of which rows stay."""
    if units[place].kind != "table" or place + 1 == len(units) or units[place + 1].kind != "table":
        return False
    start = lines.end(units[place].end - 1)
    rule = text[start : lines.end(start)].strip() if start < len(text) else ""
    follows = lines.begin(units[place + 1].start) == lines.end(start) if start < len(text) else False
    return bool(_TABLE_RULE.fullmatch(rule)) and "|" in rule and follows
