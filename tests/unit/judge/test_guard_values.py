"""Numbers in every writing: digits, words, units and scales."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from errata_kit.passages import Passage
from services.judge.guard import find_ungrounded
from services.judge.guard.numerals import spelled_numbers

ONES = (
    "zero,one,two,three,four,five,six,seven,eight,nine,ten,eleven,twelve,thirteen,fourteen,fifteen,sixteen,seventeen,"
    "eighteen,nineteen"
)
TENS = "zero,ten,twenty,thirty,forty,fifty,sixty,seventy,eighty,ninety"


def words(value: int) -> str:
    """A whole number below a billion in words, with "and" after the hundreds."""
    for size, name in ((1_000_000, "million"), (1000, "thousand"), (100, "hundred")):
        if value >= size:
            joint = " and " if size == 100 else " "
            return f"{words(value // size)} {name}" + (joint + words(value % size) if value % size else "")
    if value < 20:
        return ONES.split(",")[value]
    return TENS.split(",")[value // 10] + (f"-{words(value % 10)}" if value % 10 else "")


def found(answer: str, source: str) -> list[tuple[str, str]]:
    return [(f.kind, f.text) for f in find_ungrounded(answer, "What is it?", [Passage("p", source)])]


@given(st.integers(0, 999_999_999))
def test_a_number_in_words_is_the_number_in_digits(value: int) -> None:
    text = f"it keeps {words(value)} entries"
    (spelled,) = spelled_numbers(text)
    assert (spelled.value, text[spelled.start : spelled.end]) == (str(value), words(value))


@pytest.mark.parametrize(
    "writings",
    [
        ("1,000 entries", "1000 entries", "one thousand entries", "1k entries", "1 thousand entries"),
        ("25 workers", "twenty-five workers", "twenty five workers"),
        ("2,000,000 users", "2 million users", "two million users", "2M users"),
        ("1,500 rows", "1.5k rows", "1.5 thousand rows", "one thousand five hundred rows"),
        ("30 s", "30 seconds", "thirty seconds", "30s", "half a minute", "0.5 minutes", "30-second", "30,000 ms"),
        ("1 hour", "60 minutes", "one hour", "3600 s", "an hour", "60 min"),
        ("50 %", "50%", "50 percent", "fifty percent", "0.5"),
        ("2 GB", "2048 MB", "2 gigabytes", "two GiB", "2GB"),
    ],
)
def test_equal_values_in_another_writing_are_known(writings: tuple[str, ...]) -> None:
    for source in writings:
        for said in writings:
            assert found(f"Each pool holds {said} at most.", f"The pool of a node holds {source} when full.") == []


@pytest.mark.parametrize(
    ("said", "source", "finding"),
    [
        ("It waits for 45 seconds.", "It waits for 30 seconds.", "45"),
        ("It waits for forty-five seconds.", "It waits for 30 seconds.", "forty-five"),
        ("It waits for 30 minutes.", "It waits for 30 seconds.", "30"),
        ("It serves 17.5 billion users.", "It serves 17.5 million users.", "17.5"),
        ("It keeps 2 GB of logs.", "It keeps 2 MB of logs.", "2"),
        ("It keeps eleven copies.", "It keeps two copies.", "eleven"),
        ("The client waits half an hour for it.", "The client waits half a minute for it.", "half an hour"),
    ],
)
def test_another_value_is_found(said: str, source: str, finding: str) -> None:
    assert found(said, f"{source} Then it stops for good.") == [("number", finding)]


def test_a_scale_without_a_number_is_none() -> None:
    assert found("Several hundred users and millions of rows.", "It has many users and a lot of rows.") == []


def test_a_decade_is_no_number_of_seconds() -> None:
    assert found("It was popular in the 1990s.", "In the 1990s, it was popular.") == []


def test_a_small_number_in_words_merely_counts_what_a_text_lists() -> None:
    assert found("It can be set in two ways: a flag and a file.", "Set it by a flag. Or set it in a file.") == []
