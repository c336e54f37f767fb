"""The orchestrator over gRPC, with scripted services below it that it calls over gRPC as well."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import pytest
from errata.orchestrator.v1 import orchestrator_service_pb2 as pb2
from errata.orchestrator.v1 import trace_pb2

from errata_kit.errors import (
    CollectionNotFound,
    DocumentRejected,
    ErrataError,
    ModelAuthenticationFailed,
    ModelOutputInvalid,
    ModelRateLimited,
    ModelUnavailable,
    Overloaded,
)
from tests.harness.services import (
    CALL_SECONDS,
    Below,
    FakeGenerator,
    FakeJudge,
    FakeRetriever,
    faithful,
    health_of,
    scripted,
    unfaithful,
)
from tests.harness.traces import (
    NOWHERE,
    QUESTION,
    Hook,
    ask,
    checked,
    end,
    failed_trace,
    get_run,
    outcome,
    reason,
    steps,
    trace_of,
)

# --- outcomes ---------------------------------------------------------------------------------------------------------


async def test_answered() -> None:
    below = Below(judge=FakeJudge(scores={"p2": 0.3}))
    async with scripted(below) as served:
        events = await trace_of(ask(served))
    assert outcome(events) == "ANSWERED"
    assert steps(events) == [
        "run_started",
        "passages_retrieved",
        "passage_graded",
        "passage_graded",
        "answer_drafted",
        "claim_checked",
        "answer_graded",
        "run_finished",
    ]
    deltas = "".join(event.answer_delta.text for event in events if not event.sequence)
    assert deltas.strip() == below.generator.answer == end(events).answer.text
    assert [event.passage_graded.used for event in events if event.WhichOneof("payload") == "passage_graded"] == [True, False]
    assert end(events).faithfulness_score == 1 and not end(events).HasField("refusal") and not end(events).HasField("error")
    assert [item.passage_id for item in end(events).cited_passages] == ["p1"]
    assert (end(events).retrievals, end(events).refinements) == (1, 0)
    # A passage that did not pass is given to nobody.
    assert [item.passage_id for item in below.generator.answer_requests[0].passages] == ["p1"]
    assert [item.passage_id for item in below.judge.answer_requests[0].passages] == ["p1"]


async def test_answered_after_refinement() -> None:
    below = Below(judge=FakeJudge(answers=[unfaithful(), faithful()]))
    async with scripted(below) as served:
        events = await trace_of(ask(served))
    assert outcome(events) == "ANSWERED_AFTER_REFINEMENT"
    checked = ["claim_checked"]
    first, second = [*checked * 2, "answer_graded"], [*checked, "answer_graded"]
    assert steps(events)[-8:] == ["answer_drafted", *first, "answer_refined", *second, "run_finished"]
    [request] = below.generator.refine_requests
    assert [claim.claim_id for claim in request.failing_claims] == ["c2"]
    assert request.refinement_suggestion == "Remove what was made up."
    assert below.judge.answer_requests[1].answer == end(events).answer.text == "The corrected text. [1]"
    assert end(events).refinements == 1


async def test_refused_because_unfaithful() -> None:
    below = Below(judge=FakeJudge(answers=[unfaithful()]))
    async with scripted(below) as served:
        events = await trace_of(ask(served))
    assert outcome(events) == "REFUSED_UNFAITHFUL"
    assert end(events).answer.refusal and [claim.claim_id for claim in end(events).refusal.failing_claims] == ["c2"]
    assert end(events).refusal.rejected_answer == "The corrected text. [1]"
    assert end(events).answer.text != end(events).refusal.rejected_answer
    assert len(below.generator.refine_requests) == 1 and end(events).faithfulness_score == pytest.approx(0.2)


async def test_refused_without_evidence() -> None:
    below = Below(
        retriever=FakeRetriever(found=[["p1"], ["p1", "p2"], ["p3"]]), judge=FakeJudge(scores={"p1": 0.1, "p2": 0.6, "p3": 0.2})
    )
    async with scripted(below) as served:
        events = await trace_of(ask(served))
    assert outcome(events) == "REFUSED_NO_EVIDENCE"
    assert list(end(events).refusal.queries) == [QUESTION, "broader one", "broader two"]
    assert [miss.passage.passage_id for miss in end(events).refusal.nearest_misses] == ["p2", "p3", "p1"]
    assert below.generator.answer_requests == [] and below.judge.answer_requests == []
    assert not end(events).HasField("faithfulness_score") and end(events).retrievals == 3
    # p1 was graded in the first retrieval.
    assert [[item.passage_id for item in call.passages] for call in below.judge.passage_requests] == [["p1"], ["p2"], ["p3"]]


async def test_refused_when_nothing_is_found_and_nothing_new_is_left_to_try() -> None:
    below = Below(retriever=FakeRetriever(found=[[]]), generator=FakeGenerator(queries=["broader one"]))
    async with scripted(below) as served:
        events = await trace_of(ask(served, max_retrievals=10))
    assert outcome(events) == "REFUSED_NO_EVIDENCE" and end(events).retrievals == 2
    assert below.judge.passage_requests == []


async def test_a_refusing_generator_is_a_refusal() -> None:
    async with scripted(Below(generator=FakeGenerator(refuses=True))) as served:
        events = await trace_of(ask(served))
    assert outcome(events) == "REFUSED_NO_EVIDENCE" and "answer_graded" not in steps(events)


async def test_a_draft_from_elsewhere_is_checked_and_not_written_anew() -> None:
    below = Below(judge=FakeJudge(answers=[unfaithful("From elsewhere."), faithful()]))
    async with scripted(below) as served:
        events = await trace_of(ask(served, draft_answer="From elsewhere. made up"))
    assert outcome(events) == "ANSWERED_AFTER_REFINEMENT" and below.generator.answer_requests == []
    assert events[0].run_started.draft_supplied
    assert below.judge.answer_requests[0].answer == "From elsewhere. made up"


async def test_the_question_stays_as_it_was_and_only_the_query_is_broadened() -> None:
    question = "  How long does Flink 1.18 keep files – exactly?\n"
    below = Below(
        retriever=FakeRetriever(found=[["p1"], ["p2"]]), judge=FakeJudge(scores={"p1": 0.1}, answers=[unfaithful(), faithful()])
    )
    async with scripted(below) as served:
        events = await trace_of(ask(served, question=question))
        run = (await get_run(served, events[0].run_id)).run
    assert [item.query for item in below.retriever.searches] == [question, "broader one"]
    asked: list[Any] = [
        *below.judge.passage_requests,
        *below.judge.answer_requests,
        *below.generator.answer_requests,
        *below.generator.refine_requests,
    ]
    [broadened] = below.generator.broaden_requests
    assert {*(item.question for item in asked), broadened.question, events[0].run_started.question, run.question} == {question}
    assert broadened.current_query == question and list(broadened.tried_queries) == [question]
    [event] = [item.query_broadened for item in events if item.WhichOneof("payload") == "query_broadened"]
    assert (event.previous_query, event.query, list(event.removed_terms)) == (question, "broader one", ["1.18"])


async def test_settings_reach_the_services_and_the_trace() -> None:
    below = Below(judge=FakeJudge(scores={"p1": 0.6, "p2": 0.4}))
    async with scripted(below) as served:
        events = await trace_of(
            ask(
                served,
                top_k=7,
                relevance_threshold=0.55,
                collection="notes",
                search_mode="SEARCH_MODE_DENSE",
                max_refinements=0,
            )
        )
    [search] = below.retriever.searches
    assert (search.top_k, search.collection, search.mode) == (7, "notes", 2)
    in_force = events[0].run_started.settings
    assert (in_force.top_k, in_force.relevance_threshold, in_force.max_refinements) == (7, 0.55, 0)
    assert (in_force.min_relevant, in_force.max_retrievals, in_force.faithfulness_threshold) == (1, 3, 0.8)
    assert [item.passage_id for item in below.generator.answer_requests[0].passages] == ["p1"]


# --- failures ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("down", ["retriever", "judge", "generator"])
async def test_a_service_that_is_down_fails_the_run_as_unavailable(down: str) -> None:
    async with scripted(Below(), wait=False, outage_seconds=0.0, **{down: NOWHERE}) as served:
        events, failure = await failed_trace(ask(served))
        assert await health_of(served.channel) == 2
        run = await get_run(served, events[0].run_id)
    assert outcome(events) == "FAILED" and reason(end(events).error) == "SERVICE_UNAVAILABLE"
    assert end(events).error.metadata["service"] == down
    assert not end(events).HasField("answer") and not end(events).HasField("faithfulness_score")
    assert (failure.code, failure.reason, failure.domain) == (grpc.StatusCode.UNAVAILABLE, "SERVICE_UNAVAILABLE", "errata")
    assert failure.metadata["service"] == down and failure.metadata["run_id"] == events[0].run_id
    assert run.result == end(events)
    assert ("passage_graded" in steps(events)) is (down == "generator")


async def test_when_no_passage_can_be_graded_the_run_fails() -> None:
    below = Below(judge=FakeJudge(scores={"p1": ModelOutputInvalid(), "p2": ModelRateLimited()}))
    async with scripted(below) as served:
        events, failure = await failed_trace(ask(served))
    assert outcome(events) == "FAILED" and reason(end(events).error) == "JUDGEMENT_INCOMPLETE"
    assert (failure.code, failure.reason) == (grpc.StatusCode.UNAVAILABLE, "JUDGEMENT_INCOMPLETE")
    graded = [event.passage_graded for event in events if event.WhichOneof("payload") == "passage_graded"]
    assert [reason(item.error) for item in graded] == ["MODEL_OUTPUT_INVALID", "MODEL_RATE_LIMITED"]
    assert not any(item.used or item.HasField("grade") for item in graded)
    assert below.generator.answer_requests == [] and below.generator.broaden_requests == []


async def test_a_passage_that_could_not_be_graded_is_left_out_and_reported() -> None:
    below = Below(judge=FakeJudge(scores={"p1": ModelUnavailable()}))
    async with scripted(below) as served:
        events = await trace_of(ask(served))
    assert outcome(events) == "ANSWERED"
    first, second = [event.passage_graded for event in events if event.WhichOneof("payload") == "passage_graded"]
    assert (first.passage_id, reason(first.error), first.used) == ("p1", "MODEL_UNAVAILABLE", False)
    assert second.used and [item.passage_id for item in below.generator.answer_requests[0].passages] == ["p2"]


async def test_a_judge_that_breaks_off_leaves_the_missing_passages_out() -> None:
    async def break_at_the_second(passage_id: str) -> None:
        if passage_id == "p2":
            raise ModelUnavailable

    below = Below(judge=FakeJudge(before_passage=break_at_the_second))
    async with scripted(below) as served:
        events = await trace_of(ask(served))
    graded = [event.passage_graded for event in events if event.WhichOneof("payload") == "passage_graded"]
    assert [item.WhichOneof("result") for item in graded] == ["grade", "error"]
    assert reason(graded[1].error) == "MODEL_UNAVAILABLE" and outcome(events) == "ANSWERED"


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ModelUnavailable(), grpc.StatusCode.UNAVAILABLE),
        (ModelOutputInvalid(), grpc.StatusCode.UNAVAILABLE),
        (ModelAuthenticationFailed(), grpc.StatusCode.FAILED_PRECONDITION),
        (Overloaded("Full", retry_after=5), grpc.StatusCode.RESOURCE_EXHAUSTED),
        (DocumentRejected("odd"), grpc.StatusCode.INVALID_ARGUMENT),
        (ErrataError(), grpc.StatusCode.INTERNAL),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, ErrataError) else "",
)
async def test_an_answer_that_can_not_be_graded_fails_the_run_with_the_judges_reason(
    error: ErrataError, code: grpc.StatusCode
) -> None:
    below = Below(judge=FakeJudge(answers=[error]))
    async with scripted(below) as served:
        events, failure = await failed_trace(ask(served))
    assert outcome(events) == "FAILED" and reason(end(events).error) == error.why.value == failure.reason
    assert failure.code is code and not end(events).HasField("answer")
    # What a model was asked for in vain is not asked again by the channel.
    assert len(below.judge.answer_requests) == 1


async def test_an_unknown_collection_is_not_found() -> None:
    async def missing() -> None:
        raise CollectionNotFound("notes")

    async with scripted(Below(retriever=FakeRetriever(before=missing))) as served:
        events, failure = await failed_trace(ask(served, collection="notes"))
    assert outcome(events) == "FAILED" and reason(end(events).error) == "COLLECTION_NOT_FOUND"
    assert (failure.code, failure.metadata["collection"]) == (grpc.StatusCode.NOT_FOUND, "notes")


class FailsOnce(FakeRetriever):
    """Says UNAVAILABLE to the first call, as a server that goes away does."""

    async def Search(self, request: Any, context: Any) -> Any:  # noqa: N802
        if not self.searches:
            self.searches.append(request)
            await context.abort(grpc.StatusCode.UNAVAILABLE, "going away")
        return await super().Search(request, context)


async def test_the_channel_tries_again_what_was_unavailable() -> None:
    below = Below(retriever=FailsOnce())
    async with scripted(below) as served:
        events = await trace_of(ask(served))
    assert outcome(events) == "ANSWERED" and len(below.retriever.searches) == 2 and end(events).retrievals == 1


class StreamFailsOnce(FakeJudge):
    """Says UNAVAILABLE to the first call before its first message."""

    async def GradePassages(self, request: Any, context: Any) -> Any:  # noqa: N802
        if not self.passage_requests:
            self.passage_requests.append(request)
            await context.abort(grpc.StatusCode.UNAVAILABLE, "going away")
        async for reply in super().GradePassages(request, context):
            yield reply


async def test_the_channel_tries_a_stream_again_before_its_first_message() -> None:
    below = Below(judge=StreamFailsOnce())
    async with scripted(below) as served:
        events = await trace_of(ask(served))
    assert outcome(events) == "ANSWERED" and len(below.judge.passage_requests) == 2
    assert steps(events).count("passage_graded") == 2


@pytest.mark.parametrize("place", ["search", "passages", "answer", "generate"])
async def test_a_models_failure_is_never_retried_by_the_channel(place: str) -> None:
    async def fail() -> None:
        raise ModelUnavailable

    below = {
        "search": lambda: Below(retriever=FakeRetriever(before=fail)),
        "passages": lambda: Below(judge=FakeJudge(before=fail)),
        "answer": lambda: Below(judge=FakeJudge(answers=[ModelUnavailable()])),
        "generate": lambda: Below(generator=FakeGenerator(before=fail)),
    }[place]()
    async with scripted(below) as served:
        events, failure = await failed_trace(ask(served))
    asked: list[Any] = {
        "search": below.retriever.searches,
        "passages": below.judge.passage_requests,
        "answer": below.judge.answer_requests,
        "generate": below.generator.answer_requests,
    }[place]  # type: ignore[assignment]  # lists of several kinds of request
    assert len(asked) == 1
    assert failure.code is grpc.StatusCode.UNAVAILABLE and outcome(events) == "FAILED"


# --- deadlines and cancellation ---------------------------------------------------------------------------------------


async def test_a_deadline_still_brings_the_end_of_the_trace() -> None:
    hook = Hook()
    async with scripted(Below(judge=FakeJudge(before=hook))) as served:
        events, failure = await failed_trace(ask(served, timeout=0.6))
        run = (await get_run(served, events[0].run_id)).run
    assert outcome(events) == "DEADLINE_EXCEEDED" and reason(end(events).error) == "DEADLINE_EXCEEDED"
    assert failure.code is grpc.StatusCode.DEADLINE_EXCEEDED
    assert run.state == pb2.RUN_STATE_FINISHED and run.outcome == trace_pb2.OUTCOME_DEADLINE_EXCEEDED


async def test_the_services_own_limit_holds_too() -> None:
    hook = Hook()
    async with scripted(Below(generator=FakeGenerator(before=hook)), run_timeout_seconds=0.3) as served:
        events, failure = await failed_trace(ask(served))
    assert outcome(events) == "DEADLINE_EXCEEDED" and (failure.code, failure.reason) == (
        grpc.StatusCode.DEADLINE_EXCEEDED,
        "DEADLINE_EXCEEDED",
    )


def waiting_at(place: str, hook: Hook) -> tuple[Below, Any]:
    match place:
        case "search":
            below = Below(retriever=FakeRetriever(before=hook))
            return below, below.retriever
        case "grading":
            below = Below(judge=FakeJudge(before=hook))
            return below, below.judge
        case _:
            below = Below(generator=FakeGenerator(between=hook))
            return below, below.generator


async def until_cancelled(fake: Any) -> None:
    async with asyncio.timeout(5):
        while not fake.cancelled:  # noqa: ASYNC110 - the fakes count, they have no event
            await asyncio.sleep(0.005)


@pytest.mark.parametrize("place", ["search", "grading", "writing"])
async def test_a_caller_that_goes_away_cancels_what_is_below(place: str) -> None:
    hook = Hook()
    below, fake = waiting_at(place, hook)
    async with scripted(below) as served:
        call = ask(served)
        run_id = (await call.read()).event.run_id
        await asyncio.wait_for(hook.reached.wait(), 5)
        call.cancel()
        await until_cancelled(fake)
        watched = [
            reply.event async for reply in served.stub.WatchRun(pb2.WatchRunRequest(run_id=run_id), timeout=CALL_SECONDS)
        ]
        run = await get_run(served, run_id)
    assert outcome(checked(watched)) == "CANCELLED" and reason(end(watched).error) == "CANCELLED"
    assert run.run.outcome == trace_pb2.OUTCOME_CANCELLED and run.run.HasField("finish_time")


@pytest.mark.parametrize("place", ["search", "grading", "writing"])
async def test_cancel_run_ends_the_run_and_what_is_below(place: str) -> None:
    hook = Hook()
    below, fake = waiting_at(place, hook)
    async with scripted(below) as served:
        asking = asyncio.create_task(failed_trace(ask(served)))
        await asyncio.wait_for(hook.reached.wait(), 5)
        [listed] = (await served.stub.ListRuns(pb2.ListRunsRequest(state="RUN_STATE_RUNNING"))).runs
        reply = await served.stub.CancelRun(pb2.CancelRunRequest(run_id=listed.run_id), timeout=CALL_SECONDS)
        assert reply.run.outcome == trace_pb2.OUTCOME_CANCELLED and reply.run.state == pb2.RUN_STATE_FINISHED
        await until_cancelled(fake)
        events, failure = await asyncio.wait_for(asking, 5)
        again = await served.stub.CancelRun(pb2.CancelRunRequest(run_id=listed.run_id), timeout=CALL_SECONDS)
    assert outcome(events) == "CANCELLED" and failure.code is grpc.StatusCode.CANCELLED and failure.reason == "CANCELLED"
    assert again.run == reply.run


async def test_a_run_that_has_ended_stays_as_it_is_when_cancelled() -> None:
    async with scripted(Below()) as served:
        events = await trace_of(ask(served))
        reply = await served.stub.CancelRun(pb2.CancelRunRequest(run_id=events[0].run_id))
        assert reply.run.outcome == trace_pb2.OUTCOME_ANSWERED
