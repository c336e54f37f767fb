"""`errata keys`: what goes to which stream, and what it leaves in the file."""

from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from errata_cli.keys import keys
from errata_kit.access.api_keys import ApiKeys, hash_of
from errata_kit.access.key_writing import read_keys
from errata_kit.access.principals import Principal, Role
from errata_kit.errors import NotAuthenticated


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "keys.json"


def run(*arguments: str, code: int = 0) -> Result:
    done = CliRunner().invoke(keys, arguments, env={"ERRATA_API_KEYS_FILE": None})
    assert done.exit_code == code, done.output
    return done


def test_the_key_alone_goes_to_standard_output(path: Path) -> None:
    done = run("create", "--file", str(path), "--principal", "ann", "--tenant", "acme", "--role", "ask", "--role", "INGEST")
    key = done.stdout.removesuffix("\n")
    assert ApiKeys(path).principal_of(key) == Principal("ann", "acme", frozenset({Role.ASK, Role.INGEST}))
    entry = read_keys(path)[0]
    assert entry.expire_time is None
    assert key not in done.stderr and entry.id in done.stderr and "acme" in done.stderr


def test_a_revoked_key_is_listed_as_such_and_refused(path: Path) -> None:
    key = run("create", "--file", str(path), "--principal", "ann", "--role", "admin").stdout.strip()
    run("create", "--file", str(path), "--principal", "bob\x1b[31m", "--role", "ask", "--expires", "90d")
    first, second = read_keys(path)
    assert second.expire_time is not None and (second.expire_time - second.create_time).days == 90
    assert run("revoke", "--file", str(path), first.id).stdout == ""
    with pytest.raises(NotAuthenticated):
        ApiKeys(path).principal_of(key)
    listed = run("list", "--file", str(path)).stdout
    lines = [line.split() for line in listed.splitlines()]
    assert [(line[0], line[4]) for line in lines] == [("id", "state"), (first.id, "revoked"), (second.id, "active")]
    assert "\x1b" not in listed and hash_of(key) not in listed


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("--principal", "ann", "--role", "ask", "--expires", "soon"), 2, "errata: --expires soon: must be"),
        (("--principal", "ann", "--role", "ask", "--expires", "999999w"), 2, "errata: --expires: a key can't last that long"),
        (("--principal", "ann", "--role", "ask", "--tenant", "Acme"), 2, "errata: --tenant: "),
        (("--principal", "", "--role", "ask"), 2, "errata: --principal: must be 1 to 128 bytes"),
        (("--principal", "ann", "--role", "root"), 2, "root"),
        (("--principal", "ann"), 2, "--role"),
    ],
)
def test_wrong_values_are_said_and_make_no_file(path: Path, arguments: tuple[str, ...], code: int, said: str) -> None:
    done = run("create", "--file", str(path), *arguments, code=code)
    assert said in done.stderr and done.stdout == ""
    assert not path.exists()


def test_a_file_that_cannot_be_used_is_said_in_one_sentence(path: Path) -> None:
    absent = run("list", "--file", str(path), code=1)
    assert absent.stderr == f"errata: {path}: there is no such file\n"
    path.write_text("{")
    broken = run("create", "--file", str(path), "--principal", "ann", "--role", "ask", code=1)
    assert broken.stderr == f"errata: {path}: is not valid JSON\n" and broken.stdout == ""
    path.write_text('{"version": 1, "keys": []}')
    assert run("revoke", "--file", str(path), "abcd", code=1).stderr == f"errata: {path}: there is no key with this id\n"
