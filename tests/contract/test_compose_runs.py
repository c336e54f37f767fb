"""The compose workflow over the wire: what is decided by the scores, what is kept, and what a run says about itself."""

from __future__ import annotations

from typing import Any

import grpc
import pytest
from errata.grading.v1 import grading_pb2
from errata.orchestrator.v1 import trace_pb2

from errata_kit.errors import ModelRefused, Reason
from errata_kit.usage import ModelCall
from tests.harness.services import (
    Below,
    FakeGenerator,
    FakeJudge,
    FakeRetriever,
    failure_of,
    faithful,
    scripted,
    unfaithful,
)
from tests.harness.traces import (
    TASK,
    Fails,
    compose,
    end,
    failed_trace,
    get_run,
    outcome,
    payloads,
    reason,
    steps,
    trace_of,
)

CRITERIA = ("clarity", "relevance", "completeness", "technical_quality")
GOOD = dict.fromkeys(CRITERIA, 0.95)


def criterion(name: str, threshold: float | None = None, description: str = "It is kind.") -> grading_pb2.Criterion:
    return grading_pb2.Criterion(name=name, description=description, threshold=threshold)


def missing(shortfalls: Any) -> dict[str, float]:
    return {item.criterion: round(item.missing, 4) for item in shortfalls}


# --- the decision -----------------------------------------------------------------------------------------------------


async def test_a_draft_that_reaches_every_threshold_is_approved() -> None:
    below = Below(judge=FakeJudge(reviews=[0.9]))
    async with scripted(below) as served:
        events = await trace_of(compose(served))
        run = (await get_run(served, events[0].run_id)).run
    assert outcome(events) == "APPROVED" and end(events).approved and not end(events).shortfalls
    assert steps(events) == ["run_started", "draft_written", "draft_reviewed", "run_finished"]
    deltas = "".join(event.answer_delta.text for event in events if not event.sequence)
    assert deltas.strip() == below.generator.draft == end(events).draft.text
    assert end(events).review == payloads(events, "draft_reviewed")[0].review
    [asked] = below.judge.review_requests
    assert (asked.task, asked.draft, asked.overall_threshold, list(asked.passages)) == (TASK, below.generator.draft, 0.85, [])
    assert {item.name: item.threshold for item in asked.criteria} == {
        "clarity": 0.80,
        "relevance": 0.90,
        "completeness": 0.80,
        "technical_quality": 0.80,
    }
    assert list(events[0].run_started.criteria) == list(asked.criteria)
    assert (run.workflow, run.question, run.approved, run.score, run.corrections) == ("compose", TASK, True, 0.9, 0)
    # Without a collection nothing is searched and no claim is checked.
    assert below.retriever.searches == [] and below.judge.answer_requests == [] and end(events).retrievals == 0


@pytest.mark.parametrize("weak", [*CRITERIA, "overall"])
async def test_each_criterion_alone_and_the_mean_keep_a_draft_back(weak: str) -> None:
    # Every criterion just reaches its threshold, and the mean is 0.825.
    scores = {**GOOD, weak: 0.79} if weak != "overall" else {**dict.fromkeys(CRITERIA, 0.80), "relevance": 0.90}
    async with scripted(Below(judge=FakeJudge(reviews=[scores]))) as served:
        events = await trace_of(compose(served, max_revisions=0))
    assert outcome(events) == "MAX_REVISIONS_REACHED" and not end(events).approved
    threshold = {"relevance": 0.90, "overall": 0.85}.get(weak, 0.80)
    score = 0.825 if weak == "overall" else 0.79
    assert missing(end(events).shortfalls) == {weak: pytest.approx(threshold - score)}
    [reviewed] = payloads(events, "draft_reviewed")
    assert not reviewed.passed and missing(reviewed.shortfalls) == missing(end(events).shortfalls)


