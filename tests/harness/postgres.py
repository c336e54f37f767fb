"""A private PostgreSQL for the tests, from the server's own programs. One a process, started when the first test wants it."""

from __future__ import annotations

import contextlib
import os
import pwd
import shlex
import shutil
import socket
import subprocess
import tempfile
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import psycopg
import pytest

MISSING: Final = "there is no PostgreSQL server on this machine (Debian: apt-get install postgresql)"
_USER: Final = "errata"
_START_ATTEMPTS: Final = 3
_SETTINGS: Final = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "max_connections": "300",
    "shared_buffers": "32MB",
    # What is lost when the machine stops is of no interest here.
    "fsync": "off",
    "full_page_writes": "off",
}


@dataclass(frozen=True, slots=True)
class PostgresServer:
    """A running server. Everybody who reaches its loopback port may use it."""

    port: int

    def url(self, database: str) -> str:
        """The address of a database, as ERRATA_DATABASE_URL takes it."""
        return f"postgresql://{_USER}@127.0.0.1:{self.port}/{database}"

    @contextlib.contextmanager
    def database(self, template: str = "template1") -> Iterator[str]:
        """The address of a new database, which goes with the block. template: a database to copy, which nobody may be using."""
        name = f"test_{uuid.uuid4().hex[:12]}"
        self._execute(f"CREATE DATABASE {name} TEMPLATE {template}")
        try:
            yield self.url(name)
        finally:
            # Replicas that a test has killed may still have their sessions.
            self._execute(f"DROP DATABASE {name} WITH (FORCE)")

    def _execute(self, statement: str) -> None:
        with psycopg.connect(self.url("postgres"), autocommit=True) as connection:
            connection.execute(statement.encode())


@contextlib.contextmanager
def postgres_server() -> Iterator[PostgresServer]:
    """The server of this process inside the block; the last one who leaves stops it. Skips the test where there is none."""
    if _programs() is None:
        pytest.skip(MISSING)
    if _shared.users == 0:
        _shared.enter()
    _shared.users += 1
    try:
        assert _shared.server is not None
        yield _shared.server
    finally:
        _shared.users -= 1
        if _shared.users == 0:
            _shared.leave()


class _Shared:
    """The one server, and how many use it."""

    def __init__(self) -> None:
        self.users = 0
        self.server: PostgresServer | None = None
        self._stack = contextlib.ExitStack()

    def enter(self) -> None:
        self.server = self._stack.enter_context(_started())

    def leave(self) -> None:
        self.server = None
        self._stack.close()


_shared: Final = _Shared()


def _programs() -> Path | None:
    """The folder of initdb and pg_ctl, the newest one first; None without."""
    known = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda folder: int(folder.parent.name), reverse=True)
    found = shutil.which("initdb")
    for folder in (*known, *([Path(found).resolve().parent] if found else [])):
        if all((folder / name).exists() for name in ("initdb", "pg_ctl", "postgres")):
            return folder
    return None


@contextlib.contextmanager
def _started() -> Iterator[PostgresServer]:
    programs = _programs()
    assert programs is not None
    owner = _owner()
    with tempfile.TemporaryDirectory(prefix="errata-postgres-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        if owner is not None:
            os.chown(folder, owner.pw_uid, owner.pw_gid)
        data = folder / "data"
        options = ["--auth=trust", f"--username={_USER}", "--encoding=UTF8", "--no-locale", "--no-sync", "--no-instructions"]
        _run(owner, folder, str(programs / "initdb"), "--pgdata", str(data), *options)
        control = [str(programs / "pg_ctl"), "--pgdata", str(data)]
        port = _start(owner, folder, control)
        with _guarded(owner, folder, [*control, "--mode=immediate", "-w", "stop"]):
            yield PostgresServer(port)


@contextlib.contextmanager
def _guarded(owner: pwd.struct_passwd | None, folder: Path, stop: list[str]) -> Iterator[None]:
    """Stop the server at the end of the block, and also when this process is killed inside it."""
    # The guard reads from a pipe that ends with this process, however that comes.
    script = f"read -r _; {shlex.join(stop)} >/dev/null 2>&1; rm -rf {shlex.quote(str(folder))}/*"
    guard = subprocess.Popen(["sh", "-c", script], cwd="/", stdin=subprocess.PIPE, start_new_session=True, **_running_as(owner))
    try:
        yield
    finally:
        guard.communicate(timeout=60)


def _start(owner: pwd.struct_passwd | None, folder: Path, control: list[str]) -> int:
    for attempt in range(1, _START_ATTEMPTS + 1):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = int(probe.getsockname()[1])
        settings = " ".join(f"-c {name}='{value}'" for name, value in {**_SETTINGS, "port": str(port)}.items())
        try:
            _run(owner, folder, *control, "--log", str(folder / "log"), "--options", settings, "-w", "start")
        except RuntimeError:
            # Somebody else may have taken the port meanwhile.
            if attempt == _START_ATTEMPTS:
                raise
        else:
            return port
    raise AssertionError("the last attempt raises")


def _owner() -> pwd.struct_passwd | None:
    """PostgreSQL refuses to run as root: then somebody else runs it."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name)
    pytest.skip("PostgreSQL does not run as root, and there is no other user")


def _running_as(owner: pwd.struct_passwd | None) -> dict[str, Any]:
    return {} if owner is None else {"user": owner.pw_uid, "group": owner.pw_gid, "extra_groups": []}


def _run(owner: pwd.struct_passwd | None, folder: Path, *command: str) -> None:
    # A file, not a pipe: the server inherits it, and a pipe would stay open as long as it runs.
    with (folder / "commands").open("a") as out:
        done = subprocess.run(
            command, cwd=folder, stdout=out, stderr=subprocess.STDOUT, timeout=60, check=False, **_running_as(owner)
        )
    if done.returncode != 0:
        logs = [path.read_text(errors="replace")[-2000:] for path in (folder / "commands", folder / "log") if path.exists()]
        raise RuntimeError(f"{command[0]} ended with {done.returncode}: {' '.join(logs)}")
