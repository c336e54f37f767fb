"""A private Redis for the tests, from Debian's program. In memory only, on a free loopback port and a Unix socket."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest

MISSING: Final = "there is no Redis server on this machine (Debian: apt-get install redis-server)"
_START_SECONDS: Final = 10.0


@dataclass(slots=True, eq=False)
class RedisServer:
    """A server that a test may stop, freeze and start again at the same address."""

    folder: Path
    port: int
    password: str = ""
    options: tuple[str, ...] = ()
    _process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    @property
    def url(self) -> str:
        """The address, as ERRATA_REDIS_URL takes it."""
        return f"redis://:{self.password}@127.0.0.1:{self.port}/0" if self.password else f"redis://127.0.0.1:{self.port}/0"

    @property
    def socket_url(self) -> str:
        """The address of its Unix socket."""
        return f"unix://{self.folder / 'redis.sock'}"

    def start(self) -> None:
        """Start it and wait until it answers."""
        program = shutil.which("redis-server")
        assert program is not None
        self._process = subprocess.Popen(
            [program, "-", *self.options],
            cwd=self.folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        assert self._process.stdin is not None
        # Read from its input, so that the password is in no list of processes.
        self._process.stdin.write(self._configuration().encode())
        self._process.stdin.close()
        until = time.monotonic() + _START_SECONDS
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > until:
                self.kill()
                raise RuntimeError(f"redis-server does not answer on port {self.port}")
            time.sleep(0.01)

    def kill(self) -> None:
        """End it at once. What it held is gone."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(timeout=10)
            self._process = None

    @contextlib.contextmanager
    def frozen(self) -> Iterator[None]:
        """Inside the block it takes connections, as far as the kernel does that for it, and answers nothing."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._process.send_signal(signal.SIGCONT)

    async def command(self, *words: str | bytes) -> bytes:
        """The raw answer to one command, from a connection of its own and not through the library that is under test."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            commands: list[list[str | bytes]] = [["AUTH", self.password], list(words)] if self.password else [list(words)]
            for command in commands:
                writer.write(_packed(command))
                answer = await asyncio.wait_for(_answer(reader), timeout=5)
            return answer
        finally:
            writer.close()
            await writer.wait_closed()

    def _configuration(self) -> str:
        lines = ["bind 127.0.0.1", f"port {self.port}", f"unixsocket {self.folder / 'redis.sock'}", f"dir {self.folder}"]
        lines += ['save ""', "appendonly no", "databases 2", "logfile /dev/null"]
        return "\n".join([*lines, *([f"requirepass {self.password}"] if self.password else [])]) + "\n"

    def _answers(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1) as connection:
            connection.sendall(b"PING\r\n")
            return connection.recv(64).startswith((b"+PONG", b"-NOAUTH"))
        return False


@contextlib.contextmanager
def redis_server(*options: str, password: str = "") -> Iterator[RedisServer]:
    """A server of its own inside the block; options as on its command line. Skips the test where there is no program."""
    if shutil.which("redis-server") is None:
        pytest.skip(MISSING)
    with tempfile.TemporaryDirectory(prefix="errata-redis-", ignore_cleanup_errors=True) as folder:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = int(probe.getsockname()[1])
        server = RedisServer(Path(folder), port, password, options)
        server.start()
        try:
            yield server
        finally:
            server.kill()


def _packed(words: list[str | bytes]) -> bytes:
    parts = [word if isinstance(word, bytes) else word.encode() for word in words]
    return b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%s\r\n" % (len(part), part) for part in parts)


async def _answer(reader: asyncio.StreamReader) -> bytes:
    """One answer of RESP2: the text of a simple one, the content of a bulk one, the items of an array joined by spaces."""
    line = (await reader.readuntil(b"\r\n"))[:-2]
    kind, rest = line[:1], line[1:]
    if kind == b"$" and int(rest) >= 0:
        return (await reader.readexactly(int(rest) + 2))[:-2]
    if kind == b"*":
        return b" ".join([await _answer(reader) for _ in range(int(rest))])
    return rest
