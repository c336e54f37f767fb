"""The offline provider of the generator: extracts and rules, no language model, no network."""

import asyncio
from collections.abc import AsyncGenerator

from errata_kit.encoding import Encoder
from errata_kit.llm.pricing import OFFLINE_MODEL
from errata_kit.passages import Answer, Passage
from services.generator.drafting.drafts import Draft
from services.generator.drafting.extract import Extractor
from services.generator.drafting.refine import refine
from services.generator.provider import Correction, Query, Written, refusal


class OfflineProvider:
    """Answers with the passages' own sentences, and corrects by leaving out what failed."""

    def __init__(self, encoder: Encoder | None) -> None:
        self._extractor = Extractor(encoder)

    async def broaden(self, question: str, current: str, tried: tuple[str, ...]) -> Query:
        """Nothing beyond the rules that hold for every provider."""
        return Query("")

    async def answer(self, question: str, passages: tuple[Passage, ...]) -> AsyncGenerator[str | Written, None]:
        """The extracts that answer best. A refusal when nothing in the passages can be quoted."""
        draft = await asyncio.to_thread(self._extractor.answer, question, passages)
        for piece in draft.pieces():
            yield piece
        yield Written(_answer(draft))

    async def refine(self, correction: Correction) -> AsyncGenerator[str | Written, None]:
        """The answer without its failing claims. A refusal when nothing is left."""
        draft = await asyncio.to_thread(
            refine,
            correction.question,
            correction.answer,
            correction.failing,
            correction.passages,
            self._extractor,
        )
        for piece in draft.pieces():
            yield piece
        yield Written(_answer(draft))


def _answer(draft: Draft) -> Answer:
    return Answer(draft.text, draft.citations, OFFLINE_MODEL) if draft.text.strip() else refusal(OFFLINE_MODEL)
