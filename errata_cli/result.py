"""The end of a run for people: how it ended, the final text with its sources, what it cost."""

from collections.abc import Iterable, Sequence
from typing import Final

from errata.corpus.v1 import passage_pb2
from errata.grading.v1 import grading_pb2
from errata.orchestrator.v1 import trace_pb2
from errata.usage.v1 import usage_pb2
from rich.text import Text

from errata_cli.lines import Lines, counted, dollars, name_of, scored, shortened, source_of, verdict_of
from errata_cli.reviews import draft_name

RISK_COLOURS: Final = {"LOW": "green", "MEDIUM": "yellow", "HIGH": "red"}
_GOOD: Final = frozenset({"ANSWERED", "ANSWERED_AFTER_REFINEMENT", "APPROVED"})
_BAD: Final = frozenset({"FAILED", "DEADLINE_EXCEEDED", "CANCELLED"})


def outcome_name(outcome: trace_pb2.Outcome) -> str:
    """The name without its prefix; the number of one that this client does not know."""
    return name_of(trace_pb2.Outcome, outcome, "OUTCOME_")


def style_of(outcome: str) -> str:
    """Green, yellow or red."""
    return "bold green" if outcome in _GOOD else "bold red" if outcome in _BAD else "bold yellow"


def end_line(lines: Lines, event: trace_pb2.RunFinished) -> None:
    """How it ended, and why."""
    outcome = outcome_name(event.outcome)
    seconds = event.elapsed.ToNanoseconds() / 1e9
    corrections = f", {counted(event.revisions, 'revision')}" if event.HasField("draft") else ""
    approved = "" if not event.HasField("draft") else ", approved" if event.approved else ", not approved"
    lines.step("■", style_of(outcome), "finished", f"{outcome} in {seconds:.2f} s{approved}{corrections}{_cost(event)}")
    if event.HasField("error"):
        lines.detail("!", "red", event.error.message)
    for missed in event.shortfalls:
        lines.detail("✗", "yellow", scored(missed.criterion, missed.score, missed.threshold))


def final_text(lines: Lines, event: trace_pb2.RunFinished, grade: grading_pb2.AnswerGrade | None) -> None:
    """The answer or the draft with its sources, or what stood behind a refusal."""
    if event.HasField("answer"):
        lines.whole(event.answer.text, _badge(event, grade), style_of(outcome_name(event.outcome)))
        _sources(lines, event.answer.citations, event.cited_passages)
    if event.HasField("draft"):
        lines.whole(event.draft.text, _draft_badge(event), style_of(outcome_name(event.outcome)))
        _sources(lines, event.draft.citations, event.cited_passages)
    if event.HasField("refusal"):
        _refusal(lines, event.refusal)


def _sources(lines: Lines, citations: Iterable[passage_pb2.Citation], passages: Iterable[passage_pb2.Passage]) -> None:
    numbers = {citation.passage_id: citation.number for citation in citations}
    for passage in sorted(passages, key=lambda item: numbers.get(item.passage_id, 0)):
        mark = f"[{numbers[passage.passage_id]}]" if passage.passage_id in numbers else "•"
        lines.detail(mark, "bold", source_of(passage))


def _draft_badge(event: trace_pb2.RunFinished) -> Text:
    score = f", overall {event.review.overall_score:.2f}" if event.HasField("review") else ", not reviewed"
    if event.approved:
        return Text(f"approved: {draft_name(event.best_revision)}{score}", style="bold green")
    return Text(f"not approved; the best so far: {draft_name(event.best_revision)}{score}", style="bold yellow")


def _badge(event: trace_pb2.RunFinished, grade: grading_pb2.AnswerGrade | None) -> Text:
    if event.answer.refusal or not event.HasField("faithfulness_score"):
        return Text("refused", style="bold yellow")
    risk = "LOW"
    if grade is not None:
        risk = name_of(grading_pb2.HallucinationRisk, grade.hallucination_risk, "HALLUCINATION_RISK_")
    style = RISK_COLOURS.get(risk, "dim")
    return Text(f"faithfulness {event.faithfulness_score:.2f}, hallucination risk {risk}", style=style)


def _refusal(lines: Lines, refusal: trace_pb2.Refusal) -> None:
    tried = ", ".join(f"“{query}”" for query in refusal.queries)
    lines.detail("tried", "bold", tried)
    for miss in refusal.nearest_misses:
        place = source_of(miss.passage)
        lines.detail("near", "bold", f"{miss.grade.score:.2f}  {place}: {shortened(miss.grade.reasoning)}")
    for claim in refusal.failing_claims:
        lines.detail("claim", "bold", f"{verdict_of(claim).lower()}: “{shortened(claim.text)}”")


def _cost(event: trace_pb2.RunFinished) -> str:
    calls, saved = event.usage.model_calls, event.usage.saved_calls
    if not calls:
        return f", {_saved(saved)}" if saved else ""
    tokens = sum(call.input_tokens + call.output_tokens for call in calls)
    known = all(call.HasField("cost_micros") for call in calls)
    cost = dollars(sum(call.cost_micros for call in calls)) if known else "cost unknown"
    made = f", {counted(len(calls), 'model call')}, {tokens} tokens, {cost}"
    return f"{made}, {_saved(saved)}" if saved else made


def _saved(calls: Sequence[usage_pb2.ModelCall]) -> str:
    tokens = sum(call.input_tokens + call.output_tokens for call in calls)
    return f"{counted(len(calls), 'answer')} from the cache saved {tokens} tokens"
