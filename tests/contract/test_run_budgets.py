"""Budgets of runs: real judge and generator on the model double, whose journal shows which calls were made."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest
from errata.grading.v1 import grading_pb2
from errata.orchestrator.v1 import trace_pb2
from errata.retriever.v1 import retriever_service_pb2_grpc as retriever_grpc

from tests.harness.model_server import ModelServer
from tests.harness.services import (
    Below,
    FakeGenerator,
    FakeJudge,
    FakeRetriever,
    Served,
    failure_of,
    fake,
    generator,
    judge,
    orchestrator,
    scripted,
)
from tests.harness.traces import ask, compose, end, get_run, outcome, payloads, reason, trace_of

QUESTION = "What is the text of p1?"
TASK = "Write the text of p1."
# The double gives 0.93, so that every review asks for a revision.
PICKY = [grading_pb2.Criterion(name="clarity", threshold=1.0)]


@dataclass(frozen=True, slots=True)
class Suite:
    """An orchestrator over a real judge and a real generator."""

    served: Served
    model: ModelServer


@contextlib.asynccontextmanager
async def on_the_double(found: tuple[str, ...] = ("p1",), **settings: Any) -> AsyncIterator[Suite]:
    register = retriever_grpc.add_RetrieverServiceServicer_to_server
    async with contextlib.AsyncExitStack() as stack:
        model = await stack.enter_async_context(ModelServer())
        judging = await stack.enter_async_context(judge(model, cache_entries=0, **settings))
        writing = await stack.enter_async_context(generator(model, **settings))
        finding = await stack.enter_async_context(fake("retriever", register, FakeRetriever(found=[list(found)])))
        served = await stack.enter_async_context(orchestrator(finding, judging.target, writing.target))
        yield Suite(served, model)


def tokens(finished: trace_pb2.RunFinished) -> int:
    return sum(call.input_tokens + call.output_tokens for call in finished.usage.model_calls)


def cost(finished: trace_pb2.RunFinished) -> int:
    return sum(call.cost_micros for call in finished.usage.model_calls)


def operations(finished: trace_pb2.RunFinished) -> list[str]:
    return [call.operation for call in finished.usage.model_calls]


def start(kind: str, served: Served, **fields: Any) -> Any:
    match kind:
        case "ask":
            return ask(served, question=QUESTION, **fields)
        case "compose":
            return compose(served, task=TASK, criteria=PICKY, max_revisions=2, **fields)
        case "compose from passages":
            return compose(served, task=TASK, criteria=PICKY, max_revisions=2, collection="notes", **fields)
        case _:
            # Review and check of a draft may go on at the same time.
            return compose(served, task=TASK, draft="The text of p1.", max_revisions=0, collection="notes", **fields)


SWEEPS = [
    ("ask", "max_tokens", range(0, 1600, 200)),
    ("ask", "max_cost_micros", range(0, 5600, 700)),
    ("compose", "max_tokens", range(0, 6000, 1000)),
    ("compose from passages", "max_cost_micros", range(0, 28_000, 4000)),
    ("compose from passages with a draft", "max_tokens", range(200, 2600, 300)),
    ("compose from passages with a draft", "max_cost_micros", range(50, 800, 100)),
]


@pytest.mark.parametrize(("kind", "limit", "sweep"), SWEEPS, ids=[f"{kind}-{limit}" for kind, limit, _ in SWEEPS])
async def test_no_call_is_made_that_would_pass_the_budget(kind: str, limit: str, sweep: range) -> None:
    spent = tokens if limit == "max_tokens" else cost
    seen: list[tuple[str, int]] = []
    async with on_the_double() as suite:
        whole = end(await trace_of(start(kind, suite.served)))
        for most in [*(value + 1 for value in sweep), spent(whole) * 20]:
            suite.model.journal.clear()
            # The stream ends well, whatever the limit.
            events = await trace_of(start(kind, suite.served, **{limit: most}))
            finished = end(events)
            made = len(suite.model.journal)
            assert made == len(finished.usage.model_calls) and spent(finished) <= most
            seen.append((outcome(events), made))
            if outcome(events) == "BUDGET_EXHAUSTED":
                assert reason(finished.error) == "BUDGET_EXHAUSTED" and finished.error.metadata["limit"] == limit
                keeps_its_best(events)
            else:
                assert operations(finished) == operations(whole)
    # From nothing at all, by calls between, to the whole run.
    counts = [made for _, made in seen]
    assert counts[0] == 0 and counts == sorted(counts) and counts[-1] == len(whole.usage.model_calls)
    assert len(set(counts)) >= 3
    assert seen[0][0] == "BUDGET_EXHAUSTED" and seen[-1][0] != "BUDGET_EXHAUSTED"


def keeps_its_best(events: list[trace_pb2.TraceEvent]) -> None:
    """Whatever was made before is in the result, and nothing of it is released."""
    finished = end(events)
    assert not finished.HasField("answer") and not finished.approved
    drafted = payloads(events, "answer_drafted")
    assert finished.refusal.rejected_answer == (drafted[-1].answer.text if drafted else "")
    written, reviewed = payloads(events, "draft_written"), payloads(events, "draft_reviewed")
    assert finished.HasField("draft") is bool(written) and finished.HasField("review") is bool(reviewed)
    if reviewed:
        best = reviewed[-1].best_revision
        assert finished.best_revision == best and finished.shortfalls
        drafts = {0: written[0].draft, **{item.revision: item.draft for item in payloads(events, "draft_revised")}}
        assert finished.draft == drafts[best]


async def test_grades_at_the_same_time_share_one_budget() -> None:
    found = tuple(f"p{number}" for number in range(1, 9))
    async with on_the_double(found, JUDGE_BATCH_SIZE="1") as suite:
        one = end(await trace_of(ask(suite.served, question=QUESTION, top_k=1)))
        grade = next(call for call in one.usage.model_calls if call.operation == "grade_passage")
        most = 3 * (grade.input_tokens + grade.output_tokens)
        suite.model.journal.clear()
        events = await trace_of(ask(suite.served, question=QUESTION, top_k=8, max_tokens=most))
        assert outcome(events) == "BUDGET_EXHAUSTED" and 1 <= len(suite.model.journal) <= 3
    # The grades that were paid for are there; a passage that nobody paid for has no grade and no error.
    graded = payloads(events, "passage_graded")
    assert len(graded) == len(suite.model.journal) == len(end(events).usage.model_calls)
    assert all(item.HasField("grade") for item in graded) and tokens(end(events)) <= most


async def test_with_a_bound_on_cost_a_model_of_unknown_price_is_not_called() -> None:
    async with on_the_double(JUDGE_MODEL="house-model", GENERATOR_MODEL="house-model") as suite:
        for kind in ("ask", "compose", "compose from passages"):
            events = await trace_of(start(kind, suite.served, max_cost_micros=10**9))
            assert outcome(events) == "BUDGET_EXHAUSTED" and not end(events).usage.model_calls
            assert dict(end(events).error.metadata)["cause"] == "price_unknown"
            assert dict(end(events).error.metadata)["limit"] == "max_cost_micros"
        assert suite.model.journal == []
        # A bound on tokens needs no price.
        events = await trace_of(ask(suite.served, question=QUESTION, max_tokens=100_000))
        assert outcome(events) == "ANSWERED"
        run = (await get_run(suite.served, events[0].run_id)).run
        assert not run.totals.HasField("cost_micros") and run.totals.model_calls == 3


async def test_what_others_have_spent_counts_before_the_next_service_is_asked() -> None:
    below = Below(judge=FakeJudge(paid=True), generator=FakeGenerator(paid=True))
    async with scripted(below) as served:
        # Two grades of 110 tokens, and nothing is left.
        events = await trace_of(ask(served, max_tokens=220))
        assert outcome(events) == "BUDGET_EXHAUSTED" and below.generator.answer_requests == []
        assert len(payloads(events, "passage_graded")) == 2
        events = await trace_of(ask(served, max_cost_micros=75))
        assert outcome(events) == "BUDGET_EXHAUSTED" and below.judge.answer_requests == []
        assert end(events).refusal.rejected_answer == below.generator.answer
        run = await get_run(served, events[0].run_id)
    assert run.result == end(events) and run.run.outcome == trace_pb2.OUTCOME_BUDGET_EXHAUSTED
    assert run.trace[0].run_started.max_cost_micros == 75 and not run.trace[0].run_started.HasField("max_tokens")


async def test_a_budget_is_above_nothing() -> None:
    async with scripted(Below()) as served:
        for call in (ask, compose):
            failure = await failure_of(call(served, max_tokens=0, max_cost_micros=-1))
            assert set(failure.violations) == {"max_tokens", "max_cost_micros"}


async def test_runs_at_the_same_time_have_budgets_of_their_own() -> None:
    async with on_the_double() as suite:
        limits = [200, 100_000, 500, 100_000]
        calls = [trace_of(ask(suite.served, question=QUESTION, max_tokens=most)) for most in limits]
        outcomes = [outcome(events) for events in await asyncio.gather(*calls)]
    assert outcomes == ["BUDGET_EXHAUSTED", "ANSWERED", "BUDGET_EXHAUSTED", "ANSWERED"]
