"""Grades several passages at a time, and hands each result over as soon as it is there."""

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass

from errata_kit.calls import stop_task
from errata_kit.errors import ErrataError
from errata_kit.logs import get_logger
from errata_kit.metrics import Metrics
from errata_kit.passages import Passage
from services.judge.provider import GradedPassage, Provider

_log = get_logger("errata.judge")


@dataclass(frozen=True, slots=True)
class PassageResult:
    """One passage's grade, or the error that stands for it."""

    passage_id: str
    result: GradedPassage | ErrataError


class PassageGrader:
    """Grades with one provider. concurrency bounds the passages of a call that are graded at the same time."""

    def __init__(self, provider: Provider, concurrency: int, metrics: Metrics) -> None:
        self._provider = provider
        self._concurrency = concurrency
        self._metrics = metrics

    async def grade(self, question: str, passages: tuple[Passage, ...]) -> AsyncGenerator[PassageResult, None]:
        """One result a passage, in the order in which they are done. Leaving early stops what is under way."""
        room = asyncio.Semaphore(self._concurrency)

        async def one(passage: Passage) -> PassageResult:
            async with room:
                return await self._one(question, passage)

        tasks = [asyncio.create_task(one(passage)) for passage in passages]
        try:
            for done in asyncio.as_completed(tasks):
                yield await done
        finally:
            for task in tasks:
                await stop_task(task)

    async def _one(self, question: str, passage: Passage) -> PassageResult:
        try:
            with self._metrics.judging("grade_passage"):
                graded = await self._provider.grade_passage(question, passage)
        except ErrataError as error:
            self._metrics.passage_grades.labels(error.why.value).inc()
            _log.warning("passage_not_graded", reason=error.why.value, detail=error.for_log())
            return PassageResult(passage.passage_id, error)
        self._metrics.passage_grades.labels("relevant" if graded.grade.relevant else "irrelevant").inc()
        self._metrics.passage_score.observe(graded.grade.score)
        return PassageResult(passage.passage_id, graded)
