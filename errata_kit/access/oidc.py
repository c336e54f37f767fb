"""Tokens of an OpenID Connect issuer: JWTs that are verified here, with the issuer's public keys."""

import time
from collections.abc import Callable
from typing import Any, Final

import jwt

from errata_kit.access.claims import principal_of
from errata_kit.access.fetching import may_be_fetched
from errata_kit.access.issuer_keys import IssuerKey, IssuerKeys, KeysAt
from errata_kit.access.principals import Principal
from errata_kit.access.settings import AccessSettings
from errata_kit.access.token_cache import TokenCache
from errata_kit.errors import NotAuthenticated, StartFailed

MAX_TOKEN_CHARACTERS: Final = 16 * 1024


class OidcVerifier:
    """Says whose a token is.

    A token needs the claims iss, aud and exp, and those that the settings name for principal and tenant; its algorithm must be
    one that its key is for, all of them asymmetric. Its times may be off by the clock skew of the settings. A token that
    was found good is remembered until it ends, or until the issuer's keys change. How long keys are kept, and what happens
    when the issuer is away, is said at IssuerKeys. Raises StartFailed for an address that keys must not come from.
    """

    def __init__(
        self, settings: AccessSettings, *, keys: IssuerKeys | None = None, clock: Callable[[], float] = time.time
    ) -> None:
        variable = "ERRATA_OIDC_JWKS_URL" if settings.oidc_jwks_url else "ERRATA_OIDC_ISSUER"
        if not may_be_fetched(settings.oidc_jwks_url or settings.oidc_issuer):
            raise StartFailed(f"{variable} must be an https URL, or http on a loopback address")
        self._settings = settings
        at = KeysAt(settings.oidc_issuer, settings.oidc_jwks_url)
        self._keys = keys or IssuerKeys(at, settings.oidc_keys_seconds)
        self._cache = TokenCache(clock=clock)
        self._changes = self._keys.changes

    def remembered(self, token: str) -> Principal | None:
        """The principal of a token that was found good before, and still is, without waiting for anything."""
        if not self._keys.usable():
            return None
        self._forget_outdated()
        return self._cache.get(token)

    async def principal_of(self, token: str) -> Principal:
        """The principal of a token.

        Raises NotAuthenticated (cause: expired, invalid, principal or tenant), and ServiceUnavailable with service oidc when
        the issuer's keys can't be had.
        """
        known = self.remembered(token)
        if known is not None:
            return known
        key = await self._key_of(token)
        # From here on nothing is awaited, so that the keys can't change between the check and the remembering.
        self._forget_outdated()
        claims = self._verified(token, key)
        names = self._settings
        principal = principal_of(claims, names.oidc_principal_claim, names.oidc_tenant_claim, names.oidc_roles_claim)
        self._cache.put(token, principal, int(claims["exp"]) + names.oidc_clock_skew_seconds)
        return principal

    async def ready(self) -> None:
        """Wait until the issuer's keys are there. Raises ServiceUnavailable."""
        await self._keys.ready()

    async def aclose(self) -> None:
        """End what goes on in the background."""
        await self._keys.aclose()

    def _forget_outdated(self) -> None:
        # The key behind a remembered token may be one that the issuer took back.
        if self._keys.changes != self._changes:
            self._changes = self._keys.changes
            self._cache.clear()

    async def _key_of(self, token: str) -> IssuerKey:
        if len(token) > MAX_TOKEN_CHARACTERS:
            raise _invalid("longer than a token may be")
        try:
            header = jwt.get_unverified_header(token)
        except (jwt.InvalidTokenError, ValueError) as error:
            raise _invalid(type(error).__name__) from None
        kid, algorithm = header.get("kid"), header.get("alg")
        if not isinstance(algorithm, str):
            raise _invalid("without an algorithm")
        return await self._keys.find(kid, algorithm)

    def _verified(self, token: str, key: IssuerKey) -> dict[str, Any]:
        try:
            return jwt.decode(
                token,
                key.key,
                algorithms=key.algorithms,
                audience=self._settings.oidc_audience,
                issuer=self._settings.oidc_issuer,
                leeway=self._settings.oidc_clock_skew_seconds,
                options={"require": ["exp", "iss", "aud"]},
            )
        except jwt.ExpiredSignatureError:
            raise NotAuthenticated("The token has expired", {"cause": "expired"}) from None
        except (jwt.PyJWTError, ValueError, TypeError) as error:
            raise _invalid(type(error).__name__) from None


def _invalid(detail: str) -> NotAuthenticated:
    # The text of the library may quote the token; the name of its class does not.
    return NotAuthenticated("The token is not valid", {"cause": "invalid"}, detail=detail)
