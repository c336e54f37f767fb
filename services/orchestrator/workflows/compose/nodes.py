"""The steps of the compose workflow: state in, partial state out. They decide nothing; policy.py does.

Each step is recorded in the trace once. A step that an earlier replica has recorded is read from there.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from langgraph.runtime import Runtime
from langgraph.types import interrupt

from errata_kit.calls import current_call
from errata_kit.errors import ErrataError
from errata_kit.grades import Claim
from errata_kit.passages import Draft
from errata_kit.usage import ModelCall
from services.orchestrator.runs.events import (
    ApprovalDecided,
    ApprovalDecision,
    DraftReviewed,
    DraftRevised,
    DraftWritten,
    PassagesRetrieved,
)
from services.orchestrator.runs.run import totals_of
from services.orchestrator.runs.trace import RunTrace
from services.orchestrator.workflows.compose import policy
from services.orchestrator.workflows.compose.state import ComposeState, ComposeUpdate, GradedPassage, ReviewedDraft
from services.orchestrator.workflows.faithfulness import failing_claims
from services.orchestrator.workflows.ports import (
    DraftToReview,
    DraftToRevise,
    Generator,
    GradedAnswer,
    Judge,
    PassageSearch,
    Retriever,
    ReviewOfDraft,
)
from services.orchestrator.workflows.steps import PassageGrading, required, written


@dataclass(frozen=True, slots=True)
class ComposeContext:
    """What the nodes work with; never part of the state."""

    retriever: Retriever
    judge: Judge
    generator: Generator
    trace: RunTrace


async def retrieve(state: ComposeState, runtime: Runtime[ComposeContext]) -> ComposeUpdate:
    """Search with the task, and before a revision with what is missing."""
    request, settings = state.request, state.request.settings
    query = policy.wanted(state) if state.reviewed else request.task
    retrieval = len(state.searched) + 1
    known = frozenset(passage.passage_id for passage in state.passages)

    async def search() -> tuple[PassagesRetrieved, Sequence[ModelCall]]:
        asked = PassageSearch(request.collection, query, settings.top_k, settings.search_mode, request.filter)
        found = await runtime.context.retriever.search(asked)
        new = tuple(item.passage_id for item in found if item.passage_id not in known)
        return PassagesRetrieved(retrieval, query, found, new), ()

    retrieved = await runtime.context.trace.once(PassagesRetrieved, str(retrieval), search)
    new = frozenset(retrieved.new_passage_ids)
    found = tuple(item for item in retrieved.passages if item.passage_id in new)
    return {"searched": (*state.searched, query), "found": found}


async def grade_passages(state: ComposeState, runtime: Runtime[ComposeContext]) -> ComposeUpdate:
    """Grade what was found against what was searched; the best come first, behind those that a draft cites already."""
    if not state.found:
        return {"found": ()}
    is_used = partial(policy.passes, settings=state.request.settings)
    grading = PassageGrading(runtime.context.trace, runtime.context.judge, state.searched[-1], is_used)
    graded = [GradedPassage(passage, grade) for passage, grade in await grading.grade(state.found, len(state.searched))]
    graded.sort(key=lambda item: (-item.grade.score, item.passage.passage_id))
    used = tuple(item.passage for item in graded if is_used(item.grade))
    missed = tuple(item for item in graded if not is_used(item.grade))
    passages = (*state.passages, *used)[: policy.MOST_PASSAGES]
    return {"found": (), "passages": passages, "missed": (*state.missed, *missed)[: policy.NEAREST_MISSES]}


async def write(state: ComposeState, runtime: Runtime[ComposeContext]) -> ComposeUpdate:
    """Write the first draft, or take the one that came with the request."""
    request, trace = state.request, runtime.context.trace
    ids = tuple(passage.passage_id for passage in state.passages)

    async def first() -> tuple[DraftWritten, Sequence[ModelCall]]:
        if request.draft:
            return DraftWritten(Draft(text=request.draft), supplied=True, passage_ids=ids), ()
        stream = runtime.context.generator.write_draft(request.task, state.passages, request.criteria)
        whole = await written(stream, partial(trace.say, number=0))
        return DraftWritten(whole.draft, supplied=False, passage_ids=ids), whole.model_calls

    return {"draft": (await trace.once(DraftWritten, "", first)).draft}


async def review(state: ComposeState, runtime: Runtime[ComposeContext]) -> ComposeUpdate:
    """Have the draft scored by each criterion, and each of its claims checked where there are passages."""
    draft, request = required(state.draft), state.request
    revision = len(state.reviewed)
    judging = _Judging(state, draft, runtime.context.judge)

    async def look() -> tuple[DraftReviewed, Sequence[ModelCall]]:
        found, checked = await judging.result()
        grade = None if checked is None else checked.grade
        missed = policy.shortfalls(found.review, grade, request.settings)
        item = ReviewedDraft(revision, draft, found.review, grade, missed)
        before = _made_from(state, runtime.context.trace)
        lost = () if before is None else policy.regressions(before, found.review)
        best = policy.best((*state.reviewed, item), state.since)
        calls = (*found.model_calls, *(() if checked is None else checked.model_calls))
        return DraftReviewed(revision, found.review, grade, not missed, missed, lost, best.revision), calls

    seen = await runtime.context.trace.once(DraftReviewed, str(revision), look)
    item = ReviewedDraft(revision, draft, seen.review, seen.faithfulness, seen.shortfalls)
    return {"reviewed": (*state.reviewed, item), "draft": None}


async def revise(state: ComposeState, runtime: Runtime[ComposeContext]) -> ComposeUpdate:
    """Change what was found wanting in the best draft so far, or what a person asked for in the draft that was shown."""
    request, trace = state.request, runtime.context.trace
    revision = state.revisions + 1
    base = policy.best(state.reviewed, min(state.since, len(state.reviewed) - 1))
    failing: tuple[Claim, ...] = ()
    if base.faithfulness is not None:
        failing = failing_claims(base.faithfulness, request.settings.faithfulness_threshold)
    points = (
        *(f"{issue.criterion}: {issue.description}" for issue in base.review.issues),
        *base.review.suggestions,
        *(f"not supported: {claim.text}" for claim in failing),
    )

    async def change() -> tuple[DraftRevised, Sequence[ModelCall]]:
        asked = DraftToRevise(
            task=request.task,
            text=base.draft.text,
            passages=state.passages,
            criteria=request.criteria,
            issues=base.review.issues,
            suggestions=base.review.suggestions,
            failing=failing,
            feedback=state.feedback,
        )
        whole = await written(runtime.context.generator.revise_draft(asked), partial(trace.say, number=revision))
        return DraftRevised(revision, whole.draft, base.revision, points, state.feedback), whole.model_calls

    revised = await trace.once(DraftRevised, str(revision), change)
    # What comes after a person's wish is a new start: the draft that was sent back is not offered again.
    since = len(state.reviewed) if state.feedback else state.since
    return {"draft": revised.draft, "feedback": "", "decision": "", "since": since}


async def approve(state: ComposeState, runtime: Runtime[ComposeContext]) -> ComposeUpdate:
    """Wait for a person's decision. The run leaves the process here and comes back with it."""
    number = state.approvals + 1
    decided = runtime.context.trace.recorded(ApprovalDecided, str(number))
    if decided is None:
        interrupt(number)
    decided = required(decided)
    feedback = decided.feedback if decided.decision is ApprovalDecision.REVISE else ""
    return {"approvals": number, "decision": decided.decision.value, "feedback": feedback}


