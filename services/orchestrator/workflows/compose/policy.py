"""Every decision of the compose workflow: pure functions of the state and the settings in it.

(retrieve → grade_passages →) write → review → ((retrieve → grade_passages →) revise → review)* → (approve → …)? → finish
"""

from typing import Final, Literal

from errata_kit.drafts import FAITHFULNESS, DraftReview, Shortfall
from errata_kit.grades import AnswerGrade, PassageGrade
from services.orchestrator.runs.events import ApprovalDecision, Outcome, Regression
from services.orchestrator.workflows.compose.state import ComposeSettings, ComposeState, ReviewedDraft
from services.orchestrator.workflows.faithfulness import failures

NEAREST_MISSES: Final = 3
# Bounds of the retriever's, the judge's and the generator's requests.
LONGEST_QUERY: Final = 8 * 1024
MOST_PASSAGES: Final = 100


def passes(grade: PassageGrade, settings: ComposeSettings) -> bool:
    """A passage is used when its score reaches the threshold and the judge calls it relevant."""
    return grade.relevant and grade.score >= settings.relevance_threshold


def at_start(state: ComposeState) -> Literal["retrieve", "write"]:
    """Without a collection there is nothing to retrieve."""
    return "retrieve" if state.request.collection else "write"


def after_grading(state: ComposeState) -> Literal["write", "revise", "finish"]:
    """Nothing is written about what the documents do not hold. A later search serves the revision that it was made for."""
    if state.reviewed:
        return "revise"
    return "write" if state.passages else "finish"


def after_review(state: ComposeState) -> Literal["retrieve", "revise", "approve", "finish"]:
    """Done, or another revision, or the limit. What a person has to agree to goes to that person first."""
    latest = state.reviewed[-1]
    if not latest.shortfalls:
        return "approve" if state.request.require_approval else "finish"
    return _to_revision(state) if revisions_left(state) and not is_stuck(state) else "finish"


def after_approval(state: ComposeState) -> Literal["retrieve", "revise", "finish"]:
    """A person's wish for a revision counts against the limit like any other."""
    wants_revision = state.decision == ApprovalDecision.REVISE.value
    return _to_revision(state) if wants_revision and revisions_left(state) else "finish"


def is_stuck(state: ComposeState) -> bool:
    """Whether the last revision has changed nothing, so that another one with the same findings would not either."""
    if len(state.reviewed) < 2:
        return False
    latest = state.reviewed[-1].draft.text
    return any(latest == earlier.draft.text for earlier in state.reviewed[:-1])


def wanted(state: ComposeState) -> str:
    """What is to be searched before a revision: what a person asks for, or what the review misses; empty for nothing new."""
    base = best(state.reviewed, min(state.since, len(state.reviewed) - 1))
    missed = frozenset(item.criterion for item in base.shortfalls)
    points = (issue.description for issue in base.review.issues if issue.criterion in missed)
    query = state.feedback or " ".join(dict.fromkeys(points))
    query = query.encode()[:LONGEST_QUERY].decode(errors="ignore")
    return "" if query in state.searched else query


def _to_revision(state: ComposeState) -> Literal["retrieve", "revise"]:
    room = len(state.passages) < MOST_PASSAGES
    return "retrieve" if state.request.collection and room and wanted(state) else "revise"


def revisions_left(state: ComposeState) -> bool:
    """Whether another revision may be made."""
    return state.revisions < state.request.settings.max_revisions


def shortfalls(review: DraftReview, faithfulness: AnswerGrade | None, settings: ComposeSettings) -> tuple[Shortfall, ...]:
    """What keeps a draft from being approved: its criteria, their mean, and its faithfulness where there are passages."""
    missed = review.shortfalls
    if faithfulness is None or not failures(faithfulness, settings.faithfulness_threshold):
        return missed
    return (*missed, Shortfall(FAITHFULNESS, faithfulness.faithfulness_score, settings.faithfulness_threshold))


def best(reviewed: tuple[ReviewedDraft, ...], since: int = 0) -> ReviewedDraft:
    """The best draft from `since` on: one that passes, then a faithful one, then by the mean; of equal ones the first."""
    return max(reviewed[since:], key=lambda item: (*_rank(item), -item.revision))


def regressions(before: ReviewedDraft, review: DraftReview) -> tuple[Regression, ...]:
    """The criteria that had reached their thresholds in the draft before and no longer do."""
    earlier = {item.criterion: item.score for item in before.review.scores}
    return tuple(
        Regression(item.criterion, earlier[item.criterion], item.score, item.threshold)
        for item in review.scores
        if item.score < item.threshold <= earlier.get(item.criterion, 0.0)
    )


def outcome(state: ComposeState) -> Outcome:
    """How a run that reached the end of the graph ended."""
    if not state.reviewed:
        return Outcome.REFUSED_NO_EVIDENCE
    if state.decision == ApprovalDecision.REJECT.value:
        return Outcome.REJECTED
    if state.decision == ApprovalDecision.REVISE.value or best(state.reviewed, state.since).shortfalls:
        return Outcome.MAX_REVISIONS_REACHED
    return Outcome.APPROVED


def recursion_limit(settings: ComposeSettings) -> int:
    """Steps that a run within its limits can take.

    Two for the passages, write and review; two for more passages, revise, review and approve for each revision; a last
    approve, finish, and one that langgraph needs.
    """
    return 4 + 5 * settings.max_revisions + 3


def _rank(item: ReviewedDraft) -> tuple[bool, bool, float]:
    faithful = all(missed.criterion != FAITHFULNESS for missed in item.shortfalls)
    return (not item.shortfalls, faithful, item.review.overall_score)
