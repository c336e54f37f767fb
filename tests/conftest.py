"""What holds for every test: no network beyond this machine, no key from the surroundings, no timed property."""

import ipaddress
import os
import socket
from collections.abc import Iterator
from typing import Any

import pytest
from _pytest.nodeid import NodeId
from hypothesis import settings

settings.register_profile("errata", deadline=None, print_blob=True)
settings.load_profile("errata")

# A key or an address in the developer's shell must not turn a test into a paid call.
_FOREIGN = ("OPENAI_", "QDRANT_", "ERRATA_", "OTEL_")
_OURS = "ERRATA_TEST_"
for name in [name for name in os.environ if name.startswith(_FOREIGN) and not name.startswith(_OURS)]:
    del os.environ[name]


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let tests of one xdist_group stay together.

    pytest-xdist 3.8 writes the group into a field that pytest 9.2 no longer reads (pytest-xdist issue 1386), so that every
    worker would start everything.
    """
    for item in items:
        grouped = getattr(item, "_nodeid", None)
        if isinstance(grouped, str) and "@" in grouped.rpartition("]")[2] and hasattr(item, "_id"):
            item._id = NodeId.parse(grouped)


@pytest.fixture(autouse=True, scope="session")
def _loopback_only() -> Iterator[None]:
    """Refuse connections of Python's own sockets to any other machine."""
    connect, connect_ex = socket.socket.connect, socket.socket.connect_ex

    def guarded(self: socket.socket, address: Any) -> None:
        _check(address)
        connect(self, address)

    def guarded_ex(self: socket.socket, address: Any) -> int:
        _check(address)
        return connect_ex(self, address)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket.socket, "connect", guarded)
        patch.setattr(socket.socket, "connect_ex", guarded_ex)
        yield


def _check(address: Any) -> None:
    if not isinstance(address, tuple):
        # A socket in the file system.
        return
    host = str(address[0])
    real = os.environ.get("ERRATA_TEST_QDRANT_URL", "")
    if host in {"localhost", ""} or (real and host in real) or ipaddress.ip_address(host).is_loopback:
        return
    raise PermissionError(f"a test tried to reach {host}; only loopback is allowed")
