"""The steps of a compose run for people: drafts, reviews, revisions and decisions."""

from typing import Final

from errata.grading.v1 import grading_pb2
from errata.orchestrator.v1 import trace_pb2
from rich.text import Text

from errata_cli.lines import Lines, counted, name_of, scored, shortened, verdict_of

_SEVERITY_COLOURS: Final = {"CRITICAL": "bold red", "MAJOR": "red", "MINOR": "yellow"}


def written(lines: Lines, event: trace_pb2.DraftWritten) -> None:
    """The first draft."""
    source = "came with the task" if event.supplied else f"by {event.draft.model}"
    rests = f", may rest on {counted(len(event.passage_ids), 'passage')}" if event.passage_ids else ""
    lines.step("✎", "blue", "written", f"{source}: {counted(len(event.draft.text), 'character')}{rests}")


def reviewed(lines: Lines, event: trace_pb2.DraftReviewed, faithfulness_threshold: float | None) -> None:
    """The scores of a draft, a line each, and what is wrong with it. faithfulness_threshold: None where it is unknown."""
    review = event.review
    found = [scored("overall", review.overall_score, review.overall_threshold)]
    if event.HasField("faithfulness"):
        found.append(scored("faithfulness", event.faithfulness.faithfulness_score, faithfulness_threshold))
    style, end = ("green", "passed") if event.passed else ("yellow", "not passed")
    lines.step("⚖", style, "reviewed", f"{draft_name(event.revision)}: {'; '.join(found)}; {end}")
    for score in review.scores:
        reached = score.score >= score.threshold
        mark, colour = ("✓", "green") if reached else ("✗", "yellow")
        lines.detail(mark, colour, f"{scored(score.criterion, score.score, score.threshold)}: {shortened(score.explanation)}")
        for finding in score.rule_findings:
            lines.detail("  rule", "dim", shortened(finding))
    for lost in event.regressions:
        now = scored(lost.criterion, lost.score, lost.threshold)
        lines.detail("↓", "red", f"regression: {now}; it was {lost.previous_score:.2f}")
    _claims(lines, event.faithfulness)
    for issue in review.issues:
        severity = name_of(grading_pb2.IssueSeverity, issue.severity, "ISSUE_SEVERITY_")
        quote = f" “{shortened(issue.quote)}”" if issue.quote else ""
        text = f"{severity.lower()}, {issue.criterion}: {shortened(issue.description)}{quote}"
        lines.detail("!", _SEVERITY_COLOURS.get(severity, "dim"), text)
    for suggestion in review.suggestions:
        lines.detail("→", "cyan", shortened(suggestion))
    if event.best_revision != event.revision:
        lines.detail("•", "dim", f"{draft_name(event.best_revision)} is still the best")


def revised(lines: Lines, event: trace_pb2.DraftRevised) -> None:
    """What a revision was asked for."""
    size = counted(len(event.draft.text), "character")
    lines.step("✂", "blue", "revised", f"{draft_name(event.revision)} from {draft_name(event.from_revision)}: {size}")
    if event.feedback:
        lines.detail("☞", "magenta", f"a person asked: “{shortened(event.feedback)}”")
    for point in event.requested:
        lines.detail("→", "dim", shortened(point))


def requested(lines: Lines, event: trace_pb2.ApprovalRequested) -> None:
    """The run waits."""
    what = f"for a person's decision {event.approval}, on {draft_name(event.revision)}, overall {event.overall_score:.2f}"
    lines.step("⏸", "bold magenta", "waits", what)


def decided(lines: Lines, event: trace_pb2.ApprovalDecided) -> None:
    """What a person has said."""
    decision = name_of(trace_pb2.ApprovalDecision, event.decision, "APPROVAL_DECISION_")
    by = f" by {shortened(event.principal)}" if event.principal else ""
    said = f": “{shortened(event.feedback)}”" if event.feedback else ""
    lines.step("☑", "magenta", "decided", f"{decision} on request {event.approval}{by}{said}")


def decision_wanted(lines: Lines, run_id: str, event: trace_pb2.ApprovalRequested) -> None:
    """The draft that waits, and the commands that decide."""
    title = Text(f"{draft_name(event.revision)}, overall {event.overall_score:.2f}, waits for a person", style="bold magenta")
    lines.whole(event.draft.text, title, "magenta")
    for command in (f"approve {run_id}", f"reject {run_id}", f"revise {run_id} 'what to change'"):
        lines.detail("errata", "bold", command)


def draft_name(revision: int) -> str:
    """The first draft, or which revision."""
    return f"revision {revision}" if revision else "the first draft"


def _claims(lines: Lines, grade: grading_pb2.AnswerGrade) -> None:
    for claim in grade.claims:
        if claim.verdict in {grading_pb2.VERDICT_UNSUPPORTED, grading_pb2.VERDICT_CONTRADICTED}:
            what = f"{claim.claim_id} {verdict_of(claim).lower()}: “{shortened(claim.text)}”"
            lines.detail("✗", "yellow", f"{what}. {shortened(claim.explanation)}")
    for finding in grade.findings:
        lines.detail("!", "red", f"guard: {finding.text} ({finding.explanation})")