async def test_custom_criteria_and_thresholds_take_the_place_of_the_defaults() -> None:
    own = [criterion("kindness", 0.3), criterion("clarity", 0.99, ""), criterion("brevity", None)]
    below = Below(judge=FakeJudge(reviews=[{"kindness": 0.3, "clarity": 0.98, "brevity": 0.79}, 1.0]))
    async with scripted(below) as served:
        events = await trace_of(compose(served, criteria=own, overall_threshold=0.0))
    first, second = payloads(events, "draft_reviewed")
    assert missing(first.shortfalls) == {"clarity": pytest.approx(0.01), "brevity": pytest.approx(0.01)}
    assert second.passed and outcome(events) == "APPROVED"
    known, unknown = below.judge.review_requests[0].criteria[1], below.judge.review_requests[0].criteria[0]
    assert known.description and unknown.description == "It is kind."
    assert list(below.generator.write_requests[0].criteria) == list(below.judge.review_requests[0].criteria)
    assert list(below.generator.revise_requests[0].criteria) == list(below.judge.review_requests[0].criteria)


@pytest.mark.parametrize("name", ["overall", "faithfulness"])
async def test_the_names_of_what_is_computed_are_refused(name: str) -> None:
    async with scripted(Below()) as served:
        failure = await failure_of(compose(served, criteria=[criterion("clarity"), criterion(name)]))
    assert failure.code is grpc.StatusCode.INVALID_ARGUMENT and list(failure.violations) == ["criteria[1].name"]


async def test_the_settings_in_force_are_in_the_trace_and_stay_there() -> None:
    async with scripted(Below()) as served:
        choices: list[dict[str, Any]] = [{}, {"top_k": 3}, {"max_revisions": 2, "top_k": 3}]
        for given in choices:
            events = await trace_of(compose(served, **given))
            in_force = events[0].run_started.compose_settings
            assert (in_force.max_revisions, in_force.top_k) == (given.get("max_revisions", 3), given.get("top_k", 10))
            assert (in_force.overall_threshold, in_force.relevance_threshold, in_force.faithfulness_threshold) == (
                0.85,
                0.5,
                0.8,
            )
            stored = (await get_run(served, events[0].run_id)).trace
            assert stored[0] == events[0] and not events[0].run_started.HasField("settings")


# --- revisions --------------------------------------------------------------------------------------------------------


async def test_a_revision_is_made_from_what_the_review_found() -> None:
    below = Below(judge=FakeJudge(reviews=[{**GOOD, "clarity": 0.2}, GOOD]))
    async with scripted(below) as served:
        events = await trace_of(compose(served))
    assert outcome(events) == "APPROVED" and end(events).revisions == 1 and end(events).best_revision == 1
    assert steps(events)[1:] == ["draft_written", "draft_reviewed", "draft_revised", "draft_reviewed", "run_finished"]
    [asked] = below.generator.revise_requests
    assert (asked.task, asked.draft, asked.feedback) == (TASK, below.generator.draft, "")
    assert [item.description for item in asked.issues] == ["clarity is missing"] and list(asked.suggestions) == ["more clarity"]
    [revised] = payloads(events, "draft_revised")
    assert (revised.revision, revised.from_revision, list(revised.requested)) == (
        1,
        0,
        ["clarity: clarity is missing", "more clarity"],
    )
    assert {event.answer_delta.refinement for event in events if not event.sequence} == {0, 1}


async def test_the_best_draft_is_kept_and_what_a_later_one_lost_is_recorded() -> None:
    reviews = [
        {**GOOD, "clarity": 0.5},  # misses one
        {**GOOD, "clarity": 0.9, "relevance": 0.1, "completeness": 0.1},  # gains one, loses two
        {**GOOD, "clarity": 0.6},  # the best, and still not enough
        {**GOOD, "clarity": 0.55, "technical_quality": 0.2},
    ]
    below = Below(judge=FakeJudge(reviews=reviews))
    async with scripted(below) as served:
        events = await trace_of(compose(served))
        run = (await get_run(served, events[0].run_id)).run
    reviewed = payloads(events, "draft_reviewed")
    assert [item.best_revision for item in reviewed] == [0, 0, 2, 2]
    # Each revision is made from the best one so far.
    assert [item.from_revision for item in payloads(events, "draft_revised")] == [0, 0, 2]
    assert [item.draft for item in below.generator.revise_requests] == [
        below.generator.draft,
        below.generator.draft,
        below.generator.revisions[1],
    ]
    lost = [[(item.criterion, item.previous_score, item.score, item.threshold) for item in one.regressions] for one in reviewed]
    assert lost == [
        [],
        [("relevance", 0.95, 0.1, 0.9), ("completeness", 0.95, 0.1, 0.8)],
        [],
        [("technical_quality", 0.95, 0.2, 0.8)],
    ]
    assert outcome(events) == "MAX_REVISIONS_REACHED" and end(events).draft.text == below.generator.revisions[1]
    assert (end(events).revisions, end(events).best_revision, end(events).approved) == (3, 2, False)
    assert missing(end(events).shortfalls) == {"clarity": pytest.approx(0.2)}
    assert end(events).review == reviewed[2].review
    assert run.score == end(events).review.overall_score and (run.corrections, run.approved) == (3, False)


