"""A person's decisions on drafts, over the wire: approve, reject, revise, decide too late, and all of it across a restart."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import grpc
import pytest
from errata.orchestrator.v1 import orchestrator_service_pb2 as pb2
from errata.orchestrator.v1 import trace_pb2

from tests.harness.services import Below, FakeJudge, Served, failure_of, fakes, orchestrator, scripted
from tests.harness.traces import (
    Hook,
    ask,
    cancel_run,
    checked,
    compose,
    decide,
    end,
    get_run,
    outcome,
    payloads,
    steps,
    trace_of,
    until,
    watch,
)


async def waiting_run(served: Served, **fields: Any) -> tuple[str, Any]:
    """A run that waits for a person, and its stream."""
    call = compose(served, require_approval=True, **fields)
    return (await until(call, "approval_requested"))[0].run_id, call


async def test_an_approved_draft_is_the_result() -> None:
    async with scripted(Below()) as served:
        run_id, call = await waiting_run(served)
        waiting = await get_run(served, run_id)
        assert waiting.run.state == pb2.RUN_STATE_WAITING and not waiting.HasField("result")
        reply = await decide(served, run_id, "APPROVE", principal="ada", approval=1, feedback="Fine.")
        assert reply.run.run_id == run_id and reply.run.state in {pb2.RUN_STATE_RUNNING, pb2.RUN_STATE_FINISHED}
        # The stream of the caller that is still there goes on.
        rest = await until(call, "run_finished")
        events = checked(await watch(served, run_id))
    assert steps(rest) == ["approval_decided", "run_finished"] and outcome(events) == "APPROVED" and end(events).approved
    [requested], [decided] = payloads(events, "approval_requested"), payloads(events, "approval_decided")
    assert (requested.approval, requested.revision, requested.overall_score) == (1, 0, 1.0)
    assert requested.draft == end(events).draft == payloads(events, "draft_written")[0].draft
    assert decided == trace_pb2.ApprovalDecided(
        approval=1, decision="APPROVAL_DECISION_APPROVE", feedback="Fine.", principal="ada"
    )


async def test_a_draft_that_misses_a_threshold_is_shown_to_nobody() -> None:
    async with scripted(Below(judge=FakeJudge(reviews=[0.5]))) as served:
        events = await trace_of(compose(served, require_approval=True, max_revisions=1))
    assert outcome(events) == "MAX_REVISIONS_REACHED" and "approval_requested" not in steps(events)


async def test_a_rejected_draft_ends_the_run() -> None:
    below = Below()
    async with scripted(below) as served:
        run_id, _ = await waiting_run(served)
        await decide(served, run_id, "REJECT")
        events = checked(await watch(served, run_id))
        run = (await get_run(served, run_id)).run
    assert outcome(events) == "REJECTED" and not end(events).approved and not run.approved
    assert end(events).draft.text == below.generator.draft and below.generator.revise_requests == []


async def test_a_persons_wish_is_a_revision_that_is_reviewed_and_shown_again() -> None:
    below = Below(judge=FakeJudge(reviews=[1.0, 0.9]))
    async with scripted(below) as served:
        run_id, call = await waiting_run(served, max_revisions=1)
        await decide(served, run_id, "REVISE", feedback="Name the default.")
        again = await until(call, "approval_requested")
        assert again[-1].approval_requested.approval == 2 and again[-1].approval_requested.revision == 1
        # The draft that was sent back scored higher, and is not offered again.
        assert again[-1].approval_requested.draft.text == below.generator.revisions[0]
        await decide(served, run_id, "APPROVE", approval=2)
        events = checked(await watch(served, run_id))
        run = await get_run(served, run_id)
    [asked] = below.generator.revise_requests
    assert (asked.feedback, asked.draft) == ("Name the default.", below.generator.draft)
    [revised] = payloads(events, "draft_revised")
    assert (revised.revision, revised.from_revision, revised.feedback) == (1, 0, "Name the default.")
    assert (outcome(events), end(events).revisions, end(events).best_revision) == ("APPROVED", 1, 1)
    assert run.run.corrections == 1 and end(events).draft.text == below.generator.revisions[0]
    assert [item.approval for item in payloads(events, "approval_decided")] == [1, 2]


async def test_a_wish_beyond_the_limit_ends_the_run_unapproved() -> None:
    below = Below()
    async with scripted(below) as served:
        run_id, _ = await waiting_run(served, max_revisions=0)
        await decide(served, run_id, "REVISE", feedback="More.")
        events = checked(await watch(served, run_id))
    assert outcome(events) == "MAX_REVISIONS_REACHED" and not end(events).approved
    assert below.generator.revise_requests == [] and end(events).draft.text == below.generator.draft


async def test_a_second_decision_is_refused_by_its_reason() -> None:
    async with scripted(Below()) as served:
        run_id, call = await waiting_run(served)
        for number in (2, 7):
            failure = await failure_of(decide(served, run_id, "APPROVE", approval=number))
            assert (failure.code, failure.reason) == (grpc.StatusCode.FAILED_PRECONDITION, "RUN_NOT_WAITING")
            assert failure.metadata == {"run_id": run_id, "state": "WAITING", "approval": "1"}
        await decide(served, run_id, "REVISE", feedback="More.", approval=1)
        await until(call, "approval_requested")
        # The first request was answered; the second one waits.
        failure = await failure_of(decide(served, run_id, "APPROVE", approval=1))
        assert (failure.reason, failure.metadata["approval"]) == ("RUN_NOT_WAITING", "2")
        await decide(served, run_id, "APPROVE")
        await until(call, "run_finished")
        failure = await failure_of(decide(served, run_id, "APPROVE", approval=2))
        assert (failure.code, failure.reason, failure.metadata["state"]) == (
            grpc.StatusCode.FAILED_PRECONDITION,
            "RUN_NOT_WAITING",
            "FINISHED",
        )
        events = checked(await watch(served, run_id))
    assert len(payloads(events, "approval_decided")) == 2


async def test_of_two_decisions_at_the_same_moment_one_counts() -> None:
    async with scripted(Below()) as served:
        run_id, _ = await waiting_run(served)
        calls = [decide(served, run_id, decision) for decision in ("APPROVE", "REJECT", "APPROVE", "REJECT")]
        results = await asyncio.gather(*calls, return_exceptions=True)
        assert sum(isinstance(item, pb2.ResumeRunResponse) for item in results) == 1
        events = checked(await watch(served, run_id))
    assert len(payloads(events, "approval_decided")) == 1
    winner = results.index(next(item for item in results if isinstance(item, pb2.ResumeRunResponse)))
    assert outcome(events) == ("APPROVED" if winner % 2 == 0 else "REJECTED")


async def test_a_run_that_waits_for_nobody_takes_no_decision() -> None:
    hook = Hook()
    below = Below()
    async with scripted(below) as served:
        ended = (await trace_of(ask(served)))[0].run_id
        below.generator.before = hook
        running = compose(served, require_approval=True)
        run_id = (await until(running, "run_started"))[0].run_id
        await hook.reached.wait()
        for name, state in ((ended, "FINISHED"), (run_id, "RUNNING")):
            failure = await failure_of(decide(served, name, "APPROVE"))
            assert (failure.code, failure.reason) == (grpc.StatusCode.FAILED_PRECONDITION, "RUN_NOT_WAITING")
            assert failure.metadata == {"run_id": name, "state": state, "approval": "0"}
        failure = await failure_of(decide(served, "01890000-0000-7000-8000-000000000000", "APPROVE"))
        assert failure.reason == "RUN_NOT_FOUND"
        hook.release.set()
        await until(running, "approval_requested")


@pytest.mark.parametrize(
    ("decision", "feedback", "field"),
    [("UNSPECIFIED", "", "decision"), ("REVISE", "", "feedback"), ("REVISE", " \n", "feedback")],
)
async def test_a_decision_must_say_what_it_is(decision: str, feedback: str, field: str) -> None:
    async with scripted(Below()) as served:
        run_id, _ = await waiting_run(served)
        failure = await failure_of(decide(served, run_id, decision, feedback=feedback))
        assert failure.code is grpc.StatusCode.INVALID_ARGUMENT and list(failure.violations) == [field]
        # It still waits.
        await decide(served, run_id, "REJECT")
        assert outcome(await watch(served, run_id)) == "REJECTED"


async def test_the_deadline_of_whoever_decides_does_not_bound_the_run() -> None:
    hook = Hook()
    below = Below()
    below.generator.before_revision = hook
    async with scripted(below) as served:
        run_id, call = await waiting_run(served)
        request = pb2.ResumeRunRequest(run_id=run_id, decision="APPROVAL_DECISION_REVISE", feedback="More.")
        await served.stub.ResumeRun(request, timeout=0.5)
        await hook.reached.wait()
        await asyncio.sleep(0.6)
        hook.release.set()
        assert (await until(call, "approval_requested"))[-1].approval_requested.approval == 2


# --- across a restart -------------------------------------------------------------------------------------------------


async def decided(served: Served, run_id: str, decision: str) -> list[trace_pb2.TraceEvent]:
    """Decide as a parameter says, and read the whole trace."""
    watching = asyncio.create_task(watch(served, run_id))
    if decision == "cancel":
        await cancel_run(served, run_id)
    else:
        await decide(served, run_id, decision)
    return checked(await watching)


@pytest.mark.parametrize(("decision", "result"), [("APPROVE", "APPROVED"), ("REJECT", "REJECTED"), ("cancel", "CANCELLED")])
async def test_a_run_waits_across_a_restart(decision: str, result: str, tmp_path: Path) -> None:
    below = Below()
    async with fakes(below) as targets:
        async with orchestrator(**targets, data_dir=tmp_path) as served:
            run_id, _ = await waiting_run(served, collection="notes")
        async with orchestrator(**targets, data_dir=tmp_path) as served:
            assert (await get_run(served, run_id)).run.state == pb2.RUN_STATE_WAITING
            events = await decided(served, run_id, decision)
    assert outcome(events) == result and end(events).draft.text == below.generator.draft
    # Nothing was done again, and nobody took the run from anybody.
    assert (len(below.generator.write_requests), len(below.judge.passage_requests)) == (1, 1)
    assert len(below.judge.review_requests) == 1 and "run_resumed" not in steps(events)


async def test_a_wish_and_its_approval_survive_restarts_between_them(tmp_path: Path) -> None:
    below = Below()
    async with fakes(below) as targets:
        async with orchestrator(**targets, data_dir=tmp_path) as served:
            run_id, _ = await waiting_run(served, request_id="r-1")
        async with orchestrator(**targets, data_dir=tmp_path) as served:
            # The same request finds its run, and sees the rest of it.
            call = compose(served, require_approval=True, request_id="r-1")
            assert (await until(call, "approval_requested"))[0].run_id == run_id
            await decide(served, run_id, "REVISE", feedback="More.")
            assert (await until(call, "approval_requested"))[-1].approval_requested.approval == 2
        async with orchestrator(**targets, data_dir=tmp_path) as served:
            failure = await failure_of(decide(served, run_id, "APPROVE", approval=1))
            assert failure.reason == "RUN_NOT_WAITING"
            events = await decided(served, run_id, "APPROVE")
    assert outcome(events) == "APPROVED" and end(events).best_revision == 1
    assert [request.feedback for request in below.generator.revise_requests] == ["More."]
    assert (len(below.generator.write_requests), len(below.judge.review_requests)) == (1, 2)
