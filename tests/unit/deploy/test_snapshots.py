"""The snapshot script against a node that speaks as much of Qdrant's HTTP as it needs, over a real socket."""

import hashlib
import json
import os
import runpy
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).resolve().parents[3] / "deploy/k8s/components/qdrant/snapshot.py"


@dataclass
class FakeNode:
    """Keeps snapshots in memory. `wrong` makes it tell a checksum that its bytes don't have."""

    collections: list[str] = field(default_factory=lambda: ["errata", "team one"])
    key: str = "secret"
    wrong: bool = False
    kept: dict[str, bytes] = field(default_factory=dict)
    made: int = 0
    calls: list[str] = field(default_factory=list)


class _Handler(BaseHTTPRequestHandler):
    node: FakeNode

    def log_message(self, format: str, *args: Any) -> None:
        return

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _result(self, result: object) -> None:
        self._answer(200, json.dumps({"result": result, "status": "ok"}).encode())

    def _allowed(self) -> bool:
        self.node.calls.append(f"{self.command} {self.path}")
        if self.headers.get("api-key") == self.node.key:
            return True
        self._answer(403, b"Forbidden")
        return False

    def do_GET(self) -> None:
        if not self._allowed():
            return
        if self.path == "/collections":
            self._result({"collections": [{"name": name} for name in self.node.collections]})
        elif body := self.node.kept.get(self.path):
            self._answer(200, body)
        else:
            self._answer(404, b"{}")

    def do_POST(self) -> None:
        if not self._allowed():
            return
        path, _, query = self.path.partition("?")
        assert query == "wait=true"
        self.node.made += 1
        name = f"part-{self.node.made:04}.snapshot"
        body = f"snapshot {self.node.made} of {path}".encode()
        self.node.kept[f"{path}/{name}"] = body
        digest = "0" * 64 if self.node.wrong else hashlib.sha256(body).hexdigest()
        self._result({"name": name, "size": len(body), "checksum": digest})

    def do_DELETE(self) -> None:
        if self._allowed():
            self._result(self.node.kept.pop(self.path, None) is not None)


@pytest.fixture
def node() -> FakeNode:
    return FakeNode()


@pytest.fixture
def url(node: FakeNode) -> Iterator[str]:
    handler = type("Handler", (_Handler,), {"node": node})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def run(url: str, folder: Path, keep: int = 2, key: str = "secret\n") -> int:
    (folder.parent / "key").write_text(key, encoding="utf-8")
    code: int = runpy.run_path(str(SCRIPT))["main"](
        [f"--node={url}", f"--key-file={folder.parent / 'key'}", f"--folder={folder}", f"--keep={keep}"]
    )
    return code


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "snapshots"
    made.mkdir()
    return made


def test_each_collection_is_fetched_and_the_node_is_left_empty(node: FakeNode, url: str, folder: Path) -> None:
    assert run(url, folder) == 0
    files = {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*.snapshot")}
    assert files == {
        "errata/127/part-0001.snapshot": b"snapshot 1 of /collections/errata/snapshots",
        "team one/127/part-0002.snapshot": b"snapshot 2 of /collections/team%20one/snapshots",
    }
    assert node.kept == {}


def test_the_newest_are_kept(node: FakeNode, url: str, folder: Path) -> None:
    node.collections = ["errata"]
    for night in range(4):
        assert run(url, folder, keep=2) == 0
        # Nights are further apart than a file system's clock ticks.
        os.utime(folder / f"errata/127/part-{night + 1:04}.snapshot", (night, night))
    (folder / "errata/127/part-0009.snapshot.part").touch()
    assert run(url, folder, keep=2) == 0
    names = sorted(file.name for file in (folder / "errata/127").iterdir())
    assert names == ["part-0004.snapshot", "part-0005.snapshot"]


def test_another_checksum_is_a_failure_and_leaves_no_file(node: FakeNode, url: str, folder: Path) -> None:
    node.wrong = True
    assert run(url, folder) == 1
    assert [file for file in folder.rglob("*") if file.is_file()] == []
    assert node.kept == {}


def test_a_failed_night_deletes_nothing(node: FakeNode, url: str, folder: Path) -> None:
    node.collections = ["errata"]
    assert run(url, folder, keep=1) == 0
    node.wrong = True
    assert run(url, folder, keep=1) == 1
    assert [file.name for file in folder.rglob("*.snapshot")] == ["part-0001.snapshot"]


def test_a_wrong_key_is_a_failure(node: FakeNode, url: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(url, folder, key="wrong") == 1
    assert node.calls == ["GET /collections"]
    said = capsys.readouterr().err
    assert "can't be listed" in said
    assert "wrong" not in said


def test_a_node_that_is_away_does_not_stop_the_others(node: FakeNode, url: str, folder: Path) -> None:
    code = runpy.run_path(str(SCRIPT))["main"](
        ["--node=http://127.0.0.1:1", f"--node={url}", f"--folder={folder}", f"--key-file={_key(folder)}"]
    )
    assert code == 1
    assert len(list(folder.rglob("*.snapshot"))) == 2


def _key(folder: Path) -> Path:
    file = folder.parent / "key"
    file.write_text("secret", encoding="utf-8")
    return file
