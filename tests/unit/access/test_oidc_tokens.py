"""Which tokens of an issuer are taken, and what becomes of their claims."""

import base64
import hashlib
import hmac
import json
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from errata_kit.access.fetching import FetchFailed
from errata_kit.access.issuer_keys import keys_of
from errata_kit.access.oidc import OidcVerifier
from errata_kit.access.principals import Principal, Role
from errata_kit.access.settings import AccessSettings
from errata_kit.errors import NotAuthenticated, StartFailed
from tests.harness.oidc_issuer import AUDIENCE, KEYS, OidcIssuer, SigningKey


@pytest.fixture
async def issuer() -> AsyncIterator[OidcIssuer]:
    async with OidcIssuer() as running:
        yield running


@pytest.fixture
async def verifier(issuer: OidcIssuer) -> AsyncIterator[OidcVerifier]:
    opened = OidcVerifier(settings_for(issuer))
    yield opened
    await opened.aclose()


def settings_for(issuer: OidcIssuer, **more: str) -> AccessSettings:
    return AccessSettings.model_validate({**issuer.environment(), **more})


async def cause(verifier: OidcVerifier, token: str) -> str:
    """Why a token is refused; the error must quote neither the token nor what is in it."""
    with pytest.raises(NotAuthenticated) as caught:
        await verifier.principal_of(token)
    said = f"{caught.value.message} {caught.value.detail} {caught.value.metadata}"
    assert not any(len(part) > 8 and part in said for part in token.split("."))
    return caught.value.metadata["cause"]


async def test_a_good_token_gives_its_principal_without_asking_twice(issuer: OidcIssuer, verifier: OidcVerifier) -> None:
    token = issuer.token(roles=["ask", "ingest", "unheard-of", 7])
    expected = Principal("ann", "acme", frozenset({Role.ASK, Role.INGEST}))
    assert await verifier.principal_of(token) == expected
    assert verifier.remembered(token) == expected
    assert await verifier.principal_of(token) == expected
    assert issuer.asked[KEYS] == 1


@pytest.mark.parametrize(
    ("key", "used"),
    [
        (lambda: SigningKey("k", "RS256"), "RS256"),
        (lambda: SigningKey("k", "RS256", declared=False), "PS512"),
        (lambda: SigningKey("k", "PS384"), "PS384"),
        (lambda: SigningKey("k", "ES256"), "ES256"),
        (lambda: SigningKey("k", "ES384", declared=False), "ES384"),
        (lambda: SigningKey("k", "ES512"), "ES512"),
        (lambda: SigningKey("k", "EdDSA", declared=False), "EdDSA"),
    ],
)
async def test_asymmetric_algorithms_are_taken(
    issuer: OidcIssuer, verifier: OidcVerifier, key: Callable[[], SigningKey], used: str
) -> None:
    issuer.keys = [key()]
    token = issuer.keys[0].sign(issuer.claims(), algorithm=used)
    assert (await verifier.principal_of(token)).name == "ann"


async def test_a_key_is_used_for_the_algorithm_that_it_declares_and_no_other(
    issuer: OidcIssuer, verifier: OidcVerifier
) -> None:
    issuer.keys = [SigningKey("k", "RS256")]
    assert await cause(verifier, issuer.keys[0].sign(issuer.claims(), algorithm="RS512")) == "invalid"
    assert (await verifier.principal_of(issuer.token())).name == "ann"


def hs256_with_public_key(issuer: OidcIssuer) -> str:
    """What a verifier would take that lets the token choose the algorithm: an HMAC with the public key as its secret."""
    public = issuer.keys[0].private.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    head, body = (part(value) for part, value in ((encoded, {"alg": "HS256", "kid": "first"}), (encoded, issuer.claims())))
    signature = hmac.new(public, f"{head}.{body}".encode(), hashlib.sha256).digest()
    return f"{head}.{body}.{base64.urlsafe_b64encode(signature).rstrip(b'=').decode()}"


