"""Assesses an answer, or a segment of one: splits it into claims, has those checked that are not known, checks the evidence and
runs the guard. An answer gets a score; a segment gets none.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
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
from services.judge.claims.known import LONGEST_CLAIM, recall
from services.judge.claims.splitting import split_claims
from services.judge.claims.verdicts import CheckedClaim, Finding, Quote
from services.judge.guard import find_ungrounded, lower
from services.judge.off_loop import off_loop
from services.judge.provider import CheckedClaims, Provider

MOST_CLAIMS: Final = 1000
"""Claims of one answer: more than 64 KiB of sentences that people write ever have."""
_LONGEST_QUOTE: Final = 250
_MOST_QUOTES: Final = 100
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


@dataclass(frozen=True, slots=True)
class CheckedSegment:
    """The claims of a segment, what the guard found, and the model calls behind them."""

    claims: tuple[Claim, ...]
    findings: tuple[GuardFinding, ...]
    model_calls: tuple[ModelCall, ...] = ()


@dataclass(frozen=True, slots=True)
class _Statement:
    """What is assessed: an answer, or a segment of one. field: its name in the request. preceding: what stands before it."""

    question: str
    text: str
    passages: tuple[Passage, ...]
    field: str
    preceding: str = ""

    @property
    def size(self) -> int:
        """Characters that are read."""
        return len(self.text) + sum(len(passage.text) for passage in self.passages)

    @property
    def passages_by_id(self) -> dict[str, Passage]:
        """The passages by passage_id."""
        return {passage.passage_id: passage for passage in self.passages}


@dataclass(frozen=True, slots=True)
class _Verdicts:
    """A verdict on each claim in order of appearance, the places of those that were known, and the model calls made."""

    claims: tuple[CheckedClaim, ...]
    known: frozenset[int]
    model_calls: tuple[ModelCall, ...]


class AnswerAssessor:
    """Assesses with one provider. Evidence check, guard and score are the same whoever judges."""

    def __init__(self, provider: Provider, metrics: Metrics) -> None:
        self._provider = provider
        self._metrics = metrics

    async def assess(
        self, question: str, answer: str, passages: tuple[Passage, ...], known: tuple[Claim, ...] = ()
    ) -> GradedAnswer:
        """Grade an answer. known: claims that were checked against these passages before, which the provider is not asked
        about again. Raises InvalidFields when it has too many claims, and another ErrataError when they could not be checked.
        """
        statement = _Statement(question, answer, passages, "answer")
        with self._metrics.judging("check_claims"):
            verdicts = await self._verdicts(statement, known)
            grade = await off_loop(statement.size, _grade, statement, verdicts.claims, self._provider.model)
        self._metrics.faithfulness_score.observe(grade.faithfulness_score)
        self._count(grade.claims, grade.findings, frozenset(grade.claims[place].claim_id for place in verdicts.known))
        return GradedAnswer(grade, verdicts.model_calls)

    async def check(self, question: str, segment: str, passages: tuple[Passage, ...], preceding: str = "") -> CheckedSegment:
        """Check the claims of a segment of an answer, as `assess` will check them in the whole. preceding: what the answer
        says before it. Raises the same.
        """
        statement = _Statement(question, segment, passages, "segment", preceding)
        with self._metrics.judging("check_claims"):
            verdicts = await self._verdicts(statement, ())
            claims, findings = await off_loop(statement.size, _checked, statement, verdicts.claims)
        self._count(claims, findings)
        return CheckedSegment(claims, findings, verdicts.model_calls)

    async def _verdicts(self, statement: _Statement, known: tuple[Claim, ...]) -> _Verdicts:
        texts = await off_loop(len(statement.text), split_claims, statement.text, statement.preceding)
        if len(texts) > MOST_CLAIMS:
            # Each is compared with each sentence of the passages: thousands of tiny ones would fill gigabytes.
            raise invalid(statement.field, f"must have at most {MOST_CLAIMS} claims; it has {len(texts)}")
        recalled = recall(texts, known, statement.passages_by_id)
        asked = tuple(text for place, text in enumerate(texts) if place not in recalled)
        checked = CheckedClaims(())
        if asked:
            # A text that states nothing, or nothing new, needs no model.
            checked = await self._provider.check_claims(statement.question, asked, statement.passages)
        if len(checked.claims) != len(asked):
            error = JudgementIncomplete("The judge has no verdict for some of the claims")
            error.model_calls = checked.model_calls
            raise error
        answered = iter(await off_loop(statement.size, with_checked_evidence, checked.claims, statement.passages_by_id))
        claims = tuple(recalled[place] if place in recalled else next(answered) for place in range(len(texts)))
        return _Verdicts(tuple(map(_shortened, claims)), frozenset(recalled), checked.model_calls)

    def _count(
        self, claims: tuple[Claim, ...], findings: tuple[GuardFinding, ...], known_ids: frozenset[str] = frozenset()
    ) -> None:
        """Count what is new: claims, and what the guard found in them, are counted where they are checked first."""
        for claim in claims:
            if claim.claim_id not in known_ids:
                self._metrics.claims.labels(claim.verdict.value).inc()
        for finding in findings:
            if finding.claim_id not in known_ids:
                self._metrics.guard_findings.labels(finding.kind.value).inc()


def _grade(statement: _Statement, checked: tuple[CheckedClaim, ...], model: str) -> AnswerGrade:
    found = find_ungrounded(statement.text, statement.question, statement.passages)[:_MOST_FINDINGS]
    assessed = scoring.assess(lower(checked, found), found)
    ids = {id(claim): f"c{number}" for number, claim in enumerate(assessed.claims, start=1)}
    claims, findings = _told(statement, assessed.claims, found)
    return AnswerGrade(
        claims=claims,
        faithfulness_score=assessed.faithfulness_score,
        hallucination_risk=assessed.hallucination_risk,
        problematic_claim_ids=tuple(ids[id(claim)] for claim in assessed.problematic_claims),
        findings=findings,
        refinement_suggestion=assessed.refinement_suggestion[:LONGEST_CLAIM],
        model=model,
    )


def _checked(statement: _Statement, checked: tuple[CheckedClaim, ...]) -> tuple[tuple[Claim, ...], tuple[GuardFinding, ...]]:
    found = find_ungrounded(statement.text, statement.question, statement.passages)[:_MOST_FINDINGS]
    return _told(statement, lower(checked, found), found)


def _told(
    statement: _Statement, claims: tuple[CheckedClaim, ...], found: tuple[Finding, ...]
) -> tuple[tuple[Claim, ...], tuple[GuardFinding, ...]]:
    """Claims and findings as they leave the judge."""
    by_id, offsets = statement.passages_by_id, ByteOffsets(statement.text)
    told = (_claim(f"c{number}", claim, offsets, by_id) for number, claim in enumerate(claims, start=1))
    return tuple(told), tuple(_finding(finding, claims, offsets) for finding in found)


def _shortened(claim: CheckedClaim) -> CheckedClaim:
    """The claim with as much of its evidence as leaves the judge, so that it counts for as much when it comes back."""
    quotes = (Quote(quote.passage_id, quote.quote[:_LONGEST_QUOTE]) for quote in claim.evidence[:_MOST_QUOTES])
    return replace(claim, evidence=tuple(quotes))


def _claim(claim_id: str, claim: CheckedClaim, offsets: ByteOffsets, passages: Mapping[str, Passage]) -> Claim:
    return Claim(
        claim_id=claim_id,
        text=claim.text[:LONGEST_CLAIM],
        span=Span(*offsets.span(claim.start, claim.end)),
        verdict=claim.verdict,
        support=scoring.support_of(claim),
        evidence=tuple(_evidence(quote.quote, passages[quote.passage_id]) for quote in claim.evidence),
        explanation=claim.explanation[:LONGEST_CLAIM],
    )


def _evidence(quote: str, passage: Passage) -> Evidence:
    start = passage.text.index(quote)
    return Evidence(passage.passage_id, quote, Span(*ByteOffsets(passage.text).span(start, start + len(quote))))


def _finding(finding: Finding, claims: tuple[CheckedClaim, ...], offsets: ByteOffsets) -> GuardFinding:
    inside = (f"c{number}" for number, claim in enumerate(claims, start=1) if claim.start <= finding.start < claim.end)
    return GuardFinding(
        kind=_KINDS[finding.kind],
        text=finding.text[:LONGEST_CLAIM],
        span=Span(*offsets.span(finding.start, finding.end)),
        explanation=finding.explanation[:LONGEST_CLAIM],
        claim_id=next(inside, ""),
    )
