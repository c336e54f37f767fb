"""Filters of a Qdrant server. The one that names the tenant is part of everything that reads or deletes."""

from collections.abc import Sequence
from typing import Any

from qdrant_client import models

from errata_kit.search import AllOf, AnyOf, Equals, Exists, Filter, NoneOf, OneOf, Range, in_utc
from services.retriever.index.payload import INTEGER_FIELD, field_path, of_tenant, range_path
from services.retriever.tenancy import CollectionRef


def own(ref: CollectionRef, *conditions: Filter) -> models.Filter:
    """Return the filter for those of the tenant's points for which all conditions hold."""
    return translate(of_tenant(ref.tenant, *conditions))


def own_chunks(ref: CollectionRef, chunk_ids: Sequence[str]) -> models.Filter:
    """Return the filter for those of the tenant's points that have these ids."""
    return models.Filter(must=[own(ref), models.HasIdCondition(has_id=list(chunk_ids))])


def own_first_chunks(ref: CollectionRef, document_ids: Sequence[str]) -> models.Filter:
    """Return the filter for the first chunk of each of the tenant's documents."""
    first = models.FieldCondition(key=INTEGER_FIELD, match=models.MatchValue(value=0))
    return models.Filter(must=[own(ref, OneOf("document_id", tuple(document_ids))), first])


def translate(filter_: Filter) -> models.Filter:
    """Return the server's filter for ours."""
    match filter_:
        case AllOf(conditions):
            return models.Filter(must=[translate(condition) for condition in conditions])
        case AnyOf(conditions):
            return models.Filter(should=[translate(condition) for condition in conditions])
        case NoneOf(conditions):
            return models.Filter(must_not=[translate(condition) for condition in conditions])
        case Exists(field, exists):
            empty = models.IsEmptyCondition(is_empty=models.PayloadField(key=field_path(field)))
            return models.Filter(must_not=[empty]) if exists else models.Filter(must=[empty])
        case Equals(field, value):
            return _must(models.FieldCondition(key=field_path(field), match=models.MatchValue(value=value)))
        case OneOf(field, values):
            return _must(models.FieldCondition(key=field_path(field), match=models.MatchAny(any=list(values))))
        case Range():
            return _must(models.FieldCondition(key=range_path(filter_), range=_range(filter_)))


def _must(condition: models.FieldCondition) -> models.Filter:
    return models.Filter(must=[condition])


def _range(condition: Range) -> models.Range | models.DatetimeRange:
    bounds: dict[str, Any] = {side: getattr(condition, side) for side in ("gt", "gte", "lt", "lte")}
    if not condition.is_time:
        return models.Range(**bounds)
    return models.DatetimeRange(**{side: bound and in_utc(bound) for side, bound in bounds.items()})
