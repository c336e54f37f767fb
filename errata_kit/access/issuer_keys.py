"""The keys with which an OpenID Connect issuer signs: fetched, kept, and fetched again when they are old or changed."""

import asyncio
import contextvars
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import jwt
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

from errata_kit.access.fetching import FetchFailed, fetch_json, may_be_fetched
from errata_kit.calls import stop_task
from errata_kit.errors import NotAuthenticated, ServiceUnavailable
from errata_kit.logs import get_logger

TRY_AGAIN_SECONDS: Final = 10.0
"""At least so long between two attempts that an unknown key or a failure causes."""
KEEP_AT_MOST_SECONDS: Final = 86_400.0
"""How long keys are used while the issuer can't be reached."""
MAX_KEYS: Final = 100
MAX_WAITING: Final = 64
"""How many calls with unknown keys wait for the issuer at once. Anybody can make up such a token, and each holds a call."""
_REFRESH_AT: Final = 0.8
_RSA: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
_EC: Final = {"P-256": ("ES256",), "P-384": ("ES384",), "P-521": ("ES512",)}
_LEAST_RSA_BITS: Final = 2048
# What is public of a key; a private part that somebody published is not looked at.
_MEMBERS: Final = ("kty", "n", "e", "crv", "x", "y")

_log = get_logger("errata.access")


@dataclass(frozen=True)
class IssuerKey:
    """A public key, and the algorithms that it may verify, which never come from a token."""

    kid: str
    algorithms: tuple[str, ...]
    key: Any


@dataclass(frozen=True, slots=True)
class KeysAt:
    """Where the keys are. jwks_url: empty when the issuer's discovery document says it."""

    issuer: str
    jwks_url: str = ""


def keys_of(document: Mapping[str, Any]) -> tuple[IssuerKey, ...]:
    """The signing keys of a JWK set (RFC 7517) that we can use: RSA of 2048 bits and more, P-256/384/521, Ed25519.

    Others are passed over, symmetric ones above all. Raises FetchFailed when none is left.
    """
    listed = document.get("keys")
    found = (_key_of(item) for item in (listed if isinstance(listed, list) else [])[:MAX_KEYS])
    keys = tuple(key for key in found if key is not None)
    if not keys:
        raise FetchFailed("holds no key that can be used")
    return keys


def fetch_keys(at: KeysAt, fetch: Callable[[str], Mapping[str, Any]] = fetch_json) -> tuple[IssuerKey, ...]:
    """Read the keys, by way of the discovery document when need be. Blocks. Raises FetchFailed."""
    url = at.jwks_url
    if not url:
        document = fetch(at.issuer.rstrip("/") + "/.well-known/openid-configuration")
        # OpenID Connect Discovery 1.0, section 4.3: another issuer's document must not be used.
        if document.get("issuer") != at.issuer:
            raise FetchFailed("the discovery document is another issuer's")
        url = document.get("jwks_uri", "")
        if not isinstance(url, str) or not may_be_fetched(url):
            raise FetchFailed("the discovery document names no jwks_uri that may be used")
    return keys_of(fetch(url))


