"""On whose behalf the orchestrator calls: a short-lived token, signed with Ed25519, that the other services verify.

It is a JWT (RFC 7519, EdDSA by RFC 8037) with the claims iss, aud, sub, tenant, roles, iat and exp, in the metadata
`errata-identity`. It proves who asked the orchestrator; that the connection is the orchestrator's is proved by mutual TLS.
"""

import base64
import contextlib
import hashlib
import json
import re
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

import jwt
from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from errata_kit.access.claims import principal_name, roles_of, tenant_of
from errata_kit.access.principals import Principal
from errata_kit.access.token_cache import TokenCache
from errata_kit.access.watched import WatchedFile
from errata_kit.errors import NotAuthenticated

ISSUER: Final = "errata-orchestrator"
AUDIENCE: Final = "errata"
LIFE_SECONDS: Final = 60
CLOCK_SKEW_SECONDS: Final = 30
MAX_TOKEN_CHARACTERS: Final = 4096
MAX_TRUSTED_KEYS: Final = 16
_ALGORITHM: Final = "EdDSA"
_SIGNED_AT_MOST: Final = 4096
_BLOCK: Final = re.compile(rb"-----BEGIN ([A-Z0-9 ]+)-----.+?-----END \1-----", re.DOTALL)


def thumbprint(key: Ed25519PublicKey) -> str:
    """The key's name in the header kid: its JWK thumbprint (RFC 7638, members by RFC 8037 section 2)."""
    members = {"crv": "Ed25519", "kty": "OKP", "x": _base64url(key.public_bytes_raw())}
    return _base64url(hashlib.sha256(json.dumps(members, separators=(",", ":"), sort_keys=True).encode()).digest())


@dataclass(frozen=True, slots=True)
class _Signing:
    key: Ed25519PrivateKey
    kid: str


class IdentitySigner:
    """Signs who a call is made for. clock: seconds since 1970."""

    def __init__(self, file: WatchedFile[_Signing], *, clock: Callable[[], float] = time.time) -> None:
        self._file = file
        self._clock = clock
        self._signing = file.current()
        self._signed: OrderedDict[Principal, tuple[str, float]] = OrderedDict()

    @classmethod
    def from_file(cls, path: Path, *, clock: Callable[[], float] = time.time) -> Self:
        """Sign with the Ed25519 private key (PEM, not encrypted) in the file, which is read again when it changes.

        Raises StartFailed, which names the file, for anything else.
        """
        return cls(WatchedFile(path, _signing), clock=clock)

    def sign(self, principal: Principal) -> str:
        """A token that is good for 30 to 60 seconds: it is signed anew when half of its life is over."""
        signing, now = self._file.current(), self._clock()
        if signing is not self._signing:
            self._signing = signing
            self._signed.clear()
        token, renew = self._signed.get(principal, ("", 0.0))
        if now < renew <= now + LIFE_SECONDS / 2:
            return token
        token = _encode(principal, signing, int(now))
        self._signed[principal] = (token, now + LIFE_SECONDS / 2)
        self._signed.move_to_end(principal)
        if len(self._signed) > _SIGNED_AT_MOST:
            self._signed.popitem(last=False)
        return token


