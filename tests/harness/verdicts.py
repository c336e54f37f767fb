"""A scripted judge that finds the same in a segment and in the whole, and what must hold for the verdicts that a trace tells.

A sentence is what its words say: one with "wrong" in it is unsupported, one with "contrary" contradicted, all others are
supported.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, Final

from errata.corpus.v1 import passage_pb2
from errata.grading.v1 import grading_pb2
from errata.judge.v1 import judge_service_pb2 as judge_pb2
from errata.orchestrator.v1 import trace_pb2

from errata_kit.text.sentences import byte_span, split_sentences
from tests.harness.services import Below, FakeGenerator, FakeJudge
from tests.harness.traces import payloads

SUPPORTED: Final = grading_pb2.VERDICT_SUPPORTED
_PASSING: Final = (SUPPORTED, grading_pb2.VERDICT_UNVERIFIABLE)


def verdict_on(sentence: str) -> str:
    if "contrary" in sentence:
        return "VERDICT_CONTRADICTED"
    return "VERDICT_UNSUPPORTED" if "wrong" in sentence else "VERDICT_SUPPORTED"


def claims_of(text: str) -> list[grading_pb2.Claim]:
    """One claim a sentence."""
    claims = []
    for number, unit in enumerate((unit for unit in split_sentences(text) if unit.kind != "heading"), start=1):
        start, end = byte_span(text, unit.start, unit.end)
        verdict = verdict_on(unit.text)
        supported = verdict == "VERDICT_SUPPORTED"
        quote = passage_pb2.Span(end=8)
        claims.append(
            grading_pb2.Claim(
                claim_id=f"c{number}",
                text=unit.text,
                span=passage_pb2.Span(start=start, end=end),
                verdict=verdict,
                support=1.0 if supported else 0.0,
                evidence=[grading_pb2.Evidence(passage_id="p1", quote="The text", span=quote)] if supported else [],
            )
        )
    return claims


def checked(segment: str) -> judge_pb2.CheckClaimsResponse:
    """What the judge says of a segment."""
    return judge_pb2.CheckClaimsResponse(claims=claims_of(segment))


def grade_of(answer: str) -> grading_pb2.AnswerGrade:
    """What it says of the whole."""
    claims = claims_of(answer)
    failing = [claim.claim_id for claim in claims if claim.verdict not in _PASSING]
    return grading_pb2.AnswerGrade(
        claims=claims,
        faithfulness_score=1 - len(failing) / max(1, len(claims)),
        hallucination_risk="HALLUCINATION_RISK_HIGH" if failing else "HALLUCINATION_RISK_LOW",
        problematic_claim_ids=failing,
        model="scripted",
    )


def below_of(*texts: str, **judging: Any) -> Below:
    """Services that write these texts, the draft and its corrections, and say the same of their segments and of the whole."""
    judge = FakeJudge(answers=[grade_of(text) for text in texts], segments=checked, **judging)
    return Below(judge=judge, generator=FakeGenerator(answer=texts[0], refined=texts[1:] or ("none.",)))


def edit(text: str, before: str, after: str) -> grading_pb2.AnswerEdit:
    """The change of the first place in a text that has these words."""
    start = len(text[: text.index(before)].encode())
    made = grading_pb2.AnswerEdit(before=before, after=after, claim_ids=["c3"], reason="scripted")
    made.span.start, made.span.end = start, start + len(before.encode())
    return made


def words_of(claims: Iterable[grading_pb2.Claim]) -> list[str]:
    """Their texts."""
    return [claim.text for claim in claims]


def delta_text(events: Sequence[trace_pb2.TraceEvent], refinement: int = 0) -> str:
    """The text of a draft as it was shown, in its last attempt."""
    deltas = [delta for delta in payloads(list(events), "answer_delta") if delta.refinement == refinement]
    last = max((delta.attempt for delta in deltas), default=0)
    return "".join(delta.text for delta in deltas if delta.attempt == last)


def check_verdicts(events: Sequence[trace_pb2.TraceEvent]) -> None:
    """Every claim of a grade was told with its verdict before it; none was told twice, but where the verdict changed."""
    told: dict[int, list[trace_pb2.ClaimChecked]] = defaultdict(list)
    grades = 0
    for event in events:
        kind = event.WhichOneof("payload")
        if kind == "claim_checked":
            told[event.claim_checked.refinement].append(event.claim_checked)
        elif kind == "answer_graded":
            grades += 1
            _check_grade(told[event.answer_graded.refinement], event.answer_graded.grade)
        elif kind == "answer_refined":
            assert event.answer_refined.refinement not in told
    assert set(told) <= set(range(grades + 1))
    _check_segments([item for items in told.values() for item in items])


def _check_grade(told: list[trace_pb2.ClaimChecked], grade: grading_pb2.AnswerGrade) -> None:
    lowered = {finding.claim_id for finding in grade.findings}
    final = Counter[tuple[str, int, bool]](
        (claim.text, claim.verdict, claim.verdict in _PASSING and claim.claim_id not in lowered) for claim in grade.claims
    )
    newest = max((item.attempt for item in told), default=0)
    by_segment, as_whole = Counter[tuple[str, int, bool]](), Counter[tuple[str, int, bool]]()
    for item in told:
        if item.attempt == newest:
            (by_segment if item.segment else as_whole)[item.claim.text, item.claim.verdict, item.passed] += 1
    # What segments told and the grade has not is about a sentence that the whole shows in another light, or cuts otherwise.
    assert as_whole == final - by_segment, (as_whole, final, by_segment)


def _check_segments(told: list[trace_pb2.ClaimChecked]) -> None:
    segments: dict[tuple[int, int, int], list[int]] = defaultdict(list)
    for item in told:
        segments[item.refinement, item.attempt, item.segment].append(item.remaining)
    for remaining in segments.values():
        assert remaining == list(reversed(range(len(remaining))))
