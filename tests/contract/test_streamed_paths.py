"""Whether claims are checked while the answer is written or at its end, a run comes to the same grade. With the real judge."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from errata.judge.v1 import judge_service_pb2 as judge_pb2
from errata.orchestrator.v1 import trace_pb2
from errata.retriever.v1 import retriever_service_pb2 as retriever_pb2
from google.protobuf import json_format

from tests.harness.model_server import ModelServer
from tests.harness.scripted import go_on
from tests.harness.services import Below, FakeGenerator, FakeJudge, FakeRetriever, judge, passage, scripted
from tests.harness.traces import Hook, ask, end, outcome, payloads, steps, trace_of, until, watch
from tests.harness.verdicts import check_verdicts, words_of

QUESTION = "How long does tidepool keep the backups of a volume, and where?"
PASSAGES = {
    "p1": (
        "Tidepool keeps the backup of a volume for 30 days. It writes every backup to a second region.\n\n"
        "A backup of a volume is never encrypted twice. Set `backup.retention` to change how long it is kept.\n"
    ),
    "p2": (
        "The backups of a volume are kept in the region eu-west. Tidepool deletes the oldest backup of a volume first. "
        "Größere Volumes werden nachts gesichert."
    ),
}
ANSWERS = {
    "all supported": (
        "Tidepool keeps the backup of a volume for 30 days. [1] It writes every backup to a second region. [1] "
        "The backups of a volume are kept in the region eu-west. [2] Tidepool deletes the oldest backup of a volume first. [2]"
    ),
    "of all sorts": (
        "Tidepool keeps the backup of a volume for 30 days. [1] Zebras dance in the garden every friday. [1] "
        "Tidepool keeps the backup of a volume for 45 days. [1] A backup of a volume is always encrypted twice. [1] "
        "Größere Volumes werden nachts gesichert. [2] Set `backup.lifetime` to change how long it is kept. [1]"
    ),
    "Markdown": (
        "# Backups\n\nYes. Tidepool keeps them as follows:\n\n- Tidepool keeps the backup of a volume for 30 days. [1]\n"
        "- The backups of a volume are kept in the region us-east. [2] Tidepool deletes the oldest backup first.\n\n"
        "| Setting | Meaning |\n|---|---|\n| `backup.retention` | how long it is kept |\n\n"
        "```yaml\nbackup:\n  retention: 30\n```\n\nZebras dance in the garden. What else? I do not know."
    ),
    "a title above its text": (
        "Backups of volumes\nTidepool keeps the backup of a volume for 30 days. [1]\n"
        "It writes every backup to a second region, and it deletes the oldest backup of a volume first, and then all others. "
        "Zebras dance in the garden. [1]"
    ),
    "the same twice": (
        "Tidepool keeps the backup of a volume for 30 days. [1] Zebras dance in the garden. [1] "
        "Tidepool keeps the backup of a volume for 30 days. [2] Zebras dance in the garden. [1]"
    ),
}


@dataclass
class Library(FakeRetriever):
    """Finds the passages above."""

    async def Search(self, request: retriever_pb2.SearchRequest, context: Any) -> retriever_pb2.SearchResponse:  # noqa: N802
        found = [retriever_pb2.ScoredPassage(passage=passage(name, text), score=1) for name, text in PASSAGES.items()]
        return retriever_pb2.SearchResponse(passages=found, mode="SEARCH_MODE_SPARSE")


@dataclass
class Through(FakeJudge):
    """The real judge, with a look at what it is asked, and a hook in front of it. It calls all passages relevant."""

    stub: Any = None
    grade_requests: list[judge_pb2.GradeAnswerRequest] = field(default_factory=list)

    async def CheckClaims(self, request: judge_pb2.CheckClaimsRequest, context: Any) -> judge_pb2.CheckClaimsResponse:  # noqa: N802
        self.segment_requests.append(request)
        return await self.stub.CheckClaims(request)  # type: ignore[no-any-return]

    async def GradeAnswer(self, request: judge_pb2.GradeAnswerRequest, context: Any) -> judge_pb2.GradeAnswerResponse:  # noqa: N802
        self.grade_requests.append(request)
        await self.before_answer()
        return await self.stub.GradeAnswer(request)  # type: ignore[no-any-return]


@contextlib.asynccontextmanager
async def judged(provider: str) -> AsyncIterator[Through]:
    """In front of a judge of this provider."""
    async with contextlib.AsyncExitStack() as stack:
        model = await stack.enter_async_context(ModelServer()) if provider == "openai" else None
        # Each path is to find its verdicts by itself.
        served = await stack.enter_async_context(judge(model, cache_entries=0))
        yield Through(stub=served.stub)


def graded(events: list[trace_pb2.TraceEvent]) -> dict[str, Any]:
    """The grade, in a form that a test can show."""
    [found] = payloads(events, "answer_graded")
    return json_format.MessageToDict(found)


@pytest.mark.parametrize("provider", ["offline", "openai"])
async def test_the_grade_is_the_same_with_segments_of_any_size(provider: str) -> None:
    verdicts: set[int] = set()
    expected: dict[str, tuple[dict[str, Any], str]] = {}
    async with judged(provider) as judging:
        for size in (0, 1, 2, 4):
            below = Below(Library(), judging, FakeGenerator())
            async with scripted(below, segment_sentences=size) as served:
                for name, text in ANSWERS.items():
                    below.generator.answer = text
                    judging.grade_requests.clear()
                    events = await trace_of(ask(served, question=QUESTION, max_refinements=0))
                    check_verdicts(events)
                    found = (graded(events), outcome(events))
                    assert found == expected.setdefault(name, found), (size, name)
                    [request] = judging.grade_requests
                    assert bool(request.known_claims) is (size > 0)
                    [grade] = payloads(events, "answer_graded")
                    verdicts |= {claim.verdict for claim in grade.grade.claims}
                    if size and "title" not in name and "Markdown" not in name and not grade.grade.findings:
                        assert set(words_of(request.known_claims)) == set(words_of(grade.grade.claims))
    # Else it would show nothing.
    assert len(verdicts) >= 2
    assert {ended for _, ended in expected.values()} == {"ANSWERED", "REFUSED_UNFAITHFUL"}


@pytest.mark.parametrize("provider", ["offline", "openai"])
async def test_a_replica_that_takes_a_run_up_grades_the_whole_and_comes_to_the_same(provider: str, tmp_path: Path) -> None:
    async with judged(provider) as judging:
        below = Below(Library(), judging, FakeGenerator(answer=ANSWERS["of all sorts"]))
        async with scripted(below, segment_sentences=2) as served:
            expected = await trace_of(ask(served, question=QUESTION, max_refinements=0))
        assert judging.grade_requests.pop().known_claims
        hook = judging.before_answer = Hook()
        async with scripted(below, segment_sentences=2, data_dir=tmp_path) as first:
            call = ask(first, question=QUESTION, max_refinements=0, on_disconnect="ON_DISCONNECT_CONTINUE")
            run_id = (await until(call, "answer_drafted"))[0].run_id
            await asyncio.wait_for(hook.reached.wait(), 10)
        asked = len(judging.segment_requests)
        judging.before_answer = go_on
        async with scripted(below, segment_sentences=2, data_dir=tmp_path) as second:
            events = await watch(second, run_id)
    lost, taken = judging.grade_requests
    assert lost.known_claims and not taken.known_claims and taken.answer == lost.answer
    assert len(judging.segment_requests) == asked
    assert "run_resumed" in steps(events) and graded(events) == graded(expected)
    assert (outcome(events), end(events).refusal) == (outcome(expected), end(expected).refusal)
    # All verdicts are told by whoever decides; those of before are of an attempt that broke off.
    resumed = [item for item in payloads(events, "claim_checked") if not item.segment]
    assert words_of(item.claim for item in resumed) == words_of(payloads(events, "answer_graded")[0].grade.claims)
    assert {item.attempt for item in resumed} == {1}
    check_verdicts(events)