def encoded(value: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


def tampered(issuer: OidcIssuer) -> str:
    head, _, signature = issuer.token().split(".")
    return f"{head}.{encoded(issuer.claims(roles=['admin']))}.{signature}"


def signed_by_a_stranger(issuer: OidcIssuer) -> str:
    return SigningKey("first").sign(issuer.claims())


def critical_extension(issuer: OidcIssuer) -> str:
    return issuer.keys[0].sign(issuer.claims(), {"kid": "first", "crit": ["exp"], "exp": 1})


FORGED: list[Callable[[OidcIssuer], str]] = [
    tampered,
    signed_by_a_stranger,
    hs256_with_public_key,
    critical_extension,
    lambda issuer: jwt.encode(issuer.claims(), "", algorithm="none", headers={"kid": "first"}),
    lambda issuer: f"{encoded({'alg': 'none'})}.{encoded(issuer.claims())}.",
    lambda issuer: f"{encoded({'alg': ['EdDSA'], 'kid': 'first'})}.{encoded(issuer.claims())}.AAAA",
    lambda issuer: f"{encoded({'alg': 'EdDSA', 'kid': 7})}.{encoded(issuer.claims())}.AAAA",
    lambda issuer: f"{encoded({'kid': 'first'})}.{encoded(issuer.claims())}.AAAA",
    lambda issuer: issuer.token() + "A",
    lambda issuer: issuer.token()[:-8],
    lambda issuer: issuer.keys[0].sign(issuer.claims(), {"kid": "unheard-of"}),
    lambda issuer: issuer.token(pad="x" * 20_000),
    lambda _: "no token at all",
    lambda _: "a.b.c",
    lambda _: "\ud800.\udfff.x",
    lambda _: f"{base64.urlsafe_b64encode(b'[' * 9000).decode()}.e30.AAAA",
]


@pytest.mark.parametrize("forge", FORGED)
async def test_forged_tokens_are_invalid(
    issuer: OidcIssuer, verifier: OidcVerifier, forge: Callable[[OidcIssuer], str]
) -> None:
    assert await cause(verifier, forge(issuer)) == "invalid"
    assert (await verifier.principal_of(issuer.token())).name == "ann"


@pytest.mark.parametrize(
    ("claims", "expected"),
    [
        ({"exp": int(time.time()) - 31}, "expired"),
        ({"nbf": int(time.time()) + 7200}, "invalid"),
        ({"iat": int(time.time()) + 7200}, "invalid"),
        ({"exp": None}, "invalid"),
        ({"exp": "soon"}, "invalid"),
        ({"exp": float("inf")}, "invalid"),
        ({"exp": [1]}, "invalid"),
        ({"iss": None}, "invalid"),
        ({"iss": "https://example.org"}, "invalid"),
        ({"aud": None}, "invalid"),
        ({"aud": "another"}, "invalid"),
        ({"aud": [AUDIENCE, 7]}, "invalid"),
        ({"sub": None}, "principal"),
        ({"sub": ""}, "principal"),
        ({"sub": "a\0b"}, "principal"),
        ({"sub": "ä" * 65}, "principal"),
        ({"sub": "\ud800"}, "principal"),
        ({"sub": 7}, "invalid"),
        ({"tenant": None}, "tenant"),
        ({"tenant": "Acme"}, "tenant"),
        ({"tenant": "acme\n"}, "tenant"),
        ({"tenant": ["acme"]}, "tenant"),
    ],
)
async def test_what_is_wrong_with_the_claims_is_said(
    issuer: OidcIssuer, verifier: OidcVerifier, claims: dict[str, Any], expected: str
) -> None:
    assert await cause(verifier, issuer.token(**claims)) == expected


async def test_clocks_may_differ_by_the_skew(issuer: OidcIssuer, verifier: OidcVerifier) -> None:
    now = int(time.time())
    shifted: list[dict[str, Any]] = [{"exp": now - 20}, {"nbf": now + 20}, {"iat": now + 20}]
    for claims in shifted:
        assert (await verifier.principal_of(issuer.token(**claims))).name == "ann"
    strict = OidcVerifier(settings_for(issuer, ERRATA_OIDC_CLOCK_SKEW_SECONDS="0"))
    assert await cause(strict, issuer.token(exp=now - 1)) == "expired"
    await strict.aclose()


@pytest.mark.parametrize(
    ("path", "claims", "roles"),
    [
        ("realm_access.roles", {"realm_access": {"roles": ["admin", "offline_access"]}}, {Role.ADMIN}),
        ("https://errata.example/roles", {"https://errata.example/roles": "ask ingest"}, {Role.ASK, Role.INGEST}),
        ("scope", {"scope": "openid ask"}, {Role.ASK}),
        ("realm_access.roles", {"realm_access": ["admin"]}, set()),
        ("realm_access.roles", {"realm_access": {"roles": {"admin": True}}}, set()),
        ("absent", {}, set()),
    ],
)
async def test_roles_are_where_the_settings_say(
    issuer: OidcIssuer, path: str, claims: dict[str, Any], roles: set[Role]
) -> None:
    verifier = OidcVerifier(settings_for(issuer, ERRATA_OIDC_ROLES_CLAIM=path))
    assert (await verifier.principal_of(issuer.token(**claims))).roles == roles
    await verifier.aclose()


async def test_a_remembered_token_ends_when_it_expires(issuer: OidcIssuer) -> None:
    shift = 0.0
    verifier = OidcVerifier(settings_for(issuer), clock=lambda: time.time() + shift)
    token = issuer.token()
    await verifier.principal_of(token)
    assert verifier.remembered(token) is not None
    shift = 331.0
    assert verifier.remembered(token) is None
    await verifier.aclose()


@pytest.mark.parametrize(
    ("issuer_url", "jwks_url", "variable"),
    [
        ("http://issuer.example", "", "ERRATA_OIDC_ISSUER"),
        ("file:///etc/keys", "", "ERRATA_OIDC_ISSUER"),
        ("https://[broken", "", "ERRATA_OIDC_ISSUER"),
        ("https://issuer.example", "http://issuer.example/keys", "ERRATA_OIDC_JWKS_URL"),
    ],
)
def test_keys_come_over_https_or_from_this_machine(issuer_url: str, jwks_url: str, variable: str) -> None:
    settings = AccessSettings.model_validate(
        {
            "ERRATA_AUTH": "oidc",
            "ERRATA_OIDC_ISSUER": issuer_url,
            "ERRATA_OIDC_AUDIENCE": AUDIENCE,
            "ERRATA_OIDC_JWKS_URL": jwks_url,
        }
    )
    with pytest.raises(StartFailed, match=variable):
        OidcVerifier(settings)


def test_only_keys_that_can_be_trusted_are_taken_from_a_set() -> None:
    good, small = SigningKey("good", "ES256"), SigningKey("small", "RS256", bits=1024)
    symmetric = {"kid": "oct", "kty": "oct", "alg": "HS256", "k": "c2VjcmV0"}
    for_encryption = {**SigningKey("enc").jwk, "use": "enc"}
    other_curve = {**good.jwk, "kid": "curve", "crv": "secp256k1"}
    wrong_algorithm = {**good.jwk, "kid": "mix", "alg": "HS256"}
    broken = {"kid": "broken", "kty": "RSA", "n": 7, "e": None}
    others = [small.jwk, symmetric, for_encryption, other_curve, wrong_algorithm, broken, "text", None, {"kty": "EC"}]
    assert [key.kid for key in keys_of({"keys": [*others, good.jwk]})] == ["good"]
    documents: list[dict[str, Any]] = [{"keys": others}, {"keys": {}}, {}]
    for document in documents:
        with pytest.raises(FetchFailed):
            keys_of(document)


async def test_a_private_key_that_was_published_is_used_as_a_public_one(issuer: OidcIssuer, verifier: OidcVerifier) -> None:
    issuer.keys[0].jwk["d"] = "AAAA"
    assert (await verifier.principal_of(issuer.token())).name == "ann"


async def test_a_token_without_key_id_needs_a_single_fitting_key(issuer: OidcIssuer, verifier: OidcVerifier) -> None:
    issuer.keys.append(SigningKey("other", "ES256"))
    assert (await verifier.principal_of(issuer.keys[0].sign(issuer.claims(), {}))).name == "ann"
    issuer.keys.append(SigningKey("third"))
    two = OidcVerifier(settings_for(issuer))
    assert await cause(two, issuer.keys[0].sign(issuer.claims(sub="bob"), {})) == "invalid"
    await two.aclose()
