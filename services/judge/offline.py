"""The offline provider of the judge: rules and a packaged sentence encoder, no language model, no network."""

import asyncio
from collections.abc import Mapping
from hashlib import sha256
from importlib import resources
from typing import Final

from errata_kit.drafts import Criterion
from errata_kit.encoding import Encoder
from errata_kit.llm.pricing import OFFLINE_MODEL
from errata_kit.passages import Passage
from services.judge.claims.offline import OfflineChecker
from services.judge.claims.splitting import ClaimText
from services.judge.grading.offline import OfflineGrader
from services.judge.provider import CheckedClaims, GradedPassage, ReviewedDraft
from services.judge.review.offline import OfflineReviewer

# What a grade and a verdict follow from: the rules themselves, and how they read a text.
_RULES: Final[Mapping[str, tuple[str, ...]]] = {
    "grade_passage": ("services.judge.grading", "errata_kit.text"),
    "check_claims": ("services.judge.claims", "errata_kit.text"),
}


class OfflineProvider:
    """Judges by nearness of meaning and words. It does not reason, and costs nothing."""

    def __init__(self, encoder: Encoder | None) -> None:
        self._grader = OfflineGrader(encoder)
        self._checker = OfflineChecker(encoder)
        self._reviewer = OfflineReviewer(encoder)
        # Encoding is CPU work on one thread of the encoder: more at a time would only wait for each other.
        self._room = asyncio.Semaphore(2)
        read_by = "words" if encoder is None else "vectors"
        self._versions = {operation: _version(packages, read_by) for operation, packages in _RULES.items()}

    @property
    def model(self) -> str:
        """The name in records."""
        return OFFLINE_MODEL

    @property
    def versions(self) -> Mapping[str, str]:
        """Hashes of the rules' source, and of whether they compare vectors or words alone."""
        return self._versions

    async def grade_passages(self, question: str, passages: tuple[Passage, ...]) -> tuple[GradedPassage, ...]:
        """Whether each passage is about what the question asks."""
        async with self._room:
            return tuple(
                [GradedPassage(await asyncio.to_thread(self._grader.grade, question, passage)) for passage in passages]
            )

    async def check_claims(self, question: str, claims: tuple[ClaimText, ...], passages: tuple[Passage, ...]) -> CheckedClaims:
        """Whether the passages say what each claim says."""
        async with self._room:
            return CheckedClaims(await asyncio.to_thread(self._checker.check_claims, claims, passages))

    def evidence_sets(self, claims: tuple[ClaimText, ...], passages: tuple[Passage, ...]) -> tuple[tuple[int, ...], ...]:
        """All of the passages: a claim is measured against what any of them has."""
        return (tuple(range(len(passages))),) * len(claims)

    async def review_draft(
        self, task: str, draft: str, criteria: tuple[Criterion, ...], passages: tuple[Passage, ...]
    ) -> ReviewedDraft:
        """How the draft measures up to each criterion, told by its form, its words and their nearness to the task."""
        async with self._room:
            return await asyncio.to_thread(self._reviewer.review, task, draft, criteria, passages)


def _version(packages: tuple[str, ...], read_by: str) -> str:
    digest = sha256(read_by.encode())
    for package in packages:
        for item in sorted(resources.files(package).iterdir(), key=lambda item: item.name):
            if item.name.endswith(".py"):
                digest.update(item.read_bytes())
    return digest.hexdigest()[:12]
