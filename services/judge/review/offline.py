"""The offline reviewer: scores a draft by what can be measured without a language model.

It measures form and nearness of subject. It can't tell whether what a draft says is true, nor whether it is well put.
"""

from collections.abc import Sequence
from typing import Final

from errata_kit.drafts import Criterion, DraftIssue
from errata_kit.encoding import Encoder, RememberingEncoder
from errata_kit.passages import Passage
from services.judge.provider import CriterionJudgement, ReviewedDraft
from services.judge.review import nearness, wording
from services.judge.review.findings import CLARITY, COMPLETENESS, KNOWN, RELEVANCE, TECHNICAL_QUALITY
from services.judge.review.measured import Measured
from services.judge.review.reading import read_draft
from services.judge.review.task import read_task

_CACHED_TEXTS: Final = 4096


class OfflineReviewer:
    """Scores drafts. Deterministic; CPU work, so call it from a thread. One instance may serve many threads."""

    def __init__(self, encoder: Encoder | None) -> None:
        """Without an encoder the words alone decide, less accurately."""
        self._encoder = None if encoder is None else RememberingEncoder(encoder, _CACHED_TEXTS)

    def review(self, task: str, draft: str, criteria: Sequence[Criterion], passages: Sequence[Passage]) -> ReviewedDraft:
        """Score a draft by each criterion, in their order. An error of the encoder passes through: a failure is no score."""
        asked, read = read_task(task), read_draft(draft, task)
        own = [criterion for criterion in criteria if criterion.name not in KNOWN]
        near = nearness.look(read, asked, own, self._encoder)
        scores: list[CriterionJudgement] = []
        issues: list[DraftIssue] = []
        suggestions: list[str] = []
        for criterion in criteria:
            found: Measured
            match criterion.name:
                case name if name == CLARITY:
                    found = wording.clarity(read)
                case name if name == RELEVANCE:
                    found = nearness.relevance(near, asked, read)
                case name if name == COMPLETENESS:
                    found = nearness.completeness(near, asked, read)
                case name if name == TECHNICAL_QUALITY:
                    found = wording.technical_quality(read, asked, passages)
                case _:
                    found = nearness.own_criterion(own.index(criterion), criterion, near, read)
            scores.append(CriterionJudgement(found.score, found.explanation))
            issues.extend(remark.issue(criterion.name) for remark in found.remarks)
            suggestions.extend(remark.remedy for remark in found.remarks)
        return ReviewedDraft(tuple(scores), tuple(issues), tuple(dict.fromkeys(suggestions)))
