"""What a search may ask for: its mode, and a filter on the documents' own fields and metadata.

Fields are `document_id`, `title`, `source_uri`, `has_code` (`"true"` or `"false"`) and `metadata.KEY`. Each implementation of
the index translates a filter for its engine.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final

from errata_kit.bounds import invalid
from errata_kit.errors import InvalidFields

MAX_DEPTH: Final = 4
MAX_CONDITIONS: Final = 64
MAX_VALUES: Final = 100
MAX_VALUE_BYTES: Final = 1024
METADATA_PREFIX: Final = "metadata."
METADATA_KEY: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.\-]{0,63}")
PLAIN_FIELDS: Final = frozenset({"document_id", "title", "source_uri"})
BOOLEAN_FIELDS: Final = frozenset({"has_code"})

Bound = float | datetime


class SearchMode(StrEnum):
    """Which rankings a search uses. DEFAULT leaves it to the retriever: hybrid, or sparse without embeddings."""

    DEFAULT = "default"
    HYBRID = "hybrid"
    DENSE = "dense"
    SPARSE = "sparse"


@dataclass(frozen=True, slots=True)
class Equals:
    """The field has this very value."""

    field: str
    value: str


@dataclass(frozen=True, slots=True)
class OneOf:
    """The field has one of these values, of which there are 1 to 100."""

    field: str
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Range:
    """A metadata value, read as a number or an RFC 3339 time, lies within the bounds. All bounds are of one
    kind.

    A value that cannot be read that way does not match. Times without an offset are UTC.
    """

    field: str
    gt: Bound | None = None
    gte: Bound | None = None
    lt: Bound | None = None
    lte: Bound | None = None

    @property
    def bounds(self) -> tuple[Bound, ...]:
        """The bounds that are set."""
        return tuple(bound for bound in (self.gt, self.gte, self.lt, self.lte) if bound is not None)

    @property
    def is_time(self) -> bool:
        """Whether the bounds are times."""
        return any(isinstance(bound, datetime) for bound in self.bounds)


@dataclass(frozen=True, slots=True)
class Exists:
    """The passage has the field; with exists=False, it has not."""

    field: str
    exists: bool = True


@dataclass(frozen=True, slots=True)
class AllOf:
    """Every condition holds. With none, everything matches."""

    conditions: "tuple[Filter, ...]"


@dataclass(frozen=True, slots=True)
class AnyOf:
    """At least one condition holds. There must be one."""

    conditions: "tuple[Filter, ...]"


@dataclass(frozen=True, slots=True)
class NoneOf:
    """No condition holds."""

    conditions: "tuple[Filter, ...]"


Leaf = Equals | OneOf | Range | Exists
Filter = AllOf | AnyOf | NoneOf | Leaf


def validate(filter_: Filter) -> None:
    """Check a filter's bounds: depth (a lone condition has 1), number of conditions and values, fields,
    ranges.

    Raises:
        InvalidFields: naming `filter` and what is wrong.
    """
    nodes = list(_walk(filter_, 1))
    if max(depth for depth, _ in nodes) > MAX_DEPTH:
        raise _invalid(f"is nested deeper than {MAX_DEPTH}")
    if len(nodes) > MAX_CONDITIONS:
        raise _invalid(f"has more than {MAX_CONDITIONS} conditions")
    for _, node in nodes:
        if isinstance(node, AnyOf) and not node.conditions:
            raise _invalid("has an any_of without conditions")
        if isinstance(node, Equals | OneOf | Range | Exists):
            _validate_leaf(node)


def metadata_key(field: str) -> str | None:
    """Return KEY of `metadata.KEY`, or None for a field of the passage itself."""
    return field.removeprefix(METADATA_PREFIX) if field.startswith(METADATA_PREFIX) else None


def as_number(value: str) -> float | None:
    """Read a metadata value as a finite decimal number, or return None."""
    if not re.fullmatch(r"[+-]?(\d{1,300}(\.\d{0,300})?|\.\d{1,300})([eE][+-]?\d{1,3})?", value, re.ASCII):
        return None
    number = float(value)
    return number if abs(number) != float("inf") else None


def as_time(value: str) -> datetime | None:
    """Read a metadata value as an RFC 3339 date or time, in UTC, or return None."""
    if not re.match(r"\d{4}-\d\d-\d\d", value, re.ASCII):
        return None
    try:
        return in_utc(datetime.fromisoformat(value))
    except (ValueError, OverflowError):
        return None


def in_utc(time: datetime) -> datetime:
    """Return the time in UTC; one without an offset is taken to be UTC already."""
    return time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)


def _walk(node: Filter, depth: int) -> Iterator[tuple[int, Filter]]:
    yield depth, node
    if depth <= MAX_DEPTH and isinstance(node, AllOf | AnyOf | NoneOf):
        for condition in node.conditions:
            yield from _walk(condition, depth + 1)


def _validate_leaf(leaf: Leaf) -> None:
    key = metadata_key(leaf.field)
    if key is None and leaf.field not in PLAIN_FIELDS | BOOLEAN_FIELDS:
        raise _invalid(f"names the unknown field {leaf.field!r}")
    if key is not None and not METADATA_KEY.fullmatch(key):
        raise _invalid(f"names the impossible metadata key {key!r}")
    values: Sequence[str] = ()
    if isinstance(leaf, Equals):
        values = (leaf.value,)
    elif isinstance(leaf, OneOf):
        values = leaf.values
        if not 1 <= len(values) <= MAX_VALUES:
            raise _invalid(f"has a one_of without values, or with more than {MAX_VALUES}")
    elif isinstance(leaf, Range):
        _validate_range(leaf)
    if any(len(value.encode()) > MAX_VALUE_BYTES for value in values):
        raise _invalid(f"compares {leaf.field} with more than {MAX_VALUE_BYTES} bytes")
    if leaf.field in BOOLEAN_FIELDS and any(value not in ("true", "false") for value in values):
        raise _invalid(f"compares {leaf.field} with something other than true or false")


def _validate_range(leaf: Range) -> None:
    if metadata_key(leaf.field) is None:
        raise _invalid(f"has a range over {leaf.field!r}; only metadata has ranges")
    if not leaf.bounds:
        raise _invalid("has a range without bounds")
    if len({isinstance(bound, datetime) for bound in leaf.bounds}) > 1:
        raise _invalid("has a range with both numbers and times")
    if any(isinstance(bound, float) and bound != bound for bound in leaf.bounds):
        raise _invalid("has a range bound that is not a number")


def _invalid(problem: str) -> InvalidFields:
    return invalid("filter", problem)