async def test_of_equally_good_drafts_the_first_is_kept() -> None:
    async with scripted(Below(judge=FakeJudge(reviews=[0.5]))) as served:
        events = await trace_of(compose(served, max_revisions=2))
    assert (end(events).revisions, end(events).best_revision) == (2, 0)


async def test_without_revisions_there_is_one_review() -> None:
    below = Below(judge=FakeJudge(reviews=[0.5]))
    async with scripted(below) as served:
        events = await trace_of(compose(served, max_revisions=0))
    assert outcome(events) == "MAX_REVISIONS_REACHED" and end(events).draft.text == below.generator.draft
    assert below.generator.revise_requests == [] and len(below.judge.review_requests) == 1


async def test_a_draft_from_elsewhere_is_reviewed_and_not_written_anew() -> None:
    below = Below(judge=FakeJudge(reviews=[0.5, 1.0]))
    async with scripted(below) as served:
        events = await trace_of(compose(served, draft="From elsewhere."))
    [written] = payloads(events, "draft_written")
    assert written.supplied and written.draft.text == "From elsewhere." and events[0].run_started.draft_supplied
    assert below.generator.write_requests == [] and below.judge.review_requests[0].draft == "From elsewhere."
    assert below.generator.revise_requests[0].draft == "From elsewhere." and outcome(events) == "APPROVED"


# --- with a collection ------------------------------------------------------------------------------------------------


async def test_with_a_collection_the_draft_rests_on_the_passages_that_passed() -> None:
    below = Below(FakeRetriever(found=[["p1", "p2", "p3"]]), FakeJudge(scores={"p1": 0.6, "p2": 0.2, "p3": 0.9}))
    async with scripted(below) as served:
        events = await trace_of(compose(served, collection="notes", top_k=4))
    [search] = below.retriever.searches
    assert (search.collection, search.query, search.top_k) == ("notes", TASK, 4)
    # Best first: the order in which "[n]" cites them.
    [written] = payloads(events, "draft_written")
    assert list(written.passage_ids) == ["p3", "p1"]
    asked: list[Any] = [below.generator.write_requests[0], below.judge.review_requests[0], below.judge.answer_requests[0]]
    assert all([item.passage_id for item in request.passages] == ["p3", "p1"] for request in asked)
    assert below.judge.answer_requests[0].answer == end(events).draft.text
    assert [item.passage_id for item in end(events).cited_passages] == ["p3"]
    assert (outcome(events), end(events).faithfulness_score, end(events).retrievals) == ("APPROVED", 1.0, 1)
    assert payloads(events, "draft_reviewed")[0].faithfulness == faithful()


async def test_an_unfaithful_draft_is_revised_even_if_every_criterion_is_met() -> None:
    below = Below(judge=FakeJudge(reviews=[1.0], answers=[unfaithful(score=0.6), faithful()]))
    async with scripted(below) as served:
        events = await trace_of(compose(served, collection="notes"))
        run = await get_run(served, events[0].run_id)
    first, second = payloads(events, "draft_reviewed")
    assert not first.passed and missing(first.shortfalls) == {"faithfulness": pytest.approx(0.2)} and second.passed
    [asked] = below.generator.revise_requests
    assert [claim.claim_id for claim in asked.failing_claims] == ["c2"] and list(asked.issues) == []
    assert list(payloads(events, "draft_revised")[0].requested) == ["not supported: made up"]
    assert (outcome(events), end(events).best_revision) == ("APPROVED", 1)
    scores = [(item.subject, item.iteration, item.passed) for item in run.evaluations if item.subject == "faithfulness"]
    assert scores == [("faithfulness", 0, False), ("faithfulness", 1, True)]


