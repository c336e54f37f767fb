"""Every decision of the answer workflow: pure functions of the state and the settings in it.

retrieve → grade_passages → (broaden_query → retrieve)* → generate → grade_answer → (refine_answer → grade_answer)* → finish
"""

from typing import Final, Literal

from errata_kit.grades import PassageGrade
from services.orchestrator.runs.events import Outcome
from services.orchestrator.workflows.answer.state import AnswerSettings, AnswerState, GradedPassage, SkippableStep
from services.orchestrator.workflows.faithfulness import failing_claims, failures

NEAREST_MISSES: Final = 3
# Bound of the judge's and the generator's requests: the best passages.
MOST_USED: Final = 100
_LEAST_SHARE: Final = 0.25


def is_used(graded: GradedPassage, settings: AnswerSettings) -> bool:
    """A passage is used when its score reaches the threshold and the judge calls it relevant."""
    return passes(graded.grade, settings)


def passes(grade: PassageGrade, settings: AnswerSettings) -> bool:
    """The same of a grade alone."""
    return grade.relevant and grade.score >= settings.relevance_threshold


def used_passages(state: AnswerState) -> tuple[GradedPassage, ...]:
    """The passages that passed in any retrieval, best first; the order in which "[n]" cites them."""
    passed = [graded for graded in state.graded if is_used(graded, state.request.settings)]
    passed.sort(key=lambda graded: (-graded.grade.score, graded.retrieval, graded.passage.passage_id))
    return tuple(passed[:MOST_USED])


def nearest_misses(state: AnswerState) -> tuple[GradedPassage, ...]:
    """The best of the passages that did not pass."""
    missed = [graded for graded in state.graded if not is_used(graded, state.request.settings)]
    missed.sort(key=lambda graded: (-graded.grade.score, graded.retrieval, graded.passage.passage_id))
    return tuple(missed[:NEAREST_MISSES])


def wants_retrieval(state: AnswerState) -> bool:
    """Whether too few passages have passed, and another retrieval is left."""
    settings = state.request.settings
    return len(used_passages(state)) < settings.min_relevant and state.retrievals < settings.max_retrievals


def wants_refinement(state: AnswerState) -> bool:
    """Whether the answer must not be released, something in it can be corrected, and a refinement is left."""
    settings = state.request.settings
    if state.grade is None or not failures(state.grade, settings.faithfulness_threshold):
        return False
    if state.refinements >= settings.max_refinements:
        return False
    return bool(failing_claims(state.grade, settings.faithfulness_threshold))


def expected_seconds(step: SkippableStep, state: AnswerState) -> float:
    """How long a step would take, from how long such work took in this run.

    A retrieval is worth its time only when an answer can still be made of it: the last one, and as much again. A refinement
    writes and checks the part of the answer that failed, but no less than a quarter: a model takes a moment for a word, too.
    """
    if step is SkippableStep.RETRIEVAL:
        return 2 * state.took.retrieval
    claims = () if state.grade is None else state.grade.claims
    failing = () if state.grade is None else failing_claims(state.grade, state.request.settings.faithfulness_threshold)
    share = max(_LEAST_SHARE, min(1.0, len(failing) / max(1, len(claims))))
    # A draft from elsewhere took no time: writing takes about as long as checking.
    return share * ((state.took.generation or state.took.grading) + state.took.grading)


def too_late(expected: float, left: float | None) -> bool:
    """Whether the time that is left would not suffice. left: seconds; None without a deadline."""
    return left is not None and left < expected


def after_grading(state: AnswerState) -> Literal["generate", "broaden_query", "finish"]:
    """Enough passages: generate. Retrievals left: broaden. Else go on with whatever passed, or refuse."""
    if wants_retrieval(state) and state.skipped is None:
        return "broaden_query"
    return "generate" if used_passages(state) else "finish"


def after_broadening(state: AnswerState) -> Literal["retrieve", "generate", "finish"]:
    """A new query is tried. When nothing new is left to try, go on with whatever passed, or refuse."""
    if not state.exhausted:
        return "retrieve"
    return "generate" if used_passages(state) else "finish"


def after_generation(state: AnswerState) -> Literal["grade_answer", "finish"]:
    """A refusal by the generator is final: there is nothing to grade."""
    return "finish" if state.answer is None or state.answer.refusal else "grade_answer"


def after_grading_answer(state: AnswerState) -> Literal["refine_answer", "finish"]:
    """Refine while something can be corrected, and refinements and time are left."""
    late = state.skipped is SkippableStep.REFINEMENT
    return "refine_answer" if wants_refinement(state) and not late else "finish"


def outcome(state: AnswerState) -> Outcome:
    """How a run that reached the end of the graph ended."""
    if state.answer is None or (state.answer.refusal and state.refinements == 0):
        return Outcome.REFUSED_NO_EVIDENCE
    if state.answer.refusal or state.grade is None or failures(state.grade, state.request.settings.faithfulness_threshold):
        return Outcome.REFUSED_UNFAITHFUL
    return Outcome.ANSWERED_AFTER_REFINEMENT if state.refinements else Outcome.ANSWERED


def recursion_limit(settings: AnswerSettings) -> int:
    """Steps that a run within its limits can take: a bound on the graph, should an edge ever be wrong.

    Three nodes a retrieval, generate and grade_answer, two nodes a refinement, finish, and one that langgraph needs.
    """
    return 3 * settings.max_retrievals + 2 + 2 * settings.max_refinements + 2
