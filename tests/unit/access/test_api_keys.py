"""API keys: who has one, what the file must look like, and what happens while it is replaced."""

import datetime
import hmac
import json
import os
import secrets
import stat
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from errata_kit.access import api_keys
from errata_kit.access.api_keys import ApiKeys, hash_of, key_id_of, new_key, parse_key_file
from errata_kit.access.key_writing import KeyFileFault, NewKey, create_key, read_keys, revoke_key
from errata_kit.access.principals import Principal, Role
from errata_kit.errors import NotAuthenticated, StartFailed

NOW = datetime.datetime(2026, 11, 30, 12, 0, tzinfo=datetime.UTC)
ANN = NewKey("ann", frozenset({Role.ASK, Role.INGEST}), "acme")


class Clock:
    """Seconds; moved by hand."""

    def __init__(self, now: float) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "keys.json"


def cause(keys: ApiKeys, key: str) -> str:
    with pytest.raises(NotAuthenticated) as caught:
        keys.principal_of(key)
    assert len(key) < 12 or key not in f"{caught.value.message}{caught.value.detail}{caught.value.metadata}"
    return caught.value.metadata["cause"]


def test_a_key_gives_its_principal_and_the_file_does_not_hold_it(path: Path) -> None:
    key, entry = create_key(path, ANN, NOW)
    assert ApiKeys(path).principal_of(key) == Principal("ann", "acme", frozenset({Role.ASK, Role.INGEST}))
    secret = key.rpartition("_")[2]
    assert len(secret) == 64 and secret not in path.read_text() and entry.hash == hash_of(key)
    assert key_id_of(key) == entry.id
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert secret not in repr(entry) and entry.hash not in repr(entry)


def test_wrong_keys_are_invalid(path: Path) -> None:
    key, entry = create_key(path, ANN, NOW)
    keys = ApiKeys(path)
    other = new_key(frozenset())[1]
    secret = other.rpartition("_")[2]
    for wrong in (other, f"errata_{entry.id}_{secret}", key[:-1], key + "0", key + "\n", key.upper(), entry.hash, "", "\ud800"):
        assert cause(keys, wrong) == "invalid"


def test_who_has_a_revoked_or_expired_key_is_told_so_and_nobody_else(path: Path) -> None:
    clock = Clock(NOW.timestamp())
    revoked, entry = create_key(path, ANN, NOW)
    revoke_key(path, entry.id, NOW + datetime.timedelta(days=1))
    passing, _ = create_key(path, NewKey("bob", frozenset({Role.ASK}), expires_after=datetime.timedelta(days=90)), NOW)
    keys = ApiKeys(path, wall_clock=clock)
    assert cause(keys, revoked) == "revoked"
    assert cause(keys, revoked[:-64] + "0" * 64) == "invalid"
    assert keys.principal_of(passing).name == "bob"
    clock.now += 90 * 86_400
    assert cause(keys, passing) == "expired"


