"""How a client shows who it is."""

import inspect
import ipaddress
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from errata_kit.access.authenticator import PRINCIPAL_KEY

Token = str | Callable[[], str] | Callable[[], Awaitable[str]]
Metadata = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class ApiKey:
    """A key that `errata keys create` has made."""

    key: str = field(repr=False)

    async def metadata(self) -> Metadata:
        """What a call sends."""
        return _bearer(self.key)


@dataclass(frozen=True, slots=True)
class BearerToken:
    """A token of an identity provider (JWT).

    token: the token, or a function, async or not, that returns it. A function is asked before each call, so it can hand out a
    fresh token when the old one ends; it should keep the token in between.
    """

    token: Token = field(repr=False)

    async def metadata(self) -> Metadata:
        """What a call sends."""
        if isinstance(self.token, str):
            return _bearer(self.token)
        made = self.token()
        return _bearer(await made if inspect.isawaitable(made) else made)


@dataclass(frozen=True, slots=True)
class Named:
    """A name, 1–128 printable ASCII characters, for services that take every caller (ERRATA_AUTH=none): whose runs they are.

    It proves nothing, and services that want credentials do not look at it.
    """

    principal: str

    async def metadata(self) -> Metadata:
        """What a call sends."""
        return ((PRINCIPAL_KEY, self.principal),)


Credentials = ApiKey | BearerToken | Named


def may_travel(credentials: Credentials | None, targets: list[str]) -> bool:
    """Whether credentials may be sent to these targets unencrypted: they are no secret, or stay on this machine."""
    return credentials is None or isinstance(credentials, Named) or all(map(is_loopback, targets))


def is_loopback(target: str) -> bool:
    """Whether a gRPC target surely stays on this machine. A name other than localhost is not looked up."""
    if target.startswith(("unix:", "unix-abstract:")):
        return True
    addresses = target.removeprefix("dns:").removeprefix("ipv4:").removeprefix("ipv6:").lstrip("/").split(",")
    return all(_is_loopback(address) for address in addresses)


def _is_loopback(address: str) -> bool:
    host = address.partition("]")[0].removeprefix("[") if address.startswith("[") else address.rpartition(":")[0] or address
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _bearer(secret: str) -> Metadata:
    return (("authorization", f"Bearer {secret}"),)