class IdentityVerifier:
    """Verifies whom the orchestrator calls for. clock: seconds since 1970; PyJWT itself reads the machine's."""

    def __init__(self, file: WatchedFile[dict[str, Ed25519PublicKey]], *, clock: Callable[[], float] = time.time) -> None:
        self._file = file
        self._keys = file.current()
        self._cache = TokenCache(clock=clock)

    @classmethod
    def from_file(cls, path: Path) -> Self:
        """Trust the Ed25519 public keys and certificates (PEM, up to 16) in the file, which is read again when it changes.

        Of a certificate only its key counts: neither its dates nor who issued it. To change the orchestrator's key, first
        put the new one beside the old one here. Raises StartFailed, which names the file, for anything else.
        """
        return cls(WatchedFile(path, _trusted))

    def principal_of(self, token: str) -> Principal:
        """The principal that a token names, marked as delegated. Raises NotAuthenticated, cause identity."""
        keys = self._file.current()
        if keys is not self._keys:
            self._keys = keys
            self._cache.clear()
        known = self._cache.get(token)
        if known is not None:
            return known
        claims = self._verified(token)
        try:
            name = claims["sub"]
            # Empty where the orchestrator asks nobody who they are.
            principal = Principal(
                principal_name(name) if name else "", tenant_of(claims["tenant"]), roles_of(claims["roles"]), delegated=True
            )
        except (ValueError, NotAuthenticated) as error:
            raise _refused(type(error).__name__) from None
        self._cache.put(token, principal, int(claims["exp"]) + CLOCK_SKEW_SECONDS)
        return principal

    def _verified(self, token: str) -> dict[str, Any]:
        if len(token) > MAX_TOKEN_CHARACTERS:
            raise _refused("too long")
        fault = "InvalidSignatureError"
        try:
            named = self._keys.get(jwt.get_unverified_header(token).get("kid", ""))
            for key in (named,) if named else tuple(self._keys.values()):
                with contextlib.suppress(jwt.InvalidSignatureError):
                    return _decode(token, key)
        except (jwt.PyJWTError, ValueError) as error:
            fault = type(error).__name__
        raise _refused(fault)


def _refused(detail: str) -> NotAuthenticated:
    # The text of the library may quote the token; the name of its class does not.
    return NotAuthenticated("The identity in errata-identity is not valid", {"cause": "identity"}, detail=detail)


def _encode(principal: Principal, signing: _Signing, now: int) -> str:
    claims = {
        "iss": ISSUER,
        "aud": AUDIENCE,
        "sub": principal.name,
        "tenant": principal.tenant,
        "roles": sorted(principal.roles),
        "iat": now,
        "exp": now + LIFE_SECONDS,
    }
    return jwt.encode(claims, signing.key, algorithm=_ALGORITHM, headers={"kid": signing.kid})


def _decode(token: str, key: Ed25519PublicKey) -> dict[str, Any]:
    return jwt.decode(
        token,
        key,
        algorithms=[_ALGORITHM],
        audience=AUDIENCE,
        issuer=ISSUER,
        leeway=CLOCK_SKEW_SECONDS,
        options={"require": ["iss", "aud", "sub", "tenant", "roles", "iat", "exp"]},
    )


def _signing(content: bytes) -> _Signing:
    try:
        key = serialization.load_pem_private_key(content, password=None)
    except TypeError:
        raise ValueError("holds an encrypted private key, and nobody is there to say its password") from None
    except (ValueError, UnsupportedAlgorithm):
        raise ValueError("must hold an Ed25519 private key in PEM") from None
    if not isinstance(key, Ed25519PrivateKey):
        raise ValueError("must hold an Ed25519 private key, and its key is of another type")
    return _Signing(key, thumbprint(key.public_key()))


def _trusted(content: bytes) -> dict[str, Ed25519PublicKey]:
    keys = dict[str, Ed25519PublicKey]()
    for place, block in enumerate(_BLOCK.finditer(content), start=1):
        key = _public_key(block[1].decode(), block[0], place)
        keys[thumbprint(key)] = key
    if not keys:
        raise ValueError("must hold an Ed25519 public key or certificate in PEM")
    if len(keys) > MAX_TRUSTED_KEYS:
        raise ValueError(f"holds more than {MAX_TRUSTED_KEYS} keys")
    return keys


def _public_key(label: str, block: bytes, place: int) -> Ed25519PublicKey:
    if "PRIVATE" in label:
        raise ValueError(f"entry {place} is a private key; only public ones belong here")
    try:
        if label == "CERTIFICATE":
            key: object = x509.load_pem_x509_certificate(block).public_key()
        else:
            key = serialization.load_pem_public_key(block)
    except (ValueError, UnsupportedAlgorithm):
        raise ValueError(f"entry {place} is no public key or certificate that can be read") from None
    if not isinstance(key, Ed25519PublicKey):
        raise ValueError(f"entry {place} must be an Ed25519 key, and is of another type")
    return key


def _base64url(value: bytes) -> str:
    return base64.urlsafe_b64encode(value).rstrip(b"=").decode()
