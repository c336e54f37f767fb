"""The offline provider of the generator: extracts and rules, no language model, no network."""

import asyncio
from collections.abc import AsyncGenerator

from errata_kit.encoding import Encoder
from errata_kit.llm.pricing import OFFLINE_MODEL
from errata_kit.passages import Answer, Draft, Passage
from services.generator.drafting.drafts import CitedText, cited
from services.generator.drafting.extract import Extractor
from services.generator.drafting.refine import refine
from services.generator.drafting.revise import DraftReviser
from services.generator.drafting.write import DraftWriter
from services.generator.provider import Correction, Query, Revision, WritingTask, Written, WrittenDraft, refusal


class OfflineProvider:
    """Answers and writes with the passages' own sentences, and corrects by leaving out what failed, or with their words.

    It knows nothing of its own: without passages a draft is an outline of the task's own points.
    """

    def __init__(self, encoder: Encoder | None) -> None:
        self._extractor = Extractor(encoder)
        self._writer = DraftWriter(encoder)
        self._reviser = DraftReviser(self._writer)

    async def broaden(self, question: str, current: str, tried: tuple[str, ...]) -> Query:
        """Nothing beyond the rules that hold for every provider."""
        return Query("")

    async def answer(self, question: str, passages: tuple[Passage, ...]) -> AsyncGenerator[str | Written, None]:
        """The extracts that answer best. A refusal when nothing in the passages can be quoted."""
        text = await asyncio.to_thread(self._extractor.answer, question, passages)
        for piece in text.pieces():
            yield piece
        yield Written(_answer(text))

    async def refine(self, correction: Correction) -> AsyncGenerator[str | Written, None]:
        """The answer without its failing claims, some of them put right. A refusal when nothing is left that answers."""
        done = await asyncio.to_thread(
            refine,
            correction.question,
            correction.answer,
            correction.failing,
            correction.passages,
            self._extractor,
        )
        text = cited(done.text, correction.passages)
        for piece in text.pieces():
            yield piece
        yield Written(_answer(text), edits=done.edits)

    async def write(self, task: WritingTask) -> AsyncGenerator[str | WrittenDraft, None]:
        """A draft of extracts, by the task's points. The criteria change nothing: there is one way to quote."""
        text = await asyncio.to_thread(self._writer.write, task.task, task.passages)
        for piece in text.pieces():
            yield piece
        yield WrittenDraft(_draft(text))

    async def revise(self, revision: Revision) -> AsyncGenerator[str | WrittenDraft, None]:
        """The draft without what was found wrong and with what the passages say of what is missing; else as it was."""
        text = await asyncio.to_thread(self._reviser.revise, revision)
        for piece in text.pieces():
            yield piece
        yield WrittenDraft(_draft(text))


def _answer(text: CitedText) -> Answer:
    return Answer(text.text, text.citations, OFFLINE_MODEL) if text.text.strip() else refusal(OFFLINE_MODEL)


def _draft(text: CitedText) -> Draft:
    return Draft(text.text, text.citations, OFFLINE_MODEL)
