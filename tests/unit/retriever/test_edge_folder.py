"""The embedded engine's folder: one process at a time, and nothing acknowledged is lost by a kill."""

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from qdrant_edge import UpdateOperation

from errata_kit.errors import IndexUnavailable
from services.retriever.index.base import EmbeddingSpace
from services.retriever.index.edge import EdgeIndex
from services.retriever.index.edge_store import MIN_FREE_BYTES, FolderLocked
from services.retriever.index.payload import TENANT, fingerprint, to_payload
from tests.harness.passages import SPACE, collection, embedded, hybrid, passage

C = collection("c")

WRITER = """
import asyncio, sys, time, uuid
from pathlib import Path
from services.retriever.chunking import Chunk
from services.retriever.index.base import EmbeddedPassage, EmbeddingSpace, Passage
from services.retriever.index.edge import EdgeIndex
from services.retriever.index.sparse import SparseEncoder
from services.retriever.tenancy import CollectionRef

C = CollectionRef("default", "c")

async def main():
    index = await EdgeIndex.open(Path(sys.argv[1]))
    await index.ensure_collection(C, EmbeddingSpace("m", 4))
    for n in range(100000):
        chunk = Chunk(str(uuid.uuid4()), f"d{n % 10}", n, f"text {n}", (), 1, 1, False, "0")
        passage = Passage(chunk, "T", "u", {f"key{n % 5}": str(n)})
        sparse = SparseEncoder().passage(f"text {n}")
        await index.upsert(C, [EmbeddedPassage(passage, [1.0, 0.0, 0.0, n], sparse)])
        print(n + 1, flush=True)

asyncio.run(main())
"""


def start_writer(folder: Path) -> "subprocess.Popen[str]":
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-c", WRITER, str(folder)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)


def kill(process: "subprocess.Popen[str]") -> int:
    """Kill the writer and return the last number it printed: how many writes were acknowledged."""
    process.send_signal(signal.SIGKILL)
    output, _ = process.communicate()
    complete = output[: output.rfind("\n") + 1].split()
    return int(complete[-1]) if complete else 0


async def test_what_was_acknowledged_survives_kill_9(tmp_path: Path) -> None:
    acknowledged = 0
    writer = start_writer(tmp_path)
    assert writer.stdout is not None
    try:
        while acknowledged < 50:
            acknowledged = int(await asyncio.to_thread(writer.stdout.readline))
    finally:
        acknowledged = max(acknowledged, kill(writer))
    index = await EdgeIndex.open(tmp_path)
    [info] = await index.list_collections("default")
    assert info.embedding == EmbeddingSpace("m", 4)
    assert acknowledged <= info.passages <= acknowledged + 1
    assert sum(document.passages for document in (await index.list_documents(C)).documents) == info.passages
    await index.close()


async def test_a_second_process_is_told_which_folder_is_taken(tmp_path: Path) -> None:
    writer = start_writer(tmp_path)
    assert writer.stdout is not None
    await asyncio.to_thread(writer.stdout.readline)
    try:
        with pytest.raises(FolderLocked) as caught:
            await EdgeIndex.open(tmp_path)
    finally:
        kill(writer)
    assert str(tmp_path) in caught.value.message
    assert caught.value.metadata == {"folder": str(tmp_path)}


async def test_a_second_index_in_the_process_is_refused_until_the_first_is_closed(tmp_path: Path) -> None:
    first = await EdgeIndex.open(tmp_path)
    with pytest.raises(FolderLocked):
        await EdgeIndex.open(tmp_path)
    await first.close()
    await (await EdgeIndex.open(tmp_path)).close()


async def test_what_a_cut_short_creation_left_is_removed(tmp_path: Path) -> None:
    (tmp_path / "collections" / "half" / "shard").mkdir(parents=True)
    (tmp_path / "collections" / ".deleted-1").mkdir()
    index = await EdgeIndex.open(tmp_path)
    assert await index.list_collections("default") == []
    assert list((tmp_path / "collections").iterdir()) == []
    await index.ensure_collection(collection("half"), EmbeddingSpace("m", 4))
    await index.close()


