"""Changing the file of API keys: two at once lose nothing, and a reader never sees half a file."""

import contextlib
import datetime
import os
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from errata_kit.access.api_keys import KeyEntry, KeyFileContent, hash_of, new_key, parse_key_file
from errata_kit.access.principals import DEFAULT_TENANT, Role
from errata_kit.access.watched import MAX_BYTES

_LOCK_SECONDS: Final = 10.0
_LOCK_PAUSE_SECONDS: Final = 0.02


class KeyFileFault(Exception):
    """The file can't be read or changed as asked; the message names the file and says why."""


class KeyRefused(KeyFileFault):
    """The file is all right, and the key that was asked for is not; the message starts with the field: principal, tenant."""


@dataclass(frozen=True, slots=True)
class NewKey:
    """Whose key is to be made. expires_after: None for a key that does not end by itself."""

    principal: str
    roles: frozenset[Role]
    tenant: str = DEFAULT_TENANT
    expires_after: datetime.timedelta | None = None


def create_key(path: Path, wanted: NewKey, now: datetime.datetime) -> tuple[str, KeyEntry]:
    """Make a key, and put its hash into the file, which is made where there is none. The key is kept nowhere else.

    Raises KeyFileFault; KeyRefused when it is the key that is wrong.
    """
    made: list[tuple[str, KeyEntry]] = []

    def change(content: KeyFileContent) -> KeyFileContent:
        key_id, key = new_key(frozenset(entry.id for entry in content.keys))
        made.append((key, _entry(wanted, (key_id, key), now)))
        return content.model_copy(update={"keys": (*content.keys, made[0][1])})

    _change(path, change, may_be_new=True)
    return made[0]


def revoke_key(path: Path, key_id: str, now: datetime.datetime) -> KeyEntry:
    """Mark the key as revoked, and return it; one that is revoked already stays as it is. Raises KeyFileFault."""
    found: list[KeyEntry] = []

    def change(content: KeyFileContent) -> KeyFileContent:
        for entry in content.keys:
            if entry.id == key_id:
                found.append(entry.model_copy(update={"revoke_time": entry.revoke_time or now}))
        if not found:
            raise KeyFileFault(f"{path}: there is no key with this id")
        return content.model_copy(update={"keys": tuple(found[0] if entry.id == key_id else entry for entry in content.keys)})

    _change(path, change, may_be_new=False)
    return found[0]


def read_keys(path: Path) -> tuple[KeyEntry, ...]:
    """The entries of the file in their order. Raises KeyFileFault."""
    return _read(path, may_be_new=False).keys


def _entry(wanted: NewKey, made: tuple[str, str], now: datetime.datetime) -> KeyEntry:
    key_id, key = made
    try:
        return KeyEntry(
            id=key_id,
            hash=hash_of(key),
            principal=wanted.principal,
            tenant=wanted.tenant,
            roles=tuple(sorted(wanted.roles)),
            create_time=now,
            expire_time=None if wanted.expires_after is None else now + wanted.expires_after,
        )
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        message = str(first["msg"]).removeprefix("Value error, ")
        raise KeyRefused(f"{first['loc'][0]}: {message[:1].lower()}{message[1:]}") from None
    except OverflowError:
        raise KeyRefused("expires: a key can't last that long") from None


def _change(path: Path, change: Callable[[KeyFileContent], KeyFileContent], *, may_be_new: bool) -> None:
    # A link stays a link: what it leads to is replaced.
    real = Path(os.path.realpath(path))
    try:
        with _locked(real):
            _replace(real, change(_read(real, may_be_new=may_be_new)))
    except OSError as error:
        raise KeyFileFault(f"{path}: can't be changed: {str(error.strerror).lower()}") from None


def _read(path: Path, *, may_be_new: bool) -> KeyFileContent:
    try:
        return parse_key_file(path.read_bytes())
    except FileNotFoundError:
        if may_be_new:
            return KeyFileContent()
        raise KeyFileFault(f"{path}: there is no such file") from None
    except OSError as error:
        raise KeyFileFault(f"{path}: can't be read: {str(error.strerror).lower()}") from None
    except ValueError as error:
        raise KeyFileFault(f"{path}: {error}") from None


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    # Not on every platform, and only whoever changes keys needs it.
    import fcntl

    # A file of its own: the one with the keys is another one after each change.
    handle = os.open(path.with_name(path.name + ".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        deadline = time.monotonic() + _LOCK_SECONDS
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    raise KeyFileFault(f"{path}: somebody else is changing it; try again later") from None
                time.sleep(_LOCK_PAUSE_SECONDS)
        yield
    finally:
        # Closing gives the lock back.
        os.close(handle)


def _replace(path: Path, content: KeyFileContent) -> None:
    text = content.model_dump_json(indent=2) + "\n"
    if len(text.encode()) > MAX_BYTES:
        raise KeyFileFault(f"{path}: has no room for another key: {MAX_BYTES} bytes are the limit")
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with open(handle, "w", encoding="utf-8") as file:
            _as_before(path, file.fileno())
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
    # So that the new name outlives a loss of power, too.
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _as_before(path: Path, handle: int) -> None:
    """A new file is its owner's alone (0600, from mkstemp); a file that was there keeps its owner, group and mode.

    Otherwise a service that runs as another user could no longer read the file once a key is added.
    """
    try:
        before = os.stat(path)
    except FileNotFoundError:
        return
    with contextlib.suppress(PermissionError):
        os.fchown(handle, before.st_uid, before.st_gid)
    os.fchmod(handle, stat.S_IMODE(before.st_mode))
