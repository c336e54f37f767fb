"""Makes a snapshot of each collection on each Qdrant node, brings it to a folder, and keeps the newest few.

A node's snapshot holds the node's own part of a collection. So all nodes are asked, and files are named
FOLDER/COLLECTION/NODE/NAME. Standard library only: it runs from a ConfigMap in any image that has Python.
"""

import argparse
import hashlib
import json
import shutil
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

# A snapshot is made before the answer comes.
_SECONDS = 1800


class Node:
    """One Qdrant node over HTTP, such as http://qdrant-0.qdrant-headless:6333."""

    def __init__(self, url: str, key: str) -> None:
        self._url = url.rstrip("/")
        self._headers = {"api-key": key} if key else {}
        self.name = (urlsplit(url).hostname or url).split(".")[0]

    def collections(self) -> list[str]:
        """The names of all collections."""
        return sorted(item["name"] for item in self._json("GET", "/collections")["collections"])

    def create(self, collection: str) -> dict[str, Any]:
        """Make a snapshot; returns its name, and its checksum where the node gives one."""
        made: dict[str, Any] = self._json("POST", f"/collections/{quote(collection, safe='')}/snapshots?wait=true")
        return made

    def fetch(self, collection: str, snapshot: str, target: Path) -> str:
        """Save a snapshot as `target`; returns its SHA-256. A download that breaks off leaves no file of that name."""
        part = target.with_suffix(target.suffix + ".part")
        digest = hashlib.sha256()
        with self._open("GET", self._path(collection, snapshot)) as reply, part.open("wb") as file:
            while block := reply.read(1 << 20):
                digest.update(block)
                file.write(block)
        part.rename(target)
        return digest.hexdigest()

    def delete(self, collection: str, snapshot: str) -> None:
        """Delete a snapshot on the node: its volume would fill up otherwise."""
        self._json("DELETE", self._path(collection, snapshot))

    def _path(self, collection: str, snapshot: str) -> str:
        return f"/collections/{quote(collection, safe='')}/snapshots/{quote(snapshot, safe='')}"

    def _json(self, method: str, path: str) -> Any:
        with self._open(method, path) as reply:
            return json.load(reply)["result"]

    def _open(self, method: str, path: str) -> Any:
        request = urllib.request.Request(self._url + path, method=method, headers=self._headers)  # noqa: S310 - from an argument
        return urllib.request.urlopen(request, timeout=_SECONDS)  # noqa: S310


def save(node: Node, collection: str, folder: Path, keep: int) -> Path:
    """Make, bring and check one snapshot, then delete it on the node, and all but the newest `keep` in the folder."""
    made = node.create(collection)
    place = folder / collection / node.name
    place.mkdir(parents=True, exist_ok=True)
    target = place / Path(str(made["name"])).name
    try:
        digest = node.fetch(collection, made["name"], target)
    finally:
        node.delete(collection, made["name"])
    if made.get("checksum") not in (None, digest):
        target.unlink()
        raise ValueError(f"the snapshot {made['name']} came with another checksum than the node told")
    ordered = sorted(place.glob("*.snapshot"), key=lambda file: (file.stat().st_mtime_ns, file.name))
    for old in (*ordered[:-keep], *place.glob("*.part")):
        old.unlink()
    return target


def main(arguments: list[str] | None = None) -> int:
    """Save everything. One failure stops nothing else, and makes the exit code 1."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--node", action="append", required=True, help="base address of a node; give it once a node")
    parser.add_argument("--key-file", type=Path, help="file with the API key")
    parser.add_argument("--folder", type=Path, required=True, help="where the snapshots go")
    parser.add_argument("--keep", type=int, default=7, help="newest snapshots kept of each collection and node, at least 1")
    given = parser.parse_args(arguments)
    if given.keep < 1:
        parser.error("--keep must be at least 1")
    key = given.key_file.read_text(encoding="utf-8").strip() if given.key_file else ""
    failed = 0
    for node in (Node(url, key) for url in given.node):
        try:
            names = node.collections()
        except (OSError, ValueError, KeyError) as error:
            sys.stderr.write(f"{node.name}: the collections can't be listed: {error}\n")
            failed += 1
            continue
        for name in names:
            try:
                target = save(node, name, given.folder, given.keep)
                sys.stdout.write(f"{node.name}: {name}: {target.name}, {target.stat().st_size} bytes\n")
            except (OSError, ValueError, KeyError) as error:
                sys.stderr.write(f"{node.name}: {name}: no snapshot: {error}\n")
                failed += 1
    free = shutil.disk_usage(given.folder).free
    sys.stdout.write(f"{free // 2**20} MiB are free in {given.folder}\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
