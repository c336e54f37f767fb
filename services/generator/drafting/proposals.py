"""What a model wants to put in the places of failing sentences, and what of it is let through."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from errata_kit.edits import RejectedEdit
from errata_kit.text.sentences import Kind, Sentence, split_sentences
from services.generator.drafting.drafts import said, without_markers, without_stray_markers
from services.generator.drafting.surgery import Corrected, Surgery

_ITEM: Final = re.compile(r"(?:[-*+•]|\d{1,3}[.)])[ \t]+(?=\S)")
_HEADING: Final = re.compile(r"#{1,6}[ \t]+")
_CODE_FENCE: Final = re.compile(r"(`{3,}|~{3,})")
# A sentence may give way to a few, never to an essay.
_MORE_CHARACTERS: Final = 1200
_LONGEST_TOLD: Final = 2000
_MOST_TOLD: Final = 100
_STANDS_AS: Final[dict[Kind, Kind]] = {"list": "prose", "heading": "prose"}
_ONE: Final[dict[Kind, str]] = {
    "prose": "plain sentences of one paragraph",
    "list": "plain sentences of one list item",
    "heading": "the words of one heading, on one line",
    "table": "one row of a table, on one line",
    "code": "one whole code block with its fences",
}


@dataclass(frozen=True, slots=True)
class Proposal:
    """number: of the sentence that was asked about, from 1. words: what is to stand there; blank to remove it."""

    number: int
    words: str


@dataclass(frozen=True, slots=True)
class Rejection:
    """A proposal that was not let through."""

    proposal: Proposal
    reason: str


class Ledger:
    """The failing sentences, numbered from 1, and what has become of each. Blocking."""

    def __init__(self, surgery: Surgery, passages: int) -> None:
        self._surgery = surgery
        self._passages = passages
        self._places = tuple(surgery.failing)
        self._put_in: dict[int, str] = {}
        self._removed: set[int] = set()
        self.rejected: list[Rejection] = []

    @property
    def outstanding(self) -> tuple[int, ...]:
        """The numbers of the sentences for which nothing has been let through."""
        settled = self._put_in.keys() | self._removed
        return tuple(number for number, place in enumerate(self._places, start=1) if place not in settled)

    def take(self, proposals: Sequence[Proposal]) -> None:
        """Let through what can be, and keep the rest as rejected."""
        asked = frozenset(self.outstanding)
        times = Counter(proposal.number for proposal in proposals)
        good: list[tuple[Proposal, str]] = []
        for proposal in proposals:
            if proposal.number not in asked:
                self._reject(proposal, "No sentence of this number was to be corrected.")
            elif times[proposal.number] > 1:
                self._reject(proposal, "Its number came more than once.")
            elif not proposal.words.strip():
                self._removed.add(self._place(proposal))
            else:
                words, reason = _read(self._surgery, self._place(proposal), proposal.words, self._passages)
                if reason:
                    self._reject(proposal, reason)
                else:
                    good.append((proposal, words))
        self._put(good)

    def finished(self) -> Corrected:
        """The answer with what was let through, and without every sentence for which that is nothing."""
        done = self._surgery.finished(self._put_in)
        if done is None:
            for place, words in self._put_in.items():
                self._reject(Proposal(self._places.index(place) + 1, words), "It does not fit to what else is removed.")
            return self._surgery.without_failing()
        return done

    def told(self) -> tuple[RejectedEdit, ...]:
        """What was rejected, the words cut where they are long."""
        return tuple(
            RejectedEdit(item.proposal.words[:_LONGEST_TOLD].encode("utf-8", "replace").decode(), item.reason)
            for item in self.rejected[:_MOST_TOLD]
        )

    def _put(self, good: Sequence[tuple[Proposal, str]]) -> None:
        together = self._put_in | {self._place(proposal): words for proposal, words in good}
        if not good or self._surgery.fits(together):
            self._put_in = together
            return
        for proposal, words in good:
            together = self._put_in | {self._place(proposal): words}
            if self._surgery.fits(together):
                self._put_in = together
            else:
                self._reject(
                    proposal, "With it, the sentences around it would not stay as they are, or one would be said twice."
                )

    def _place(self, proposal: Proposal) -> int:
        return self._places[proposal.number - 1]

    def _reject(self, proposal: Proposal, reason: str) -> None:
        self.rejected.append(Rejection(proposal, reason))


def fitting(surgery: Surgery, place: int, wanted: str, passages: int) -> str:
    """The words as they may stand in the place of a failing unit; empty when they may not."""
    words, reason = _read(surgery, place, wanted, passages)
    return "" if reason else words


def _read(surgery: Surgery, place: int, wanted: str, passages: int) -> tuple[str, str]:
    """The words that may stand in a place, and why not when they may not."""
    old = surgery.failing[place].unit
    if len(wanted) > len(old.text) + _MORE_CHARACTERS or not _is_text(wanted):
        return "", "It is longer than what it may stand for, or no text."
    words = without_stray_markers(_bare(wanted, old.kind), passages).strip()
    if not any(character.isalnum() for character in without_markers(words)):
        return "", "Nothing is left of it but marks."
    units = split_sentences(words)
    if not _is_of_form(words, units, old.kind):
        return "", f"It must be {_ONE[old.kind]}."
    if old.kind in ("prose", "list"):
        words = " ".join(words.splitlines())
    for unit in units:
        if said(unit.text) in surgery.wrong:
            return "", "It says again what failed."
        if said(unit.text) in surgery.kept:
            return "", "It repeats a sentence that stays."
    return words, ""


def _is_text(words: str) -> bool:
    try:
        words.encode()
    except UnicodeEncodeError:
        return False
    return True


def _bare(words: str, kind: Kind) -> str:
    """Without the marker of the item or heading in whose place it stands: that one stays."""
    marker = {"list": _ITEM, "heading": _HEADING}.get(kind)
    return marker.sub("", words.strip(), count=1) if marker is not None and marker.match(words.strip()) else words.strip()


def _is_of_form(words: str, units: Sequence[Sentence], kind: Kind) -> bool:
    lines = words.splitlines()
    if any(unit.kind != _STANDS_AS.get(kind, kind) for unit in units) or not units:
        return False
    if kind == "code":
        return len(units) == 1 and _is_closed(lines)
    if kind in ("heading", "table"):
        return len(lines) == 1
    return all(line.strip() for line in lines) and not any(_looks_like_rule(lines))


def _is_closed(lines: Sequence[str]) -> bool:
    fence = _CODE_FENCE.match(lines[0])
    return fence is not None and len(lines) > 1 and lines[-1].strip().startswith(fence[1])


def _looks_like_rule(lines: Sequence[str]) -> Iterator[bool]:
    """Lines that make a heading of the one above, or a rule."""
    return (not any(character.isalnum() for character in line) for line in lines[1:])
