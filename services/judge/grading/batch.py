"""Grades passages in batches, several at a time, and hands each result over as soon as it is there."""

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

from errata_kit.calls import stop_task
from errata_kit.errors import ErrataError, Reason
from errata_kit.grades import PassageGrade
from errata_kit.logs import get_logger
from errata_kit.metrics import Metrics
from errata_kit.passages import Passage
from errata_kit.usage import ModelCall
from services.judge.injections import find_injections
from services.judge.off_loop import off_loop
from services.judge.provider import GradedPassage, Provider

_log = get_logger("errata.judge")

# What one passage of a batch may have brought upon all of them. Other failures would meet each passage alone, too.
_MAY_LIE_IN_A_PASSAGE: Final = frozenset(
    {
        Reason.MODEL_OUTPUT_INVALID,
        Reason.MODEL_TRUNCATED,
        Reason.MODEL_REFUSED,
        Reason.MODEL_FILTERED,
        Reason.MODEL_CONTEXT_EXCEEDED,
    }
)


@dataclass(frozen=True, slots=True)
class PassageResult:
    """One passage's grade, or the error that stands for it.

    model_calls: what it has cost. A call for several passages is told with one of them.
    """

    passage_id: str
    result: PassageGrade | ErrataError
    model_calls: tuple[ModelCall, ...] = ()


@dataclass(frozen=True, slots=True)
class _Batch:
    """Passages of one call. spent: what has been paid for them in vain."""

    passages: tuple[Passage, ...]
    spent: tuple[ModelCall, ...] = ()


@dataclass(frozen=True, slots=True)
class _Step:
    """What has come of a batch: results, and what is to be tried in its place."""

    results: tuple[PassageResult, ...] = ()
    retries: tuple[_Batch, ...] = ()


def balanced(passages: tuple[Passage, ...], size: int) -> tuple[tuple[Passage, ...], ...]:
    """The passages in order, in as few batches of at most `size` as there can be, none more than one longer than another."""
    count = -(-len(passages) // size)
    cuts = [-(-len(passages) * number // count) for number in range(count + 1)] if count else [0]
    return tuple(passages[start:end] for start, end in pairwise(cuts))


class PassageGrader:
    """Grades with one provider, `batch_size` passages in a call; `concurrency` bounds the batches of a request at a time.

    A batch that fails for what may lie in one of its passages is graded passage by passage; any other failure is the error of
    each passage of it.
    """

    def __init__(self, provider: Provider, concurrency: int, metrics: Metrics, batch_size: int = 1) -> None:
        self._provider = provider
        self._concurrency = concurrency
        self._metrics = metrics
        self._batch_size = batch_size

    async def grade(self, question: str, passages: tuple[Passage, ...]) -> AsyncGenerator[PassageResult, None]:
        """One result a passage, in the order in which they are done. Leaving early stops what is under way."""
        room = asyncio.Semaphore(self._concurrency)

        async def step(batch: _Batch) -> _Step:
            async with room:
                return await self._step(question, batch)

        under_way = [asyncio.create_task(step(_Batch(batch))) for batch in balanced(passages, self._batch_size)]
        try:
            while under_way:
                await asyncio.wait(under_way, return_when=asyncio.FIRST_COMPLETED)
                for task in [task for task in under_way if task.done()]:
                    done = task.result()
                    under_way.remove(task)
                    under_way += [asyncio.create_task(step(batch)) for batch in done.retries]
                    for result in done.results:
                        yield result
        finally:
            for task in under_way:
                await stop_task(task)

    async def _step(self, question: str, batch: _Batch) -> _Step:
        try:
            graded = await self._provider.grade_passages(question, batch.passages)
        except ErrataError as error:
            spent = (*batch.spent, *error.model_calls)
            if len(batch.passages) > 1 and error.why in _MAY_LIE_IN_A_PASSAGE:
                _log.warning("batch_not_graded", reason=error.why.value, passages=len(batch.passages), detail=error.for_log())
                singles = (_Batch((passage,), () if place else spent) for place, passage in enumerate(batch.passages))
                return _Step(retries=tuple(singles))
            return _Step(self._failed(batch.passages, error, spent))
        except Exception:
            self._count_failure(Reason.INTERNAL, len(batch.passages))
            raise
        marked = [await self._graded(passage, item) for passage, item in zip(batch.passages, graded, strict=True)]
        marked[0] = replace(marked[0], model_calls=(*batch.spent, *marked[0].model_calls))
        return _Step(tuple(marked))

    def _failed(
        self, passages: tuple[Passage, ...], error: ErrataError, spent: tuple[ModelCall, ...]
    ) -> tuple[PassageResult, ...]:
        _log.warning("passage_not_graded", reason=error.why.value, passages=len(passages), detail=error.for_log())
        self._count_failure(error.why, len(passages))
        self._metrics.passage_grades.labels(error.why.value).inc(len(passages))
        return tuple(PassageResult(passage.passage_id, error, () if place else spent) for place, passage in enumerate(passages))

    def _count_failure(self, reason: Reason, passages: int) -> None:
        self._metrics.judgements.labels("grade_passage").inc(passages)
        self._metrics.judge_failures.labels("grade_passage", reason.value).inc(passages)

    async def _graded(self, passage: Passage, graded: GradedPassage) -> PassageResult:
        text = passage.under_headings()
        # A search takes eight times as long as other work on as much text: 1.2 µs a character.
        grade = replace(graded.grade, injections=await off_loop(8 * len(text), find_injections, text))
        self._metrics.judgements.labels("grade_passage").inc()
        self._metrics.passage_grades.labels("relevant" if grade.relevant else "irrelevant").inc()
        self._metrics.passage_score.observe(grade.score)
        for kind in grade.injections:
            self._metrics.injections.labels(kind.value).inc()
        return PassageResult(passage.passage_id, grade, graded.model_calls)
