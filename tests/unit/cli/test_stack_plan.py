"""What `errata up` hands to the services."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from errata_cli.stack import StackPlan
from errata_kit.access.identity import IdentitySigner, IdentityVerifier
from errata_kit.access.principals import Principal, Role


def plan(folder: Path, **variables: str) -> StackPlan:
    return StackPlan.on_free_ports(folder, variables)


def test_with_authentication_the_orchestrator_signs_and_the_others_trust_it(tmp_path: Path) -> None:
    first, again = (plan(tmp_path, ERRATA_AUTH="api-key").environment() for _ in range(2))
    key, trust = Path(first["ERRATA_IDENTITY_KEY_FILE"]), Path(first["ERRATA_IDENTITY_TRUST_FILE"])
    assert again["ERRATA_IDENTITY_KEY_FILE"] == str(key), "a restart keeps the key"
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    ann = Principal("ann", "acme", frozenset({Role.ASK}))
    seen = IdentityVerifier.from_file(trust).principal_of(IdentitySigner.from_file(key).sign(ann))
    assert (seen.name, seen.tenant, seen.delegated) == ("ann", "acme", True)


def test_without_authentication_or_with_an_own_key_none_is_made(tmp_path: Path) -> None:
    assert "ERRATA_IDENTITY_KEY_FILE" not in plan(tmp_path).environment()
    own = plan(tmp_path, ERRATA_AUTH="oidc", ERRATA_IDENTITY_KEY_FILE="mine.pem").environment()
    assert own["ERRATA_IDENTITY_KEY_FILE"] == "mine.pem"
    assert list(tmp_path.iterdir()) == []


def test_what_the_command_line_needs_for_other_places_is_not_handed_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ERRATA_TLS_CA_FILE", "ERRATA_TLS_CERT_FILE", "ERRATA_TLS_KEY_FILE", "ERRATA_API_KEY", "ERRATA_API_KEY_FILE"):
        monkeypatch.setenv(name, "elsewhere")
    handed = plan(tmp_path, ERRATA_TLS_CA_FILE="meant").environment()
    assert {name for name in handed if handed[name] == "elsewhere"} == set()
    assert handed["ERRATA_TLS_CA_FILE"] == "meant"
