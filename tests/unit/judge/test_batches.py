"""How passages are cut into batches."""

import math

from hypothesis import given
from hypothesis import strategies as st

from errata_kit.passages import Passage
from services.judge.grading.batch import balanced


@given(st.integers(0, 100), st.integers(1, 20))
def test_batches_are_as_few_as_can_be_and_alike(count: int, size: int) -> None:
    passages = tuple(Passage(str(number), "Text.") for number in range(count))
    batches = balanced(passages, size)
    assert tuple(passage for batch in batches for passage in batch) == passages
    assert len(batches) == math.ceil(count / size)
    lengths = [len(batch) for batch in batches]
    assert not lengths or (min(lengths) > 0 and max(lengths) <= size and max(lengths) - min(lengths) <= 1)


def test_five_of_at_most_three_are_three_and_two() -> None:
    passages = tuple(Passage(str(number), "Text.") for number in range(5))
    assert [len(batch) for batch in balanced(passages, 3)] == [3, 2]
