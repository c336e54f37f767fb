"""Filters as JSON, for stores: one key that names the kind, as in the proto's MetadataFilter."""

import math
from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Final

from pydantic import BeforeValidator, PlainSerializer

from errata_kit.search import AllOf, AnyOf, Bound, Equals, Exists, Filter, NoneOf, OneOf, Range

_GROUPS: Final[Mapping[str, type[AllOf | AnyOf | NoneOf]]] = {"all_of": AllOf, "any_of": AnyOf, "none_of": NoneOf}
_INFINITE: Final = frozenset({"inf", "-inf"})
_BOUNDS: Final = ("gt", "gte", "lt", "lte")


def filter_values(selection: Filter) -> dict[str, Any]:
    """The filter as JSON values."""
    match selection:
        case Equals(field, value):
            return {"equals": [field, value]}
        case OneOf(field, values):
            return {"one_of": [field, list(values)]}
        case Exists(field, exists):
            return {"exists": [field, exists]}
        case Range(field):
            given = {name: getattr(selection, name) for name in _BOUNDS}
            return {"range": [field, {name: _shown(bound) for name, bound in given.items() if bound is not None}]}
        case _:
            tag = next(tag for tag, kind in _GROUPS.items() if isinstance(selection, kind))
            return {tag: [filter_values(condition) for condition in selection.conditions]}


def filter_of(values: Mapping[str, Any]) -> Filter:
    """The filter of such JSON values. Raises ValueError for anything else."""
    if len(values) != 1:
        raise ValueError("a filter has one kind")
    ((tag, content),) = values.items()
    if tag in _GROUPS:
        return _GROUPS[tag](tuple(filter_of(condition) for condition in content))
    field, given = content
    match tag:
        case "equals":
            return Equals(field, given)
        case "one_of":
            return OneOf(field, tuple(given))
        case "exists":
            return Exists(field, given)
        case "range":
            return Range(field, **{name: _bound(bound) for name, bound in given.items()})
    raise ValueError(f"there is no filter of the kind {tag!r}")


def _shown(bound: Bound) -> float | str:
    if isinstance(bound, datetime):
        return bound.isoformat()
    # JSON has no infinity.
    return bound if math.isfinite(bound) else str(bound)


def _bound(value: float | str) -> Bound:
    if not isinstance(value, str):
        return value
    return float(value) if value in _INFINITE else datetime.fromisoformat(value)


def _read(value: Any) -> Any:
    return filter_of(value) if isinstance(value, dict) else value


JsonFilter = Annotated[
    Filter | None,
    BeforeValidator(_read),
    PlainSerializer(lambda value: None if value is None else filter_values(value), when_used="json"),
]
"""A filter in a pydantic dataclass that is kept as JSON."""
