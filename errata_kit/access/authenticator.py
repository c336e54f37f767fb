"""Who calls: from the metadata of a call to a principal, by the way that the settings name."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, Protocol

from errata_kit.access.api_keys import ApiKeys
from errata_kit.access.claims import principal_name
from errata_kit.access.principals import ALL_ROLES, ANYBODY, DEFAULT_TENANT, Principal
from errata_kit.access.settings import AccessSettings, AuthMode
from errata_kit.bounds import invalid
from errata_kit.errors import NotAuthenticated, StartFailed

if TYPE_CHECKING:
    from errata_kit.access.identity import IdentityVerifier

IDENTITY_KEY: Final = "errata-identity"
PRINCIPAL_KEY: Final = "errata-principal"
AUTHORIZATION_KEY: Final = "authorization"
API_KEY_KEY: Final = "x-api-key"


class _Callers(Protocol):
    """One way in which callers say who they are."""

    async def principal_of(self, metadata: Mapping[str, str]) -> Principal: ...

    async def ready(self) -> None: ...

    async def aclose(self) -> None: ...


class Authenticator:
    """Says who calls. One for a process; used in its event loop. Open it with open_authenticator."""

    def __init__(self, callers: _Callers, identities: "IdentityVerifier | None") -> None:
        self._callers = callers
        self._identities = identities

    async def authenticate(self, metadata: Mapping[str, str]) -> Principal:
        """The principal of a call with this metadata; names in lower case, as gRPC has them.

        Where orchestrators are trusted, errata-identity goes first, and a wrong one ends it: it is never taken for no identity.
        Where they are not, errata-identity means nothing, whatever it holds.

        Raises NotAuthenticated with the cause in its metadata: missing, invalid, expired, revoked, identity, principal, tenant;
        InvalidFields for a name in errata-principal that can't be one; ServiceUnavailable when an issuer's keys can't be had.
        No message and no detail of them quotes a credential.
        """
        if self._identities is not None:
            token = metadata.get(IDENTITY_KEY)
            if token is not None:
                return self._identities.principal_of(token)
        return await self._callers.principal_of(metadata)

    async def ready(self) -> None:
        """Wait until calls can be answered: with oidc the issuer's keys must be there once. Raises ServiceUnavailable."""
        await self._callers.ready()

    async def aclose(self) -> None:
        """End what goes on in the background."""
        await self._callers.aclose()


def open_authenticator(settings: AccessSettings, *, takes_identities: bool = True) -> Authenticator:
    """The authenticator that the settings ask for. Files are read at once, an issuer's keys with the first call or ready().

    takes_identities: whether signed identities are looked at. The orchestrator signs them and takes none, so that one that was
    taken from a service behind it is worth nothing there.

    Raises StartFailed, which names the file or the variable.
    """
    return Authenticator(_callers(settings), _identities(settings) if takes_identities else None)


def _identities(settings: AccessSettings) -> "IdentityVerifier | None":
    if settings.identity_trust_file is None:
        return None
    # PyJWT and cryptography take a while to load, and without this setting and oidc nobody needs them.
    from errata_kit.access.identity import IdentityVerifier

    return IdentityVerifier.from_file(settings.identity_trust_file)


def _callers(settings: AccessSettings) -> _Callers:
    match settings.auth:
        case AuthMode.NONE:
            return _Anybody()
        case AuthMode.API_KEY:
            if settings.api_keys_file is None:
                raise StartFailed("ERRATA_AUTH=api-key needs ERRATA_API_KEYS_FILE")
            return _KeyHolders(ApiKeys(settings.api_keys_file))
        case AuthMode.OIDC:
            return _TokenHolders(settings)


class _Anybody:
    """Everybody may do everything; a name is believed, and means nothing but a name."""

    async def principal_of(self, metadata: Mapping[str, str]) -> Principal:
        name = metadata.get(PRINCIPAL_KEY, "")
        if not name:
            return ANYBODY
        if any(map(str.isspace, name)):
            # It stands in every line of the log, so that it must be a name and not a text, or a credential in the wrong place.
            raise invalid(PRINCIPAL_KEY, "must not contain white space")
        try:
            return Principal(principal_name(name), DEFAULT_TENANT, ALL_ROLES)
        except ValueError as error:
            raise invalid(PRINCIPAL_KEY, str(error)) from None

    async def ready(self) -> None:
        return

    async def aclose(self) -> None:
        return


class _KeyHolders:
    """Callers with an API key."""

    def __init__(self, keys: ApiKeys) -> None:
        self._keys = keys

    async def principal_of(self, metadata: Mapping[str, str]) -> Principal:
        key = _bearer(metadata) or metadata.get(API_KEY_KEY, "").strip()
        if not key:
            raise _missing("an API key, as metadata authorization: Bearer KEY or x-api-key: KEY")
        return self._keys.principal_of(key)

    async def ready(self) -> None:
        return

    async def aclose(self) -> None:
        return


class _TokenHolders:
    """Callers with a token of the OpenID Connect issuer."""

    def __init__(self, settings: AccessSettings) -> None:
        # Loaded late for the same reason as above.
        from errata_kit.access.oidc import OidcVerifier

        self._verifier = OidcVerifier(settings)

    async def principal_of(self, metadata: Mapping[str, str]) -> Principal:
        token = _bearer(metadata)
        if not token:
            raise _missing("a token of the issuer, as metadata authorization: Bearer TOKEN")
        return await self._verifier.principal_of(token)

    async def ready(self) -> None:
        await self._verifier.ready()

    async def aclose(self) -> None:
        await self._verifier.aclose()


def _bearer(metadata: Mapping[str, str]) -> str:
    """The credential of the scheme Bearer (RFC 6750; schemes know no case, RFC 9110); empty when there is none."""
    scheme, _, credential = metadata.get(AUTHORIZATION_KEY, "").strip().partition(" ")
    return credential.strip() if scheme.lower() == "bearer" else ""


def _missing(what: str) -> NotAuthenticated:
    return NotAuthenticated(f"The call needs {what}", {"cause": "missing"})
