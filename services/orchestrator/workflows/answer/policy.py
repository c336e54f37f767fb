"""Every decision of the answer workflow: pure functions of the state and the settings in it.

retrieve → grade_passages → (broaden_query → retrieve)* → generate → grade_answer → (refine_answer → grade_answer)* → finish
"""

from typing import Final, Literal

from errata_kit.grades import PassageGrade
from services.orchestrator.runs.events import Outcome
from services.orchestrator.workflows.answer.state import AnswerSettings, AnswerState, GradedPassage
from services.orchestrator.workflows.faithfulness import failing_claims, failures

NEAREST_MISSES: Final = 3
# Bound of the judge's and the generator's requests: the best passages.
MOST_USED: Final = 100


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


def after_grading(state: AnswerState) -> Literal["generate", "broaden_query", "finish"]:
    """Enough passages: generate. Retrievals left: broaden. Else go on with whatever passed, or refuse."""
    used = len(used_passages(state))
    if used >= state.request.settings.min_relevant:
        return "generate"
    if state.retrievals < state.request.settings.max_retrievals:
        return "broaden_query"
    return "generate" if used else "finish"


def after_broadening(state: AnswerState) -> Literal["retrieve", "generate", "finish"]:
    """A new query is tried. When nothing new is left to try, go on with whatever passed, or refuse."""
    if not state.exhausted:
        return "retrieve"
    return "generate" if used_passages(state) else "finish"


def after_generation(state: AnswerState) -> Literal["grade_answer", "finish"]:
    """A refusal by the generator is final: there is nothing to grade."""
    return "finish" if state.answer is None or state.answer.refusal else "grade_answer"


def after_grading_answer(state: AnswerState) -> Literal["refine_answer", "finish"]:
    """Refine while something can be corrected and refinements are left."""
    settings = state.request.settings
    if state.grade is None or not failures(state.grade, settings.faithfulness_threshold):
        return "finish"
    if state.refinements >= settings.max_refinements or not failing_claims(state.grade, settings.faithfulness_threshold):
        return "finish"
    return "refine_answer"


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