def test_hashes_are_compared_in_constant_time_also_for_ids_that_are_unknown(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, entry = create_key(path, ANN, NOW)
    keys = ApiKeys(path)
    compared: list[tuple[str, str]] = []
    truly = hmac.compare_digest

    def compare(left: str, right: str) -> bool:
        compared.append((left, right))
        return truly(left, right)

    monkeypatch.setattr(hmac, "compare_digest", compare)
    keys.principal_of(key)
    unknown = new_key(frozenset({entry.id}))[1]
    assert cause(keys, unknown) == "invalid"
    assert compared == [(entry.hash, entry.hash), (hash_of(unknown), "0" * 64)]


@settings(max_examples=50)
@given(st.text() | st.from_regex(r"errata_[a-z0-9]{4,32}_[0-9a-f]{64}", fullmatch=True))
@example("errata_abcd_" + "0" * 64)
@example("errata_abcd_" + "0" * 64 + "\n")
@example("errata_abcd_" + "٠" * 64)
def test_a_text_is_a_key_or_is_none(text: str) -> None:
    key_id = key_id_of(text)
    if key_id is None:
        assert not (text.isascii() and text.startswith("errata_") and text.count("_") == 2 and len(text) > 100)
    else:
        assert text.isascii() and text == f"errata_{key_id}_{text[-64:]}"
        assert len(bytes.fromhex(text[-64:])) == 32


def test_new_keys_avoid_ids_that_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = iter(["aaaaaaaaaa", "bbbbbbbbbb", "cc" * 32])
    monkeypatch.setattr(secrets, "token_hex", lambda _: next(drawn))
    assert new_key(frozenset({"aaaaaaaaaa"})) == ("bbbbbbbbbb", "errata_bbbbbbbbbb_" + "cc" * 32)


def entry(**more: Any) -> dict[str, Any]:
    made = {
        "id": "abcd1234",
        "hash": "a" * 64,
        "principal": "ann",
        "roles": ["ask"],
        "create_time": "2026-11-30T12:00:00Z",
        **more,
    }
    return {name: value for name, value in made.items() if value is not ...}


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ([entry(), entry(id="short")], None),
        ([entry(), entry()], "two keys with the id abcd1234"),
        ([entry(), entry(id="bad!")], "keys[1]: id: "),
        ([entry(roles=["ask", "root"])], "keys[0] (id abcd1234): roles.1: "),
        ([entry(roles=[])], "keys[0] (id abcd1234): roles: "),
        ([entry(hash="A" * 64)], "keys[0] (id abcd1234): hash: "),
        ([entry(hash=...)], "keys[0] (id abcd1234): hash: "),
        ([entry(principal="")], "keys[0] (id abcd1234): principal: must be 1 to 128 bytes"),
        ([entry(principal="a\0")], "keys[0] (id abcd1234): principal: must not contain"),
        ([entry(tenant="No")], "keys[0] (id abcd1234): tenant: "),
        ([entry(expire_time="2026-11-30T12:00:00")], "keys[0] (id abcd1234): expire_time: "),
        ([entry(key="errata_x")], "keys[0] (id abcd1234): key: "),
        (["text"], "keys[0]: "),
        ({}, "keys: "),
    ],
)
def test_a_wrong_file_is_said_with_its_name_and_entry(path: Path, keys: Any, said: str | None) -> None:
    path.write_text(json.dumps({"version": 1, "keys": keys}))
    if said is None:
        ApiKeys(path)
        return
    with pytest.raises(StartFailed) as caught:
        ApiKeys(path)
    assert caught.value.message.startswith(f"{path}: ") and said in caught.value.message
    assert "a" * 64 not in caught.value.message.lower()


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b'{"version": 2}', b'{"version": 1, "more": 1}', b"\xff", b"[" * 100_000]
)
def test_a_file_that_is_no_key_file_is_refused(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises(StartFailed, match=r"keys\.json: "):
        ApiKeys(path)


def test_a_missing_file_is_refused(path: Path) -> None:
    with pytest.raises(StartFailed, match=r"keys\.json: can't be read: no such file"):
        ApiKeys(path)


@given(
    st.binary() | st.recursive(st.none() | st.text() | st.integers(), st.lists).map(lambda value: json.dumps(value).encode())
)
def test_any_content_is_read_or_said_to_be_wrong(content: bytes) -> None:
    with pytest.raises(ValueError, match=r"^(is|must|keys|version)"):
        parse_key_file(content)


def swap_links(path: Path, content: str, *, generation: int) -> None:
    """Change a mounted secret as Kubernetes does: the file leads into a folder, which is itself a link that is replaced."""
    folder = path.parent / f"..{generation}"
    folder.mkdir()
    (folder / path.name).write_text(content)
    fresh = path.parent / "..tmp"
    fresh.symlink_to(folder.name)
    fresh.rename(path.parent / "..data")
    if not path.is_symlink():
        path.symlink_to(f"..data/{path.name}")


def test_a_swap_of_links_is_seen_within_a_second(path: Path, tmp_path: Path) -> None:
    clock = Clock(0)
    key, _ = create_key(tmp_path / "source.json", ANN, NOW)
    swap_links(path, (tmp_path / "source.json").read_text(), generation=1)
    keys = ApiKeys(path, clock=clock)
    keys.principal_of(key)
    swap_links(path, '{"version": 1, "keys": []}', generation=2)
    clock.now = 0.9
    keys.principal_of(key)
    clock.now = 1.0
    assert cause(keys, key) == "invalid"


def test_a_broken_or_missing_file_keeps_the_last_good_one(path: Path) -> None:
    clock = Clock(0)
    key, _ = create_key(path, ANN, NOW)
    keys, good = ApiKeys(path, clock=clock), path.read_bytes()
    breakages: list[Callable[[], object]] = [
        lambda: path.write_bytes(good[: len(good) // 2]),
        lambda: path.write_bytes(b""),
        path.unlink,
        path.mkdir,
    ]
    for breakage in breakages:
        breakage()
        clock.now += 1
        assert keys.principal_of(key).name == "ann"
        assert cause(keys, new_key(frozenset())[1]) == "invalid"
    path.rmdir()
    path.write_bytes(b'{"version": 1, "keys": []}')
    clock.now += 1
    assert cause(keys, key) == "invalid"


def test_a_change_in_place_within_one_tick_of_the_file_system_is_seen(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(0)
    key, _ = create_key(path, ANN, NOW)
    # Neither size nor inode nor any time differs.
    monkeypatch.setattr("errata_kit.access.watched._stamp", lambda _: (0, 0, 0, 0, 0))
    keys = ApiKeys(path, clock=clock)
    path.write_text(path.read_text().replace('"ann"', '"bob"'))
    clock.now += 1
    assert keys.principal_of(key).name == "bob"


def test_a_change_that_keeps_size_and_time_is_seen(path: Path) -> None:
    clock = Clock(0)
    key, _ = create_key(path, ANN, NOW)
    os.utime(path, (1, 1))
    keys = ApiKeys(path, clock=clock)
    path.write_text(path.read_text().replace('"ann"', '"bob"'))
    os.utime(path, (1, 1))
    clock.now += 1
    assert keys.principal_of(key).name == "bob"


def test_an_unchanged_file_is_not_read_again(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(0)
    key, _ = create_key(path, ANN, NOW)
    os.utime(path, (1, 1))
    keys = ApiKeys(path, clock=clock)
    monkeypatch.setattr(api_keys, "parse_key_file", pytest.fail)
    monkeypatch.setattr("errata_kit.access.watched._read", pytest.fail)
    for _ in range(5):
        clock.now += 1
        assert keys.principal_of(key).name == "ann"


def test_a_key_serves_without_a_gap_while_the_file_is_replaced(path: Path) -> None:
    clock = Clock(0)
    key, _ = create_key(path, ANN, NOW)
    keys = ApiKeys(path, clock=clock)
    done = threading.Event()

    def write() -> None:
        for _ in range(60):
            create_key(path, ANN, NOW)
        done.set()

    writer = threading.Thread(target=write)
    writer.start()
    while not done.is_set():
        clock.now += 1
        assert keys.principal_of(key).name == "ann"
    writer.join()
    assert len(read_keys(path)) == 61


def _create_some(path: Path) -> list[str]:
    return [create_key(path, ANN, NOW)[0] for _ in range(10)]


def test_two_writers_lose_no_key(path: Path) -> None:
    # Threads do for processes: a lock of flock belongs to an open file, and each change opens its own.
    with ThreadPoolExecutor(3) as pool:
        made = [key for batch in pool.map(_create_some, [path] * 3) for key in batch]
    keys = ApiKeys(path)
    assert len(set(made)) == 30 and {keys.principal_of(key).name for key in made} == {"ann"}
    assert sorted(item.name for item in path.parent.iterdir()) == ["keys.json", "keys.json.lock"]


def test_a_file_keeps_its_mode_and_a_link_stays_a_link(path: Path, tmp_path: Path) -> None:
    create_key(path, ANN, NOW)
    path.chmod(0o640)
    link = tmp_path / "link.json"
    link.symlink_to(path)
    create_key(link, ANN, NOW)
    assert link.is_symlink() and len(read_keys(path)) == 2
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_revoking_twice_keeps_the_first_time(path: Path) -> None:
    _, entry = create_key(path, ANN, NOW)
    assert revoke_key(path, entry.id, NOW).revoke_time == NOW
    assert revoke_key(path, entry.id, NOW + datetime.timedelta(days=1)).revoke_time == NOW


def test_what_cannot_be_changed_is_said_and_left_as_it_was(path: Path, tmp_path: Path) -> None:
    with pytest.raises(KeyFileFault, match="there is no such file"):
        revoke_key(path, "abcd", NOW)
    with pytest.raises(KeyFileFault, match="can't be changed: no such file"):
        create_key(tmp_path / "absent" / "keys.json", ANN, NOW)
    create_key(path, ANN, NOW)
    before = path.read_bytes()
    with pytest.raises(KeyFileFault, match="no key with this id"):
        revoke_key(path, "abcd", NOW)
    with pytest.raises(KeyFileFault, match="principal: must be 1 to 128"):
        create_key(path, NewKey("", frozenset({Role.ASK})), NOW)
    with pytest.raises(KeyFileFault, match="tenant: "):
        create_key(path, NewKey("ann", frozenset({Role.ASK}), "Not This"), NOW)
    with pytest.raises(KeyFileFault, match="roles: "):
        create_key(path, NewKey("ann", frozenset()), NOW)
    with pytest.raises(KeyFileFault, match="that long"):
        create_key(path, NewKey("ann", frozenset({Role.ASK}), expires_after=datetime.timedelta(days=10**7)), NOW)
    assert path.read_bytes() == before
    path.write_text("{")
    with pytest.raises(KeyFileFault, match="is not valid JSON"):
        create_key(path, ANN, NOW)
    assert path.read_text() == "{"