async def test_a_faithful_draft_is_better_than_a_brilliant_one_that_is_not() -> None:
    below = Below(judge=FakeJudge(reviews=[1.0, 0.5], answers=[unfaithful(), faithful()]))
    async with scripted(below) as served:
        events = await trace_of(compose(served, collection="notes", max_revisions=1))
    assert (outcome(events), end(events).best_revision) == ("MAX_REVISIONS_REACHED", 1)
    assert end(events).faithfulness_score == 1 and "faithfulness" not in missing(end(events).shortfalls)


@pytest.mark.parametrize("found", [[], ["p1", "p2", "p3", "p4"]], ids=["nothing", "nothing good"])
async def test_without_a_passage_nothing_is_written(found: list[str]) -> None:
    scores = {"p1": 0.1, "p2": 0.4, "p3": 0.3, "p4": 0.2}
    below = Below(FakeRetriever(found=[found]), FakeJudge(scores=dict(scores)))
    async with scripted(below) as served:
        events = await trace_of(compose(served, collection="notes"))
    assert outcome(events) == "REFUSED_NO_EVIDENCE" and not end(events).HasField("draft") and not end(events).approved
    assert list(end(events).refusal.queries) == [TASK]
    nearest = [item.passage.passage_id for item in end(events).refusal.nearest_misses]
    assert nearest == (["p2", "p3", "p4"] if found else [])
    assert below.generator.write_requests == [] and below.judge.review_requests == []


# --- failures ---------------------------------------------------------------------------------------------------------


def refused(operation: str) -> ModelRefused:
    error = ModelRefused()
    error.model_calls = (ModelCall("scripted-1", operation, "", 50, 0, 5, cost_micros=9, error=Reason.MODEL_REFUSED),)
    return error


async def test_a_run_that_fails_keeps_its_best_draft_and_is_not_approved() -> None:
    below = Below(FakeRetriever(), FakeJudge(reviews=[0.6, 0.5], paid=True), FakeGenerator(paid=True))
    below.generator.before_revision = Fails(lambda: refused("revise_draft"))
    async with scripted(below) as served:
        events, failure = await failed_trace(compose(served, collection="notes"))
        run = await get_run(served, events[0].run_id)
    assert (outcome(events), failure.reason, reason(end(events).error)) == ("FAILED", "MODEL_REFUSED", "MODEL_REFUSED")
    assert end(events).draft.text == below.generator.draft and not end(events).approved
    assert missing(end(events).shortfalls) and end(events).review.overall_score == pytest.approx(0.6)
    assert [item.passage_id for item in end(events).cited_passages] == ["p1"]
    assert [call.operation for call in run.usage.model_calls][-1] == "revise_draft" and run.run.totals.failed_calls == 1


async def test_before_a_review_the_first_draft_is_the_best() -> None:
    below = Below(judge=FakeJudge(reviews=[refused("review_draft")]))
    async with scripted(below) as served:
        events, _ = await failed_trace(compose(served))
    assert end(events).draft.text == below.generator.draft and not end(events).HasField("review")


async def test_when_review_and_check_both_fail_both_are_on_the_account() -> None:
    below = Below(judge=FakeJudge(reviews=[refused("review_draft")], answers=[refused("grade_answer")]))
    async with scripted(below) as served:
        events, _ = await failed_trace(compose(served, collection="notes"))
    assert sorted(call.operation for call in end(events).usage.model_calls) == ["grade_answer", "review_draft"]
    assert [trace_pb2.Outcome.Name(end(events).outcome), len(payloads(events, "draft_reviewed"))] == ["OUTCOME_FAILED", 0]
