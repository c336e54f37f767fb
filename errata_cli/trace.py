"""A run's trace for people: a line or two an event while it happens, then the answer with its sources."""

from typing import Final

from errata.corpus.v1 import passage_pb2
from errata.grading.v1 import grading_pb2
from errata.orchestrator.v1 import trace_pb2
from rich.console import Console
from rich.panel import Panel
from rich.text import Text

from errata_cli.terminal import printable

_RISK_COLOURS: Final = {"LOW": "green", "MEDIUM": "yellow", "HIGH": "red"}
_VERDICT_COLOURS: Final = {"SUPPORTED": "green", "UNSUPPORTED": "yellow", "CONTRADICTED": "red", "UNVERIFIABLE": "dim"}
_SHOWN_TEXT: Final = 160


class TraceView:
    """Shows the events of one run on a console."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._passages: dict[str, passage_pb2.Passage] = {}
        self._grade: grading_pb2.AnswerGrade | None = None
        self._in_delta = False

    def show(self, event: trace_pb2.TraceEvent) -> None:
        """Show one event."""
        kind = event.WhichOneof("payload")
        if kind != "answer_delta" and self._in_delta:
            self._console.print()
            self._in_delta = False
        match kind:
            case "run_started":
                self._line("▶", "bold", "run", f"{event.run_id} in collection {event.run_started.collection}")
            case "passages_retrieved":
                self._retrieved(event.passages_retrieved)
            case "passage_graded":
                self._graded(event.passage_graded)
            case "query_broadened":
                broadened = event.query_broadened
                left_out = f" (left out: {', '.join(broadened.removed_terms)})" if broadened.removed_terms else ""
                self._line("↻", "magenta", "broadened", f"“{broadened.query}”{left_out}")
            case "answer_delta":
                self._delta(event.answer_delta)
            case "answer_drafted":
                drafted = event.answer_drafted
                source = "came with the question" if drafted.supplied else f"by {drafted.answer.model}"
                size = f"{len(drafted.answer.text)} characters, {len(drafted.answer.citations)} citations"
                self._line("✎", "blue", "drafted", f"{source}: {size}")
            case "answer_graded":
                self._answer_graded(event.answer_graded)
            case "answer_refined":
                self._refined(event.answer_refined)
            case "run_finished":
                self._finished(event.run_finished)
            case _:
                # A newer server may send events that this client does not know.
                self._line("?", "dim", "event", str(event.sequence))

    def _line(self, mark: str, style: str, word: str, rest: str) -> None:
        text = Text(f"{mark} ", style=style).append(f"{word:<10} ", style=style).append(printable(rest), style="default")
        self._console.print(text, soft_wrap=True)

    def _detail(self, mark: str, style: str, rest: str) -> None:
        self._console.print(Text("    ").append(f"{mark} ", style=style).append(printable(rest)), soft_wrap=True)

    def _retrieved(self, event: trace_pb2.PassagesRetrieved) -> None:
        for passage in event.passages:
            self._passages[passage.passage_id] = passage
        seen = len(event.passages) - len(event.new_passage_ids)
        known = f", {seen} seen before" if seen else ""
        self._line("⌕", "cyan", "retrieved", f"{len(event.passages)} passages{known} for “{event.query}”")

    def _graded(self, event: trace_pb2.PassageGraded) -> None:
        passage = self._passages.get(event.passage_id)
        place = event.passage_id if passage is None else source_of(passage)
        if event.WhichOneof("result") == "error":
            self._detail("!", "red", f"not graded  {place}: {event.error.message}")
            return
        mark, style = ("✓", "green") if event.used else ("✗", "dim")
        self._detail(mark, style, f"{event.grade.score:.2f}  {place}: {_shortened(event.grade.reasoning)}")

    def _delta(self, event: trace_pb2.AnswerDelta) -> None:
        # What is not checked yet is for people who wait at a terminal, not for a pipe.
        if self._console.is_terminal:
            self._in_delta = True
            self._console.print(Text(printable(event.text)), style="dim", end="", soft_wrap=True)

    def _answer_graded(self, event: trace_pb2.AnswerGraded) -> None:
        self._grade = event.grade
        verdicts = [_verdict(claim) for claim in event.grade.claims]
        counted = ", ".join(f"{verdicts.count(name)} {name.lower()}" for name in _VERDICT_COLOURS if name in verdicts)
        passed = "passed" if event.passed else "failed: " + "; ".join(event.failures)
        style = "green" if event.passed else "yellow"
        self._line(
            "⚖", style, "graded", f"faithfulness {event.grade.faithfulness_score:.2f}, {counted or 'no claims'}; {passed}"
        )
        for claim in event.grade.claims:
            if _verdict(claim) in {"UNSUPPORTED", "CONTRADICTED"}:
                what = f"{claim.claim_id} {_verdict(claim).lower()}: “{_shortened(claim.text)}”. {claim.explanation}"
                self._detail("✗", _VERDICT_COLOURS[_verdict(claim)], what)
        for finding in event.grade.findings:
            self._detail("!", "red", f"guard: {finding.text} ({finding.explanation})")

    def _refined(self, event: trace_pb2.AnswerRefined) -> None:
        self._line("✂", "blue", "refined", f"corrected {', '.join(event.corrected_claim_ids)}")
        for before in _lost(event.previous_text, event.answer.text):
            self._detail("-", "red", _shortened(before))
        for after in _lost(event.answer.text, event.previous_text):
            self._detail("+", "green", _shortened(after))

    def _finished(self, event: trace_pb2.RunFinished) -> None:
        outcome = trace_pb2.Outcome.Name(event.outcome).removeprefix("OUTCOME_")
        seconds = event.elapsed.ToNanoseconds() / 1e9
        style = "bold green" if outcome.startswith("ANSWERED") else "bold yellow" if event.HasField("refusal") else "bold red"
        self._line("■", style, "finished", f"{outcome} in {seconds:.2f} s{_cost(event)}")
        if event.HasField("error"):
            self._detail("!", "red", event.error.message)
        if event.HasField("answer"):
            self._answer(event, style)
        if event.HasField("refusal"):
            self._refusal(event.refusal)

    def _answer(self, event: trace_pb2.RunFinished, style: str) -> None:
        if self._console.is_terminal:
            panel = Panel(Text(printable(event.answer.text)), title=self._badge(event), title_align="left", border_style=style)
            self._console.print(panel)
        else:
            self._console.print()
            self._console.print(printable(event.answer.text), markup=False, soft_wrap=True)
            self._console.print()
            if event.HasField("faithfulness_score") and not event.answer.refusal:
                self._console.print(self._badge(event))
        numbers = {citation.passage_id: citation.number for citation in event.answer.citations}
        cited = sorted(event.cited_passages, key=lambda passage: numbers.get(passage.passage_id, 0))
        for passage in cited:
            mark = f"[{numbers[passage.passage_id]}]" if passage.passage_id in numbers else "•"
            self._detail(mark, "bold", source_of(passage))

    def _badge(self, event: trace_pb2.RunFinished) -> Text:
        if event.answer.refusal or not event.HasField("faithfulness_score"):
            return Text("refused", style="bold yellow")
        risk = "LOW"
        if self._grade is not None:
            risk = grading_pb2.HallucinationRisk.Name(self._grade.hallucination_risk).removeprefix("HALLUCINATION_RISK_")
        return Text(f"faithfulness {event.faithfulness_score:.2f}, hallucination risk {risk}", style=_RISK_COLOURS[risk])

    def _refusal(self, refusal: trace_pb2.Refusal) -> None:
        tried = ", ".join(f"“{query}”" for query in refusal.queries)
        self._detail("tried", "bold", tried)
        for miss in refusal.nearest_misses:
            place = source_of(miss.passage)
            self._detail("near", "bold", f"{miss.grade.score:.2f}  {place}: {_shortened(miss.grade.reasoning)}")
        for claim in refusal.failing_claims:
            self._detail("claim", "bold", f"{_verdict(claim).lower()}: “{_shortened(claim.text)}”")


def source_of(passage: passage_pb2.Passage) -> str:
    """Where a passage stands, such as docs/quickstart.md:10-22 (Quickstart › Install)."""
    lines = f":{passage.start_line}-{passage.end_line}" if passage.start_line else ""
    headings = [heading for heading in passage.heading_path if heading != passage.title]
    path = " › ".join(filter(None, [passage.title, *headings]))
    return f"{passage.document_id or passage.passage_id}{lines}" + (f" ({path})" if path else "")


def _verdict(claim: grading_pb2.Claim) -> str:
    return grading_pb2.Verdict.Name(claim.verdict).removeprefix("VERDICT_")


def _shortened(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= _SHOWN_TEXT else flat[: _SHOWN_TEXT - 1] + "…"


def _lost(old: str, new: str) -> list[str]:
    """The sentences, roughly, that are in old and not in new."""
    pieces = [piece.strip() for piece in old.replace("\n", ". ").split(". ")]
    return [piece for piece in pieces if piece and piece.rstrip(".") not in new]


def _cost(event: trace_pb2.RunFinished) -> str:
    calls = event.usage.model_calls
    if not calls:
        return ""
    tokens = sum(call.input_tokens + call.output_tokens for call in calls)
    known = all(call.HasField("cost_micros") for call in calls)
    dollars = f"${sum(call.cost_micros for call in calls) / 1e6:.4f}" if known else "cost unknown"
    return f", {len(calls)} model calls, {tokens} tokens, {dollars}"
