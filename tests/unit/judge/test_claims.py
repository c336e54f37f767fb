import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.judge.claims.splitting import split_claims


def texts(answer: str) -> list[str]:
    return [claim.text for claim in split_claims(answer)]


@given(st.lists(st.sampled_from([*list("aB. \n*[]1?:'-`#"), "I don't know", " but ", "Yes. "]), max_size=120).map("".join))
def test_claims_stand_where_they_say(answer: str) -> None:
    for claim in split_claims(answer):
        assert 0 <= claim.start < claim.end <= len(answer)
        assert claim.text


@pytest.mark.parametrize(
    "answer",
    [
        "I don't know.",
        "I'm sorry, but I do not have any information about that.",
        "The documents do not mention REDIS_URL.",
        "Unfortunately, the provided passages contain no figure.",
        "The timeout is not mentioned in the documents.",
        "There is no information about pricing.",
        "Could you say which version you mean?",
        "# Heading",
        "Hello! I hope this helps.",
        "",
    ],
)
def test_what_states_nothing_has_no_claims(answer: str) -> None:
    assert texts(answer) == []


def test_what_follows_the_turn_of_an_abstention_is_a_claim() -> None:
    assert texts("The documents do not give a figure, but the limit is 30 seconds.") == ["the limit is 30 seconds."]


def test_citations_and_emphasis_are_stripped_from_the_text_but_not_from_the_span() -> None:
    answer = "The **port** is 8080 [1][2]. Use it [3]."
    claims = split_claims(answer)
    assert [claim.text for claim in claims] == ["The port is 8080.", "Use it."]
    assert answer[claims[0].start : claims[0].end] == "The **port** is 8080 [1][2]."


def test_list_introductions_and_bare_answer_words_are_left_out_beside_statements() -> None:
    assert texts("Yes. These are the ports:\n1. Port 80 serves HTTP.\n2. Port 443 serves HTTPS.") == [
        "Port 80 serves HTTP.",
        "Port 443 serves HTTPS.",
    ]
    assert texts("Yes.") == ["Yes."]
