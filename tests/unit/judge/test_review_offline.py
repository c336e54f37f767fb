"""The offline reviewer without its encoder or with a small one: what it says, what it never does."""

import re
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from errata_kit.drafts import DEFAULT_CRITERIA, Criterion
from errata_kit.encoding import Vectors
from errata_kit.passages import Passage
from services.judge.provider import ReviewedDraft
from services.judge.review.offline import OfflineReviewer

TASK = "Explain how files are kept and how the daily check works."
DRAFT = "Files are kept for 30 days. A check runs every day, and it deletes the files that are older than that."
OTHER = "Knead the dough for ten minutes. Let it rise in a warm place until it has doubled in size. Bake it in a hot pot."
PASSAGES = (Passage("p", "Files are kept for 30 days. A check runs every day and deletes the files that are older."),)
NAMES = [criterion.name for criterion in DEFAULT_CRITERIA]


class WordEncoder:
    """Counts words in 512 buckets: two texts are as near as their words are the same."""

    def __init__(self) -> None:
        self.encoded = 0

    def encode(self, texts: Sequence[str]) -> Vectors:
        self.encoded += len(texts)
        rows = np.full((len(texts), 512), 1e-4, dtype=np.float32)
        for row, text in zip(rows, texts, strict=True):
            for word in re.findall(r"[a-z_]+", text.lower()):
                row[sum(map(ord, word)) * 31 % 512] += 1
        return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True), dtype=np.float32)


@pytest.fixture(params=["lexical", "encoded"])
def reviewer(request: pytest.FixtureRequest) -> OfflineReviewer:
    return OfflineReviewer(WordEncoder() if request.param == "encoded" else None)


def scores(reviewed: ReviewedDraft, names: Sequence[str] = NAMES) -> dict[str, float]:
    return {name: item.score for name, item in zip(names, reviewed.scores, strict=True)}


def test_a_draft_on_the_task_beats_one_on_another_subject(reviewer: OfflineReviewer) -> None:
    good = scores(reviewer.review(TASK, DRAFT, DEFAULT_CRITERIA, ()))
    poor = scores(reviewer.review(TASK, OTHER, DEFAULT_CRITERIA, ()))
    assert good["relevance"] > 0.8 > 0.4 > poor["relevance"]
    assert good["completeness"] > 0.7 > 0.4 > poor["completeness"]
    assert good["clarity"] == poor["clarity"] > 0.9


def test_passages_tell_supported_from_invented(reviewer: OfflineReviewer) -> None:
    wrong = "Files are kept on a satellite. A robot reads them aloud to visitors in the evening."
    good = scores(reviewer.review(TASK, DRAFT, DEFAULT_CRITERIA, PASSAGES))
    poor = reviewer.review(TASK, wrong, DEFAULT_CRITERIA, PASSAGES)
    assert good["technical_quality"] > 0.9 > 0.7 > scores(poor)["technical_quality"]
    assert any(issue.quote == "A robot reads them aloud to visitors in the evening." for issue in poor.issues)


def test_a_missed_point_lowers_completeness_and_is_named(reviewer: OfflineReviewer) -> None:
    task = "Write about files: how long they are kept, how the check works, and how to restore a file from a snapshot."
    whole = reviewer.review(task, f"{DRAFT} To restore a file, take it from the newest snapshot.", DEFAULT_CRITERIA, ())
    part = reviewer.review(task, DRAFT, DEFAULT_CRITERIA, ())
    assert scores(whole)["completeness"] >= scores(part)["completeness"] + 0.1
    assert any("restore a file from a snapshot" in issue.description for issue in part.issues)
    assert any("restore a file from a snapshot" in suggestion for suggestion in part.suggestions)


def test_long_sentences_and_long_paragraphs_lower_clarity(reviewer: OfflineReviewer) -> None:
    endless = "Files are kept and " * 30 + "deleted."
    heavy = "Files are kept for a month and are then deleted by the check. " * 20
    for draft in (endless, heavy):
        found = reviewer.review(TASK, draft, DEFAULT_CRITERIA[:1], ())
        assert found.scores[0].score < 0.92 and found.issues and found.issues[0].criterion == "clarity"


def test_an_own_criterion_is_measured_by_its_description(reviewer: OfflineReviewer) -> None:
    own = (
        Criterion("warns", "It warns that older files are deleted.", 0.4),
        Criterion("baking", "It says at which heat the loaf is baked.", 0.5),
        Criterion("daily_check", threshold=0.4),
    )
    found = reviewer.review(TASK, DRAFT, own, ())
    met, missed, named = (item.score for item in found.scores)
    assert met >= 0.48 > 0.3 > missed and named >= 0.48
    assert [issue.criterion for issue in found.issues] == ["baking"]
    assert "description" in found.scores[0].explanation and "loaf" in found.scores[1].explanation


def test_criteria_are_scored_in_the_order_of_the_request(reviewer: OfflineReviewer) -> None:
    forward = reviewer.review(TASK, OTHER, DEFAULT_CRITERIA, ())
    backward = reviewer.review(TASK, OTHER, DEFAULT_CRITERIA[::-1], ())
    assert scores(forward) == scores(backward, NAMES[::-1])


def test_a_draft_is_encoded_once_and_a_long_one_costs_a_bounded_number_of_vectors() -> None:
    encoder = WordEncoder()
    reviewer = OfflineReviewer(encoder)
    long = " ".join(f"Sentence number {number} says that files are kept." for number in range(1500))
    first = reviewer.review(TASK, long, DEFAULT_CRITERIA, ())
    count = encoder.encoded
    assert count < 80
    assert reviewer.review(TASK, long, DEFAULT_CRITERIA, ()) == first
    assert encoder.encoded == count


def test_a_failing_encoder_is_an_error_and_no_score() -> None:
    class Broken:
        def encode(self, texts: Sequence[str]) -> Vectors:
            raise RuntimeError("no model")

    with pytest.raises(RuntimeError):
        OfflineReviewer(Broken()).review(TASK, DRAFT, DEFAULT_CRITERIA, ())


@settings(max_examples=60)
@given(task=st.text(min_size=1, max_size=200), draft=st.text(min_size=1, max_size=400))
def test_any_text_gets_scores_in_range_and_in_words(task: str, draft: str) -> None:
    criteria = (*DEFAULT_CRITERIA, Criterion("own", "It is kind."))
    for reviewer in (OfflineReviewer(None), OfflineReviewer(WordEncoder())):
        found = reviewer.review(task, draft, criteria, PASSAGES)
        assert found == reviewer.review(task, draft, criteria, PASSAGES)
        assert all(0 <= item.score <= 1 and item.explanation.strip() for item in found.scores)
        assert {issue.criterion for issue in found.issues} <= {criterion.name for criterion in criteria}
