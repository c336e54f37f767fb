"""Time is spent on purpose: what would come too late is left out, and no run outlasts its deadline."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import pytest
from errata.orchestrator.v1 import trace_pb2

from services.orchestrator.workflows.answer.graph import NO_EVIDENCE_TEXT, NO_TIME_TEXT, UNFAITHFUL_TEXT
from tests.harness.services import Below, FakeJudge, FakeRetriever, failure_of, scripted
from tests.harness.traces import ask, checked, end, get_run, outcome, payloads, steps, trace_of, watch
from tests.harness.verdicts import below_of, check_verdicts, edit

BAD = "The first is so. [1] The second is wrong. [1]"
GOOD = "The first is so. [1] The second is so. [1]"


def takes(seconds: float) -> Callable[[], Awaitable[None]]:
    async def wait() -> None:
        await asyncio.sleep(seconds)

    return wait


def skipped(events: list[trace_pb2.TraceEvent]) -> list[tuple[str, int]]:
    for item in payloads(events, "step_skipped"):
        assert 0 <= item.left.ToNanoseconds() < item.expected.ToNanoseconds()
    return [(item.step, item.number) for item in payloads(events, "step_skipped")]


# --- what is left out -------------------------------------------------------------------------------------------------


def finding(*scores: float, seconds: float = 0.0) -> Below:
    """Each retrieval finds one passage more, with these scores, and grading it takes a while."""
    names = [f"p{number}" for number in range(1, len(scores) + 1)]
    judge = FakeJudge(scores=dict(zip(names, scores, strict=True)), before=takes(seconds))
    return Below(FakeRetriever(found=[[name] for name in names]), judge)


async def test_a_retrieval_that_would_come_too_late_is_left_out_and_the_refusal_says_so() -> None:
    below = finding(0.1, 0.9, seconds=0.6)
    async with scripted(below) as served:
        events = await trace_of(ask(served, timeout=1.7))
        stored = await get_run(served, events[0].run_id)
    assert outcome(events) == "REFUSED_NO_EVIDENCE" and skipped(events) == [("retrieval", 2)]
    assert steps(events)[-2:] == ["step_skipped", "run_finished"]
    assert len(below.retriever.searches) == 1 and not below.generator.broaden_requests
    assert end(events).answer.text == NO_TIME_TEXT
    assert end(events).refusal.skipped_step == "retrieval" and len(end(events).refusal.nearest_misses) == 1
    assert stored.result == end(events)
    [item] = payloads(events, "step_skipped")
    assert item.expected.ToMilliseconds() >= 1200


async def test_without_time_for_a_retrieval_it_goes_on_with_what_passed() -> None:
    below = finding(0.9, 0.9, seconds=0.6)
    async with scripted(below) as served:
        events = await trace_of(ask(served, timeout=1.7, min_relevant=2))
    assert outcome(events) == "ANSWERED" and skipped(events) == [("retrieval", 2)]
    assert steps(events).index("step_skipped") < steps(events).index("answer_drafted")


@pytest.mark.parametrize("seconds", [5.0, 15.0])
async def test_with_enough_time_no_retrieval_is_left_out(seconds: float) -> None:
    below = finding(0.1, 0.1, 0.1, seconds=0.1)
    async with scripted(below) as served:
        events = await trace_of(ask(served, timeout=seconds))
    assert skipped(events) == [] and len(below.retriever.searches) == 3
    assert end(events).answer.text == NO_EVIDENCE_TEXT and not end(events).refusal.skipped_step


@pytest.mark.parametrize("size", [0, 1])
async def test_a_refinement_that_would_come_too_late_is_left_out(size: int) -> None:
    below = below_of(BAD, GOOD, before_answer=takes(1.0))
    below.generator.before = takes(0.6)
    async with scripted(below, segment_sentences=size) as served:
        events = await trace_of(ask(served, timeout=2.35))
    assert outcome(events) == "REFUSED_UNFAITHFUL" and skipped(events) == [("refinement", 1)]
    assert steps(events)[-3:] == ["answer_graded", "step_skipped", "run_finished"]
    assert not below.generator.refine_requests
    refusal = end(events).refusal
    assert (refusal.skipped_step, refusal.rejected_answer) == ("refinement", BAD)
    assert [claim.claim_id for claim in refusal.failing_claims] == ["c2"] and end(events).answer.text == UNFAITHFUL_TEXT
    check_verdicts(events)


async def test_with_enough_time_the_answer_is_corrected() -> None:
    below = below_of(BAD, GOOD, before_answer=takes(0.2))
    below.generator.edits = [edit(BAD, "wrong", "so")]
    async with scripted(below, segment_sentences=1) as served:
        events = await trace_of(ask(served, timeout=15.0))
    assert outcome(events) == "ANSWERED_AFTER_REFINEMENT" and skipped(events) == []


# --- whatever hangs ---------------------------------------------------------------------------------------------------


async def never() -> None:
    await asyncio.Event().wait()


async def never_for(passage_id: str) -> None:
    await never()


def hanging_at(place: str) -> Below:
    below = below_of(BAD, GOOD)
    owner, hook = {
        "search": (below.retriever, "before"),
        "grading": (below.judge, "before"),
        "grading one passage": (below.judge, "before_passage"),
        "broadening": (below.generator, "before_broadening"),
        "writing": (below.generator, "before"),
        "writing midway": (below.generator, "between"),
        "checking a segment": (below.judge, "before_segment"),
        "grading the answer": (below.judge, "before_answer"),
        "refining": (below.generator, "between"),
    }[place]
    if place == "broadening":
        below.judge.scores = {"p1": 0.1, "p2": 0.1}
    setattr(
        owner, hook, _in_the_second_text(below) if place == "refining" else never_for if hook == "before_passage" else never
    )
    return below


def _in_the_second_text(below: Below) -> Callable[[], Awaitable[None]]:
    async def wait() -> None:
        if below.generator.refine_requests:
            await never()

    return wait


PLACES = (
    "search",
    "grading",
    "grading one passage",
    "broadening",
    "writing",
    "writing midway",
    "checking a segment",
    "grading the answer",
    "refining",
)


@pytest.mark.parametrize("verified_only", [False, True])
@pytest.mark.parametrize("place", PLACES)
async def test_no_run_outlasts_its_deadline_whatever_hangs(place: str, verified_only: bool) -> None:
    below, seconds = hanging_at(place), 0.8
    async with scripted(below, segment_sentences=1) as served:
        began = time.monotonic()
        failure = await failure_of(ask(served, timeout=seconds, verified_only=verified_only))
        took = time.monotonic() - began
        # The caller has the end in time unless the machine is busy; it is stored in any case.
        stored = checked(await watch(served, failure.received[0].event.run_id))
        left = [task for task in asyncio.all_tasks() if "StreamedVerification" in qualified(task)]
    assert failure.code is grpc.StatusCode.DEADLINE_EXCEEDED and seconds - 0.2 < took < seconds + 1.0
    assert outcome(stored) == "DEADLINE_EXCEEDED" and not end(stored).HasField("answer")
    # The deadline, and the time of one cancellation on a machine that others use as well.
    assert end(stored).elapsed.ToMilliseconds() < 1000 * seconds + 1000
    assert not left
    expected = {"refining": "claim_checked", "checking a segment": "answer_drafted", "broadening": "passage_graded"}
    assert expected.get(place, "run_started") in steps(stored)


def qualified(task: asyncio.Task[Any]) -> str:
    return str(getattr(task.get_coro(), "__qualname__", ""))


async def test_a_run_that_the_service_bounds_leaves_out_what_comes_too_late() -> None:
    below = finding(0.1, 0.9, seconds=0.6)
    async with scripted(below, run_timeout_seconds=1.65) as served:
        events = await trace_of(ask(served))
    assert skipped(events) == [("retrieval", 2)] and outcome(events) == "REFUSED_NO_EVIDENCE"
