"""Principals: who calls, for which tenant, and with which roles."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Final

from pydantic import Field

from errata_kit.bounds import Name

DEFAULT_TENANT: Final = "default"
TENANT_PATTERN: Final = r"^[a-z0-9][a-z0-9_-]{0,62}$"
TenantName = Annotated[str, Field(pattern=TENANT_PATTERN)]
PrincipalName = Annotated[Name, Field(min_length=1)]


class Role(StrEnum):
    """What a principal may do within its tenant. ADMIN may do everything."""

    ASK = "ask"
    """Ask, compose, search, grade and generate, and see and decide the tenant's runs."""
    INGEST = "ingest"
    """Bring documents in and take them out."""
    ADMIN = "admin"
    """The others' rights, delete whole collections, and cancel the runs of others."""


@dataclass(frozen=True, slots=True)
class Principal:
    """A caller. name: empty when nobody said. tenant: whose collections and runs it sees.

    delegated: the orchestrator calls in its name, with its identity signed.
    """

    name: str
    tenant: str = DEFAULT_TENANT
    roles: frozenset[Role] = frozenset()
    delegated: bool = False

    def has(self, role: Role) -> bool:
        """Whether it may do what the role allows."""
        return role in self.roles or Role.ADMIN in self.roles


ALL_ROLES: Final = frozenset(Role)
ANYBODY: Final = Principal("", DEFAULT_TENANT, ALL_ROLES)
"""The caller where nobody is asked who they are: ERRATA_AUTH=none."""


def roles_from(names: Iterable[str]) -> frozenset[Role]:
    """The roles that these names mean; names that mean none are passed over."""
    known = {role.value for role in Role}
    return frozenset(Role(name) for name in names if name in known)