async def test_a_damaged_collection_is_a_clear_error_and_frees_the_folder(tmp_path: Path) -> None:
    index = await EdgeIndex.open(tmp_path)
    await index.ensure_collection(C, EmbeddingSpace("m", 4))
    await index.close()
    record = tmp_path / "collections" / "c" / "collection.json"
    good = record.read_text()
    record.write_text("{")
    with pytest.raises(IndexUnavailable, match="'c'"):
        await EdgeIndex.open(tmp_path)
    record.write_text(good)
    await (await EdgeIndex.open(tmp_path)).close()


async def test_a_folder_from_before_there_were_tenants_is_the_default_tenants(tmp_path: Path) -> None:
    old = passage("d", "old text", 0)
    index = await EdgeIndex.open(tmp_path)
    await index.ensure_collection(C, SPACE)
    await index.upsert(C, [embedded(old)])
    shard = index._store.shard(C)
    payload = {key: value for key, value in to_payload(old, C.tenant).items() if key != TENANT}
    shard.update(UpdateOperation.overwrite_payload([old.chunk.chunk_id], payload))
    shard.update(UpdateOperation.delete_field_index(TENANT))
    await index.close()
    record = tmp_path / "collections" / "c" / "collection.json"
    record.write_text(json.dumps({"format": 1, "name": "c", "embedder": SPACE.embedder, "dimensions": SPACE.dimensions}))
    index = await EdgeIndex.open(tmp_path)
    assert [item.passage for item in await index.search(C, hybrid("text"))] == [old]
    assert await index.stored_chunks(C, "d") == {old.chunk.chunk_id: fingerprint(old)}
    assert [info.passages for info in await index.list_collections("default")] == [1]
    assert await index.list_collections("acme") == []
    assert TENANT in index._store.shard(C).info().payload_schema
    assert await index.delete_documents(C, ["d"]) == {"d"}
    await index.close()


async def test_each_tenants_collection_is_a_folder_of_its_own_and_found_again(tmp_path: Path) -> None:
    theirs = collection("c", "acme")
    index = await EdgeIndex.open(tmp_path)
    for ref, text in ((C, "ours"), (theirs, "theirs")):
        await index.ensure_collection(ref, SPACE)
        await index.upsert(ref, [embedded(passage("d", text))])
    await index.close()
    assert sorted(path.name for path in (tmp_path / "collections").iterdir()) == ["acme.c", "c"]
    index = await EdgeIndex.open(tmp_path)
    assert [item.passage.chunk.text for item in await index.search(theirs, hybrid("theirs"))] == ["theirs"]
    await index.delete_collection(theirs)
    assert [item.passage.chunk.text for item in await index.search(C, hybrid("theirs ours"))] == ["ours"]
    await index.close()


async def test_a_folder_with_no_collections_name_is_left_alone(tmp_path: Path) -> None:
    index = await EdgeIndex.open(tmp_path)
    await index.ensure_collection(C, SPACE)
    await index.close()
    shutil.copytree(tmp_path / "collections" / "c", tmp_path / "collections" / "default.c")
    index = await EdgeIndex.open(tmp_path)
    assert [info.name for info in await index.list_collections("default")] == ["c"]
    assert (tmp_path / "collections" / "default.c" / "collection.json").is_file()
    await index.close()


async def test_a_folder_that_cannot_be_made_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(IndexUnavailable, match="cannot be used"):
        await EdgeIndex.open(tmp_path / "file" / "data")


async def test_a_closed_index_says_so(tmp_path: Path) -> None:
    index = await EdgeIndex.open(tmp_path)
    await index.close()
    with pytest.raises(IndexUnavailable, match="closed"):
        await index.list_collections("default")
    with pytest.raises(IndexUnavailable, match="closed"):
        await index.embedding_space(C)


async def test_a_full_disk_is_a_clear_error_and_search_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index = await EdgeIndex.open(tmp_path)
    await index.ensure_collection(C, SPACE)
    await index.upsert(C, [embedded(passage("d", "text", 0))])
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=MIN_FREE_BYTES - 1))
    with pytest.raises(IndexUnavailable, match="full: 255 MiB are free"):
        await index.upsert(C, [embedded(passage("d", "more", 1))])
    with pytest.raises(IndexUnavailable, match="full"):
        await index.ensure_collection(collection("other"), SPACE)
    with pytest.raises(IndexUnavailable, match="full"):
        await index.delete_documents(C, ["d"])
    assert [info.passages for info in await index.list_collections("default")] == [1]
    await index.close()
