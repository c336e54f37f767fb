"""Which sentences of an answer its failing claims are about."""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from errata_kit.grades import Claim
from errata_kit.text.sentences import ByteOffsets, Sentence, byte_span
from errata_kit.text.terms import content_terms

# A claim whose span is off still names its sentence when it shares this much of the claim's terms.
_SAME_CLAIM: Final = 0.6
_LONGEST_REASON: Final = 2000


@dataclass(frozen=True, slots=True)
class FailingUnit:
    """A sentence, heading, row or block that failing claims touch. place: which of the answer's units it is, from 0."""

    place: int
    unit: Sentence
    claims: tuple[Claim, ...]

    @property
    def claim_ids(self) -> tuple[str, ...]:
        """The ids of those claims, each once."""
        return tuple(dict.fromkeys(claim.claim_id for claim in self.claims))

    @property
    def reason(self) -> str:
        """Why they fail, each explanation once."""
        told = dict.fromkeys(claim.explanation.strip() or f"The claim is {claim.verdict.lower()}." for claim in self.claims)
        return " ".join(told)[:_LONGEST_REASON]


def failing_units(answer: str, units: Sequence[Sentence], failing: Sequence[Claim]) -> dict[int, FailingUnit]:
    """The units that failing claims touch, by their places, in the answer's order."""
    found = _Finder(answer, units)
    touched: dict[int, list[Claim]] = {}
    for claim in failing:
        for place in found.touched(claim):
            touched.setdefault(place, []).append(claim)
    return {place: FailingUnit(place, units[place], tuple(touched[place])) for place in sorted(touched)}


def touched_units(draft: str, units: Sequence[Sentence], claim: Claim) -> set[int]:
    """Return the units that a claim is about: by its span, or by its words where the span fits nothing."""
    return _Finder(draft, units).touched(claim)


class _Finder:
    """Finds units by claims; one for all claims of a text, since reading it costs more than looking."""

    def __init__(self, text: str, units: Sequence[Sentence]) -> None:
        self._text = text
        self._raw = text.encode("utf-8", "surrogatepass")
        self._units = units
        self._terms: list[frozenset[str]] | None = None
        offsets = ByteOffsets(text)
        self._spans = [offsets.span(unit.start, unit.end) for unit in units]

    def touched(self, claim: Claim) -> set[int]:
        """The places of the units that a claim is about."""
        start, end = claim.span.start, claim.span.end
        found = self._within(start, end) if 0 <= start < end <= len(self._raw) else set()
        place = self._text.find(claim.text) if not found and claim.text.strip() else -1
        if place >= 0:
            found = self._within(*byte_span(self._text, place, place + len(claim.text)))
        return found or self._by_words(claim)

    def _within(self, start: int, end: int) -> set[int]:
        """The units of which more than blanks lies between two bytes."""
        found: set[int] = set()
        for place in range(bisect_right(self._spans, start, key=lambda span: span[1]), len(self._spans)):
            first, last = self._spans[place]
            if first >= end:
                break
            if self._raw[max(first, start) : min(last, end)].decode("utf-8", "ignore").strip():
                found.add(place)
        return found

    def _by_words(self, claim: Claim) -> set[int]:
        terms = frozenset(content_terms(claim.text))
        if self._terms is None:
            self._terms = [frozenset(content_terms(unit.text)) for unit in self._units]
        shares = [len(terms & own) / max(len(terms), 1) for own in self._terms]
        best = max(range(len(self._units)), key=shares.__getitem__, default=None)
        return {best} if best is not None and shares[best] >= _SAME_CLAIM else set()
