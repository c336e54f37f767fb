"""Filters mean the same in every implementation of `PassageIndex`, in every mode."""

from collections.abc import AsyncIterator, Mapping
from datetime import UTC, datetime
from random import Random

import pytest
import pytest_asyncio

from errata_kit.access.principals import DEFAULT_TENANT
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
)
from services.retriever.index.base import PassageIndex
from services.retriever.tenancy import CollectionRef
from tests.harness.passages import embedded, fresh_collection, matching, passage


@pytest_asyncio.fixture(params=[DEFAULT_TENANT, "acme"])
async def ref(request: pytest.FixtureRequest, index: PassageIndex) -> AsyncIterator[CollectionRef]:
    async with fresh_collection(index, request.param) as made:
        yield made


FILTERS: list[tuple[Filter, set[str]]] = [
    (Equals("document_id", "a"), {"a"}),
    (Equals("title", "Title of b"), {"b"}),
    (Equals("source_uri", "docs/c.md"), {"c"}),
    (Equals("has_code", "true"), {"b"}),
    (OneOf("has_code", ("true", "false")), {"a", "b", "c", "d"}),
    (Equals("metadata.lang", "en"), {"a", "b"}),
    (Equals("metadata.a.b", "dotted"), {"c"}),
    (Equals("metadata.absent", "en"), set()),
    (OneOf("metadata.lang", ("de", "fr")), {"c"}),
    (Exists("metadata.lang"), {"a", "b", "c"}),
    (NoneOf((Exists("metadata.lang"),)), {"d"}),
    (Exists("metadata.empty"), {"d"}),
    (Range("metadata.version", gte=2.0), {"b", "c"}),
    (Range("metadata.version", gt=2.0, lt=11.0), {"c"}),
    (Range("metadata.version", lte=1.5), {"a"}),
    (Range("metadata.date", gte=datetime(2024, 1, 1, tzinfo=UTC)), {"b", "c"}),
    (Range("metadata.date", lt=datetime(2024, 1, 1)), {"a"}),
    (AllOf(()), {"a", "b", "c", "d"}),
    (AllOf((Equals("metadata.lang", "en"), Equals("has_code", "false"))), {"a"}),
    (AnyOf((Equals("document_id", "a"), Equals("metadata.lang", "de"))), {"a", "c"}),
    (NoneOf((Equals("document_id", "a"), Equals("document_id", "b"))), {"c", "d"}),
    (AllOf((AnyOf((NoneOf((Equals("document_id", "a"),)),)), Exists("metadata.lang"))), {"b", "c"}),
    (AnyOf((NoneOf((AllOf(()),)), Equals("document_id", "d"))), {"d"}),
]


async def test_filters_hold_in_every_mode(index: PassageIndex, ref: CollectionRef) -> None:
    metadata: dict[str, dict[str, str]] = {
        "a": {"lang": "en", "version": "1.5", "date": "2023-12-31T23:59:59Z"},
        "b": {"lang": "en", "version": "2", "date": "2024-01-01"},
        "c": {"lang": "de", "version": "10", "date": "2024-06-01T01:00:00+02:00", "a.b": "dotted"},
        "d": {"version": "two", "date": "soon", "empty": ""},
    }
    items = [passage(doc, f"release {doc}", 0, extra, doc == "b") for doc, extra in metadata.items()]
    await index.upsert(ref, [embedded(item) for item in items])
    for filter_, expected in FILTERS:
        assert await matching(index, ref, filter_) == expected, filter_


def means(filter_: Filter, fields: Mapping[str, str]) -> bool:
    """What a filter says, evaluated the slow and obvious way."""
    match filter_:
        case AllOf(conditions):
            return all(means(condition, fields) for condition in conditions)
        case AnyOf(conditions):
            return any(means(condition, fields) for condition in conditions)
        case NoneOf(conditions):
            return not any(means(condition, fields) for condition in conditions)
        case Exists(field):
            return field in fields
        case Equals(field, value):
            return fields.get(field) == value
        case OneOf(field, values):
            return fields.get(field) in values
        case Range():
            number = as_number(fields.get(filter_.field, ""))
            low, high = filter_.gte, filter_.lt
            assert isinstance(low, float)
            assert isinstance(high, float)
            return number is not None and low <= number < high


def random_filter(random: Random, depth: int) -> Filter:
    """A filter of at most `depth` levels over the fields of the documents below."""
    kind = random.randrange(4 if depth == 1 else 7)
    field = random.choice(["metadata.a", "metadata.b", "metadata.n", "document_id"])
    if kind == 0:
        return Equals(field, random.choice(["0", "1", "2", "d3"]))
    if kind == 1:
        return OneOf(field, tuple(random.sample(["0", "1", "2", "d1", "d2"], random.randint(1, 4))))
    if kind == 2:
        return Exists(field)
    if kind == 3:
        low = random.uniform(-1, 3)
        return Range("metadata.n", gte=low, lt=low + random.random() * 3)
    conditions = tuple(random_filter(random, depth - 1) for _ in range(random.randint(1, 3)))
    groups: list[type[AllOf] | type[AnyOf] | type[NoneOf]] = [AllOf, AnyOf, NoneOf]
    return groups[kind - 4](conditions)


async def test_random_filters_mean_what_they_say(index: PassageIndex, ref: CollectionRef) -> None:
    random = Random(20261130)
    documents: dict[str, dict[str, str]] = {}
    for number in range(30):
        keys = random.sample(["a", "b", "n"], random.randint(0, 3))
        documents[f"d{number}"] = {key: random.choice(["0", "1", "1.5", "2", "x"]) for key in keys}
    items = [passage(doc, f"release {doc}", metadata=extra) for doc, extra in documents.items()]
    await index.upsert(ref, [embedded(item) for item in items])
    for _ in range(150):
        filter_ = random_filter(random, 4)
        expected = {
            doc
            for doc, extra in documents.items()
            if means(filter_, {"document_id": doc} | {f"metadata.{key}": value for key, value in extra.items()})
        }
        assert await matching(index, ref, filter_) == expected, filter_


async def test_a_filter_is_no_matter_of_rank(index: PassageIndex, ref: CollectionRef) -> None:
    """The one passage that fits is found although hundreds that do not fit rank above it in both rankings."""
    better = [passage(f"x{n}", "release notes release notes", metadata={"tenant": "x"}) for n in range(600)]
    fits = passage("mine", "a release among much other text about entirely different matters", metadata={"tenant": "y"})
    await index.upsert(ref, [embedded(item) for item in better])
    await index.upsert(ref, [embedded(fits, (0.1, 1.0, 0.0, 0.0))])
    assert await matching(index, ref, Equals("metadata.tenant", "y")) == {"mine"}
