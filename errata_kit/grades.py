"""Grades, claims and evidence, as every service sees them."""

from enum import StrEnum
from typing import Annotated

from pydantic import Field
from pydantic.dataclasses import dataclass

from errata_kit.bounds import KIB, UnitScore, utf8_at_most
from errata_kit.passages import Span


class InjectionKind(StrEnum):
    """What sort of text for a model a passage carries."""

    OVERRIDE = "OVERRIDE"
    ROLE = "ROLE"
    VERDICT = "VERDICT"
    FENCE = "FENCE"
    HIDDEN = "HIDDEN"


@dataclass(frozen=True, slots=True)
class PassageGrade:
    """How well a passage answers a question, 0–1; the judge's yes or no; and why.

    injections: signs that text of the passage is meant for a model, each kind once. They change no score.
    """

    score: UnitScore
    relevant: bool
    reasoning: str
    injections: tuple[InjectionKind, ...] = ()


class Verdict(StrEnum):
    """On one claim."""

    SUPPORTED = "SUPPORTED"
    UNSUPPORTED = "UNSUPPORTED"
    CONTRADICTED = "CONTRADICTED"
    UNVERIFIABLE = "UNVERIFIABLE"


class HallucinationRisk(StrEnum):
    """Of a whole answer."""

    LOW = "LOW"
    MEDIUM = "MEDIUM"
    HIGH = "HIGH"


class FindingKind(StrEnum):
    """What sort of detail the guard missed in the passages."""

    NUMBER = "NUMBER"
    VERSION = "VERSION"
    IDENTIFIER = "IDENTIFIER"
    FLAG = "FLAG"
    ENVIRONMENT_VARIABLE = "ENVIRONMENT_VARIABLE"
    PATH = "PATH"
    URL = "URL"
    QUOTE = "QUOTE"
    DATE = "DATE"
    NEGATION = "NEGATION"


@dataclass(frozen=True, slots=True)
class Evidence:
    """A quote that stands in a passage, and where."""

    passage_id: Annotated[str, utf8_at_most(128)]
    quote: Annotated[str, utf8_at_most(KIB)]
    span: Span


@dataclass(frozen=True, slots=True)
class Claim:
    """One statement of an answer. span lies in the answer; support is 0–1."""

    claim_id: Annotated[str, utf8_at_most(128)]
    text: Annotated[str, utf8_at_most(8 * KIB)]
    span: Span
    verdict: Verdict
    support: UnitScore
    evidence: Annotated[tuple[Evidence, ...], Field(max_length=100)] = ()
    explanation: Annotated[str, utf8_at_most(8 * KIB)] = ""


@dataclass(frozen=True, slots=True)
class GuardFinding:
    """A detail of the answer that occurs in no passage. claim_id is empty when it stands in no claim."""

    kind: FindingKind
    text: str
    span: Span
    explanation: str
    claim_id: str = ""


@dataclass(frozen=True, slots=True)
class AnswerGrade:
    """The judge's whole finding. The score is computed from the claims."""

    claims: tuple[Claim, ...]
    faithfulness_score: Annotated[float, Field(ge=0, le=1)]
    hallucination_risk: HallucinationRisk
    problematic_claim_ids: tuple[str, ...] = ()
    findings: tuple[GuardFinding, ...] = ()
    refinement_suggestion: str = ""
    model: str = ""

    def claim(self, claim_id: str) -> Claim:
        """The claim with this id; KeyError without."""
        for claim in self.claims:
            if claim.claim_id == claim_id:
                return claim
        raise KeyError(claim_id)
