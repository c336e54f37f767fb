"""Who a call comes from, by its metadata, for each way of authentication."""

import datetime
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from errata_kit.access.authenticator import Authenticator, open_authenticator
from errata_kit.access.identity import IdentitySigner
from errata_kit.access.key_writing import NewKey, create_key, revoke_key
from errata_kit.access.principals import ALL_ROLES, ANYBODY, Principal, Role
from errata_kit.access.settings import AccessSettings
from errata_kit.errors import InvalidFields, NotAuthenticated, ServiceUnavailable, StartFailed
from tests.harness.oidc_issuer import OidcIssuer
from tests.unit.access.test_identity import Pair

NOW = datetime.datetime(2026, 11, 30, 12, 0, tzinfo=datetime.UTC)


def opened(**environment: Any) -> Authenticator:
    return open_authenticator(AccessSettings.model_validate(environment))


async def cause(authenticator: Authenticator, metadata: dict[str, str]) -> str:
    with pytest.raises(NotAuthenticated) as caught:
        await authenticator.authenticate(metadata)
    said = f"{caught.value.message}{caught.value.detail}"
    assert not any(len(value) > 12 and value.split()[-1] in said for value in metadata.values())
    return caught.value.metadata["cause"]


async def test_with_none_everybody_is_anybody_by_the_name_they_give() -> None:
    authenticator = opened()
    assert await authenticator.authenticate({}) is ANYBODY
    assert await authenticator.authenticate({"errata-principal": ""}) is ANYBODY
    assert await authenticator.authenticate({"errata-principal": "ann"}) == Principal("ann", "default", ALL_ROLES)
    # Nobody is trusted to pass identities on, so what says so means nothing.
    assert await authenticator.authenticate({"errata-identity": "x", "authorization": "Bearer y"}) is ANYBODY
    await authenticator.ready()
    await authenticator.aclose()


@pytest.mark.parametrize("name", ["x" * 129, "ä" * 65, "a\0b", "\ud800"])
async def test_a_name_that_can_be_nobodys_is_an_invalid_field(name: str) -> None:
    with pytest.raises(InvalidFields) as caught:
        await opened().authenticate({"errata-principal": name})
    assert [violation.field for violation in caught.value.violations] == ["errata-principal"]


async def test_an_api_key_comes_as_bearer_or_as_x_api_key(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    key, entry = create_key(path, NewKey("ann", frozenset({Role.ASK}), "acme"), NOW)
    authenticator = opened(ERRATA_AUTH="api-key", ERRATA_API_KEYS_FILE=path)
    ann = Principal("ann", "acme", frozenset({Role.ASK}))
    for metadata in (
        {"authorization": f"Bearer {key}"},
        {"authorization": f" bEARER   {key} "},
        {"x-api-key": key},
        {"x-api-key": key, "authorization": "Basic eDp5"},
        {"authorization": f"Bearer {key}", "errata-principal": "bob"},
    ):
        assert await authenticator.authenticate(metadata) == ann
    missing: list[dict[str, str]] = [
        {},
        {"authorization": ""},
        {"authorization": "Bearer"},
        {"authorization": "Bearer  "},
        {"authorization": key},
        {"authorization": f"Basic {key}"},
        {"errata-principal": "ann"},
        {"x-api-key": " "},
    ]
    for metadata in missing:
        assert await cause(authenticator, metadata) == "missing"
    assert await cause(authenticator, {"authorization": f"Bearer {key}0"}) == "invalid"
    assert await cause(authenticator, {"authorization": "Bearer wrong", "x-api-key": key}) == "invalid"
    revoke_key(path, entry.id, NOW)
    assert await cause(opened(ERRATA_AUTH="api-key", ERRATA_API_KEYS_FILE=path), {"x-api-key": key}) == "revoked"


@pytest.fixture
async def issuer() -> AsyncIterator[OidcIssuer]:
    async with OidcIssuer() as running:
        yield running


async def test_a_token_comes_as_bearer_only(issuer: OidcIssuer) -> None:
    authenticator = opened(**issuer.environment())
    await authenticator.ready()
    token = issuer.token()
    assert (await authenticator.authenticate({"authorization": f"BEARER {token}"})).tenant == "acme"
    assert await cause(authenticator, {"x-api-key": token}) == "missing"
    assert await cause(authenticator, {"authorization": f"Bearer {token}x"}) == "invalid"
    assert await cause(authenticator, {"authorization": f"Bearer {issuer.token(tenant=None)}"}) == "tenant"
    await authenticator.aclose()


async def test_an_issuer_that_is_away_makes_nobody_ready(issuer: OidcIssuer) -> None:
    await issuer.stop()
    authenticator = opened(**issuer.environment())
    with pytest.raises(ServiceUnavailable):
        await authenticator.ready()
    with pytest.raises(ServiceUnavailable):
        await authenticator.authenticate({"authorization": f"Bearer {issuer.token()}"})
    await authenticator.aclose()


async def test_an_identity_of_the_orchestrator_goes_before_all_else(tmp_path: Path) -> None:
    pair, path = Pair(tmp_path), tmp_path / "keys.json"
    key, _ = create_key(path, NewKey("bob", frozenset({Role.ASK})), NOW)
    stranger = tmp_path / "stranger"
    stranger.mkdir()
    forged = IdentitySigner.from_file(Pair(stranger).key_file).sign(Principal("ann", "acme", ALL_ROLES))
    ann = Principal("ann", "acme", frozenset({Role.ASK}))
    keyed = opened(ERRATA_AUTH="api-key", ERRATA_API_KEYS_FILE=path, ERRATA_IDENTITY_TRUST_FILE=pair.trust_file)
    unkeyed = opened(ERRATA_IDENTITY_TRUST_FILE=pair.trust_file)
    for authenticator in (keyed, unkeyed):
        known = await authenticator.authenticate({"errata-identity": pair.signer.sign(ann), "x-api-key": key})
        assert known == Principal("ann", "acme", frozenset({Role.ASK}), delegated=True)
        for bad in ("", "x", forged, pair.signer.sign(ann)[:-3]):
            assert await cause(authenticator, {"errata-identity": bad, "x-api-key": key}) == "identity"
    assert (await keyed.authenticate({"x-api-key": key})).name == "bob"
    assert await cause(keyed, {}) == "missing"
    assert await unkeyed.authenticate({}) is ANYBODY


def test_a_file_that_cannot_be_used_stops_the_start(tmp_path: Path) -> None:
    for variable, name in (("ERRATA_API_KEYS_FILE", "keys.json"), ("ERRATA_IDENTITY_TRUST_FILE", "trust.pem")):
        path = tmp_path / name
        path.write_text("nonsense")
        with pytest.raises(StartFailed, match=name):
            opened(**({"ERRATA_AUTH": "api-key"} if "KEYS" in variable else {}), **{variable: path})


def test_without_authentication_no_cryptography_is_loaded() -> None:
    program = (
        "import sys; from errata_kit.access.authenticator import open_authenticator;"
        "from errata_kit.access.settings import AccessSettings; open_authenticator(AccessSettings());"
        "sys.exit(' '.join(sorted({'jwt', 'cryptography', 'grpc'} & set(sys.modules))))"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert ended.stderr.strip() == ""


async def test_a_name_is_a_name_and_no_text() -> None:
    with pytest.raises(InvalidFields, match="white space"):
        await opened().authenticate({"errata-principal": "Bearer abc"})
