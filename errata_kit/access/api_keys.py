"""API keys: what they look like, the file with their hashes, and who a key belongs to.

A key is `errata_<id>_<secret>`: the id finds its entry, and the secret is 256 random bits in hexadecimal. The file keeps
the SHA-256 of the whole key. A slow hash such as Argon2 protects passwords, which people choose and machines guess; nobody
guesses 256 random bits, however fast each guess is, and a fast hash keeps a call cheap and a flood of wrong keys harmless.
"""

import datetime
import hashlib
import hmac
import json
import re
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, Literal, NoReturn

from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict, Field, ValidationError

from errata_kit.access.claims import principal_name
from errata_kit.access.principals import DEFAULT_TENANT, Principal, Role, TenantName
from errata_kit.access.watched import WatchedFile
from errata_kit.errors import NotAuthenticated

FILE_VERSION: Final = 1
_KEY: Final = re.compile(r"errata_([a-z0-9]{4,32})_([0-9a-f]{64})")
_NO_HASH: Final = "0" * 64


class KeyEntry(BaseModel):
    """One key of the file. Times are in UTC; expire_time and revoke_time are None when it does not end."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str = Field(pattern=r"^[a-z0-9]{4,32}$")
    hash: str = Field(pattern=r"^[0-9a-f]{64}$", repr=False)
    principal: Annotated[str, AfterValidator(principal_name)]
    tenant: TenantName = DEFAULT_TENANT
    roles: tuple[Role, ...] = Field(min_length=1, max_length=len(Role))
    create_time: AwareDatetime
    expire_time: AwareDatetime | None = None
    revoke_time: AwareDatetime | None = None


class KeyFileContent(BaseModel):
    """The whole file."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    version: Literal[1] = FILE_VERSION
    keys: tuple[KeyEntry, ...] = ()


def parse_key_file(content: bytes) -> KeyFileContent:
    """Read the file's content. Raises ValueError with a sentence that names the entry, and never quotes a value."""
    try:
        raw = json.loads(content)
    except (ValueError, RecursionError):
        raise ValueError("is not valid JSON") from None
    if not isinstance(raw, dict):
        raise ValueError('must be a JSON object with "version" and "keys"')
    try:
        parsed = KeyFileContent.model_validate(raw)
    except ValidationError as error:
        raise ValueError(_what_is_wrong(raw, error)) from None
    seen = set[str]()
    for entry in parsed.keys:
        if entry.id in seen:
            raise ValueError(f"has two keys with the id {entry.id}")
        seen.add(entry.id)
    return parsed


def new_key(taken: frozenset[str]) -> tuple[str, str]:
    """A fresh id, which is none of those taken, and the key with it."""
    while True:
        key_id = secrets.token_hex(5)
        if key_id not in taken:
            return key_id, f"errata_{key_id}_{secrets.token_hex(32)}"


def key_id_of(key: str) -> str | None:
    """The id in a key; None for a text that can't be a key."""
    match = _KEY.fullmatch(key)
    return match[1] if match else None


def hash_of(key: str) -> str:
    """What the file keeps of a key: its SHA-256 in hexadecimal."""
    return hashlib.sha256(key.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class _Known:
    hash: str
    principal: Principal
    revoked: bool
    end: float | None


class ApiKeys:
    """Says whose a key is, by the file, which is read again when it changes (see WatchedFile).

    Raises StartFailed when the file can't be used from the start. wall_clock: seconds since 1970.
    """

    def __init__(
        self,
        path: Path,
        *,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self._file = WatchedFile(path, _table, clock=clock)
        self._wall_clock = wall_clock

    def principal_of(self, key: str) -> Principal:
        """Whose key it is.

        Raises NotAuthenticated: cause invalid, or, for whoever has the whole key, revoked or expired. A key with a revoke_time
        is revoked whatever the time is: the clock of the machine that revoked it does not matter.
        """
        table = self._file.current()
        key_id = key_id_of(key)
        if key_id is None:
            _refuse("invalid", "The API key is not valid")
        known = table.get(key_id)
        # Compared in any case and in constant time, so that the time tells neither ids nor beginnings of hashes.
        same = hmac.compare_digest(hash_of(key), known.hash if known else _NO_HASH)
        if known is None or not same:
            _refuse("invalid", "The API key is not valid")
        if known.revoked:
            _refuse("revoked", "The API key has been revoked")
        if known.end is not None and self._wall_clock() >= known.end:
            _refuse("expired", "The API key has expired")
        return known.principal


def _refuse(cause: str, message: str) -> NoReturn:
    raise NotAuthenticated(message, {"cause": cause})


def _table(content: bytes) -> Mapping[str, _Known]:
    return {entry.id: _known(entry) for entry in parse_key_file(content).keys}


def _known(entry: KeyEntry) -> _Known:
    end = entry.expire_time.astimezone(datetime.UTC).timestamp() if entry.expire_time else None
    principal = Principal(entry.principal, entry.tenant, frozenset(entry.roles))
    return _Known(entry.hash, principal, entry.revoke_time is not None, end)


def _what_is_wrong(raw: Mapping[str, Any], error: ValidationError) -> str:
    first = error.errors(include_input=False, include_url=False)[0]
    message = str(first["msg"]).removeprefix("Value error, ")
    location = list(first["loc"])
    place = ""
    if len(location) >= 2 and location[0] == "keys" and isinstance(location[1], int):
        entry = raw["keys"][location[1]]
        key_id = entry.get("id") if isinstance(entry, Mapping) else None
        # Only what looks like an id: somebody may have put a whole key there.
        named = f" (id {key_id})" if isinstance(key_id, str) and re.fullmatch(r"[a-z0-9]{4,32}", key_id) else ""
        place, location = f"keys[{location[1]}]{named}", location[2:]
    path = ".".join(str(part) for part in location)
    return ": ".join(part for part in (place, path, message[:1].lower() + message[1:]) if part)
