"""What is said about each claim of an answer, inside the judge. Offsets count characters here; assessment.py makes bytes."""

from dataclasses import dataclass

from errata_kit.grades import Verdict


@dataclass(frozen=True, slots=True)
class Quote:
    """A piece of a passage that bears on a claim.

    `quote` occurs in the passage's text, character for character.
    """

    passage_id: str
    quote: str


@dataclass(frozen=True, slots=True)
class CheckedClaim:
    """One statement of an answer with its verdict.

    `start` and `end` are half-open *character* offsets into the answer. `support` is 0 to 1, or None where a
    model gave the verdict alone. `explanation` is one sentence for people.
    """

    text: str
    start: int
    end: int
    verdict: Verdict
    support: float | None = None
    evidence: tuple[Quote, ...] = ()
    explanation: str = ""


@dataclass(frozen=True, slots=True)
class Finding:
    """A checkable detail of an answer that no passage has, or of which the nearest sentence says otherwise.

    `kind` names the sort of detail ("number", "flag", ...; "negation" for what turns a sentence round). `start`
    and `end` are half-open *character* offsets into the answer, and `text` is what stands there.
    """

    kind: str
    text: str
    start: int
    end: int
    explanation: str
