"""The offline grader: what passes, what fails, and what it says about it."""

import re
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from errata_kit.encoding import RememberingEncoder, Vectors
from errata_kit.passages import Passage
from services.judge.grading.offline import OfflineGrader

THRESHOLD = 0.75
RETRY = Passage(
    "retry",
    "A failed call is retried three times by default. Set `max_retries` to change how often a call is retried.",
    title="Retries",
    heading_path=("Retries", "Limits"),
)
BREAD = Passage("bread", "Knead the dough for ten minutes. Let it rise in a warm place until it has doubled in size.")


class WordEncoder:
    """Counts words in 512 buckets: two texts are as near as their words are the same."""

    def __init__(self) -> None:
        self.encoded: list[str] = []

    def encode(self, texts: Sequence[str]) -> Vectors:
        self.encoded.extend(texts)
        rows = np.full((len(texts), 512), 1e-4, dtype=np.float32)
        for row, text in zip(rows, texts, strict=True):
            for word in re.findall(r"[a-z_]+", text.lower()):
                row[sum(map(ord, word)) * 31 % 512] += 1
        return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True), dtype=np.float32)


@pytest.fixture(params=["lexical", "encoded"])
def grader(request: pytest.FixtureRequest) -> OfflineGrader:
    return OfflineGrader(WordEncoder() if request.param == "encoded" else None)


def test_a_passage_that_answers_passes(grader: OfflineGrader) -> None:
    grade = grader.grade("How often is a failed call retried by default?", RETRY)
    assert grade.relevant
    assert grade.score >= THRESHOLD


def test_a_passage_on_another_subject_fails(grader: OfflineGrader) -> None:
    grade = grader.grade("How often is a failed call retried by default?", BREAD)
    assert not grade.relevant
    assert grade.score < 0.5


def test_versions_and_frameworks_do_not_make_the_right_passage_fail(grader: OfflineGrader) -> None:
    plain = grader.grade("how often is a failed call retried?", RETRY)
    laden = grader.grade("In LangChain 0.3.14 with Python 3.12, how often is a failed call retried?", RETRY)
    assert laden.score == plain.score


@pytest.mark.parametrize("talk", ["ok", "Thanks!", "hello", "", "   ", "?!"])
def test_small_talk_is_answered_by_nothing(grader: OfflineGrader, talk: str) -> None:
    grade = grader.grade(talk, RETRY)
    assert (grade.score, grade.relevant) == (0.0, False)


def test_a_question_for_a_number_needs_a_number() -> None:
    grader = OfflineGrader(WordEncoder())
    passage = Passage("p", "The monthly fee of the service depends on the plan that was chosen for the service.")
    silent = Passage("p", "The fee of the service depends on the plan that was chosen for the service.")
    assert grader.grade("How much is the fee of the service?", passage).score > 0.5
    grade = grader.grade("How much is the fee of the service?", silent)
    assert "number" in grade.reasoning
    assert grade.score < THRESHOLD


def test_support_of_something_never_named_is_not_answered() -> None:
    grader = OfflineGrader(WordEncoder())
    passage = Passage("p", "Does the service support PostgreSQL? The service supports PostgreSQL for its run store.")
    named = grader.grade("Does the service support PostgreSQL?", passage)
    unnamed = grader.grade("Does the service support CouchDB?", passage)
    assert named.score >= THRESHOLD > unnamed.score
    assert "CouchDB" in unnamed.reasoning


def test_the_reasoning_names_what_matched_and_what_is_missing(grader: OfflineGrader) -> None:
    reasoning = grader.grade("Is a failed call retried after a timeout?", RETRY).reasoning
    assert "“failed”" in reasoning
    assert "not “timeout”" in reasoning
    assert reasoning.endswith(".")
    assert "\n" not in reasoning


def test_headings_count_as_named() -> None:
    passage = Passage("p", "Set the value to true in the file.", title="Authentication", heading_path=("Enable TLS",))
    assert "“TLS”" in OfflineGrader(None).grade("How do I enable TLS?", passage).reasoning


def test_an_empty_passage_is_no_evidence(grader: OfflineGrader) -> None:
    assert grader.grade("What is a run?", Passage("p", " \n", title="Runs")).score == 0.0


def test_a_failing_encoder_is_an_error_not_a_grade() -> None:
    class Broken:
        def encode(self, texts: Sequence[str]) -> Vectors:
            raise RuntimeError("no model")

    with pytest.raises(RuntimeError):
        OfflineGrader(Broken()).grade("What is a run?", RETRY)


def test_sentences_are_encoded_once() -> None:
    encoder = WordEncoder()
    grader = OfflineGrader(encoder)
    first = grader.grade("How often is a call retried?", RETRY)
    count = len(encoder.encoded)
    assert grader.grade("How often is a call retried?", RETRY) == first
    assert len(encoder.encoded) == count


def test_the_memory_of_vectors_is_bounded_and_forgets_the_oldest() -> None:
    encoder = WordEncoder()
    remembering = RememberingEncoder(encoder, size=2)
    for text in ("a", "b", "a", "c", "a", "b"):
        remembering.encode([text])
    assert encoder.encoded == ["a", "b", "c", "b"]
    assert remembering.encode(["a", "x", "a"]).shape == (3, 512)


def test_long_passages_cost_a_bounded_number_of_units() -> None:
    encoder = WordEncoder()
    OfflineGrader(encoder).grade(
        "What is a run?",
        Passage(
            "p",
            "A run is a thing that goes on and on. " * 20
            + "".join(f"Sentence number {n} says something about it. " for n in range(300)),
        ),
    )
    assert len(encoder.encoded) < 60


@settings(max_examples=60, deadline=None)
@given(question=st.text(max_size=200), text=st.text(min_size=1, max_size=400))
def test_any_text_gets_a_grade_in_range(question: str, text: str) -> None:
    for grader in (OfflineGrader(None), OfflineGrader(WordEncoder())):
        grade = grader.grade(question, Passage("p", text))
        assert 0.0 <= grade.score <= 1.0
        assert grade == grader.grade(question, Passage("p", text))
        assert grade.reasoning
