"""From the claims of a verified token to a principal."""

import re
from collections.abc import Mapping
from typing import Final

from errata_kit.access.principals import TENANT_PATTERN, Principal, Role, roles_from
from errata_kit.errors import NotAuthenticated

MAX_NAME_BYTES: Final = 128
_TENANT: Final = re.compile(TENANT_PATTERN)


def principal_name(name: str) -> str:
    """The name itself, when it can be a principal's. Raises ValueError: 1-128 bytes of UTF-8, without U+0000."""
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        raise ValueError("must be Unicode text") from None
    if not 1 <= size <= MAX_NAME_BYTES:
        raise ValueError(f"must be 1 to {MAX_NAME_BYTES} bytes of UTF-8")
    if "\0" in name:
        raise ValueError("must not contain the character U+0000")
    return name


def claim(claims: Mapping[str, object], path: str) -> object:
    """A claim by its name, or else by the path to it, whose dots lead into objects; None when there is none.

    The whole name goes first: some issuers name claims by URLs, which have dots of their own.
    """
    if path in claims:
        return claims[path]
    found: object = claims
    for part in path.split("."):
        if not isinstance(found, Mapping) or part not in found:
            return None
        found = found[part]
    return found


def tenant_of(value: object) -> str:
    """A claim as tenant. Raises NotAuthenticated, cause tenant."""
    # fullmatch, since $ would let a line feed pass.
    if not isinstance(value, str) or not _TENANT.fullmatch(value):
        raise NotAuthenticated("The token names no valid tenant", {"cause": "tenant"})
    return value


def roles_of(value: object) -> frozenset[Role]:
    """A claim as roles: a list of names, or names with spaces between. Anything else gives none."""
    if isinstance(value, str):
        return roles_from(value.split())
    if isinstance(value, list):
        return roles_from(name for name in value if isinstance(name, str))
    return frozenset()


def principal_of(claims: Mapping[str, object], principal: str, tenant: str, roles: str) -> Principal:
    """The principal of a token; the names say which claims to look at.

    Raises NotAuthenticated: cause principal or tenant. Whoever has no role that we know is a principal without roles.
    """
    name = claim(claims, principal)
    try:
        if not isinstance(name, str):
            raise ValueError
        known = principal_name(name)
    except ValueError:
        raise NotAuthenticated("The token names no valid principal", {"cause": "principal"}) from None
    return Principal(known, tenant_of(claim(claims, tenant)), roles_of(claim(claims, roles)))
