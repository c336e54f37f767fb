"""Filters of the embedded engine. The one that names the tenant is part of everything that reads or deletes."""

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from errata_kit.search import AllOf, AnyOf, Equals, Exists, Filter, NoneOf, OneOf, Range, in_utc
from services.retriever.index.payload import INTEGER_FIELD, field_path, of_tenant, range_path
from services.retriever.tenancy import CollectionRef

if TYPE_CHECKING:
    import qdrant_edge as engine


def own(ref: CollectionRef, *conditions: Filter) -> "engine.Filter":
    """Return the filter for those of the tenant's points for which all conditions hold."""
    return translate(of_tenant(ref.tenant, *conditions))


def own_chunks(ref: CollectionRef, chunk_ids: Sequence[str]) -> "engine.Filter":
    """Return the filter for those of the tenant's points that have these ids."""
    import qdrant_edge as engine

    return engine.Filter(must=[own(ref), engine.HasIdCondition(set(chunk_ids))])


def own_first_chunks(ref: CollectionRef, document_ids: Sequence[str]) -> "engine.Filter":
    """Return the filter for the first chunk of each of the tenant's documents."""
    import qdrant_edge as engine

    first = engine.FieldCondition(INTEGER_FIELD, match=engine.MatchValue(0))
    return engine.Filter(must=[own(ref, OneOf("document_id", tuple(document_ids))), first])


def translate(filter_: Filter) -> "engine.Filter":
    """Return the engine's filter for ours."""
    import qdrant_edge as engine

    match filter_:
        case AllOf(conditions):
            return engine.Filter(must=[_condition(condition) for condition in conditions])
        case AnyOf(conditions):
            return engine.Filter(should=[_condition(condition) for condition in conditions])
        case NoneOf(conditions):
            return engine.Filter(must_not=[_condition(condition) for condition in conditions])
        case Exists(_, True):
            return engine.Filter(must_not=[_empty(filter_)])
        case _:
            return engine.Filter(must=[_condition(filter_)])


def _condition(filter_: Filter) -> Any:
    """A condition as it stands inside a filter. One that needs no filter of its own has none: each level costs time."""
    import qdrant_edge as engine

    match filter_:
        case Equals(field, value):
            return engine.FieldCondition(field_path(field), match=engine.MatchValue(value))
        case OneOf(field, values):
            return engine.FieldCondition(field_path(field), match=engine.MatchAny(list(values)))
        case Range():
            return engine.FieldCondition(range_path(filter_), range=_range(filter_))
        case Exists(_, False):
            return _empty(filter_)
        case _:
            return translate(filter_)


def _empty(filter_: Exists) -> "engine.IsEmptyCondition":
    import qdrant_edge as engine

    return engine.IsEmptyCondition(field_path(filter_.field))


def _range(condition: Range) -> "engine.RangeFloat | engine.RangeDateTime":
    import qdrant_edge as engine

    bounds: dict[str, Any] = {side: getattr(condition, side) for side in ("gt", "gte", "lt", "lte")}
    if not condition.is_time:
        return engine.RangeFloat(**bounds)
    return engine.RangeDateTime(
        **{side: in_utc(bound).isoformat() for side, bound in bounds.items() if isinstance(bound, datetime)}
    )