class IssuerKeys:
    """The issuer's keys.

    They are kept for keep_seconds, and read again in the background when four fifths of that are over. When they are older,
    because nobody called, the next call waits for fresh ones, so that a key which the issuer took back is not used for
    longer. While the issuer can't be reached the known keys stay in use, for up to 24 hours. An unknown key makes them be read
    again, at most every ten seconds. There is one fetch at a time, in a thread, whoever waits for it. clock: seconds,
    monotonic. changes: how often the set has changed.
    """

    def __init__(
        self,
        at: KeysAt,
        keep_seconds: float,
        *,
        clock: Callable[[], float] = time.monotonic,
        fetch: Callable[[KeysAt], tuple[IssuerKey, ...]] = fetch_keys,
    ) -> None:
        self._at = at
        self._keep = keep_seconds
        self._clock = clock
        self._fetch = fetch
        self._keys: tuple[IssuerKey, ...] = ()
        self._content: frozenset[tuple[str, str]] = frozenset()
        self._fetched = self._tried = float("-inf")
        self._failed = False
        self._waiting = 0
        self._task: asyncio.Task[None] | None = None
        self.changes = 0

    def usable(self) -> bool:
        """Whether the keys may be used at once; starts to read them again when it is time. Call it in the event loop."""
        now = self._clock()
        age = now - self._fetched
        if age < self._keep * _REFRESH_AT:
            return True
        if age >= KEEP_AT_MOST_SECONDS or not (self._failed or age < self._keep):
            return False
        self._start(now, TRY_AGAIN_SECONDS if self._failed else 0.0)
        return True

    async def ready(self) -> None:
        """Wait until the keys may be used. Raises ServiceUnavailable when the issuer can't be reached."""
        if self.usable():
            return
        await self._wait(self._start(self._clock(), TRY_AGAIN_SECONDS if self._failed else 0.0))
        if not self._keys or self._clock() - self._fetched >= KEEP_AT_MOST_SECONDS:
            raise self._unavailable()

    async def find(self, kid: str | None, algorithm: str) -> IssuerKey:
        """The key with this id for this algorithm; a token without an id is taken when one key alone can have signed it.

        Raises NotAuthenticated, cause invalid, and ServiceUnavailable when the issuer can't be asked about an unknown key.
        """
        await self.ready()
        if kid is not None and not any(key.kid == kid for key in self._keys):
            await self._ask_again()
        fitting = [key for key in self._keys if kid in (None, key.kid) and algorithm in key.algorithms]
        if not fitting or (kid is None and len(fitting) > 1):
            raise NotAuthenticated("The token is not valid", {"cause": "invalid"}, detail="signed with an unknown key")
        return fitting[0]

    async def aclose(self) -> None:
        """End what goes on in the background."""
        if self._task is not None:
            await stop_task(self._task)

    async def _ask_again(self) -> None:
        task = self._start(self._clock(), TRY_AGAIN_SECONDS)
        if task is not None:
            if self._waiting >= MAX_WAITING:
                raise self._unavailable()
            self._waiting += 1
            try:
                await self._wait(task)
            finally:
                self._waiting -= 1
        if self._failed:
            raise self._unavailable()

    def _start(self, now: float, pause: float) -> "asyncio.Task[None] | None":
        """The fetch that is going on, or a new one when the last is at least pause seconds ago."""
        if self._task is not None and not self._task.done():
            return self._task
        if now - self._tried < pause:
            return None
        self._tried = now
        # Without the context of the call that happens to be the first: others wait for it, too.
        self._task = asyncio.create_task(self._refresh(), context=contextvars.Context())
        return self._task

    async def _wait(self, task: "asyncio.Task[None] | None") -> None:
        if task is not None:
            # A caller that gives up must not end it for the others.
            await asyncio.shield(task)

    async def _refresh(self) -> None:
        try:
            keys = await asyncio.to_thread(self._fetch, self._at)
        except FetchFailed as error:
            self._failed = True
            _log.warning("oidc_keys_unavailable", issuer=self._at.issuer, why=str(error), keys_in_use=len(self._keys))
            return
        except Exception:
            # Nothing may end in silence here: who waits must not take old keys for fresh ones.
            self._failed = True
            _log.exception("oidc_keys_unavailable", issuer=self._at.issuer)
            return
        self._failed, self._fetched = False, self._clock()
        content = frozenset(_fingerprint(key) for key in keys)
        if content != self._content:
            self._keys, self._content = keys, content
            self.changes += 1
            _log.info("oidc_keys_read", issuer=self._at.issuer, keys=len(keys))

    def _unavailable(self) -> ServiceUnavailable:
        wait = max(1.0, self._tried + TRY_AGAIN_SECONDS - self._clock())
        message = "The issuer's keys can't be read, so the token can't be checked"
        return ServiceUnavailable(message, {"service": "oidc"}, retry_after=wait)


def _key_of(item: object) -> IssuerKey | None:
    if not isinstance(item, dict) or item.get("use", "sig") != "sig":
        return None
    kid, declared = item.get("kid", ""), item.get("alg")
    public = {name: item[name] for name in _MEMBERS if name in item}
    try:
        built = _built(public)
    except (jwt.PyJWTError, ValueError, TypeError, AttributeError):
        return None
    if built is None or not isinstance(kid, str):
        return None
    algorithms, key = built
    if declared is not None:
        algorithms = tuple(name for name in algorithms if name == declared)
    return IssuerKey(kid, algorithms, key) if algorithms else None


def _built(public: dict[str, Any]) -> tuple[tuple[str, ...], Any] | None:
    match public.get("kty"), public.get("crv"):
        case "RSA", _:
            key = RSAAlgorithm.from_jwk(public)
            return (_RSA, key) if key.key_size >= _LEAST_RSA_BITS else None
        case "EC", curve if curve in _EC:
            return _EC[curve], ECAlgorithm.from_jwk(public)
        case "OKP", "Ed25519":
            return ("EdDSA",), OKPAlgorithm.from_jwk(public)
    return None


def _fingerprint(key: IssuerKey) -> tuple[str, str]:
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    encoded: bytes = key.key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return f"{key.kid} {','.join(key.algorithms)}", encoded.hex()
