"""A run's trace for people: a line or two an event while it happens, then the final text with its sources."""

from typing import Final

from errata.corpus.v1 import passage_pb2
from errata.grading.v1 import grading_pb2
from errata.orchestrator.v1 import trace_pb2
from rich.console import Console
from rich.text import Text

from errata_cli import result, reviews
from errata_cli.lines import Lines, counted, dollars, name_of, shortened, source_of, verdict_of
from errata_cli.terminal import flat, printable

_VERDICT_COLOURS: Final = {"SUPPORTED": "green", "UNSUPPORTED": "yellow", "CONTRADICTED": "red", "UNVERIFIABLE": "dim"}


class TraceView:
    """Shows the events of one run on a console. with_text: also the final text behind the last event."""

    def __init__(self, console: Console, *, with_text: bool = True) -> None:
        self.lines = Lines(console)
        self.passages: dict[str, passage_pb2.Passage] = {}
        self.grade: grading_pb2.AnswerGrade | None = None
        self._with_text = with_text
        self._faithfulness_threshold: float | None = None
        self._delta: tuple[int, int] | None = None

    def show(self, event: trace_pb2.TraceEvent) -> None:
        """Show one event."""
        kind = event.WhichOneof("payload")
        if kind != "answer_delta":
            self._end_delta()
        match kind:
            case "run_started":
                self._started(event.run_id, event.run_started)
            case "passages_retrieved":
                self._retrieved(event.passages_retrieved)
            case "passage_graded":
                self._graded(event.passage_graded)
            case "query_broadened":
                self._broadened(event.query_broadened)
            case "answer_delta":
                self._write(event.answer_delta)
            case "answer_drafted":
                drafted = event.answer_drafted
                source = "came with the question" if drafted.supplied else f"by {drafted.answer.model}"
                size = f"{len(drafted.answer.text)} characters, {len(drafted.answer.citations)} citations"
                self.lines.step("✎", "blue", "drafted", f"{source}: {size}")
            case "answer_graded":
                self._answer_graded(event.answer_graded)
            case "answer_refined":
                self._refined(event.answer_refined)
            case "claim_checked":
                self._checked(event.claim_checked)
            case "step_skipped":
                self._skipped(event.step_skipped)
            case "run_resumed":
                resumed = event.run_resumed
                what = f"by replica {resumed.replica}, takeover {resumed.takeover}: the one before was lost"
                self.lines.step("⇄", "magenta", "taken up", what)
            case "run_finished":
                self._finished(event.run_finished)
            case _:
                self._compose_event(event)

    def _compose_event(self, event: trace_pb2.TraceEvent) -> None:
        match event.WhichOneof("payload"):
            case "draft_written":
                reviews.written(self.lines, event.draft_written)
            case "draft_reviewed":
                reviews.reviewed(self.lines, event.draft_reviewed, self._faithfulness_threshold)
            case "draft_revised":
                reviews.revised(self.lines, event.draft_revised)
            case "approval_requested":
                reviews.requested(self.lines, event.approval_requested)
            case "approval_decided":
                reviews.decided(self.lines, event.approval_decided)
            case _:
                # A newer server may send events that this client does not know.
                self.lines.step("?", "dim", "event", str(event.sequence))

    def _started(self, run_id: str, event: trace_pb2.RunStarted) -> None:
        place = f"in collection {event.collection}" if event.collection else "without a collection"
        self.lines.step("▶", "bold", "run", f"{run_id} {place}" + (f", for {flat(event.principal)}" if event.principal else ""))
        if event.HasField("compose_settings"):
            settings = event.compose_settings
            if event.collection:
                self._faithfulness_threshold = settings.faithfulness_threshold
            wanted = [f"{item.name} {item.threshold:.2f}" for item in event.criteria]
            limits = f"overall {settings.overall_threshold:.2f}; at most {counted(settings.max_revisions, 'revision')}"
            approval = ", and a person must agree" if event.require_approval else ""
            self.lines.detail("≥", "dim", f"{', '.join(wanted)}; {limits}{approval}")
        budget = [dollars(event.max_cost_micros)] if event.HasField("max_cost_micros") else []
        budget += [f"{event.max_tokens} tokens"] if event.HasField("max_tokens") else []
        if budget:
            self.lines.detail("≤", "dim", f"budget: {', '.join(budget)}")

    def _retrieved(self, event: trace_pb2.PassagesRetrieved) -> None:
        for passage in event.passages:
            self.passages[passage.passage_id] = passage
        seen = len(event.passages) - len(event.new_passage_ids)
        known = f", {seen} seen before" if seen else ""
        self.lines.step("⌕", "cyan", "retrieved", f"{len(event.passages)} passages{known} for “{event.query}”")

    def _graded(self, event: trace_pb2.PassageGraded) -> None:
        place = self.place(event.passage_id)
        if event.WhichOneof("result") == "error":
            self.lines.detail("!", "red", f"not graded  {place}: {event.error.message}")
            return
        mark, style = ("✓", "green") if event.used else ("✗", "dim")
        self.lines.detail(mark, style, f"{event.grade.score:.2f}  {place}: {shortened(event.grade.reasoning)}")
        kinds = [name_of(grading_pb2.InjectionKind, kind, "INJECTION_KIND_").lower() for kind in event.grade.injections]
        if kinds:
            self.lines.detail("!", "red", f"it carries text that is meant for a model: {', '.join(kinds)}")

    def place(self, passage_id: str) -> str:
        """Where a passage stands; its id when it was not shown before."""
        passage = self.passages.get(passage_id)
        return passage_id if passage is None else source_of(passage)

    def _broadened(self, event: trace_pb2.QueryBroadened) -> None:
        left_out = f" (left out: {', '.join(event.removed_terms)})" if event.removed_terms else ""
        what = "nothing new is left to try" if event.exhausted else f"“{event.query}”{left_out}"
        self.lines.step("↻", "magenta", "broadened", what)

    def _write(self, event: trace_pb2.AnswerDelta) -> None:
        # What is not checked yet is for people who wait at a terminal, not for a pipe.
        if not self.lines.console.is_terminal:
            return
        place = (event.refinement, event.attempt)
        if self._delta is not None and self._delta != place:
            self._end_delta()
            self.lines.detail("↺", "dim", "the text starts anew: the attempt before broke off")
        self._delta = place
        self.lines.console.print(Text(printable(event.text)), style="dim", end="", soft_wrap=True)

    def _end_delta(self) -> None:
        if self._delta is not None:
            self.lines.console.print()
            self._delta = None

    def _answer_graded(self, event: trace_pb2.AnswerGraded) -> None:
        self.grade = event.grade
        verdicts = [verdict_of(claim) for claim in event.grade.claims]
        found = ", ".join(f"{verdicts.count(name)} {name.lower()}" for name in _VERDICT_COLOURS if name in verdicts)
        passed = "passed" if event.passed else "failed: " + "; ".join(event.failures)
        style = "green" if event.passed else "yellow"
        score = f"faithfulness {event.grade.faithfulness_score:.2f}"
        self.lines.step("⚖", style, "graded", f"{score}, {found or 'no claims'}; {passed}")
        for claim in event.grade.claims:
            if verdict_of(claim) in {"UNSUPPORTED", "CONTRADICTED"}:
                what = f"{claim.claim_id} {verdict_of(claim).lower()}: “{shortened(claim.text)}”. {claim.explanation}"
                self.lines.detail("✗", _VERDICT_COLOURS[verdict_of(claim)], what)
        for finding in event.grade.findings:
            self.lines.detail("!", "red", f"guard: {finding.text} ({finding.explanation})")

    def _checked(self, event: trace_pb2.ClaimChecked) -> None:
        # Those of a text that was checked as a whole are told with its grade, which comes right behind them.
        if event.segment:
            mark, style = ("✓", "green") if event.passed else ("✗", _VERDICT_COLOURS.get(verdict_of(event.claim), "yellow"))
            words = f"“{shortened(event.claim.text)}”" if event.claim.text else event.claim.claim_id
            self.lines.detail(mark, style, f"{verdict_of(event.claim).lower()}: {words}")

    def _skipped(self, event: trace_pb2.StepSkipped) -> None:
        expected, left = event.expected.ToMilliseconds() / 1000, event.left.ToMilliseconds() / 1000
        times = f"it would take about {expected:.1f} s, and {left:.1f} s are left"
        self.lines.step("⧗", "yellow", "skipped", f"{event.step} {event.number}: {times}")

    def _refined(self, event: trace_pb2.AnswerRefined) -> None:
        self.lines.step("✂", "blue", "refined", f"corrected {', '.join(event.corrected_claim_ids)}")
        for edit in event.edits:
            self.lines.detail("-", "red", shortened(edit.before))
            if edit.after:
                self.lines.detail("+", "green", shortened(edit.after))
        for rejected in event.rejected_edits:
            self.lines.detail("!", "yellow", f"not made: “{shortened(rejected.after)}” ({rejected.reason})")

    def _finished(self, event: trace_pb2.RunFinished) -> None:
        result.end_line(self.lines, event)
        if self._with_text:
            result.final_text(self.lines, event, self.grade)
