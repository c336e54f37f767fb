"""What a search may ask for: its mode, and a filter on the documents' metadata."""

from enum import StrEnum
from typing import Annotated, Final

from pydantic import Field
from pydantic.dataclasses import dataclass

from errata_kit.bounds import KIB, utf8_at_most

MAX_FILTER_DEPTH: Final = 4
MAX_FILTER_CONDITIONS: Final = 64

Key = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]{1,128}$")]
Value = Annotated[str, utf8_at_most(KIB)]


class SearchMode(StrEnum):
    """Which vectors a search uses. DEFAULT leaves it to the collection: hybrid, or sparse without embeddings."""

    DEFAULT = "DEFAULT"
    HYBRID = "HYBRID"
    DENSE = "DENSE"
    SPARSE = "SPARSE"


@dataclass(frozen=True, slots=True)
class MetadataCondition:
    """A test of one metadata entry: equals, one_of, a range of numbers (both ends inclusive), or exists. Exactly one is set."""

    key: Key
    equals: Value | None = None
    one_of: Annotated[tuple[Value, ...], Field(max_length=64)] = ()
    minimum: float | None = None
    maximum: float | None = None
    exists: bool | None = None


@dataclass(frozen=True, slots=True)
class MetadataFilter:
    """All parts that are set must hold; without any, everything is selected."""

    all_of: "tuple[MetadataFilter, ...]" = ()
    any_of: "tuple[MetadataFilter, ...]" = ()
    none_of: "tuple[MetadataFilter, ...]" = ()
    condition: MetadataCondition | None = None

    def depth(self) -> int:
        """Levels of nesting: 1 for a filter without parts."""
        return 1 + max((part.depth() for part in (*self.all_of, *self.any_of, *self.none_of)), default=0)

    def conditions(self) -> int:
        """Conditions in the whole filter."""
        parts = sum(part.conditions() for part in (*self.all_of, *self.any_of, *self.none_of))
        return parts + (self.condition is not None)
