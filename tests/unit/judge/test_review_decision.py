"""What becomes of a provider's scores: rules lower them, bounds hold, and the decision is code."""

import re
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from errata_kit.drafts import (
    DEFAULT_CRITERIA,
    OVERALL,
    Criterion,
    DraftIssue,
    DraftReview,
    IssueSeverity,
    ReviewDecision,
)
from errata_kit.errors import JudgementIncomplete
from errata_kit.passages import Passage
from services.judge.offline import OfflineProvider
from services.judge.provider import CriterionJudgement, ReviewedDraft
from services.judge.review.reviewer import DraftReviewer, ReviewTask

TASK = "Explain how files are kept and how the daily check works."
DRAFT = "Files are kept for 30 days. A check runs every day, and it deletes the files that are older than that."
MINOR, MAJOR, CRITICAL = IssueSeverity.MINOR, IssueSeverity.MAJOR, IssueSeverity.CRITICAL


@dataclass
class FixedProvider(OfflineProvider):
    """Says what it is told to."""

    scores: tuple[float, ...] = (1.0, 1.0, 1.0, 1.0)
    issues: tuple[DraftIssue, ...] = ()
    suggestions: tuple[str, ...] = ()
    explanation: str = "Fine."
    asked: list[str] = field(default_factory=list)

    async def review_draft(
        self, task: str, draft: str, criteria: tuple[Criterion, ...], passages: tuple[Passage, ...]
    ) -> ReviewedDraft:
        self.asked.append(draft)
        scores = tuple(CriterionJudgement(score, self.explanation) for score in self.scores)
        return ReviewedDraft(scores, self.issues, self.suggestions)


async def review(
    provider: OfflineProvider, draft: str = DRAFT, criteria: tuple[Criterion, ...] = DEFAULT_CRITERIA, overall: float = 0.85
) -> DraftReview:
    return (await DraftReviewer(provider).review(ReviewTask(TASK, draft, criteria, overall))).review


async def test_without_findings_the_scores_stay_and_the_decision_is_to_approve() -> None:
    found = await review(FixedProvider(scores=(0.81, 0.912345, 0.8, 0.9)))
    assert [item.score for item in found.scores] == [item.model_score for item in found.scores] == [0.81, 0.912345, 0.8, 0.9]
    assert found.decision is ReviewDecision.APPROVE and found.shortfalls == () and found.issues == ()
    assert found.overall_score == pytest.approx(0.8556, abs=1e-4) and found.model == "offline"


async def test_one_score_below_its_threshold_is_enough_to_revise() -> None:
    found = await review(FixedProvider(scores=(1.0, 0.8999, 1.0, 1.0)))
    [short] = found.shortfalls
    assert (short.criterion, short.threshold) == ("relevance", 0.9) and short.missing == pytest.approx(0.0001)
    assert found.decision is ReviewDecision.REVISE


async def test_the_mean_alone_can_fall_short() -> None:
    found = await review(FixedProvider(scores=(0.8, 0.9, 0.8, 0.8)))
    assert [item.criterion for item in found.shortfalls] == [OVERALL] and found.decision is ReviewDecision.REVISE
    assert (await review(FixedProvider(scores=(0.8, 0.9, 0.8, 0.8)), overall=0.82)).decision is ReviewDecision.APPROVE


async def test_a_model_that_praises_everything_is_overruled_by_what_rules_see() -> None:
    found = await review(
        FixedProvider(scores=(1.0, 1.0)), f"{DRAFT}\n\nTODO: the rest\n\nIt also", (*DEFAULT_CRITERIA[2:3], Criterion("tone"))
    )
    completeness, tone = found.scores
    assert completeness.model_score == 1 and completeness.score <= 0.4 and len(completeness.rule_findings) == 2
    assert tone.score <= 0.6 and found.decision is ReviewDecision.REVISE
    assert [issue.severity for issue in found.issues] == [CRITICAL, CRITICAL]
    assert found.issues[0].quote == "TODO: the rest" and len(found.suggestions) == 2


async def test_findings_that_touch_no_criterion_of_the_request_are_left_out() -> None:
    found = await review(FixedProvider(scores=(1.0,)), " ".join([DRAFT] * 3), (Criterion("relevance"),))
    assert found.issues == () and found.suggestions == () and found.scores[0].score == 1.0


async def test_scores_that_do_not_cover_the_criteria_are_no_review() -> None:
    with pytest.raises(JudgementIncomplete):
        await review(FixedProvider(scores=(1.0, 1.0, 1.0)))


