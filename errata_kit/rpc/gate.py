"""The gate before every call: who calls, may they, and is there room. Health checks never come here."""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Final, Protocol

from errata_kit.access.principals import Principal
from errata_kit.access.rates import Limit, RequestRates, Scope
from errata_kit.access.roles import required_role
from errata_kit.access.settings import ReflectionAccess
from errata_kit.errors import Draining, ErrataError, NotAuthenticated, Overloaded, PermissionDenied, RateLimited
from errata_kit.metrics import Metrics, at_zero
from errata_kit.settings import ServiceSettings

_RETRY_AFTER_SECONDS: Final = 1.0
# Why callers are not believed; the causes of NotAuthenticated.
_CAUSES: Final = ("missing", "invalid", "expired", "revoked", "identity", "principal", "tenant")

Entering = Callable[[str, Principal], contextlib.AbstractContextManager[None]]
"""A service's own condition: entered with the method and the caller before a call is worked on, and left at its end."""


Full = Callable[[str], RateLimited | None]
"""A service's own word on a method, before anything is known about the caller: why there is no room for anybody, or None."""


def never_full(method: str) -> RateLimited | None:
    """There is always room."""
    return None


def anybody_enters(method: str, principal: Principal) -> contextlib.AbstractContextManager[None]:
    """No condition."""
    return contextlib.nullcontext()


class Authenticates(Protocol):
    """Tells who calls."""

    async def authenticate(self, metadata: Mapping[str, str]) -> Principal:
        """The caller that the call's metadata prove. Raises NotAuthenticated."""
        ...


class Gate:
    """One a server. draining: no new calls are taken any more."""

    def __init__(
        self,
        settings: ServiceSettings,
        metrics: Metrics,
        authenticator: Authenticates,
        entering: Entering = anybody_enters,
        full: Full = never_full,
    ) -> None:
        self._limit = settings.max_concurrent_calls
        self._reflection = settings.reflection_access
        self._rates = RequestRates(settings.requests_per_minute, settings.principal_requests_per_minute)
        self._metrics = metrics
        at_zero(metrics.rejected_calls, Limit, Scope)
        at_zero(metrics.authentication_failures, _CAUSES)
        self._authenticator = authenticator
        self._entering = entering
        self._full = full
        self._in_flight = 0
        self.draining = False

    def refusal(self, method: str) -> ErrataError | None:
        """Why no call of this method is taken now, whoever makes it; None when there is room. What is refused is counted."""
        if self.draining:
            return Draining("The service is shutting down", retry_after=_RETRY_AFTER_SECONDS)
        if self._in_flight >= self._limit:
            self._metrics.rejected_calls.labels(Limit.CONCURRENT_CALLS.value, Scope.ALL.value).inc()
            return Overloaded("The service has more calls than it takes", retry_after=_RETRY_AFTER_SECONDS)
        full = self._full(method)
        if full is not None:
            self._metrics.rejected_calls.labels(full.metadata["limit"], full.metadata["scope"]).inc()
        return full

    @contextlib.contextmanager
    def counted(self, method: str) -> Iterator[None]:
        """Count a call as under way inside the block. Raises what refusal() says."""
        refusal = self.refusal(method)
        if refusal is not None:
            raise refusal
        self._in_flight += 1
        self._metrics.in_flight.set(self._in_flight)
        try:
            yield
        finally:
            self._in_flight -= 1
            self._metrics.in_flight.set(self._in_flight)

    async def identified(self, method: str, metadata: Mapping[str, str]) -> Principal:
        """Who calls. Raises NotAuthenticated or PermissionDenied."""
        principal = await self._known(metadata)
        role = required_role(method)
        if not principal.has(role):
            raise PermissionDenied(f"This call needs the role {role.value}", metadata={"role": role.value})
        return principal

    async def explored(self, metadata: Mapping[str, str]) -> None:
        """Raises NotAuthenticated when the caller may not use reflection."""
        if self._reflection is not ReflectionAccess.OPEN:
            await self._known(metadata)

    @contextlib.contextmanager
    def admitted(self, method: str, principal: Principal) -> Iterator[None]:
        """Let a caller's call in for the time of the block. Raises RateLimited."""
        with contextlib.ExitStack() as stack:
            try:
                self._rates.take(principal)
                stack.enter_context(self._entering(method, principal))
            except RateLimited as error:
                self._metrics.rejected_calls.labels(error.metadata["limit"], error.metadata["scope"]).inc()
                raise
            yield

    async def _known(self, metadata: Mapping[str, str]) -> Principal:
        try:
            return await self._authenticator.authenticate(metadata)
        except NotAuthenticated as error:
            self._metrics.authentication_failures.labels(error.metadata.get("cause", "unknown")).inc()
            raise
