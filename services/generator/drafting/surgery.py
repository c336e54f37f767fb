"""Corrects the failing sentences of an answer, and proves of each correction that it leaves every other one alone."""

from bisect import bisect_right
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Final

from errata_kit.edits import Edit, prove
from errata_kit.grades import Claim
from errata_kit.passages import Span
from errata_kit.text.questions import read_question
from errata_kit.text.sentences import ByteOffsets, Sentence, split_sentences
from errata_kit.text.terms import content_terms
from services.generator.drafting.drafts import said
from services.generator.drafting.removal import Change, cuts, made, orphans
from services.generator.drafting.touching import failing_units
from services.generator.provider import MAX_TEXT_BYTES

_INTRODUCES_NOTHING: Final = "It introduced something that is gone."


@dataclass(frozen=True, slots=True)
class Corrected:
    """The text after, and the edits that are proven to lead to it."""

    text: str
    edits: tuple[Edit, ...]


class Surgery:
    """An answer on the table: its units, which of them failed, and what may stand in their places. Blocking."""

    def __init__(self, answer: str, failing: Sequence[Claim]) -> None:
        self.answer = answer
        self.units = split_sentences(answer)
        self.failing = failing_units(answer, self.units, failing)
        """The units that are to be corrected, by their places among all units."""
        self.wrong = frozenset(said(item.unit.text) for item in self.failing.values())
        """What the failing units say."""
        self.kept = frozenset(said(unit.text) for place, unit in enumerate(self.units) if place not in self.failing)
        """What the others say."""
        self._taken = self.wrong | self.kept

    def fits(self, replacements: Mapping[int, str]) -> bool:
        """Whether these words can stand in the places of failing units: every other unit is then the same unit, the new ones
        are of the old ones' kind, and none of them says what failed or what another sentence says already.
        """
        changes = self._replaced(replacements)
        return self._is_whole(changes, replacements, ())

    def finished(self, replacements: Mapping[int, str], blocks: Mapping[int, str] | None = None) -> Corrected | None:
        """The answer with these words in the places of failing units and without the other failing ones; None when they do
        not fit together. blocks: paragraphs of their own in place of failing units, which may be of any kind.
        """
        blocks = blocks or {}
        gone = self.failing.keys() - replacements.keys() - blocks.keys()
        bare = orphans(self.answer, self.units, gone) - blocks.keys()
        put_in = {place: words for place, words in replacements.items() if place not in bare}
        removals = cuts(self.answer, self.units, gone | bare | blocks.keys())
        changes = _in_order((*self._replaced(put_in), *removals))
        for place, words in blocks.items():
            changes = self._with_block(changes, place, words)
        if not self._is_whole(changes, put_in, gone | bare):
            # Where two sentences would run together, a blank line keeps them apart.
            parted = [self._parted(change) for change in changes]
            if self._is_whole(parted, put_in, gone | bare):
                changes = parted
            elif replacements or blocks:
                return None
        return self._proven(changes, bare)

    def without_failing(self) -> Corrected:
        """The answer without its failing units."""
        done = self.finished({})
        if done is None:
            raise AssertionError("a sentence can always be removed")
        return done

    def _replaced(self, replacements: Mapping[int, str]) -> list[Change]:
        units = ((place, self.units[place], words) for place, words in replacements.items())
        return _in_order([Change(unit.start, unit.end, words, place) for place, unit, words in units])

    def _with_block(self, changes: Sequence[Change], place: int, words: str) -> list[Change]:
        """The changes with words in the place of a unit that one of them takes out, blank lines around them."""
        at = next(index for index, change in enumerate(changes) if change.place == place)
        cut = changes[at]
        above = made(self.answer[: cut.start], changes[:at])
        below = made(self.answer, [Change(0, cut.end, "", place), *changes[at + 1 :]])
        first = "" if not above.strip() or above.endswith("\n\n") else "\n\n"
        last = "" if not below.strip() or below.startswith("\n\n") else "\n\n"
        return [*changes[:at], replace(cut, after=f"{first}{words}{last}"), *changes[at + 1 :]]

    def _parted(self, change: Change) -> Change:
        above, below = self.answer[: change.start], self.answer[change.end :]
        inside = above.strip() and below.strip() and not above.endswith("\n") and not below.startswith("\n")
        return replace(change, after="\n\n") if inside and not change.after else change

    def _is_whole(self, changes: Sequence[Change], put_in: Mapping[int, str], gone: Collection[int]) -> bool:
        """Whether each unit that was to stay stands as the same unit in the text after the changes, and what was put in is
        what it may be.
        """
        after = made(self.answer, changes)
        if len(after.encode()) > MAX_TEXT_BYTES:
            return False
        found = split_sentences(after)
        moved = _Moved(changes)
        spans = {(unit.start, unit.end) for unit in found}
        for place, unit in enumerate(self.units):
            if place not in self.failing and place not in gone and moved.span(unit) not in spans:
                return False
        new = [self._new_words(change, moved, found, put_in) for change in changes if change.place not in gone]
        told = [words for sentences in new if sentences is not None for words in sentences if words]
        return None not in new and len(set(told)) == len(told)

    def _new_words(
        self, change: Change, moved: "_Moved", found: Sequence[Sentence], put_in: Mapping[int, str]
    ) -> list[str] | None:
        """What the units say that a change put in; None when they are not what they may be."""
        start, end = moved.made(change)
        told: list[str] = []
        for unit in found[max(0, bisect_right(found, start, key=lambda unit: unit.start) - 1) :]:
            if unit.start >= end:
                break
            if unit.end <= start:
                continue
            told.append(said(unit.text))
            if unit.start < start or unit.end > end or (told[-1] and told[-1] in self._taken):
                return None
            if change.place in put_in and unit.kind != self.units[change.place].kind:
                return None
        return told or None

    def _proven(self, changes: Sequence[Change], bare: Collection[int]) -> Corrected:
        offsets = ByteOffsets(self.answer)
        edits = tuple(self._edit(change, offsets) for change in changes)
        after = made(self.answer, changes)
        spared = (unit for place, unit in enumerate(self.units) if place not in self.failing and place not in bare)
        prove(self.answer, after, edits, (Span(*offsets.span(unit.start, unit.end)) for unit in spared))
        return Corrected(after, edits)

    def _edit(self, change: Change, offsets: ByteOffsets) -> Edit:
        before = self.answer[change.start : change.end]
        span = Span(*offsets.span(change.start, change.end))
        item = self.failing.get(change.place)
        if item is None:
            return Edit(span, before, change.after, (), _INTRODUCES_NOTHING)
        return Edit(span, before, change.after, item.claim_ids, item.reason)