async def test_what_a_provider_says_is_cut_to_the_bounds_gravest_first() -> None:
    said = [DraftIssue("clarity", severity, f"{number} ä", "") for number in range(40) for severity in (MINOR, MAJOR, CRITICAL)]
    suggestions = tuple(f"{number} " + "ä" * 2000 for number in range(30))
    found = await review(FixedProvider(issues=tuple(said), suggestions=suggestions, explanation="é" * 5000))
    assert len(found.issues) == 50 and [issue.severity for issue in found.issues] == [CRITICAL] * 40 + [MAJOR] * 10
    assert found.issues[0].description == "0 ä"
    assert len(found.suggestions) == 20 and all(len(item.encode()) <= 2048 for item in found.suggestions)
    assert all(len(item.explanation) == 2000 for item in found.scores)


async def test_quotes_are_those_of_the_draft_or_empty() -> None:
    quotes = ("Files are kept", "“files  ARE kept”", "Files are lost", "")
    found = await review(
        FixedProvider(issues=tuple(DraftIssue("clarity", MAJOR, str(at), text) for at, text in enumerate(quotes)))
    )
    assert [issue.quote for issue in found.issues] == ["Files are kept", "Files are kept", "", ""]


async def test_what_is_said_twice_is_kept_once() -> None:
    issue = DraftIssue("clarity", MINOR, "Too long.", "")
    found = await review(FixedProvider(issues=(issue, issue), suggestions=("Cut it.", " Cut it. ", "")))
    assert found.issues == (issue,) and found.suggestions == ("Cut it.",)


INLINE = ("TODO", "[insert name]", "TBD", "[your name here]", "Coming soon", "(to be written)", "FIXME")
# A note behind a marker takes its line along, so it gets one of its own.
WHOLE_LINES = (
    *INLINE,
    "TODO: say more",
    "Lorem ipsum dolor sit amet.",
    "- TODO",
    "...",
    "[...]",
    "**TBD**",
    "<!-- FIXME: this -->",
)
PARTS = (
    "# Files",
    "## The check",
    "Files are kept for 30 days.",
    "A check runs every day, and it deletes the files that are older than that",
    "- kept\n- deleted.\n-",
    "Files are kept for 30 days.",
    "```sh\nERRATA --PORT 8080\n```",
    "Bake the bread until it is dark.",
    "It uses `max_age` and maxAge, which",
    "| file | days |\n|---|---|\n| a | 30 |",
    "…",
    "It also looks at the",
)
OFFLINE = OfflineProvider(None)
PASSAGES = (Passage("p", "Files are kept for 30 days. A check runs every day and deletes the files that are older."),)


def scored(found: DraftReview) -> dict[str, float]:
    return {item.criterion: item.score for item in found.scores} | {OVERALL: found.overall_score}


@settings(max_examples=120)
@given(
    parts=st.lists(st.sampled_from(PARTS), min_size=1, max_size=8),
    place=st.integers(min_value=0, max_value=400),
    added=st.one_of(st.tuples(st.sampled_from(INLINE), st.just(False)), st.tuples(st.sampled_from(WHOLE_LINES), st.just(True))),
    passages=st.sampled_from([(), PASSAGES]),
)
async def test_a_placeholder_never_raises_a_score(
    parts: list[str], place: int, added: tuple[str, bool], passages: tuple[Passage, ...]
) -> None:
    placeholder, whole_line = added
    draft = "\n\n".join(parts)
    breaks = [match.end() for match in re.finditer(r"\n\n" if whole_line else r"(?<=[a-z]) ", draft)]
    at = breaks[place % len(breaks)] if breaks else len(draft)
    longer = f"{draft[:at]}{placeholder}\n{draft[at:]}" if whole_line else f"{draft[:at]}{placeholder} {draft[at:]}"
    if at == len(draft):
        longer = f"{draft}\n{placeholder}\n"
    criteria = (*DEFAULT_CRITERIA, Criterion("kind", "It speaks of files."))
    reviewer = DraftReviewer(OFFLINE)
    without, with_it = [
        scored((await reviewer.review(ReviewTask(TASK, text, criteria, 0.85, passages))).review) for text in (draft, longer)
    ]
    assert all(with_it[name] <= without[name] for name in without), (draft, longer, without, with_it)


@settings(max_examples=80)
@given(
    scores=st.lists(st.floats(min_value=0, max_value=1), min_size=5, max_size=5),
    draft=st.text(min_size=1, max_size=300),
)
async def test_rules_only_lower_and_the_decision_follows_from_the_scores(scores: list[float], draft: str) -> None:
    criteria = (*DEFAULT_CRITERIA, Criterion("kind", "It is kind.", 0.5))
    found = await review(FixedProvider(scores=tuple(scores)), draft, criteria)
    for item, given_score in zip(found.scores, scores, strict=True):
        assert item.model_score == given_score and 0 <= item.score <= given_score
        assert (item.score == given_score) or item.rule_findings
    short = [item.criterion for item in found.scores if item.score < item.threshold]
    short += [OVERALL] if found.overall_score < 0.85 else []
    assert [item.criterion for item in found.shortfalls] == short
    assert (found.decision is ReviewDecision.APPROVE) is (not short)
