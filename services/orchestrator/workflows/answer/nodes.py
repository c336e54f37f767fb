"""The steps of the answer workflow: state in, partial state out. They decide nothing; policy.py does.

Each step is recorded in the trace once. A step that an earlier replica has recorded is read from there.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from langgraph.runtime import Runtime

from errata_kit.calls import current_call, remaining_seconds
from errata_kit.edits import EditError, apply_edits, protected_spans, prove
from errata_kit.errors import ErrataError, ModelOutputInvalid
from errata_kit.grades import AnswerGrade, Claim
from errata_kit.passages import Answer, Passage
from errata_kit.usage import ModelCall
from services.orchestrator.runs.events import (
    AnswerDrafted,
    AnswerGraded,
    AnswerRefined,
    ClaimChecked,
    PassagesRetrieved,
    QueryBroadened,
    StepSkipped,
)
from services.orchestrator.runs.trace import RunTrace
from services.orchestrator.workflows import faithfulness
from services.orchestrator.workflows.answer import policy
from services.orchestrator.workflows.answer.state import AnswerState, AnswerUpdate, GradedPassage, SkippableStep
from services.orchestrator.workflows.answer.verification import StreamedVerification
from services.orchestrator.workflows.ports import Generator, Judge, PassageSearch, Retriever, WrittenAnswer
from services.orchestrator.workflows.steps import PassageGrading, required, written


@dataclass(slots=True)
class AnswerContext:
    """What the nodes work with; never part of the state.

    segment_sentences: sentences of a draft that are checked together while the rest is written; 0 checks none before the end.
    verification: the checks of the draft that this replica has written.
    """

    retriever: Retriever
    judge: Judge
    generator: Generator
    trace: RunTrace
    segment_sentences: int = 0
    verification: StreamedVerification | None = None

    async def aclose(self) -> None:
        """Stop the checks that are under way."""
        verification, self.verification = self.verification, None
        if verification is not None:
            await verification.aclose()


async def retrieve(state: AnswerState, runtime: Runtime[AnswerContext]) -> AnswerUpdate:
    """Search with the current query. Passages that this run has graded are not graded again."""
    queries = (*state.queries, state.query)
    began = time.monotonic()

    async def search() -> tuple[PassagesRetrieved, Sequence[ModelCall]]:
        request, settings = state.request, state.request.settings
        asked = PassageSearch(request.collection, state.query, settings.top_k, settings.search_mode, request.filter)
        found = await runtime.context.retriever.search(asked)
        known = {graded.passage.passage_id for graded in state.graded}
        new = tuple(passage.passage_id for passage in found if passage.passage_id not in known)
        return PassagesRetrieved(len(queries), state.query, found, new), ()

    retrieved = await runtime.context.trace.once(PassagesRetrieved, str(len(queries)), search)
    new = frozenset(retrieved.new_passage_ids)
    pending = tuple(item for item in retrieved.passages if item.passage_id in new)
    return {"queries": queries, "pending": pending, "took": replace(state.took, retrieval=time.monotonic() - began)}


async def grade_passages(state: AnswerState, runtime: Runtime[AnswerContext]) -> AnswerUpdate:
    """Grade the new passages against the original question. When none of them could be graded, nothing can be decided."""
    settings, context, began = state.request.settings, runtime.context, time.monotonic()
    update: AnswerUpdate = {"pending": ()}
    if state.pending:
        is_used = partial(policy.passes, settings=settings)
        grading = PassageGrading(context.trace, context.judge, state.request.question, is_used)
        graded = await grading.grade(state.pending, state.retrievals)
        new = tuple(GradedPassage(passage, grade, state.retrievals) for passage, grade in graded)
        took = replace(state.took, retrieval=state.took.retrieval + time.monotonic() - began)
        update = {"pending": (), "graded": (*state.graded, *new), "took": took}
    known = replace(state, **update)
    if policy.wants_retrieval(known):
        update |= await _skipping(SkippableStep.RETRIEVAL, state.retrievals + 1, known, context.trace)
    return update


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
    context, began = runtime.context, time.monotonic()

    async def draft() -> tuple[AnswerDrafted, Sequence[ModelCall]]:
        if state.request.draft_answer:
            return AnswerDrafted(Answer(text=state.request.draft_answer), supplied=True, passage_ids=ids), ()
        stream = context.generator.generate_answer(state.request.question, used)
        try:
            whole = await written(stream, await _listener(state, context, used))
        except ErrataError:
            # Or what belongs to this attempt would be shown with the number of the next.
            await context.aclose()
            raise
        if context.verification is not None:
            context.verification.end()
        return AnswerDrafted(whole.answer, supplied=False, passage_ids=ids), whole.model_calls

    drafted = await context.trace.once(AnswerDrafted, "", draft)
    return {"answer": drafted.answer, "took": replace(state.took, generation=time.monotonic() - began)}


async def _listener(state: AnswerState, context: AnswerContext, used: tuple[Passage, ...]) -> Callable[[str], None]:
    """What hears the pieces of a new attempt at the draft."""
    await context.aclose()
    verified_only = state.request.verified_only
    # Calls at the same time could each consume all that is left of a budget.
    if context.segment_sentences and current_call().budget is None:
        size, question = context.segment_sentences, state.request.question
        context.verification = StreamedVerification(context.trace, context.judge, question, used, size, verified_only)
        return context.verification.take
    return _silent if verified_only else partial(context.trace.say, number=0)


def _silent(piece: str) -> None:
    """Shows nothing: nobody has checked it."""


async def grade_answer(state: AnswerState, runtime: Runtime[AnswerContext]) -> AnswerUpdate:
    """Check each claim of the answer against the passages that passed. Claims that were checked before keep their verdicts."""
    answer = required(state.answer)
    used = tuple(graded.passage for graded in policy.used_passages(state))
    context, threshold, began = runtime.context, state.request.settings.faithfulness_threshold, time.monotonic()

    async def check() -> tuple[AnswerGraded, Sequence[ModelCall]]:
        known = () if state.grade is None else faithfulness.kept_claims(state.grade, threshold)
        if state.refinements == 0 and context.verification is not None:
            known = await context.verification.known_claims()
        graded = await context.judge.grade_answer(state.request.question, answer.text, used, known)
        failures = faithfulness.failures(graded.grade, threshold)
        await _tell_claims(graded.grade, state.refinements, context)
        return AnswerGraded(state.refinements, graded.grade, not failures, failures), graded.model_calls

    graded = await context.trace.once(AnswerGraded, str(state.refinements), check)
    took = replace(state.took, grading=time.monotonic() - began)
    update: AnswerUpdate = {"grade": graded.grade, "took": took}
    known = replace(state, **update)
    if policy.wants_refinement(known):
        update |= await _skipping(SkippableStep.REFINEMENT, state.refinements + 1, known, context.trace)
    return update


async def _tell_claims(grade: AnswerGrade, refinement: int, context: AnswerContext) -> None:
    """Put the verdicts into the trace that are not there yet."""
    streamed = context.verification if refinement == 0 else None
    # An outage since then has begun no other text.
    attempt = context.trace.attempt if streamed is None else streamed.attempt
    verdicts = [(claim, faithfulness.passes(claim, grade.findings)) for claim in grade.claims]
    rest = [(claim, passed) for claim, passed in verdicts if streamed is None or not streamed.told(claim, passed)]
    recording = [
        context.trace.record(ClaimChecked(refinement, claim, passed, attempt=attempt, remaining=len(rest) - place))
        for place, (claim, passed) in enumerate(rest, start=1)
    ]
    await asyncio.gather(*recording)


async def _skipping(step: SkippableStep, number: int, state: AnswerState, trace: RunTrace) -> AnswerUpdate:
    """What changes when there is too little time for a step, which the trace then says; nothing when there is enough."""
    expected, left = policy.expected_seconds(step, state), remaining_seconds()
    skipped = StepSkipped(step, number, expected, 0.0 if left is None else left)
    if trace.recorded(StepSkipped, skipped.key) is None:
        if not policy.too_late(expected, left):
            return {}
        await trace.record(skipped)
    return {"skipped": step}


async def refine_answer(state: AnswerState, runtime: Runtime[AnswerContext]) -> AnswerUpdate:
    """Correct the claims that failed. The result is always graded again."""
    answer, grade = required(state.answer), required(state.grade)
    used = tuple(graded.passage for graded in policy.used_passages(state))
    failing = faithfulness.failing_claims(grade, state.request.settings.faithfulness_threshold)
    refinement = state.refinements + 1
    say = _silent if state.request.verified_only else partial(runtime.context.trace.say, number=refinement)

    async def refine() -> tuple[AnswerRefined, Sequence[ModelCall]]:
        stream = runtime.context.generator.refine_answer(
            state.request.question, answer.text, used, failing, grade.refinement_suggestion
        )
        whole = await written(stream, say)
        _prove(answer.text, whole, grade, failing)
        ids = tuple(claim.claim_id for claim in failing)
        return AnswerRefined(refinement, whole.answer, ids, answer.text, whole.edits, whole.rejected), whole.model_calls

    refined = await runtime.context.trace.once(AnswerRefined, str(refinement), refine)
    return {"answer": refined.answer, "refinements": refinement}


def _prove(before: str, whole: WrittenAnswer, grade: AnswerGrade, failing: Sequence[Claim]) -> None:
    """Raises ModelOutputInvalid when a correction touches what was not to be corrected, whoever says that it does not."""
    protected = protected_spans(grade.claims, failing, before)
    try:
        # A refusal is a text of its own; what was removed before nothing was left is proven all the same.
        after = apply_edits(before, whole.edits) if whole.answer.refusal else whole.answer.text
        prove(before, after, whole.edits, protected)
    except EditError as error:
        unproven = ModelOutputInvalid("The correction changes what was not to be corrected", metadata={"cause": "edits"})
        unproven.model_calls = whole.model_calls
        raise unproven from error


async def finish(state: AnswerState) -> AnswerUpdate:
    """The end of every path. The workflow makes the result from the state."""
    return {"pending": ()}
