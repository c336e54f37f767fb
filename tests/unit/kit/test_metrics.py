"""What the metrics count, and what they must never hold."""

import asyncio
from collections.abc import Mapping
from contextlib import aclosing
from typing import Any

import pytest
from prometheus_client import generate_latest

from errata_kit.drafts import Criterion
from errata_kit.errors import ErrataError, JudgementIncomplete, ModelUnavailable, Reason
from errata_kit.llm.openai_connection import OpenAIConnection
from errata_kit.llm.settings import ModelSettings
from errata_kit.metrics import LABELS, Metrics, RunEnd, at_zero
from errata_kit.passages import Passage
from errata_kit.usage import ModelCall
from services.judge.assessment import AnswerAssessor
from services.judge.claims.splitting import ClaimText
from services.judge.grading.batch import PassageGrader
from services.judge.provider import CheckedClaims, GradedPassage, ReviewedDraft
from services.judge.review.reviewer import DraftReviewer, ReviewTask

FORBIDDEN = (
    "tenant",
    "principal",
    "user",
    "collection",
    "question",
    "run",
    "trace",
    "document",
    "text",
    "id",
    "key",
    "address",
)


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


def value(metrics: Metrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(name, labels)


def test_labels_are_from_the_allowlist_and_name_nobody(metrics: Metrics) -> None:
    used: set[str] = set()
    for collector in metrics.registry._collector_to_names:
        used.update(getattr(collector, "_labelnames", ()))
    assert used == LABELS
    assert not {label for label in LABELS for word in FORBIDDEN if word in label.split("_")}


def test_metrics_that_grpc_dashboards_expect_have_their_names_and_labels(metrics: Metrics) -> None:
    method = ("unary", "errata.judge.v1.JudgeService", "GradeAnswer")
    labels = dict(zip(("grpc_type", "grpc_service", "grpc_method"), method, strict=True))
    metrics.started.labels(*method).inc()
    metrics.handled.labels(*method, "OK").inc()
    metrics.received.labels(*method).inc()
    metrics.sent.labels(*method).inc()
    metrics.handling.labels(*method).observe(0.2)
    for name in ("started", "msg_received", "msg_sent"):
        assert value(metrics, f"grpc_server_{name}_total", **labels) == 1, name
    assert value(metrics, "grpc_server_handled_total", **labels, grpc_code="OK") == 1
    assert value(metrics, "grpc_server_handling_seconds_bucket", **labels, le="0.25") == 1
    assert value(metrics, "grpc_server_handling_seconds_bucket", **labels, le="0.1") == 0


def test_a_run_counts_its_outcome_and_its_iterations(metrics: Metrics) -> None:
    metrics.record_run(RunEnd("answer", "ANSWERED_AFTER_REFINEMENT", 3.0, retrievals=2, refinements=1))
    metrics.record_run(RunEnd("compose", "APPROVED", 9.0, retrievals=1, revisions=3))
    assert value(metrics, "errata_runs_total", workflow="answer", outcome="ANSWERED_AFTER_REFINEMENT") == 1
    assert value(metrics, "errata_run_retrievals_sum", workflow="answer") == 2
    assert value(metrics, "errata_run_retrievals_bucket", workflow="answer", le="1.0") == 0
    assert value(metrics, "errata_run_corrections_sum", workflow="answer") == 1
    assert value(metrics, "errata_run_corrections_sum", workflow="compose") == 3
    totals = {name: value(metrics, f"errata_{name}_total") for name in ("retrievals", "refinements", "revisions")}
    assert totals == {"retrievals": 3, "refinements": 1, "revisions": 3}
    assert value(metrics, "errata_run_seconds_sum", workflow="compose") == 9.0


@pytest.mark.parametrize(
    ("error", "reason"),
    [(ModelUnavailable(), "MODEL_UNAVAILABLE"), (JudgementIncomplete(), "JUDGEMENT_INCOMPLETE"), (ValueError(), "INTERNAL")],
)
def test_a_judgement_that_fails_counts_its_reason(metrics: Metrics, error: Exception, reason: str) -> None:
    with pytest.raises(type(error)), metrics.judging("check_claims"):
        raise error
    with metrics.judging("check_claims"):
        pass
    assert value(metrics, "errata_judgements_total", operation="check_claims") == 2
    assert value(metrics, "errata_judge_failures_total", operation="check_claims", reason=reason) == 1


def test_a_caller_who_leaves_is_no_failure_of_the_judge(metrics: Metrics) -> None:
    with pytest.raises(GeneratorExit), metrics.judging("grade_passage"):
        raise GeneratorExit
    assert value(metrics, "errata_judgements_total", operation="grade_passage") == 1
    assert "errata_judge_failures_total{" not in page(metrics)


def call(**changes: Any) -> ModelCall:
    return ModelCall(**{"model": "m", "operation": "check_claims", "latency_seconds": 0.3, **changes})


def test_a_model_call_counts_tokens_cost_and_retries_by_model_and_operation(metrics: Metrics) -> None:
    metrics.record_model_call(call(input_tokens=100, cached_input_tokens=60, output_tokens=7, cost_micros=250_000, attempts=3))
    metrics.record_model_call(call(input_tokens=10, cost_micros=None, error=Reason.MODEL_RATE_LIMITED, attempts=4))
    of = {"model": "m", "operation": "check_claims"}
    kinds = {kind: value(metrics, "errata_model_tokens_total", **of, kind=kind) for kind in ("input", "cached_input", "output")}
    assert kinds == {"input": 50, "cached_input": 60, "output": 7}
    assert value(metrics, "errata_model_cost_dollars_total", **of) == 0.25
    assert value(metrics, "errata_model_retries_total", **of) == 2 + 3
    assert value(metrics, "errata_model_calls_total", **of, result="ok") == 1
    assert value(metrics, "errata_model_calls_total", **of, result="MODEL_RATE_LIMITED") == 1
    assert value(metrics, "errata_model_call_seconds_sum", **of) == pytest.approx(0.6)


def test_a_call_that_never_left_the_queue_takes_no_retry_back(metrics: Metrics) -> None:
    metrics.record_model_call(call(attempts=0))
    assert value(metrics, "errata_model_retries_total", model="m", operation="check_claims") == 0


def test_a_model_without_a_price_has_no_cost_at_all(metrics: Metrics) -> None:
    # ErrataModelPriceUnknown tells such a model from a free one by that.
    metrics.record_model_call(call(input_tokens=10, cost_micros=None))
    assert "errata_model_cost_dollars_total{" not in page(metrics)


def test_queue_and_caches(metrics: Metrics) -> None:
    metrics.record_model_queue("m", 1, 0)
    metrics.record_model_queue("m", 1, 0)
    metrics.record_model_queue("m", -1, 0)
    metrics.record_model_queue("m", 0, 1)
    assert value(metrics, "errata_model_requests_waiting", model="m") == 1
    assert value(metrics, "errata_model_requests_in_flight", model="m") == 1
    metrics.record_lookups("sentence_vectors", 3, 1)
    assert value(metrics, "errata_cache_requests_total", cache="sentence_vectors", result="hit") == 3
    assert value(metrics, "errata_cache_requests_total", cache="sentence_vectors", result="miss") == 1


def test_counters_can_be_seen_before_their_first_event(metrics: Metrics) -> None:
    at_zero(metrics.judge_failures, ("check_claims", "grade_passage"), Reason)
    assert page(metrics).count("errata_judge_failures_total{") == 2 * len(Reason)
    assert value(metrics, "errata_judge_failures_total", operation="check_claims", reason="MODEL_REFUSED") == 0
    assert value(metrics, "errata_lease_takeovers_total") == 0


def test_a_process_says_which_service_it_is(metrics: Metrics) -> None:
    metrics.announce("judge")
    line = next(line for line in page(metrics).splitlines() if line.startswith("errata_build_info{"))
    assert 'service="judge"' in line
    assert line.endswith(" 1.0")


def test_two_servers_of_a_process_count_apart() -> None:
    first, second = Metrics(), Metrics()
    with pytest.raises(ErrataError), first.judging("check_claims"):
        raise ErrataError
    assert value(second, "errata_judgements_total", operation="check_claims") is None


def page(metrics: Metrics) -> str:
    return generate_latest(metrics.registry).decode()


class Refusing:
    """A judge whose model can't be reached."""

    model = "none"

    @property
    def versions(self) -> Mapping[str, str]:
        return {}

    async def grade_passages(self, question: str, passages: tuple[Passage, ...]) -> tuple[GradedPassage, ...]:
        raise ModelUnavailable

    def evidence_sets(self, claims: tuple[ClaimText, ...], passages: tuple[Passage, ...]) -> tuple[tuple[int, ...], ...]:
        return ((),) * len(claims)

    async def check_claims(self, question: str, claims: tuple[ClaimText, ...], passages: tuple[Passage, ...]) -> CheckedClaims:
        # Fewer verdicts than claims: the judge itself finds that out.
        return CheckedClaims(())

    async def review_draft(
        self, task: str, draft: str, criteria: tuple[Criterion, ...], passages: tuple[Passage, ...]
    ) -> ReviewedDraft:
        raise ModelUnavailable


async def test_the_judge_counts_each_way_in_which_it_fails(metrics: Metrics) -> None:
    judge, passage = Refusing(), Passage("p1", "A backup is kept for 30 days.")
    async with aclosing(PassageGrader(judge, 2, metrics).grade("q", (passage, passage))) as results:
        assert [type(result.result) async for result in results] == [ModelUnavailable] * 2
    with pytest.raises(JudgementIncomplete):
        await AnswerAssessor(judge, metrics).assess("q", "A backup is kept for 30 days.", (passage,))
    with pytest.raises(ModelUnavailable):
        await DraftReviewer(judge, metrics).review(ReviewTask("t", "d", (Criterion("clarity"),), 0.8))
    failed = {
        sample.labels["operation"]: (sample.labels["reason"], sample.value)
        for family in metrics.registry.collect()
        for sample in family.samples
        if sample.name == "errata_judge_failures_total"
    }
    assert failed == {
        "grade_passage": ("MODEL_UNAVAILABLE", 2),
        "check_claims": ("JUDGEMENT_INCOMPLETE", 1),
        "review_draft": ("MODEL_UNAVAILABLE", 1),
    }
    assert value(metrics, "errata_judgements_total", operation="grade_passage") == 2
    assert value(metrics, "errata_passage_score_count") == 0
    assert value(metrics, "errata_faithfulness_score_count") == 0


async def test_a_model_client_tells_how_many_requests_wait(metrics: Metrics) -> None:
    settings = ModelSettings(base_url="http://127.0.0.1:1/v1", model="m", max_concurrency=1)
    connection = OpenAIConnection(settings, int, max_response_bytes=1000, queue=metrics.record_model_queue)
    seen: list[tuple[float | None, ...]] = []

    def now() -> tuple[float | None, ...]:
        return tuple(value(metrics, f"errata_model_requests_{state}", model="m") for state in ("waiting", "in_flight"))

    async def use() -> None:
        async with connection.slot():
            seen.append(now())
            await asyncio.sleep(0.05)

    await connection.warm_up()
    tasks = [asyncio.create_task(use()) for _ in range(3)]
    await asyncio.sleep(0.002)
    assert now() == (2, 1)
    # One that leaves while it waits.
    tasks[2].cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await connection.aclose()
    assert len(seen) == 2
    assert [in_flight for _, in_flight in seen] == [1, 1]
    assert seen[1][0] == 0
    assert now() == (0, 0)
