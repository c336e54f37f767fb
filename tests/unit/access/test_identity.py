"""The identity that the orchestrator passes on: who can sign it, who takes it, and how keys are changed."""

import datetime
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from errata_kit.access import identity
from errata_kit.access.identity import IdentitySigner, IdentityVerifier, thumbprint
from errata_kit.access.principals import ANYBODY, Principal, Role
from errata_kit.errors import NotAuthenticated, StartFailed

ANN = Principal("ann", "acme", frozenset({Role.ASK, Role.INGEST}))
SEEN = Principal("ann", "acme", frozenset({Role.ASK, Role.INGEST}), delegated=True)


def private_pem(key: Any, password: bytes | None = None) -> bytes:
    hidden: serialization.KeySerializationEncryption = serialization.NoEncryption()
    if password is not None:
        hidden = serialization.BestAvailableEncryption(password)
    form = serialization.PrivateFormat.PKCS8
    return bytes(key.private_bytes(serialization.Encoding.PEM, form, hidden))


def public_pem(key: Any) -> bytes:
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    return bytes(key.public_key().public_bytes(serialization.Encoding.PEM, form))


def certificate_pem(key: Any) -> bytes:
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "orchestrator")])
    start = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    building = x509.CertificateBuilder(name, name, key.public_key(), 1, start, start + datetime.timedelta(days=1))
    return building.sign(key, None).public_bytes(serialization.Encoding.PEM)


class Pair:
    """A signer and a verifier that trusts it, each with its file."""

    def __init__(self, folder: Path) -> None:
        self.key = Ed25519PrivateKey.generate()
        self.key_file, self.trust_file = folder / "identity.key", folder / "trust.pem"
        self.key_file.write_bytes(private_pem(self.key))
        self.trust_file.write_bytes(public_pem(self.key))
        self.shift = 0.0
        self.signer = IdentitySigner.from_file(self.key_file, clock=lambda: time.time() + self.shift)
        self.verifier = IdentityVerifier.from_file(self.trust_file)

    def refuses(self, token: str) -> bool:
        with pytest.raises(NotAuthenticated) as caught:
            self.verifier.principal_of(token)
        said = f"{caught.value.message} {caught.value.detail}"
        assert not any(len(part) > 8 and part in said for part in token.split("."))
        return caught.value.metadata == {"cause": "identity"}


@pytest.fixture
def pair(tmp_path: Path) -> Pair:
    return Pair(tmp_path)


def claims(**more: Any) -> dict[str, Any]:
    now = int(time.time())
    made = {"iss": "errata-orchestrator", "aud": "errata", "sub": "ann", "tenant": "acme", "roles": ["ask"], "iat": now}
    return {name: value for name, value in {**made, "exp": now + 60, **more}.items() if value is not None}


