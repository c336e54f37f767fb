"""Grades an answer: splits it into claims, has them checked, checks the evidence, runs the guard and computes the score."""

from dataclasses import dataclass

from errata_kit.errors import JudgementIncomplete
from errata_kit.grades import AnswerGrade
from errata_kit.metrics import Metrics
from errata_kit.passages import Passage
from errata_kit.usage import ModelCall
from services.judge.claims.evidence import with_checked_evidence
from services.judge.claims.splitting import split_claims
from services.judge.guard import find_ungrounded, lower
from services.judge.provider import CheckedClaims, Provider

_MAX_QUOTE_BYTES = 1024


@dataclass(frozen=True, slots=True)
class Assessment:
    """A grade and the model calls behind it."""

    grade: AnswerGrade
    model_calls: tuple[ModelCall, ...] = ()


class AnswerAssessor:
    """Assesses with one provider. The score, the evidence and the guard are the same whoever judges."""

    def __init__(self, provider: Provider, metrics: Metrics) -> None:
        self._provider = provider
        self._metrics = metrics

    async def assess(self, question: str, answer: str, passages: tuple[Passage, ...]) -> Assessment:
        """Grade an answer. Raises an ErrataError when the claims could not be checked."""
        texts = split_claims(answer)
        checked = CheckedClaims(())
        if texts:
            # An answer that states nothing needs no model.
            checked = await self._provider.check_claims(question, texts, passages)
        if len(checked.claims) != len(texts):
            raise JudgementIncomplete("The judge has no verdict for some of the claims")
        by_id = {passage.passage_id: passage for passage in passages}
        claims = with_checked_evidence(checked.claims, by_id)
        findings = find_ungrounded(answer, question, passages)
        claims = lower(claims, findings)
        grade = _grade(answer, claims, findings, by_id, self._provider.model)
        for claim in grade.claims:
            self._metrics.claims.labels(claim.verdict.value).inc()
        for finding in grade.findings:
            self._metrics.guard_findings.labels(finding.kind.value).inc()
        return Assessment(grade, checked.model_calls)
