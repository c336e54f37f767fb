"""Which passages a claim is held against: those with its words, and those with the sentences nearest to it."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from errata_kit.grades import Verdict
from errata_kit.passages import Passage
from errata_kit.text.evidence_set import EvidenceSets, evidence_set
from errata_kit.text.terms import content_terms
from services.judge.claims.offline import OfflineChecker
from services.judge.claims.splitting import cited_in, split_claims

ANSWERS = Path(__file__).parents[4] / "shared/data/mtrag/faithfulness.jsonl"
WORDS = ("ferry", "cargo", "winter", "harbour", "lantern", "wagon", "bridge")
TEXTS = st.lists(st.lists(st.sampled_from([*WORDS, ". "]), max_size=10).map(" ".join), max_size=6)
FERRY = "The ferry takes cargo across in winter. Lanterns are lit at dusk."
WAGON = "The wagon takes cargo over the bridge. A bridge needs repairs."
HARBOUR = "The harbour sleeps."


@given(st.lists(st.sampled_from(WORDS), min_size=1, max_size=6).map(" ".join), TEXTS)
def test_every_word_that_any_passage_has_is_in_the_set(statement: str, passages: list[str]) -> None:
    places = EvidenceSets(passages).of(statement)
    assert list(places) == sorted(set(places)) and bool(places) is bool(passages)
    wanted = set(content_terms(statement))
    everywhere = wanted & {word for passage in passages for word in content_terms(passage)}
    assert everywhere == wanted & {word for place in places for word in content_terms(passages[place])}


@given(TEXTS, TEXTS, st.sets(st.integers(-3, 9)))
def test_the_set_of_several_statements_is_that_of_each(statements: list[str], passages: list[str], cited: set[int]) -> None:
    together = set(evidence_set(statements, passages, cited))
    there = {place for place in cited if 0 <= place < len(passages)}
    assert there <= together <= set(range(len(passages)))
    sets = EvidenceSets(passages)
    alone = there.union(*(sets.of(statement, cited) for statement in statements))
    assert together == (alone or set(range(min(1, len(passages)))))


@pytest.mark.parametrize(
    ("statement", "cited", "expected"),
    [
        ("The ferry takes cargo.", (), (0,)),
        ("The wagon takes cargo.", (), (1,)),
        ("Cargo is taken.", (), (0, 1)),
        ("The ferry takes cargo to the harbour.", (), (0, 2)),
        ("The ferry takes cargo.", (2,), (0, 2)),
        ("The ferry takes cargo.", (-1, 3), (0,)),
        ("Die Fähre fährt im Winter. Ferry.", (), (0, 1, 2)),
        ("Die Fähre fährt im Winter.", (2,), (0, 2)),
        ("Nothing of that.", (), (0, 1, 2)),
        ("Nothing of that.", (9,), (0, 1, 2)),
        ("Nothing of that.", (1,), (1,)),
        ("", (), (0, 1, 2)),
        ("", (1,), (1,)),
    ],
)
def test_the_nearest_sentences_and_what_they_lack(statement: str, cited: tuple[int, ...], expected: tuple[int, ...]) -> None:
    assert EvidenceSets([FERRY, WAGON, HARBOUR]).of(statement, cited) == expected


def test_a_sentence_counts_for_more_than_words_strewn_over_a_passage() -> None:
    strewn = "A ferry. In winter. Some cargo. The harbour. A lantern. The bridge."
    said = "The ferry takes cargo over in winter."
    assert 1 in EvidenceSets([strewn, said]).of("The ferry takes cargo to the harbour in winter, by lantern, at the bridge.")


def test_no_passages_are_no_set() -> None:
    assert evidence_set(["The ferry."], []) == () and EvidenceSets([]).of("The ferry.", (0,)) == ()


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("It is so. [1]", (1,)),
        ("It is so [2][10].", (2, 10)),
        ("It is so [1, 3] and so [3].", (1, 3)),
        ("It is so [2-4].", (2, 3, 4)),
        ("It is so [2–4, 9].", (2, 3, 4, 9)),
        ("It is so [4-2].", ()),
        ("It is so [a] [] (1) [1234].", ()),
    ],
)
def test_the_numbers_that_a_sentence_cites(text: str, numbers: tuple[int, ...]) -> None:
    assert cited_in(text) == numbers
    assert split_claims(text)[0].cited == numbers


@pytest.mark.skipif(not ANSWERS.exists(), reason="the shared data is not here")
def test_what_the_offline_checker_quotes_is_in_the_set_of_its_claim() -> None:
    checker = OfflineChecker()
    claims = missed = shown = there = 0
    for line in ANSWERS.read_text(encoding="utf-8").splitlines()[:60]:
        row = json.loads(line)
        passages = tuple(Passage(str(place), item["text"]) for place, item in enumerate(row["passages"]))
        sets = EvidenceSets([passage.under_headings() for passage in passages])
        for claim in checker.check(row["answer"], passages):
            if claim.verdict is Verdict.SUPPORTED:
                places = sets.of(claim.text)
                claims += 1
                missed += not {int(quote.passage_id) for quote in claim.evidence} <= set(places)
                shown, there = shown + len(places), there + len(passages)
    assert claims > 100 and missed <= 0.01 * claims
    assert shown < 0.75 * there