def look_now(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("errata_kit.access.watched._LOOK_EVERY_SECONDS", 0.0)


def test_a_principal_survives_and_is_marked_as_delegated(pair: Pair) -> None:
    token = pair.signer.sign(ANN)
    assert pair.verifier.principal_of(token) == SEEN
    assert pair.verifier.principal_of(token) == SEEN
    assert pair.verifier.principal_of(pair.signer.sign(ANYBODY)).name == ""
    assert jwt.get_unverified_header(token) == {"alg": "EdDSA", "typ": "JWT", "kid": thumbprint(pair.key.public_key())}


def test_the_thumbprint_is_that_of_rfc_8037() -> None:
    # Appendix A.3 of the RFC.
    key = jwt.PyJWK({"kty": "OKP", "crv": "Ed25519", "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}).key
    assert thumbprint(key) == "kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k"


def test_a_token_is_signed_anew_when_half_of_its_life_is_over(pair: Pair) -> None:
    first = pair.signer.sign(ANN)
    pair.shift = 29
    assert pair.signer.sign(ANN) == first
    pair.shift = 31
    second = pair.signer.sign(ANN)
    assert second != first
    assert pair.signer.sign(Principal("bob")) != second
    pair.shift = -3600
    assert pair.signer.sign(ANN) not in {first, second}, "the clock was set back"


def test_what_is_kept_is_bounded(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(identity, "_SIGNED_AT_MOST", 3)
    for number in range(9):
        pair.signer.sign(Principal(f"p{number}"))
    assert [principal.name for principal in pair.signer._signed] == ["p6", "p7", "p8"]


FORGED: list[Callable[[Pair], str]] = [
    lambda pair: jwt.encode(claims(), Ed25519PrivateKey.generate(), algorithm="EdDSA"),
    lambda pair: jwt.encode(
        claims(), Ed25519PrivateKey.generate(), algorithm="EdDSA", headers={"kid": thumbprint(pair.key.public_key())}
    ),
    lambda pair: jwt.encode(claims(), "", algorithm="none"),
    lambda pair: jwt.encode(claims(), pair.key.public_key().public_bytes_raw(), algorithm="HS256"),
    lambda pair: jwt.encode(claims(), ec.generate_private_key(ec.SECP256R1()), algorithm="ES256"),
    lambda pair: pair.signer.sign(ANN)[:-4],
    lambda pair: pair.signer.sign(ANN) + "." + pair.signer.sign(ANN),
    lambda pair: "",
    lambda pair: "a.b.c",
    lambda pair: "\ud800",
    lambda pair: "x" * 100_000,
]


@pytest.mark.parametrize("forge", FORGED)
def test_what_a_trusted_key_did_not_sign_is_refused(pair: Pair, forge: Callable[[Pair], str]) -> None:
    assert pair.refuses(forge(pair))


@pytest.mark.parametrize(
    "wrong",
    [
        {"iss": "another"},
        {"aud": "another"},
        {"exp": int(time.time()) - 31},
        {"iat": int(time.time()) + 7200},
        {"nbf": int(time.time()) + 7200},
        {"tenant": "Not This"},
        {"tenant": ["acme"]},
        {"sub": "a\0"},
        {"sub": 7},
        *({name: None} for name in ("iss", "aud", "sub", "tenant", "roles", "iat", "exp")),
    ],
)
def test_a_token_needs_all_its_claims_even_when_it_is_signed(pair: Pair, wrong: dict[str, Any]) -> None:
    assert pair.refuses(jwt.encode(claims(**wrong), pair.key, algorithm="EdDSA"))
    assert pair.verifier.principal_of(jwt.encode(claims(), pair.key, algorithm="EdDSA")).name == "ann"


def test_clocks_may_differ_by_half_a_minute(pair: Pair) -> None:
    for shift in (-85, 25):
        pair.shift = shift
        assert pair.verifier.principal_of(pair.signer.sign(ANN)) == SEEN
    for shift in (-95, 35):
        pair.shift = shift
        assert pair.refuses(pair.signer.sign(ANN))


def test_keys_are_changed_without_a_gap(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    look_now(monkeypatch)
    pair = Pair(pair.key_file.parent)
    old, fresh = pair.signer.sign(ANN), Ed25519PrivateKey.generate()
    pair.trust_file.write_bytes(public_pem(pair.key) + b"a remark\n" + certificate_pem(fresh))
    assert pair.verifier.principal_of(old) == SEEN
    pair.key_file.write_bytes(private_pem(fresh))
    new = pair.signer.sign(ANN)
    assert new != old
    assert pair.verifier.principal_of(new) == pair.verifier.principal_of(old) == SEEN
    pair.trust_file.write_bytes(certificate_pem(fresh))
    assert pair.verifier.principal_of(new) == SEEN
    assert pair.refuses(old), "also one that was found good before"


def test_a_token_without_key_id_is_tried_with_every_key(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    others = b"".join(public_pem(Ed25519PrivateKey.generate()) for _ in range(3))
    pair.trust_file.write_bytes(others + public_pem(pair.key))
    verifier = IdentityVerifier.from_file(pair.trust_file)
    assert verifier.principal_of(jwt.encode(claims(), pair.key, algorithm="EdDSA")).delegated


def test_a_broken_file_keeps_the_last_good_key(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    look_now(monkeypatch)
    pair = Pair(pair.key_file.parent)
    for path in (pair.key_file, pair.trust_file):
        path.write_bytes(path.read_bytes()[:40])
    assert pair.verifier.principal_of(pair.signer.sign(ANN)) == SEEN


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (private_pem(ec.generate_private_key(ec.SECP256R1())), "another type"),
        (private_pem(Ed25519PrivateKey.generate(), b"word"), "encrypted"),
        (public_pem(Ed25519PrivateKey.generate()), "must hold an Ed25519 private key"),
        (b"", "must hold an Ed25519 private key"),
    ],
)
def test_a_file_without_a_signing_key_is_said_by_name(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "identity.key"
    path.write_bytes(content)
    with pytest.raises(StartFailed, match=rf"identity\.key: .*{said}"):
        IdentitySigner.from_file(path)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (public_pem(Ed25519PrivateKey.generate()) + public_pem(ec.generate_private_key(ec.SECP256R1())), "entry 2 must be"),
        (private_pem(Ed25519PrivateKey.generate()), "entry 1 is a private key"),
        (b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----", "entry 1 is no public key"),
        (b"".join(public_pem(Ed25519PrivateKey.generate()) for _ in range(17)), "more than 16"),
        (b"text", "must hold an Ed25519 public key"),
    ],
)
def test_a_file_that_nobody_can_be_trusted_by_is_said_by_name(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "trust.pem"
    path.write_bytes(content)
    with pytest.raises(StartFailed, match=rf"trust\.pem: {said}|trust\.pem: holds {said}"):
        IdentityVerifier.from_file(path)