class _Moved:
    """Where things stand after some changes."""

    def __init__(self, changes: Sequence[Change]) -> None:
        self._ends = [change.end for change in changes]
        self._shifts = [0, *accumulate(len(change.after) - (change.end - change.start) for change in changes)]

    def span(self, unit: Sentence) -> tuple[int, int]:
        """Where a unit stands that no change touches."""
        shift = self._shifts[bisect_right(self._ends, unit.start)]
        return unit.start + shift, unit.end + shift

    def made(self, change: Change) -> tuple[int, int]:
        """Where the new words of a change stand."""
        start = change.start + self._shifts[bisect_right(self._ends, change.start)]
        return start, start + len(change.after)


def _in_order(changes: Sequence[Change]) -> list[Change]:
    return sorted(changes, key=lambda change: change.start)


def answers(question: str, text: str) -> bool:
    """Whether a text names something that the question asks about. Headings answer nothing."""
    read = read_question(question)
    left = {term for unit in split_sentences(text) if unit.kind != "heading" for term in content_terms(unit.text)}
    asked = set(read.key_terms or read.terms)
    return bool(left) and (not asked or not asked.isdisjoint(left))


def says_something(text: str) -> bool:
    """Whether words stand in a text that are no heading."""
    return any(unit.kind != "heading" for unit in split_sentences(text))
