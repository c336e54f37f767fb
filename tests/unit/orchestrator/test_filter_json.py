"""Filters as a store keeps them."""

import datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter

from errata_kit.filter_json import filter_of, filter_values
from errata_kit.search import AllOf, AnyOf, Equals, Exists, Filter, NoneOf, OneOf, Range
from services.orchestrator.workflows.answer.state import AnswerRequest
from services.orchestrator.workflows.compose.state import ComposeRequest

ANSWER = TypeAdapter(AnswerRequest)
COMPOSE = TypeAdapter(ComposeRequest)
NOON = datetime.datetime(2026, 11, 30, 12, 0, 0, 123456, tzinfo=datetime.UTC)
FIELDS = st.sampled_from(["title", "metadata.a", "metadata.b.c"])
MOMENTS = st.datetimes(timezones=st.just(datetime.UTC))
NUMBERS = st.floats(allow_nan=False)
LEAVES: st.SearchStrategy[Filter] = st.one_of(
    st.builds(Equals, FIELDS, st.text(max_size=8)),
    st.builds(OneOf, FIELDS, st.lists(st.text(max_size=8), min_size=1, max_size=3).map(tuple)),
    st.builds(Exists, FIELDS, st.booleans()),
    st.builds(Range, FIELDS, gte=NUMBERS | MOMENTS, lt=st.none() | NUMBERS | MOMENTS),
)
FILTERS: st.SearchStrategy[Filter] = st.recursive(
    LEAVES,
    lambda inner: st.builds(
        lambda kind, parts: kind(tuple(parts)),
        st.sampled_from([AllOf, AnyOf, NoneOf]),
        st.lists(inner, min_size=1, max_size=3),
    ),
    max_leaves=6,
)


@settings(max_examples=100, deadline=None)
@given(selection=FILTERS)
def test_every_filter_comes_back_from_a_stored_request(selection: Filter) -> None:
    asked = AnswerRequest("q", "notes", filter=selection)
    assert ANSWER.validate_json(ANSWER.dump_json(asked, exclude_defaults=True)) == asked
    wanted = ComposeRequest("t", "notes", filter=selection)
    assert COMPOSE.validate_json(COMPOSE.dump_json(wanted, exclude_defaults=True)) == wanted


def test_each_kind_has_its_name() -> None:
    selection = AllOf(
        (
            Equals("title", "a"),
            AnyOf((Exists("metadata.a", False),)),
            NoneOf((OneOf("title", ("b", "c")),)),
            Range("x", gte=NOON),
        )
    )
    assert filter_values(selection) == {
        "all_of": [
            {"equals": ["title", "a"]},
            {"any_of": [{"exists": ["metadata.a", False]}]},
            {"none_of": [{"one_of": ["title", ["b", "c"]]}]},
            {"range": ["x", {"gte": NOON.isoformat()}]},
        ]
    }


@pytest.mark.parametrize(
    "stored",
    [{}, {"equals": ["a", "b"], "exists": ["a", True]}, {"like": ["a", "b"]}, {"all_of": [{"like": ["a", "b"]}]}],
    ids=str,
)
def test_anything_else_is_refused(stored: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="filter"):
        filter_of(stored)


def test_no_filter_stays_none() -> None:
    assert ANSWER.validate_json(ANSWER.dump_json(AnswerRequest("q", "notes"))).filter is None
