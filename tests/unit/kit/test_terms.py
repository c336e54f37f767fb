from hypothesis import given
from hypothesis import strategies as st

from errata_kit.text.terms import content_terms


def test_words_are_stemmed_and_stop_words_left_out() -> None:
    assert content_terms("The users were caching their answers") == ("user", "cach", "answer")


def test_identifiers_give_their_parts_and_the_whole() -> None:
    assert "redis_url" in content_terms("REDIS_URL")
    assert {"max", "retri", "maxretries"} <= set(content_terms("maxRetries"))
    assert "file.name.py" in content_terms("file.name.py")


def test_hyphenated_words_equal_their_tokenised_form() -> None:
    assert content_terms("air-to-air") == content_terms("air - to - air")


def test_numbers_and_versions_are_compared_by_value() -> None:
    assert content_terms("1,000 v1.2.3") == content_terms("1000 1.2.3") == ("1000", "1.2.3")


@given(st.text(max_size=200))
def test_any_text_gives_lower_case_terms(text: str) -> None:
    assert all(term == term.lower() and term.strip() for term in content_terms(text))
