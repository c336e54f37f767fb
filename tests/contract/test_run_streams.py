"""Streams of runs: starting a run once, leaving it, coming back to it, and services that are away for a moment."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import grpc
import pytest
from errata.orchestrator.v1 import orchestrator_service_pb2 as pb2
from errata.orchestrator.v1 import trace_pb2

from errata_kit.errors import Draining, ErrataError, ServiceUnavailable
from tests.harness.services import (
    Below,
    FakeGenerator,
    FakeJudge,
    FakeRetriever,
    Served,
    failure_of,
    scripted,
    unfaithful,
)
from tests.harness.traces import (
    QUESTION,
    TASK,
    Fails,
    Hook,
    ask,
    cancel_run,
    checked,
    compose,
    decide,
    end,
    failed_trace,
    get_run,
    listed,
    outcome,
    payloads,
    reason,
    steps,
    trace_of,
    until,
    watch,
)

Start = Callable[..., Any]
BOTH = pytest.mark.parametrize("start", [ask, compose], ids=["ask", "compose"])


async def soon(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not condition():  # noqa: ASYNC110 - the fakes count, they have no event
            await asyncio.sleep(0.005)


async def state_of(served: Served, run_id: str) -> str:
    """RUNNING, WAITING, or how the run has ended."""
    run = (await get_run(served, run_id, without_trace=True)).run
    name = pb2.RunState.Name(run.state) if run.outcome == 0 else trace_pb2.Outcome.Name(run.outcome)
    return name.removeprefix("RUN_STATE_").removeprefix("OUTCOME_")


# --- request_id -------------------------------------------------------------------------------------------------------


@BOTH
async def test_the_same_request_gives_the_same_run_with_its_trace_from_the_start(start: Start) -> None:
    async with scripted(Below()) as served:
        first = await trace_of(start(served, request_id="r-1"))
        again = await trace_of(start(served, request_id="r-1"))
        assert again == [event for event in first if event.sequence]
        assert len((await listed(served)).runs) == 1
        # Without an id nothing is the same.
        assert {(await trace_of(start(served)))[0].run_id for _ in range(2)}.isdisjoint({first[0].run_id})
        assert len((await listed(served)).runs) == 3


@BOTH
async def test_equal_requests_at_the_same_moment_are_one_run(start: Start) -> None:
    below = Below(generator=FakeGenerator(between=lambda: asyncio.sleep(0.01)))
    async with scripted(below) as served:
        traces = await asyncio.gather(*(trace_of(start(served, request_id="r-1")) for _ in range(8)))
        assert len((await listed(served)).runs) == 1
    stored = [[event for event in events if event.sequence] for events in traces]
    assert all(events == stored[0] for events in stored)
    assert len(below.generator.answer_requests) + len(below.generator.write_requests) == 1


async def test_a_request_that_comes_again_while_it_runs_joins_it() -> None:
    hook = Hook()
    async with scripted(Below(generator=FakeGenerator(before=hook))) as served:
        first = asyncio.create_task(trace_of(ask(served, request_id="r-1")))
        await hook.reached.wait()
        second = asyncio.create_task(trace_of(ask(served, request_id="r-1")))
        await asyncio.sleep(0.05)
        hook.release.set()
        # The second one came before the first delta, so that it has seen the same.
        assert await second == await first


async def test_what_becomes_of_the_run_when_a_caller_leaves_is_no_part_of_the_request() -> None:
    async with scripted(Below()) as served:
        first = await trace_of(ask(served, request_id="r-1"))
        again = await trace_of(ask(served, request_id="r-1", on_disconnect="ON_DISCONNECT_CONTINUE"))
        assert again[0].run_id == first[0].run_id


@pytest.mark.parametrize("other", [{"question": "Another?"}, {"top_k": 3}, {"max_tokens": 9}], ids=str)
async def test_the_same_id_with_another_body_is_refused(other: dict[str, Any]) -> None:
    async with scripted(Below()) as served:
        events = await trace_of(ask(served, request_id="r-1"))
        failure = await failure_of(ask(served, request_id="r-1", **other))
        assert (failure.code, failure.reason) == (grpc.StatusCode.ALREADY_EXISTS, "REQUEST_ID_REUSED")
        assert failure.metadata == {"request_id": "r-1", "run_id": events[0].run_id} and failure.received == ()
        assert len((await listed(served)).runs) == 1


async def test_an_id_is_the_principals_own_and_ask_and_compose_differ() -> None:
    async with scripted(Below()) as served:
        ids = [(await trace_of(ask(served, request_id="r-1", principal=who)))[0].run_id for who in ("", "ada", "grace")]
        assert len(set(ids)) == 3
        failure = await failure_of(compose(served, task=QUESTION, request_id="r-1", principal="ada"))
        assert (failure.reason, failure.metadata["run_id"]) == ("REQUEST_ID_REUSED", ids[1])
        assert [run.principal for run in (await listed(served)).runs] == ["grace", "ada", ""]


async def test_the_name_of_a_principal_has_its_bound() -> None:
    async with scripted(Below()) as served:
        assert (await trace_of(ask(served, principal="a" * 128)))[0].run_started.principal == "a" * 128
        failure = await failure_of(ask(served, principal="a" * 129))
        assert failure.code is grpc.StatusCode.INVALID_ARGUMENT and list(failure.violations) == ["errata-principal"]


async def test_a_failed_run_is_found_again_and_fails_again() -> None:
    below = Below(judge=FakeJudge(before_answer=Fails(lambda: ErrataError("Odd"))))
    async with scripted(below) as served:
        first, failure = await failed_trace(ask(served, request_id="r-1"))
        again, repeated = await failed_trace(ask(served, request_id="r-1"))
    assert again == [event for event in first if event.sequence]
    assert (repeated.code, repeated.reason, repeated.metadata) == (failure.code, failure.reason, failure.metadata)
    assert len(below.judge.answer_requests) == 1


# --- leaving ----------------------------------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize("choice", ["ON_DISCONNECT_UNSPECIFIED", "ON_DISCONNECT_CANCEL"])
async def test_a_caller_that_leaves_ends_the_run_and_the_call_below(start: Start, choice: str) -> None:
    hook = Hook()
    below = Below(generator=FakeGenerator(before=hook))
    async with scripted(below) as served:
        call = start(served, on_disconnect=choice)
        run_id = (await until(call, "run_started"))[0].run_id
        await hook.reached.wait()
        call.cancel()
        await soon(lambda: below.generator.cancelled == 1)
        events = checked(await watch(served, run_id))
        assert outcome(events) == "CANCELLED" and reason(end(events).error) == "CANCELLED"


@BOTH
async def test_a_run_that_goes_on_without_its_caller_is_watched(start: Start) -> None:
    hook = Hook()
    below = Below(generator=FakeGenerator(before=hook))
    async with scripted(below) as served:
        call = start(served, on_disconnect="ON_DISCONNECT_CONTINUE")
        run_id = (await until(call, "run_started"))[0].run_id
        await hook.reached.wait()
        call.cancel()
        await asyncio.sleep(0.05)
        assert await state_of(served, run_id) == "RUNNING" and below.generator.cancelled == 0
        watching = asyncio.create_task(watch(served, run_id, after=1))
        hook.release.set()
        events = await watching
    assert outcome(events) == ("ANSWERED" if start is ask else "APPROVED")
    assert [event.sequence for event in events if event.sequence] == list(range(2, events[-1].sequence + 1))


async def test_the_deadline_of_a_caller_that_lets_the_run_go_on_does_not_bound_it() -> None:
    hook = Hook()
    async with scripted(Below(generator=FakeGenerator(before=hook))) as served:
        failure = await failure_of(ask(served, timeout=0.4, on_disconnect="ON_DISCONNECT_CONTINUE"))
        assert failure.code is grpc.StatusCode.DEADLINE_EXCEEDED
        run_id = failure.received[0].event.run_id
        hook.release.set()
        assert outcome(checked(await watch(served, run_id))) == "ANSWERED"


async def test_a_second_caller_keeps_the_run_alive_when_the_first_leaves() -> None:
    hook = Hook()
    below = Below(generator=FakeGenerator(before=hook))
    async with scripted(below) as served:
        first, second = ask(served, request_id="r-1"), ask(served, request_id="r-1")
        run_id = (await until(first, "run_started"))[0].run_id
        await until(second, "passages_retrieved")
        first.cancel()
        await asyncio.sleep(0.05)
        assert await state_of(served, run_id) == "RUNNING"
        third = ask(served, request_id="r-1")
        await until(third, "run_started")
        second.cancel()
        third.cancel()
        await soon(lambda: below.generator.cancelled == 1)
        assert outcome(await watch(served, run_id)) == "CANCELLED"


async def test_a_caller_that_leaves_at_once_leaves_no_run_behind() -> None:
    hook = Hook()
    async with scripted(Below(generator=FakeGenerator(before=hook))) as served:
        calls = [ask(served, question=f"Question {number}?") for number in range(8)]
        # Some of them before their runs are stored, some after.
        for place, call in enumerate(calls):
            await asyncio.sleep(0.003 * place)
            call.cancel()
        async with asyncio.timeout(5):
            while (await listed(served, state="RUN_STATE_RUNNING")).runs:  # noqa: ASYNC110 - nobody tells us
                await asyncio.sleep(0.02)
        assert {trace_pb2.Outcome.Name(run.outcome) for run in (await listed(served)).runs} <= {"OUTCOME_CANCELLED"}


async def test_a_caller_that_leaves_while_a_person_is_waited_for_cancels_nothing() -> None:
    async with scripted(Below()) as served:
        call = compose(served, require_approval=True)
        run_id = (await until(call, "approval_requested"))[0].run_id
        call.cancel()
        await asyncio.sleep(0.05)
        assert await state_of(served, run_id) == "WAITING"
        watching = asyncio.create_task(watch(served, run_id))
        await decide(served, run_id, "APPROVE")
        assert outcome(checked(await watching)) == "APPROVED"


async def test_a_waiting_run_is_cancelled_by_cancel_run() -> None:
    async with scripted(Below()) as served:
        call = compose(served, require_approval=True)
        run_id = (await until(call, "approval_requested"))[0].run_id
        run = await cancel_run(served, run_id)
        assert (run.state, run.outcome) == (pb2.RUN_STATE_FINISHED, trace_pb2.OUTCOME_CANCELLED)
        events = await until(call, "run_finished")
        assert outcome(events) == "CANCELLED" and end(events).draft.text and not end(events).approved
        failure = await failure_of(decide(served, run_id, "APPROVE"))
        assert (failure.reason, failure.metadata["state"]) == ("RUN_NOT_WAITING", "FINISHED")


# --- a service that is away for a moment ------------------------------------------------------------------------------


def away() -> Exception:
    # Asks the channel to come again at once, so that its own patience is over soon: it tries four times.
    return Draining("going away", retry_after=0.01)


CHANNEL_ATTEMPTS = 4
STEPS = {
    "search": lambda below, hook: setattr(below.retriever, "before", hook),
    "grade_passages": lambda below, hook: setattr(below.judge, "before", hook),
    "broaden": lambda below, hook: setattr(below.generator, "before_broadening", hook),
    "generate": lambda below, hook: setattr(below.generator, "before", hook),
    "grade_answer": lambda below, hook: setattr(below.judge, "before_answer", hook),
    "write": lambda below, hook: setattr(below.generator, "before", hook),
    "review": lambda below, hook: setattr(below.judge, "before_review", hook),
    "revise": lambda below, hook: setattr(below.generator, "before_revision", hook),
}
OF_ANSWER = ("search", "grade_passages", "broaden", "generate", "grade_answer")


def start_of(step: str) -> tuple[Below, Start, dict[str, Any]]:
    """Services that lead a run through every step, and how to start it."""
    if step in OF_ANSWER:
        answers = [unfaithful(), unfaithful()]
        return Below(FakeRetriever(found=[["p1"], ["p2"]]), FakeJudge(scores={"p1": 0.1}, answers=answers)), ask, {}
    return Below(judge=FakeJudge(reviews=[0.5, 1.0])), compose, {"collection": "notes"}


@pytest.mark.parametrize("step", STEPS)
async def test_a_service_that_is_away_for_a_moment_is_waited_for(step: str) -> None:
    undisturbed, start, fields = start_of(step)
    async with scripted(undisturbed) as served:
        expected = await trace_of(start(served, **fields))
    below, start, fields = start_of(step)
    hook = Fails(away, CHANNEL_ATTEMPTS + 1)
    STEPS[step](below, hook)
    async with scripted(below, outage_seconds=5.0) as served:
        events = await trace_of(start(served, **fields))
    assert hook.left == 0 and outcome(events) == outcome(expected)
    # No event twice, and none too few.
    assert steps(events) == steps(expected)


@pytest.mark.parametrize("step", ["search", "grade_answer", "revise"])
async def test_an_outage_that_lasts_too_long_ends_the_run(step: str) -> None:
    below, start, fields = start_of(step)
    STEPS[step](below, Fails(away, 1000))
    async with scripted(below, outage_seconds=0.25) as served:
        events, failure = await failed_trace(start(served, **fields))
    assert outcome(events) == "FAILED" and reason(end(events).error) == "DRAINING"
    assert (failure.code, failure.reason) == (grpc.StatusCode.UNAVAILABLE, "DRAINING")
    assert end(events).HasField("draft") is (step == "revise")


class BreaksOff(Fails):
    """Goes away after two words."""

    said = 0

    async def __call__(self) -> None:
        self.said += 1
        if self.said == 2:
            await super().__call__()


@BOTH
async def test_a_text_that_breaks_off_is_begun_anew_with_a_higher_attempt(start: Start) -> None:
    below = Below(generator=FakeGenerator(between=BreaksOff(lambda: ServiceUnavailable("gone"))))
    async with scripted(below, outage_seconds=5.0) as served:
        events = await trace_of(start(served))
    deltas = [(event.answer_delta.attempt, event.answer_delta.text) for event in events if not event.sequence]
    text = end(events).answer.text or end(events).draft.text
    words = [f"{word} " for word in text.split(" ")]
    assert deltas == [(0, words[0]), (0, words[1]), *((1, word) for word in words)]
    assert len(payloads(events, "answer_drafted") + payloads(events, "draft_written")) == 1


async def test_passages_that_were_graded_before_the_judge_went_away_are_not_graded_again() -> None:
    fails = Fails(lambda: ServiceUnavailable("gone"))

    async def at_the_second(passage_id: str) -> None:
        if passage_id == "p2":
            await fails()

    below = Below(FakeRetriever(found=[["p1", "p2", "p3"]]), FakeJudge(before_passage=at_the_second, paid=True))
    async with scripted(below, outage_seconds=5.0) as served:
        events = await trace_of(ask(served))
    asked = [[item.passage_id for item in request.passages] for request in below.judge.passage_requests]
    assert asked == [["p1", "p2", "p3"], ["p2", "p3"]]
    assert [item.passage_id for item in payloads(events, "passage_graded")] == ["p1", "p2", "p3"]
    assert not any(item.HasField("error") for item in payloads(events, "passage_graded"))
    assert [call.operation for call in end(events).usage.model_calls] == ["grade_passage"] * 3 + ["grade_answer"]


async def test_what_an_outage_has_cost_is_on_the_account() -> None:
    below, start, fields = start_of("review")
    below.judge.paid = True
    below.judge.before_review = Fails(away, CHANNEL_ATTEMPTS + 1)
    async with scripted(below, outage_seconds=5.0) as served:
        events = await trace_of(start(served, **fields))
    # The check of the claims succeeded beside the review that did not; it is neither lost nor made again.
    calls = [call.operation for call in end(events).usage.model_calls]
    assert calls == ["grade_passage"] * 2 + ["grade_answer", "review_draft", "review_draft", "grade_answer"]
    assert len(below.judge.answer_requests) == 2 and end(events).revisions == 1


async def test_tasks_and_questions_are_what_was_said() -> None:
    async with scripted(Below()) as served:
        for call, said in ((ask(served), QUESTION), (compose(served), TASK)):
            run_id = (await trace_of(call))[0].run_id
            assert (await get_run(served, run_id)).run.question == said
