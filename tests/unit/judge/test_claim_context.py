"""What stands before a claim goes along with it where its words refer to that."""

import pytest

from services.judge.claims.splitting import split_claims

ANSWER = (
    "The cache keeps values for seven days. [1] It is emptied by a restart of the process. [1] Redis keeps values on a disk."
)


def test_a_claim_that_points_back_has_the_sentence_before_it_and_others_have_none() -> None:
    assert [claim.before for claim in split_claims(ANSWER)] == ["", "The cache keeps values for seven days.", ""]


def test_a_segment_gets_it_from_what_precedes_it() -> None:
    whole = split_claims(ANSWER)
    cut = ANSWER.index("It is emptied")
    segment = split_claims(ANSWER[cut:], ANSWER[:cut])
    assert [(claim.text, claim.before) for claim in segment] == [(claim.text, claim.before) for claim in whole[1:]]
    assert [claim.before for claim in split_claims(ANSWER[cut:])] == ["", ""]


@pytest.mark.parametrize("preceding", ["", "   ", "\n\n", "x" * 100_000])
def test_what_precedes_may_be_anything(preceding: str) -> None:
    [claim] = split_claims("It is emptied by a restart of the process.", preceding)
    assert len(claim.before) <= 500
    assert claim.text == "It is emptied by a restart of the process."


def test_a_heading_before_a_claim_is_what_it_refers_to_and_no_claim() -> None:
    [claim] = split_claims("# The cache\n\nIt is emptied by a restart of the process.")
    assert claim.before == "The cache"
