from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from errata_kit.encoding import Vectors
from errata_kit.grades import Verdict
from errata_kit.passages import Passage
from services.judge.claims.offline import OfflineChecker
from services.judge.claims.scoring import assess

SENTENCES = (
    "The retriever splits each document into passages of about 800 characters.",
    "Connections are closed after 30 seconds without traffic.",
    "Backups are written to the archive bucket every night.",
    "Administrators can enable audit logs in the settings page.",
    "The scheduler never starts two jobs with the same name.",
)
PASSAGES = (Passage("a", " ".join(SENTENCES[:3])), Passage("b", "\n\n".join(SENTENCES[3:])))
CHECKER = OfflineChecker()


class LetterEncoder:
    """Counts letters: enough for a cosine that is 1 for equal texts."""

    def __init__(self) -> None:
        self.calls: list[list[str]] = []

    def encode(self, texts: Sequence[str]) -> Vectors:
        self.calls.append(list(texts))
        counts = np.array([[1 + text.lower().count(letter) for letter in "abcdefghijklmnop"] for text in texts])
        return np.asarray(counts / np.linalg.norm(counts, axis=1, keepdims=True), dtype=np.float32)


def verdicts(answer: str) -> list[Verdict]:
    return [claim.verdict for claim in CHECKER.check(answer, PASSAGES)]


@given(st.lists(st.sampled_from(SENTENCES), min_size=1, max_size=5))
def test_verbatim_extracts_are_supported_and_score_one(extract: list[str]) -> None:
    for checker in (CHECKER, OfflineChecker(LetterEncoder())):
        assessment = assess(checker.check(" ".join(extract), PASSAGES), ())
        assert {claim.verdict for claim in assessment.claims} == {Verdict.SUPPORTED}
        assert assessment.faithfulness_score == 1.0


@given(st.lists(st.sampled_from([*list("aB. \n*[]1?:'-`#|"), *SENTENCES, " not ", "31"]), max_size=12).map("".join))
def test_evidence_always_occurs_in_its_passage(answer: str) -> None:
    texts = {passage.passage_id: passage.text for passage in PASSAGES}
    for claim in CHECKER.check(answer, PASSAGES):
        assert claim.support is None or 0 <= claim.support <= 1
        assert claim.explanation
        assert all(item.quote in texts[item.passage_id] for item in claim.evidence)


def test_one_made_up_claim_among_three_keeps_the_answer_back() -> None:
    answer = f"{SENTENCES[0]} {SENTENCES[1]} Penguins migrate across frozen oceans each winter."
    assessment = assess(CHECKER.check(answer, PASSAGES), ())
    assert [claim.verdict for claim in assessment.claims] == [
        Verdict.SUPPORTED,
        Verdict.SUPPORTED,
        Verdict.UNSUPPORTED,
    ]
    assert assessment.faithfulness_score < 0.80
    assert "Penguins" in assessment.problematic_claims[0].explanation


@pytest.mark.parametrize(
    "answer",
    [
        "Connections are closed after 45 seconds without traffic.",
        "Connections are not closed after 30 seconds without traffic.",
        "Administrators can disable audit logs in the settings page.",
        "The scheduler starts two jobs with the same name.",
        "Administrators can enable audit logs in the Grafana page.",
    ],
)
def test_a_near_copy_that_says_something_else_is_not_supported(answer: str) -> None:
    (claim,) = CHECKER.check(answer, PASSAGES)
    assert claim.verdict in (Verdict.CONTRADICTED, Verdict.UNSUPPORTED)
    assert claim.evidence


def test_another_number_in_the_same_sentence_is_contradicted_with_both_numbers_named() -> None:
    (claim,) = CHECKER.check("Connections are closed after 45 seconds without traffic.", PASSAGES)
    assert claim.verdict is Verdict.CONTRADICTED
    assert "45" in claim.explanation
    assert "30" in claim.explanation


def test_two_sentences_together_are_evidence() -> None:
    (claim,) = CHECKER.check("Backups are written every night and connections are closed without traffic.", PASSAGES)
    assert claim.verdict is Verdict.SUPPORTED
    assert len(claim.evidence) == 2


def test_no_passages_support_nothing_and_a_bare_yes_cannot_be_checked() -> None:
    (claim,) = CHECKER.check(SENTENCES[0], ())
    assert claim.verdict is Verdict.UNSUPPORTED
    assert verdicts("Yes.") == [Verdict.UNVERIFIABLE]
