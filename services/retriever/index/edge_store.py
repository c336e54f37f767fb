"""The folder of the embedded engine: its lock, one shard per collection, and what each was made with.

Layout: `.lock`, and per collection `collections/NAME/{shard/, collection.json}`, NAME being
its physical name. The JSON file is written
last, so a folder without it is the rest of a creation that was cut short and is removed. Everything here
blocks.
"""

import json
import logging
import os
import shutil
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Final

from errata_kit.errors import IndexUnavailable
from services.retriever.index.base import EmbeddingSpace, not_found
from services.retriever.index.payload import DENSE, FIELD_INDEXES, SPARSE, TENANT
from services.retriever.tenancy import CollectionRef, ref_of

if TYPE_CHECKING:
    from filelock import FileLock
    from qdrant_edge import EdgeShard, KeywordIndexParams, PayloadSchemaType

_LOG: Final = logging.getLogger(__name__)
_FORMAT: Final = 1
# A fresh collection maps about 200 MB of sparse files, and fills them as it grows.
MIN_FREE_BYTES: Final = 256 * 1024 * 1024
_RECORD: Final = "collection.json"
_DELETED: Final = ".deleted-"


class FolderLocked(IndexUnavailable):
    """Another process uses the data folder. Metadata: `folder`."""


class EdgeStore:
    """The open collections of one folder, which this process holds alone until `close`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._collections = folder / "collections"
        self._lock: FileLock | None = None
        self._shards: dict[CollectionRef, EdgeShard] = {}
        self._spaces: dict[CollectionRef, EmbeddingSpace] = {}

    def open(self) -> None:
        """Lock the folder, creating it if need be, clear what was cut short, and load every collection.

        Raises:
            FolderLocked: another process holds it.
            IndexUnavailable: it cannot be written, or a collection in it cannot be read.
        """
        self._lock = _lock(self.folder)
        try:
            self._collections.mkdir(exist_ok=True)
            for path in sorted(self._collections.iterdir()):
                if (path / _RECORD).is_file() and not path.name.startswith(_DELETED):
                    self._load(path)
                else:
                    shutil.rmtree(path, ignore_errors=True)
        except BaseException:
            self.close()
            raise

    def of(self, tenant: str) -> list[CollectionRef]:
        """Return the tenant's collections, in the order of their names."""
        return sorted(ref for ref in self._spaces if ref.tenant == tenant)

    def has(self, ref: CollectionRef) -> bool:
        """Whether the collection exists."""
        return ref in self._spaces

    def space(self, ref: CollectionRef) -> EmbeddingSpace:
        """Return what made the collection's vectors, or raise `CollectionNotFound`."""
        if ref not in self._spaces:
            raise not_found(ref)
        return self._spaces[ref]

    def shard(self, ref: CollectionRef) -> "EdgeShard":
        """Return the collection's shard, or raise `CollectionNotFound`."""
        if ref not in self._shards:
            raise not_found(ref)
        return self._shards[ref]

    def require_space(self) -> None:
        """Raise `IndexUnavailable` when the disk has too little room to write on.

        The engine maps sparse files into memory. A page that the disk has no room for kills the process.
        """
        free = self._free_bytes()
        if free < MIN_FREE_BYTES:
            needed, left = MIN_FREE_BYTES >> 20, free >> 20
            message = f"the disk of the data folder {self.folder} is full: {left} MiB are free, and writing needs {needed}"
            raise IndexUnavailable(message, {"folder": str(self.folder)})

    def create(self, ref: CollectionRef, space: EmbeddingSpace) -> None:
        """Create a collection that does not exist, with its payload indexes. Raises `IndexUnavailable` on a full disk."""
        self.require_space()
        path = self._collections / ref.physical
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir()
        shard = _create_shard(path / "shard", space)
        made_with = {"embedder": space.embedder, "dimensions": space.dimensions}
        record = {"format": _FORMAT, "tenant": ref.tenant, "name": ref.name, **made_with}
        _write_durably(path / _RECORD, json.dumps(record, indent=2) + "\n")
        self._shards[ref], self._spaces[ref] = shard, space

    def delete(self, ref: CollectionRef) -> None:
        """Delete a collection; once its folder is renamed it is gone, whatever happens then."""
        self.shard(ref).close()
        del self._shards[ref], self._spaces[ref]
        grave = self._collections / f"{_DELETED}{uuid.uuid4().hex}"
        (self._collections / ref.physical).rename(grave)
        _sync_folder(self._collections)
        shutil.rmtree(grave, ignore_errors=True)

    def close(self) -> None:
        """Flush and close every shard, and release the folder."""
        for shard in self._shards.values():
            shard.close()
        self._shards.clear()
        self._spaces.clear()
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def _free_bytes(self) -> int:
        return shutil.disk_usage(self.folder).free

    def _load(self, path: Path) -> None:
        import qdrant_edge

        ref = ref_of(path.name)
        if ref is None:
            _LOG.warning("folder %s has no collection's name and is left alone", path)
            return
        try:
            record = json.loads((path / _RECORD).read_text(encoding="utf-8"))
            space = EmbeddingSpace(record["embedder"], record["dimensions"])
            shard = qdrant_edge.EdgeShard.load(str(path / "shard"))
            if TENANT not in shard.info().payload_schema and self._free_bytes() >= MIN_FREE_BYTES:
                # Made before there were tenants. Without the index every search still works, but reads more.
                shard.update(qdrant_edge.UpdateOperation.create_field_index(TENANT, schema_types()["tenant"]))
        except Exception as error:
            # The engine raises plain Exception; its text names internals and goes to the log only.
            _LOG.exception("collection in %s cannot be loaded", path)
            message = f"the collection {path.name!r} in data folder {self.folder} cannot be read"
            raise IndexUnavailable(message, {"folder": str(self.folder)}) from error
        self._shards[ref], self._spaces[ref] = shard, space