async def finish(state: ComposeState) -> ComposeUpdate:
    """The end of every path. The workflow makes the result from the state."""
    return {"found": ()}


class _Judging:
    """The review of a draft and the check of its claims, at the same time where no budget says otherwise.

    What has succeeded is not asked for again.
    """

    def __init__(self, state: ComposeState, draft: Draft, judge: Judge) -> None:
        self._state = state
        self._draft = draft
        self._judge = judge
        self._review: ReviewOfDraft | None = None
        self._check: GradedAnswer | None = None

    async def result(self) -> tuple[ReviewOfDraft, GradedAnswer | None]:
        """Both; the check is None without passages. Raises what the first of them raised, once both are over."""
        failures = await self._failures()
        if failures:
            raise self._accounted(failures)
        return required(self._review), self._check

    async def _failures(self) -> list[BaseException]:
        budget = current_call().budget
        if budget is None:
            results = await asyncio.gather(self._look(), self._verify(), return_exceptions=True)
            return [result for result in results if result is not None]
        try:
            # One after the other: at the same time, each of them could consume all that is left.
            await self._look()
            spent = totals_of(required(self._review).model_calls)
            budget.settle(-(spent.cost_micros or 0), -spent.tokens)
            await self._verify()
        except ErrataError as failure:
            return [failure]
        return []

    async def _look(self) -> None:
        if self._review is None:
            request, passages = self._state.request, self._state.passages
            threshold = request.settings.overall_threshold
            asked = DraftToReview(request.task, self._draft.text, request.criteria, threshold, passages)
            self._review = await self._judge.review_draft(asked)

    async def _verify(self) -> None:
        if self._check is None and self._state.passages:
            task, passages = self._state.request.task, self._state.passages
            self._check = await self._judge.grade_answer(task, self._draft.text, passages)

    def _accounted(self, failures: Sequence[BaseException]) -> BaseException:
        """The first failure. It may be the end of the run, so that every call that was paid goes to the account with it."""
        known = [failure for failure in failures if isinstance(failure, ErrataError)]
        if len(known) < len(failures):
            return next(failure for failure in failures if not isinstance(failure, ErrataError))
        calls = [call for failure in known for call in failure.model_calls]
        if self._review is not None:
            calls.extend(self._review.model_calls)
            self._review = replace(self._review, model_calls=())
        if self._check is not None:
            calls.extend(self._check.model_calls)
            self._check = replace(self._check, model_calls=())
        known[0].model_calls = tuple(calls)
        return known[0]


def _made_from(state: ComposeState, trace: RunTrace) -> ReviewedDraft | None:
    revised = trace.recorded(DraftRevised, str(len(state.reviewed)))
    return None if revised is None else state.reviewed[revised.from_revision]
