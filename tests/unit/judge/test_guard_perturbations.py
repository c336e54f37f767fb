"""The sentences that the guard is measured on are what they are said to be: changed in one detail, or not changed at all."""

import pytest

from bench.perturbations import KINDS, perturbed
from bench.supported import Supported, in_words, rewritings
from errata_kit.passages import Passage

TEXT = (
    "When the cache is full, it also keeps 1,000 entries for 30 seconds and logs `cache_is_full` to /var/log/cache.log since "
    "January 5, 2024, so set MAX_CACHE_SIZE, cache.ttl_limit or --max-size in version 2.4.1, see https://docs.example.org/cache."
)
NAMES = 'The three `maxRetries` of `cache-size` are never "cold and dry" before the start.'


def supported(text: str, *others: str) -> Supported:
    passages = tuple(Passage(str(number), part) for number, part in enumerate((text, *others)))
    return Supported(text, passages, "document", "page")


@pytest.mark.parametrize("kind", KINDS)
def test_a_perturbation_changes_one_detail_and_is_always_the_same(kind: str) -> None:
    made = [result for text in (TEXT, NAMES) if (result := perturbed(supported(text), kind)[0]) is not None]
    assert made
    for result in made:
        text = result.source.text
        assert result.text != text and result.old != result.new
        assert result.text.replace(result.new, result.old, 1) == text or result.text.count(result.new) > 1
        assert perturbed(supported(text), kind)[0] == result


def test_a_value_that_stands_elsewhere_is_thrown_away_only_in_the_same_role() -> None:
    text = "The server keeps idle sessions for 3 days."
    others = [str(number) for number in range(1, 200)]
    same = supported(text, *(f"The server keeps idle sessions for {number} days, too." for number in others))
    other = supported(text, *(f"It has {number} shards." for number in others))
    assert perturbed(same, "number")[0] is None
    assert perturbed(same, "number")[1] > 0
    assert perturbed(other, "number")[0] is not None


def test_a_name_that_stands_elsewhere_in_another_casing_is_thrown_away() -> None:
    text = "Set the `max_retries` of each client to a small number."
    first, _ = perturbed(supported(text), "snake_case")
    assert first is not None
    camel = "".join(part.capitalize() for part in first.new.split("_"))
    second, thrown = perturbed(supported(text, f"There is {camel} as well."), "snake_case")
    assert thrown and (second is None or second.new != first.new)


def test_every_way_of_writing_leaves_the_meaning() -> None:
    ways = dict(rewritings(supported(TEXT)))
    assert ways["as_it_stands"] == TEXT
    assert "also" not in ways["adverb_dropped"]
    assert ways["date_rewritten"] != TEXT and "2024" in ways["date_rewritten"]
    assert "30 s " in ways["unit_rewritten"]
    assert dict(rewritings(supported("When it is full, the cache is emptied by the server.")))["reordered"] == (
        "The cache is emptied by the server when it is full."
    )


@pytest.mark.parametrize(
    ("value", "words"),
    [(0, "zero"), (25, "twenty-five"), (100, "one hundred"), (1000, "one thousand"), (1250, "one thousand two hundred fifty")],
)
def test_numbers_in_words(value: int, words: str) -> None:
    assert in_words(value) == words
