"""The steps of the answer workflow: state in, partial state out. They decide nothing; policy.py does.

Each step is recorded in the trace once. A step that an earlier replica has recorded is read from there.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from langgraph.runtime import Runtime

from errata_kit.passages import Answer
from errata_kit.usage import ModelCall
from services.orchestrator.runs.events import AnswerDrafted, AnswerGraded, AnswerRefined, PassagesRetrieved, QueryBroadened
from services.orchestrator.runs.trace import RunTrace
from services.orchestrator.workflows import faithfulness
from services.orchestrator.workflows.answer import policy
from services.orchestrator.workflows.answer.state import AnswerState, AnswerUpdate, GradedPassage
from services.orchestrator.workflows.ports import Generator, Judge, PassageSearch, Retriever
from services.orchestrator.workflows.steps import PassageGrading, required, written


@dataclass(frozen=True, slots=True)
class AnswerContext:
    """What the nodes work with; never part of the state."""

    retriever: Retriever
    judge: Judge
    generator: Generator
    trace: RunTrace


async def retrieve(state: AnswerState, runtime: Runtime[AnswerContext]) -> AnswerUpdate:
    """Search with the current query. Passages that this run has graded are not graded again."""
    queries = (*state.queries, state.query)

    async def search() -> tuple[PassagesRetrieved, Sequence[ModelCall]]:
        request, settings = state.request, state.request.settings
        asked = PassageSearch(request.collection, state.query, settings.top_k, settings.search_mode, request.filter)
        found = await runtime.context.retriever.search(asked)
        known = {graded.passage.passage_id for graded in state.graded}
        new = tuple(passage.passage_id for passage in found if passage.passage_id not in known)
        return PassagesRetrieved(len(queries), state.query, found, new), ()

    retrieved = await runtime.context.trace.once(PassagesRetrieved, str(len(queries)), search)
    new = frozenset(retrieved.new_passage_ids)
    return {"queries": queries, "pending": tuple(item for item in retrieved.passages if item.passage_id in new)}


async def grade_passages(state: AnswerState, runtime: Runtime[AnswerContext]) -> AnswerUpdate:
    """Grade the new passages against the original question. When none of them could be graded, nothing can be decided."""
    if not state.pending:
        return {"pending": ()}
    settings, context = state.request.settings, runtime.context
    is_used = partial(policy.passes, settings=settings)
    grading = PassageGrading(context.trace, context.judge, state.request.question, is_used)
    graded = await grading.grade(state.pending, state.retrievals)
    new = tuple(GradedPassage(passage, grade, state.retrievals) for passage, grade in graded)
    return {"pending": (), "graded": (*state.graded, *new)}


async def broaden_query(state: AnswerState, runtime: Runtime[AnswerContext]) -> AnswerUpdate:
    """Find another search query. The question stays as it was."""
    number = len(state.queries)

    async def broaden() -> tuple[QueryBroadened, Sequence[ModelCall]]:
        found = await runtime.context.generator.broaden_query(state.request.question, state.query, state.queries)
        exhausted = found.exhausted or not found.query
        query, removed = ("", ()) if exhausted else (found.query, found.removed_terms)
        return QueryBroadened(number, state.query, query, removed, exhausted), found.model_calls

    broadened = await runtime.context.trace.once(QueryBroadened, str(number), broaden)
    return {"exhausted": True} if broadened.exhausted else {"query": broadened.query}


async def generate(state: AnswerState, runtime: Runtime[AnswerContext]) -> AnswerUpdate:
    """Write the first draft from the passages that passed, or take the one that came with the request."""
    used = tuple(graded.passage for graded in policy.used_passages(state))
    ids = tuple(passage.passage_id for passage in used)

    async def draft() -> tuple[AnswerDrafted, Sequence[ModelCall]]:
        if state.request.draft_answer:
            return AnswerDrafted(Answer(text=state.request.draft_answer), supplied=True, passage_ids=ids), ()
        stream = runtime.context.generator.generate_answer(state.request.question, used)
        whole = await written(runtime.context.trace, 0, stream)
        return AnswerDrafted(whole.answer, supplied=False, passage_ids=ids), whole.model_calls

    return {"answer": (await runtime.context.trace.once(AnswerDrafted, "", draft)).answer}


async def grade_answer(state: AnswerState, runtime: Runtime[AnswerContext]) -> AnswerUpdate:
    """Check each claim of the answer against the passages that passed."""
    answer = required(state.answer)
    used = tuple(graded.passage for graded in policy.used_passages(state))

    async def check() -> tuple[AnswerGraded, Sequence[ModelCall]]:
        graded = await runtime.context.judge.grade_answer(state.request.question, answer.text, used)
        failures = faithfulness.failures(graded.grade, state.request.settings.faithfulness_threshold)
        return AnswerGraded(state.refinements, graded.grade, not failures, failures), graded.model_calls

    return {"grade": (await runtime.context.trace.once(AnswerGraded, str(state.refinements), check)).grade}


async def refine_answer(state: AnswerState, runtime: Runtime[AnswerContext]) -> AnswerUpdate:
    """Correct the claims that failed. The result is always graded again."""
    answer, grade = required(state.answer), required(state.grade)
    used = tuple(graded.passage for graded in policy.used_passages(state))
    failing = faithfulness.failing_claims(grade, state.request.settings.faithfulness_threshold)
    refinement = state.refinements + 1

    async def refine() -> tuple[AnswerRefined, Sequence[ModelCall]]:
        stream = runtime.context.generator.refine_answer(
            state.request.question, answer.text, used, failing, grade.refinement_suggestion
        )
        whole = await written(runtime.context.trace, refinement, stream)
        ids = tuple(claim.claim_id for claim in failing)
        return AnswerRefined(refinement, whole.answer, ids, answer.text), whole.model_calls

    refined = await runtime.context.trace.once(AnswerRefined, str(refinement), refine)
    return {"answer": refined.answer, "refinements": refinement}


async def finish(state: AnswerState) -> AnswerUpdate:
    """The end of every path. The workflow makes the result from the state."""
    return {"pending": ()}