def schema_types() -> "dict[str, PayloadSchemaType | KeywordIndexParams]":
    """Return the engine's payload index types by the kinds that `payload` names."""
    from qdrant_edge import KeywordIndexParams
    from qdrant_edge import PayloadSchemaType as Schema

    return {
        "keyword": Schema.Keyword,
        "float": Schema.Float,
        "datetime": Schema.Datetime,
        "integer": Schema.Integer,
        "tenant": KeywordIndexParams(is_tenant=True),
    }


def _lock(folder: Path) -> "FileLock":
    from filelock import FileLock, Timeout

    lock = FileLock(folder / ".lock", thread_local=False)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock.acquire(timeout=0)
    except Timeout:
        message = f"data folder {folder} is in use by another process; stop it or choose another folder"
        raise FolderLocked(message, {"folder": str(folder)}) from None
    except OSError as error:
        message = f"data folder {folder} cannot be used: {error.strerror}"
        raise IndexUnavailable(message, {"folder": str(folder)}) from error
    return lock


def _create_shard(path: Path, space: EmbeddingSpace) -> "EdgeShard":
    import qdrant_edge as engine

    dense = {DENSE: engine.EdgeVectorParams(size=space.dimensions, distance=engine.Distance.Cosine)}
    sparse = {SPARSE: engine.EdgeSparseVectorParams(modifier=engine.Modifier.Idf)}
    config = engine.EdgeConfig(vectors=dense if space.dimensions else None, sparse_vectors=sparse)
    shard = engine.EdgeShard.create(str(path), config)
    for field, kind in FIELD_INDEXES.items():
        shard.update(engine.UpdateOperation.create_field_index(field, schema_types()[kind]))
    shard.flush()
    return shard


def _write_durably(path: Path, text: str) -> None:
    partial = path.with_suffix(".partial")
    with partial.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)
    _sync_folder(path.parent)
    _sync_folder(path.parent.parent)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
