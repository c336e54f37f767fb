"""Grades an answer: splits it into claims, has them checked, checks the evidence, runs the guard and computes the score."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from errata_kit.bounds import invalid
from errata_kit.errors import JudgementIncomplete
from errata_kit.grades import AnswerGrade, Claim, Evidence, FindingKind, GuardFinding
from errata_kit.metrics import Metrics
from errata_kit.passages import Passage, Span
from errata_kit.text.sentences import ByteOffsets
from errata_kit.usage import ModelCall
from services.judge.claims import scoring
from services.judge.claims.evidence import with_checked_evidence
from services.judge.claims.splitting import split_claims
from services.judge.claims.verdicts import CheckedClaim, Finding
from services.judge.guard import find_ungrounded, lower
from services.judge.off_loop import off_loop
from services.judge.provider import CheckedClaims, Provider

MOST_CLAIMS: Final = 1000
"""Claims of one answer: more than 64 KiB of sentences that people write ever have."""
_LONGEST_CLAIM: Final = 2000
_LONGEST_QUOTE: Final = 250
_MOST_FINDINGS: Final = 100
_KINDS: Final[Mapping[str, FindingKind]] = {
    "number": FindingKind.NUMBER,
    "version": FindingKind.VERSION,
    "date": FindingKind.DATE,
    "identifier": FindingKind.IDENTIFIER,
    "option": FindingKind.IDENTIFIER,
    "environment": FindingKind.ENVIRONMENT_VARIABLE,
    "flag": FindingKind.FLAG,
    "path": FindingKind.PATH,
    "url": FindingKind.URL,
    "email": FindingKind.URL,
    "code": FindingKind.QUOTE,
    "quote": FindingKind.QUOTE,
    "negation": FindingKind.NEGATION,
}


@dataclass(frozen=True, slots=True)
class GradedAnswer:
    """A grade and the model calls behind it."""

    grade: AnswerGrade
    model_calls: tuple[ModelCall, ...] = ()


class AnswerAssessor:
    """Assesses with one provider. Evidence check, guard and score are the same whoever judges."""

    def __init__(self, provider: Provider, metrics: Metrics) -> None:
        self._provider = provider
        self._metrics = metrics

    async def assess(self, question: str, answer: str, passages: tuple[Passage, ...]) -> GradedAnswer:
        """Grade an answer. Raises InvalidFields when it has too many claims, and another ErrataError
        when they could not be checked.
        """
        with self._metrics.judging("check_claims"):
            graded = await self._assess(question, answer, passages)
        self._metrics.faithfulness_score.observe(graded.grade.faithfulness_score)
        for claim in graded.grade.claims:
            self._metrics.claims.labels(claim.verdict.value).inc()
        for finding in graded.grade.findings:
            self._metrics.guard_findings.labels(finding.kind.value).inc()
        return graded

    async def _assess(self, question: str, answer: str, passages: tuple[Passage, ...]) -> GradedAnswer:
        texts = await off_loop(len(answer), split_claims, answer)
        if len(texts) > MOST_CLAIMS:
            # Each is compared with each sentence of the passages: thousands of tiny ones would fill gigabytes.
            raise invalid("answer", f"must have at most {MOST_CLAIMS} claims; it has {len(texts)}")
        checked = CheckedClaims(())
        if texts:
            # An answer that states nothing needs no model.
            checked = await self._provider.check_claims(question, texts, passages)
        if len(checked.claims) != len(texts):
            raise JudgementIncomplete("The judge has no verdict for some of the claims")
        size = len(answer) + sum(len(passage.text) for passage in passages)
        grade = await off_loop(size, self._grade, question, answer, checked.claims, passages)
        return GradedAnswer(grade, checked.model_calls)

    def _grade(
        self, question: str, answer: str, checked: tuple[CheckedClaim, ...], passages: tuple[Passage, ...]
    ) -> AnswerGrade:
        by_id = {passage.passage_id: passage for passage in passages}
        findings = find_ungrounded(answer, question, passages)[:_MOST_FINDINGS]
        assessed = scoring.assess(lower(with_checked_evidence(checked, by_id), findings), findings)
        ids = {id(claim): f"c{number}" for number, claim in enumerate(assessed.claims, start=1)}
        offsets = ByteOffsets(answer)
        return AnswerGrade(
            claims=tuple(_claim(ids[id(claim)], claim, offsets, by_id) for claim in assessed.claims),
            faithfulness_score=assessed.faithfulness_score,
            hallucination_risk=assessed.hallucination_risk,
            problematic_claim_ids=tuple(ids[id(claim)] for claim in assessed.problematic_claims),
            findings=tuple(_finding(finding, assessed.claims, offsets) for finding in findings),
            refinement_suggestion=assessed.refinement_suggestion[:_LONGEST_CLAIM],
            model=self._provider.model,
        )


def _claim(claim_id: str, claim: CheckedClaim, offsets: ByteOffsets, passages: Mapping[str, Passage]) -> Claim:
    default = scoring.support_of(claim)
    return Claim(
        claim_id=claim_id,
        text=claim.text[:_LONGEST_CLAIM],
        span=Span(*offsets.span(claim.start, claim.end)),
        verdict=claim.verdict,
        support=default,
        evidence=tuple(_evidence(quote.quote, passages[quote.passage_id]) for quote in claim.evidence),
        explanation=claim.explanation[:_LONGEST_CLAIM],
    )


def _evidence(quote: str, passage: Passage) -> Evidence:
    shown = quote[:_LONGEST_QUOTE]
    start = passage.text.index(shown)
    return Evidence(passage.passage_id, shown, Span(*ByteOffsets(passage.text).span(start, start + len(shown))))


def _finding(finding: Finding, claims: tuple[CheckedClaim, ...], offsets: ByteOffsets) -> GuardFinding:
    inside = (f"c{number}" for number, claim in enumerate(claims, start=1) if claim.start <= finding.start < claim.end)
    return GuardFinding(
        kind=_KINDS[finding.kind],
        text=finding.text[:_LONGEST_CLAIM],
        span=Span(*offsets.span(finding.start, finding.end)),
        explanation=finding.explanation[:_LONGEST_CLAIM],
        claim_id=next(inside, ""),
    )
