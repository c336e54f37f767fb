"""Filters: their bounds, and how metadata values are read."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from errata_kit.errors import InvalidFields
from errata_kit.search import (
    AllOf,
    AnyOf,
    Equals,
    Exists,
    Filter,
    NoneOf,
    OneOf,
    Range,
    as_number,
    as_time,
    validate,
)

LEAF = Equals("metadata.a", "b")


@pytest.mark.parametrize(
    "filter_",
    [
        LEAF,
        AllOf((AnyOf((NoneOf((LEAF,)),)),)),
        OneOf("document_id", tuple(str(n) for n in range(100))),
        Range("metadata.n", gte=1, lt=2.5),
        Range("metadata.t", gt=datetime(2024, 1, 1, tzinfo=UTC)),
        Exists("metadata.a-b.c_d"),
    ],
)
def test_what_is_within_bounds_passes(filter_: Filter) -> None:
    validate(filter_)


@pytest.mark.parametrize(
    ("filter_", "problem"),
    [
        (AllOf((AnyOf((NoneOf((AllOf((LEAF,)),)),)),)), "deeper"),
        (AllOf((LEAF,) * 64), "more than 64"),
        (AnyOf(()), "any_of"),
        (Equals("text", "x"), "unknown field"),
        (Equals("metadata.", "x"), "metadata key"),
        (Equals('metadata.a"b', "x"), "metadata key"),
        (Equals("metadata.a[]", "x"), "metadata key"),
        (OneOf("title", ()), "one_of"),
        (OneOf("title", ("x",) * 101), "one_of"),
        (Equals("has_code", "yes"), "has_code"),
        (Range("metadata.n"), "without bounds"),
        (Range("title", gt=1), "only metadata"),
        (Range("metadata.n", gt=float("nan")), "not a number"),
        (Range("metadata.n", gt=1, lt=datetime(2024, 1, 1)), "both"),
    ],
)
def test_what_is_out_of_bounds_is_invalid(filter_: Filter, problem: str) -> None:
    with pytest.raises(InvalidFields, match=problem) as caught:
        validate(filter_)
    assert [violation.field for violation in caught.value.violations] == ["filter"]


def test_values_are_read_as_numbers_and_times() -> None:
    assert [as_number(v) for v in ("1", "-2.5", "1e3", ".5", "1.5.2", "nan", "inf", "1e999", "٣", "", "1_0")] == [
        *(1.0, -2.5, 1000.0, 0.5),
        *(None,) * 7,
    ]
    assert as_time("2024-01-01") == datetime(2024, 1, 1, tzinfo=UTC)
    assert as_time("2024-01-01T02:00:00+02:00") == datetime(2024, 1, 1, tzinfo=UTC)
    assert [as_time(v) for v in ("2024", "2024-13-01", "soon", "0001-01-01T00:00:00+10:00")] == [None] * 4


@given(st.text(max_size=40))
def test_any_value_is_read_or_left(value: str) -> None:
    as_number(value)
    as_time(value)
