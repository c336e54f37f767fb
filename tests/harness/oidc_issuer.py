"""An OpenID Connect issuer for tests: a discovery document, a JWK set and tokens, on a loopback port."""

import asyncio
import json
import time
from collections import Counter
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self, cast

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from jwt.algorithms import get_default_algorithms

DISCOVERY = "/.well-known/openid-configuration"
KEYS = "/keys"
AUDIENCE = "errata-tests"
_CURVES: Mapping[str, ec.EllipticCurve] = {"ES256": ec.SECP256R1(), "ES384": ec.SECP384R1(), "ES512": ec.SECP521R1()}


class SigningKey:
    """A private key for one algorithm. declared: whether the JWK says which."""

    def __init__(self, kid: str, algorithm: str = "EdDSA", *, declared: bool = True, bits: int = 2048) -> None:
        self.kid = kid
        self.algorithm = algorithm
        self.private: Any
        if algorithm == "EdDSA":
            self.private = Ed25519PrivateKey.generate()
        elif algorithm in _CURVES:
            self.private = ec.generate_private_key(_CURVES[algorithm])
        else:
            self.private = rsa.generate_private_key(65537, bits)
        self.jwk: dict[str, Any] = {"kid": kid, "use": "sig", **self._public()}
        if declared:
            self.jwk["alg"] = algorithm

    def _public(self) -> dict[str, Any]:
        algorithm = cast(Any, get_default_algorithms()[self.algorithm])
        return dict(algorithm.to_jwk(self.private.public_key(), as_dict=True))

    def sign(self, claims: Mapping[str, Any], headers: Mapping[str, Any] | None = None, algorithm: str = "") -> str:
        """A token with these claims. headers: in place of the header kid."""
        given = {"kid": self.kid} if headers is None else dict(headers)
        return jwt.encode(dict(claims), self.private, algorithm=algorithm or self.algorithm, headers=given)


class OidcIssuer:
    """The issuer. Use it as an async context manager. asked counts the requests for each path.

    replies: instead of the true document for a path, status and body. delay: seconds before each reply.
    """

    def __init__(self, port: int = 0) -> None:
        self._port = port
        self._server: asyncio.Server | None = None
        self.keys = [SigningKey("first")]
        self.asked: Counter[str] = Counter()
        self.replies: dict[str, tuple[int, bytes]] = {}
        self.delay = 0.0

    @property
    def url(self) -> str:
        """What goes into ERRATA_OIDC_ISSUER."""
        return f"http://127.0.0.1:{self._port}"

    def environment(self) -> dict[str, str]:
        """Settings of a service that trusts this issuer."""
        return {"ERRATA_AUTH": "oidc", "ERRATA_OIDC_ISSUER": self.url, "ERRATA_OIDC_AUDIENCE": AUDIENCE}

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def start(self) -> None:
        """Listen, after a stop on the same port as before."""
        self._server = await asyncio.start_server(self._answer, "127.0.0.1", self._port)
        self._port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Be away: connections are refused."""
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()
            self._server = None

    def rotate(self, kid: str, *, keep_old: bool = False) -> SigningKey:
        """Sign with a new key from now on."""
        self.keys = [SigningKey(kid), *(self.keys if keep_old else [])]
        return self.keys[0]

    def claims(self, **more: Any) -> dict[str, Any]:
        """Claims of a good token, with others in place or in addition; None leaves a claim out."""
        now = int(time.time())
        all_of_them = {
            "iss": self.url,
            "aud": AUDIENCE,
            "sub": "ann",
            "tenant": "acme",
            "roles": ["ask"],
            "iat": now,
            "exp": now + 300,
            **more,
        }
        return {name: value for name, value in all_of_them.items() if value is not None}

    def token(self, key: SigningKey | None = None, **claims: Any) -> str:
        """A token, signed with the current key."""
        return (key or self.keys[0]).sign(self.claims(**claims))

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            request = await reader.readuntil(b"\r\n\r\n")
            path = request.split(b" ", 2)[1].decode()
            self.asked[path] += 1
            await asyncio.sleep(self.delay)
            status, body = self.replies.get(path) or self._document(path)
            lines = (f"Location: {self.url}{KEYS}", f"Content-Length: {len(body)}", "Connection: close", "", "")
            writer.write("\r\n".join((f"HTTP/1.1 {status} Said", *lines)).encode() + body)
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            return
        finally:
            writer.close()

    def _document(self, path: str) -> tuple[int, bytes]:
        if path == DISCOVERY:
            return 200, json.dumps({"issuer": self.url, "jwks_uri": self.url + KEYS}).encode()
        if path == KEYS:
            return 200, json.dumps({"keys": [key.jwk for key in self.keys]}).encode()
        return 404, b"{}"
