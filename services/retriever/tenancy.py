"""Whose collection: the tenant is part of a collection's name wherever collections are named."""

import re
from dataclasses import dataclass
from typing import Final

from errata_kit.access.principals import DEFAULT_TENANT, TENANT_PATTERN
from errata_kit.bounds import COLLECTION_PATTERN, invalid
from errata_kit.errors import InvalidFields

# Occurs in no name, so that no two collections share what is joined by it.
_SEPARATOR: Final = "."
_TENANT: Final = re.compile(TENANT_PATTERN)
_COLLECTION: Final = re.compile(COLLECTION_PATTERN)


@dataclass(frozen=True, slots=True, order=True)
class CollectionRef:
    """A collection of a tenant. Callers know it by `name` alone, which other tenants may use as well."""

    tenant: str
    name: str

    def __post_init__(self) -> None:
        """Check both names.

        Raises:
            InvalidFields: naming `tenant` or `collection`; each must match `[a-z0-9][a-z0-9_-]{0,62}`.
        """
        for field, pattern, value in (("tenant", _TENANT, self.tenant), ("collection", _COLLECTION, self.name)):
            if not pattern.fullmatch(value):
                raise invalid(field, f"must match {pattern.pattern}")

    @property
    def physical(self) -> str:
        """Its name inside an engine. For the index's implementations only: no caller is ever told.

        Collections of the default tenant have their plain name, as they had before there were tenants.
        """
        return self.namespace

    @property
    def namespace(self) -> str:
        """What the ids of its chunks derive from, so that equal documents of two tenants never share one.

        Fixed for good: another one would give every stored chunk another id.
        """
        return self.name if self.tenant == DEFAULT_TENANT else f"{self.tenant}{_SEPARATOR}{self.name}"


def ref_of(physical: str) -> CollectionRef | None:
    """The collection that has this name inside an engine, or None where no collection of this product has it."""
    tenant, separator, name = physical.rpartition(_SEPARATOR)
    try:
        ref = CollectionRef(tenant if separator else DEFAULT_TENANT, name)
    except InvalidFields:
        return None
    return ref if ref.physical == physical else None
