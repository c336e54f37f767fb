"""Steps that more than one workflow takes."""

import asyncio
import contextlib
import functools
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from typing import Any, Final, TypeVar, cast

from errata_kit.errors import ErrataError, JudgementIncomplete, Reason
from errata_kit.grades import PassageGrade
from errata_kit.passages import Passage
from errata_kit.tracing import span
from errata_kit.usage import ModelCall
from services.orchestrator.runs.events import Failure, PassageGraded
from services.orchestrator.runs.trace import RunTrace
from services.orchestrator.workflows.ports import Judge, PassageResult

Item = TypeVar("Item")
Whole = TypeVar("Whole")
Node = TypeVar("Node", bound=Callable[..., Awaitable[Any]])
# A passage that could not be graded for these reasons says nothing about the passage: the run waits for the service, or ends.
_NOT_OF_THE_PASSAGE: Final = frozenset(
    {Reason.SERVICE_UNAVAILABLE, Reason.DRAINING, Reason.BUDGET_EXHAUSTED, Reason.CANCELLED, Reason.DEADLINE_EXCEEDED}
)


class PassageGrading:
    """Grades passages against a question, each once."""

    def __init__(self, trace: RunTrace, judge: Judge, question: str, is_used: Callable[[PassageGrade], bool]) -> None:
        self._trace = trace
        self._judge = judge
        self._question = question
        self._is_used = is_used

    async def grade(self, passages: tuple[Passage, ...], retrieval: int) -> tuple[tuple[Passage, PassageGrade], ...]:
        """The passages that could be graded, in their order, with their grades.

        Raises:
            JudgementIncomplete: none could, so that nothing can be decided.
        """
        await self._trace.insist(lambda: self._grade_the_rest(passages, retrieval))
        results = [(passage, self._recorded(retrieval, passage)) for passage in passages]
        graded = tuple(
            (passage, result.grade) for passage, result in results if result is not None and result.grade is not None
        )
        if not graded:
            raise _nothing_graded([result.error for _, result in results if result is not None and result.error is not None])
        return graded

    async def _grade_the_rest(self, passages: tuple[Passage, ...], retrieval: int) -> None:
        """Grade those that have no result yet, recording each as it comes. Raises what is no fault of a passage."""
        rest = tuple(item for item in passages if self._recorded(retrieval, item) is None)
        if not rest:
            return
        failure: ErrataError | None = None
        unrecorded: list[ModelCall] = []
        recording: list[Awaitable[Any]] = []
        try:
            async with closing(self._judge.grade_passages(self._question, rest)) as results:
                async for result in results:
                    if not isinstance(result.result, PassageGrade) and result.result.why in _NOT_OF_THE_PASSAGE:
                        failure = result.result
                        unrecorded.extend(result.model_calls)
                    else:
                        # Not awaited one by one: what comes in one breath is stored in one transaction.
                        recording.append(self._trace.record(self._event(retrieval, result), result.model_calls))
        finally:
            await asyncio.gather(*recording)
        if failure is not None:
            # Only now: the others were graded meanwhile, and are paid for. So may be those that failed.
            failure.model_calls = (*failure.model_calls, *unrecorded)
            raise failure

    def _recorded(self, retrieval: int, passage: Passage) -> PassageGraded | None:
        return self._trace.recorded(PassageGraded, f"{retrieval}:{passage.passage_id}")

    def _event(self, retrieval: int, result: PassageResult) -> PassageGraded:
        if isinstance(result.result, PassageGrade):
            return PassageGraded(retrieval, result.passage_id, self._is_used(result.result), grade=result.result)
        error = result.result
        return PassageGraded(retrieval, result.passage_id, False, error=Failure(error.why, error.message, error.metadata))


async def written(stream: AsyncIterator[str | Whole], hear: Callable[[str], None]) -> Whole:
    """Read a stream of text to its end. hear: takes each piece as it comes."""
    whole: Any = None
    async with closing(stream) as pieces:
        async for piece in pieces:
            if isinstance(piece, str):
                hear(piece)
            else:
                whole = piece
    return cast("Whole", required(whole))


def step(node: Node) -> Node:
    """A node of a graph whose work is a span of its own, named like it."""

    @functools.wraps(node)
    async def traced(*arguments: Any, **keywords: Any) -> Any:
        with span(node.__name__):
            return await node(*arguments, **keywords)

    return cast("Node", traced)


def closing(stream: AsyncIterator[Item]) -> contextlib.aclosing[AsyncGenerator[Item, None]]:
    """A stream whose call ends with the block. An async for that is left early does not close its generator."""
    return contextlib.aclosing(cast("AsyncGenerator[Item, None]", stream))


def required(value: Item | None) -> Item:
    """The value; RuntimeError when a node runs whose input was not made."""
    if value is None:
        raise RuntimeError("the graph reached a node whose input it has not made")
    return value


def _nothing_graded(failed: list[Failure]) -> JudgementIncomplete:
    causes = sorted({failure.reason.value for failure in failed})
    return JudgementIncomplete(
        f"None of the {len(failed)} passages could be graded ({', '.join(causes) or 'no result'})",
        metadata={"passages": str(len(failed)), "causes": ",".join(causes)},
    )
