"""The steps of the answer workflow: state in, partial state out. They decide nothing; policy.py does."""

import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar, cast

from langgraph.runtime import Runtime

from errata_kit.errors import JudgementIncomplete
from errata_kit.grades import PassageGrade
from errata_kit.passages import Answer, Passage
from errata_kit.usage import ModelCall
from services.orchestrator.runs.events import (
    AnswerDelta,
    AnswerDrafted,
    AnswerGraded,
    AnswerRefined,
    Failure,
    PassageGraded,
    PassagesRetrieved,
    Payload,
    QueryBroadened,
)
from services.orchestrator.workflows.answer import policy
from services.orchestrator.workflows.answer.ports import Generator, Judge, PassageResult, Retriever, WrittenAnswer
from services.orchestrator.workflows.answer.state import AnswerState, AnswerUpdate, GradedPassage

Emit = Callable[[Payload], Awaitable[None]]
Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class AnswerContext:
    """What the nodes work with; never part of the state."""

    retriever: Retriever
    judge: Judge
    generator: Generator
    emit: Emit


async def retrieve(state: AnswerState, runtime: Runtime[AnswerContext]) -> AnswerUpdate:
    """Search with the current query. Passages that this run has graded are not graded again."""
    found = await runtime.context.retriever.search(state.request, state.query)
    known = {graded.passage.passage_id for graded in state.graded}
    pending = tuple(passage for passage in found if passage.passage_id not in known)
    queries = (*state.queries, state.query)
    await runtime.context.emit(
        PassagesRetrieved(len(queries), state.query, found, tuple(passage.passage_id for passage in pending))
    )
    return {"queries": queries, "pending": pending}


async def grade_passages(state: AnswerState, runtime: Runtime[AnswerContext]) -> AnswerUpdate:
    """Grade the new passages against the original question. When none of them could be graded, nothing can be decided."""
    if not state.pending:
        return {"pending": ()}
    passages = {passage.passage_id: passage for passage in state.pending}
    graded: list[GradedPassage] = []
    calls: list[ModelCall] = []
    failed: list[PassageResult] = []
    async with _closing(runtime.context.judge.grade_passages(state.request.question, state.pending)) as results:
        async for result in results:
            calls.extend(result.model_calls)
            if isinstance(result.result, PassageGrade):
                graded.append(GradedPassage(passages[result.passage_id], result.result, state.retrievals))
            else:
                failed.append(result)
            await runtime.context.emit(_graded_event(state, passages, result))
    if not graded:
        raise _nothing_graded(failed)
    return {
        "pending": (),
        "graded": (*state.graded, *graded),
        "model_calls": (*state.model_calls, *calls),
    }


async def broaden_query(state: AnswerState, runtime: Runtime[AnswerContext]) -> AnswerUpdate:
    """Find another search query. The question stays as it was."""
    context = runtime.context
    broadened = await context.generator.broaden_query(state.request.question, state.query, state.queries)
    calls = (*state.model_calls, *broadened.model_calls)
    if broadened.exhausted or not broadened.query:
        return {"exhausted": True, "model_calls": calls}
    await context.emit(QueryBroadened(len(state.queries), state.query, broadened.query, broadened.removed_terms))
    return {"query": broadened.query, "model_calls": calls}


async def generate(state: AnswerState, runtime: Runtime[AnswerContext]) -> AnswerUpdate:
    """Write the first draft from the passages that passed, or take the one that came with the request."""
    used = tuple(graded.passage for graded in policy.used_passages(state))
    ids = tuple(passage.passage_id for passage in used)
    if state.request.draft_answer:
        answer = Answer(text=state.request.draft_answer)
        await runtime.context.emit(AnswerDrafted(answer, supplied=True, passage_ids=ids))
        return {"answer": answer}
    written = await _written(runtime, 0, runtime.context.generator.generate_answer(state.request.question, used))
    await runtime.context.emit(AnswerDrafted(written.answer, supplied=False, passage_ids=ids))
    return {"answer": written.answer, "model_calls": (*state.model_calls, *written.model_calls)}


async def grade_answer(state: AnswerState, runtime: Runtime[AnswerContext]) -> AnswerUpdate:
    """Check each claim of the answer against the passages that passed."""
    answer = _required(state.answer)
    used = tuple(graded.passage for graded in policy.used_passages(state))
    graded = await runtime.context.judge.grade_answer(state.request.question, answer.text, used)
    failures = policy.failures(graded.grade, state.request.settings)
    await runtime.context.emit(AnswerGraded(state.refinements, graded.grade, not failures, failures))
    return {"grade": graded.grade, "model_calls": (*state.model_calls, *graded.model_calls)}


async def refine_answer(state: AnswerState, runtime: Runtime[AnswerContext]) -> AnswerUpdate:
    """Correct the claims that failed. The result is always graded again."""
    answer, grade = _required(state.answer), _required(state.grade)
    used = tuple(graded.passage for graded in policy.used_passages(state))
    failing = policy.failing_claims(grade, state.request.settings)
    stream = runtime.context.generator.refine_answer(
        state.request.question, answer.text, used, failing, grade.refinement_suggestion
    )
    refinement = state.refinements + 1
    written = await _written(runtime, refinement, stream)
    ids = tuple(claim.claim_id for claim in failing)
    await runtime.context.emit(AnswerRefined(refinement, written.answer, ids, answer.text))
    calls = (*state.model_calls, *written.model_calls)
    return {"answer": written.answer, "refinements": refinement, "model_calls": calls}


async def finish(state: AnswerState) -> AnswerUpdate:
    """The end of every path. The workflow makes the result from the state."""
    return {"pending": ()}


async def _written(
    runtime: Runtime[AnswerContext], refinement: int, stream: AsyncIterator[str | WrittenAnswer]
) -> WrittenAnswer:
    written: WrittenAnswer | None = None
    async with _closing(stream) as pieces:
        async for piece in pieces:
            if isinstance(piece, WrittenAnswer):
                written = piece
            else:
                await runtime.context.emit(AnswerDelta(piece, refinement))
    return _required(written)


def _graded_event(state: AnswerState, passages: dict[str, Passage], result: PassageResult) -> PassageGraded:
    if isinstance(result.result, PassageGrade):
        graded = GradedPassage(passages[result.passage_id], result.result, state.retrievals)
        used = policy.is_used(graded, state.request.settings)
        return PassageGraded(state.retrievals, result.passage_id, used, grade=result.result)
    error = result.result
    failure = Failure(error.why, error.message, error.metadata)
    return PassageGraded(state.retrievals, result.passage_id, False, error=failure)


def _nothing_graded(failed: list[PassageResult]) -> JudgementIncomplete:
    causes = sorted({result.result.why.value for result in failed if not isinstance(result.result, PassageGrade)})
    return JudgementIncomplete(
        f"None of the {len(failed)} passages could be graded ({', '.join(causes) or 'no result'})",
        metadata={"passages": str(len(failed)), "causes": ",".join(causes)},
    )


def _closing(stream: AsyncIterator[Item]) -> contextlib.aclosing[AsyncGenerator[Item, None]]:
    # An async for that is left early does not close its generator, and the call below would go on.
    return contextlib.aclosing(cast("AsyncGenerator[Item, None]", stream))


def _required(value: Item | None) -> Item:
    if value is None:
        raise RuntimeError("the graph reached a node whose input it has not made")
    return value
