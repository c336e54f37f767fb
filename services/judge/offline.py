"""The offline provider of the judge: rules and a packaged sentence encoder, no language model, no network."""

import asyncio

from errata_kit.drafts import Criterion
from errata_kit.encoding import Encoder
from errata_kit.llm.pricing import OFFLINE_MODEL
from errata_kit.passages import Passage
from services.judge.claims.offline import OfflineChecker
from services.judge.claims.splitting import ClaimText
from services.judge.grading.offline import OfflineGrader
from services.judge.provider import CheckedClaims, GradedPassage, ReviewedDraft
from services.judge.review.offline import OfflineReviewer


class OfflineProvider:
    """Judges by nearness of meaning and words. It does not reason, and costs nothing."""

    def __init__(self, encoder: Encoder | None) -> None:
        self._grader = OfflineGrader(encoder)
        self._checker = OfflineChecker(encoder)
        self._reviewer = OfflineReviewer(encoder)
        # Encoding is CPU work on one thread of the encoder: more at a time would only wait for each other.
        self._room = asyncio.Semaphore(2)

    @property
    def model(self) -> str:
        """The name in records."""
        return OFFLINE_MODEL

    async def grade_passage(self, question: str, passage: Passage) -> GradedPassage:
        """Whether the passage is about what the question asks."""
        async with self._room:
            return GradedPassage(await asyncio.to_thread(self._grader.grade, question, passage))

    async def check_claims(self, question: str, claims: tuple[ClaimText, ...], passages: tuple[Passage, ...]) -> CheckedClaims:
        """Whether the passages say what each claim says."""
        async with self._room:
            return CheckedClaims(await asyncio.to_thread(self._checker.check_claims, claims, passages))

    async def review_draft(
        self, task: str, draft: str, criteria: tuple[Criterion, ...], passages: tuple[Passage, ...]
    ) -> ReviewedDraft:
        """How the draft measures up to each criterion, told by its form, its words and their nearness to the task."""
        async with self._room:
            return await asyncio.to_thread(self._reviewer.review, task, draft, criteria, passages)
