from hypothesis import given
from hypothesis import strategies as st

from errata_kit.text.matching import find_whole, fold, fold_with_origin, occurs

TEXT = st.text(alphabet=st.sampled_from(list("aB1 \n.,-–\"“”'’_İß…\u00a0é")), max_size=60) | st.text(max_size=60)


@given(TEXT)
def test_folding_with_and_without_origins_is_the_same(text: str) -> None:
    folded = fold_with_origin(text)
    assert folded.folded == fold(text)
    assert len(folded.origin) == len(folded.folded)
    assert list(folded.origin) == sorted(set(folded.origin))


@given(TEXT)
def test_a_whole_text_occurs_in_itself(text: str) -> None:
    assert fold(text) == "" or occurs(fold(text), fold(text))


def test_tokenised_text_equals_its_original() -> None:
    assert fold("Air - to - air , “quoted” ") == fold('air-to-air, "quoted"')


def test_a_part_of_a_longer_word_is_no_occurrence() -> None:
    assert find_whole("cat", "concatenate") is None
    assert find_whole("cat", "a cat.") == 2
