"""Tenants of the retriever see their own, on the wire to Qdrant and behind it, also where one of the two walls is missing."""

import tempfile
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from prometheus_client import generate_latest
from qdrant_client import grpc as wire
from qdrant_client.conversions.conversion import RestToGrpc
from qdrant_edge import EdgeShard, UpdateOperation

from errata_kit.access.principals import DEFAULT_TENANT
from errata_kit.errors import CollectionNotFound, EmbeddingMismatch, InvalidFields
from errata_kit.metrics import Metrics
from errata_kit.search import Equals, NoneOf, SearchMode
from services.retriever.index.base import EmbeddingSpace, PassageIndex, SearchQuery
from services.retriever.index.edge import EdgeIndex
from services.retriever.index.edge_store import EdgeStore
from services.retriever.index.payload import DENSE, SPARSE, of_tenant, to_payload
from services.retriever.index.qdrant_filters import translate
from services.retriever.index.qdrant_server import QdrantServerIndex
from services.retriever.tenancy import CollectionRef, ref_of
from tests.harness.passages import SPACE, collection, embedded, hybrid, passage
from tests.harness.passages import SPARSE as ENCODER
from tests.harness.qdrant_server import QdrantTestServer, in_memory
from tests.harness.tenants import MODES, Caller, any_of, none_of, servicer, where

OTHER = "acme"
TENANTS = [DEFAULT_TENANT, OTHER]
# Everything that reads, counts or changes points by what is in them. Upsert has no filter: see what it stores.
GUARDED = {"Query", "Scroll", "Facet", "Delete", "UpdateBatch"}
OPEN = {"Upsert", "CreateFieldIndex", "CollectionExists", "Create", "Get", "List", "DeleteCollection"}


@pytest_asyncio.fixture
async def server() -> AsyncIterator[QdrantTestServer]:
    async with QdrantTestServer() as server:
        yield server


@pytest_asyncio.fixture
async def remote(server: QdrantTestServer) -> AsyncIterator[QdrantServerIndex]:
    index = QdrantServerIndex.connect(server.url)
    yield index
    await index.close()


class OneWallStore(EdgeStore):
    """The embedded engine's folder without the first wall: tenants share their physical collections."""

    def has(self, ref: CollectionRef) -> bool:
        return super().has(collection(ref.name))

    def create(self, ref: CollectionRef, space: EmbeddingSpace) -> None:
        super().create(collection(ref.name), space)

    def space(self, ref: CollectionRef) -> EmbeddingSpace:
        return super().space(collection(ref.name))

    def shard(self, ref: CollectionRef) -> EdgeShard:
        return super().shard(collection(ref.name))


@dataclass(frozen=True, slots=True)
class OneWall:
    """An index whose tenants share their physical collections, and what is behind each."""

    index: PassageIndex
    shard: Callable[[str], EdgeShard]


@pytest_asyncio.fixture(params=["edge", "server"])
async def shared(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[OneWall]:
    monkeypatch.setattr(CollectionRef, "physical", property(lambda ref: ref.name))
    if request.param == "edge":
        with tempfile.TemporaryDirectory(dir=in_memory()) as folder:
            store = OneWallStore(Path(folder))
            store.open()
            edge = EdgeIndex(store)
            yield OneWall(edge, lambda name: store.shard(collection(name)))
            await edge.close()
        return
    async with QdrantTestServer() as server:
        remote = QdrantServerIndex.connect(server.url)
        yield OneWall(remote, lambda name: server.collections[name].shard)
        await remote.close()


async def use_everything(index: PassageIndex, ref: CollectionRef) -> None:
    """Call every method of the interface, with and without what is optional."""
    await index.ensure_collection(ref, SPACE)
    items = [passage(f"d{n}", f"release {n}", 0, {"n": str(n)}) for n in range(3)]
    await index.upsert(ref, [embedded(item) for item in items])
    await index.update(ref, items[:2])
    for filter_ in (None, Equals("metadata.n", "1"), NoneOf((Equals("metadata.tenant", ref.tenant),))):
        for mode in (SearchMode.HYBRID, SearchMode.DENSE, SearchMode.SPARSE):
            await index.search(ref, SearchQuery(mode, 5, (1.0, 0.0, 0.0, 0.0), ENCODER.query("release"), filter_))
    await index.search(ref, hybrid("the of and"))
    await index.stored_chunks(ref, "d1")
    await index.list_documents(ref)
    await index.list_documents(ref, "d0", 1, "d")
    await index.embedding_space(ref)
    await index.list_collections(ref.tenant)
    await index.delete_chunks(ref, [items[0].chunk.chunk_id])
    await index.delete_documents(ref, ["d1", "never"])
    await index.delete_collection(ref)


def filters_of(rpc: str, request: Any) -> list[tuple[str, wire.Filter]]:
    """Each place of a request where the tenant's condition has to be, and what is there."""
    if rpc == "Delete":
        return [("points", request.points.filter)]
    if rpc == "UpdateBatch":
        return [("operation", operation.overwrite_payload.points_selector.filter) for operation in request.operations]
    prefetches = [(f"prefetch {item.using}", item.filter) for item in request.prefetch] if rpc == "Query" else []
    return [("root", request.filter), *prefetches]


def is_guarded(filter_: wire.Filter, tenant: str) -> bool:
    """Whether nothing gets through but the tenant's own. All of `must` has to hold, so one condition there is enough."""
    [expected] = RestToGrpc.convert_filter(translate(of_tenant(tenant))).must
    nested = [condition.filter for condition in filter_.must if condition.HasField("filter")]
    return expected in filter_.must or any(is_guarded(item, tenant) for item in nested)


@pytest.mark.parametrize("tenant", TENANTS)
async def test_every_request_to_qdrant_says_whose_points_it_means(
    server: QdrantTestServer, remote: QdrantServerIndex, tenant: str
) -> None:
    await use_everything(remote, collection("notes", tenant))
    asked = {rpc for rpc, _ in server.requests}
    assert asked == GUARDED | OPEN, "a request of a new kind: does it need the condition?"
    for rpc, request in server.requests:
        places = filters_of(rpc, request) if rpc in GUARDED else []
        assert places or rpc in OPEN
        for place, filter_ in places:
            assert is_guarded(filter_, tenant), f"{rpc} lacks the tenant at {place}: {request}"
    hybrids = [request for rpc, request in server.requests if rpc == "Query" and len(request.prefetch) == 2]
    assert len(hybrids) == 3 and {item.using for item in hybrids[0].prefetch} == {DENSE, SPARSE}


def test_what_is_looked_for_on_the_wire_can_be_missing() -> None:
    """The check itself: a condition of another tenant, of a caller, or beside others of which one suffices is none."""
    own = translate(of_tenant(OTHER, Equals("metadata.n", "1")))
    loose = [
        wire.Filter(),
        RestToGrpc.convert_filter(translate(of_tenant(DEFAULT_TENANT))),
        RestToGrpc.convert_filter(translate(Equals("metadata.tenant", OTHER))),
        wire.Filter(should=RestToGrpc.convert_filter(own).must),
        wire.Filter(must_not=RestToGrpc.convert_filter(own).must),
    ]
    assert is_guarded(RestToGrpc.convert_filter(own), OTHER)
    assert not any(is_guarded(filter_, OTHER) for filter_ in loose)


@pytest.mark.parametrize("tenant", TENANTS)
async def test_every_point_says_whose_it_is_and_the_server_may_group_by_it(
    server: QdrantTestServer, remote: QdrantServerIndex, tenant: str
) -> None:
    await use_everything(remote, collection("notes", tenant))
    stored = [point.payload for rpc, request in server.requests if rpc == "Upsert" for point in request.points]
    rewritten = [
        operation.overwrite_payload.payload
        for rpc, request in server.requests
        if rpc == "UpdateBatch"
        for operation in request.operations
    ]
    assert len(stored) == 3 and len(rewritten) == 2
    assert {payload["tenant"].string_value for payload in (*stored, *rewritten)} == {tenant}
    indexes = [request for rpc, request in server.requests if rpc == "CreateFieldIndex" and request.field_name == "tenant"]
    assert [request.field_index_params.keyword_index_params.is_tenant for request in indexes] == [True]


# --- one of the two walls is missing ----------------------------------------------------------------------------------


async def test_in_a_shared_collection_the_points_still_tell_their_tenants_apart(shared: OneWall) -> None:
    served = servicer(shared.index)
    ours, theirs = Caller(served, DEFAULT_TENANT), Caller(served, OTHER)
    await theirs.ingest("notes", {"same": "A release of theirs.", "more": "Another release."})
    await ours.ingest("notes", {"same": "A release of ours."})
    assert shared.shard("notes").info().points_count == 3
    for mode in MODES:
        for filter_ in (None, any_of(where("has_code", equals="false")), none_of(where("metadata.tenant", equals="x"))):
            found = (await ours.search("notes", "release", mode=mode, filter=filter_)).passages
            assert [item.passage.text for item in found] == ["A release of ours."]
    assert [item.document_id for item in (await ours.documents("notes")).documents] == ["same"]
    assert list((await ours.delete("notes", "same", "more")).unknown_document_ids) == ["more"]
    left = (await theirs.search("notes", "release")).passages
    assert {item.passage.document_id for item in left} == {"same", "more"}


async def test_in_a_shared_collection_nobody_overwrites_or_deletes_by_id(shared: OneWall) -> None:
    index = shared.index
    ours, theirs = collection("notes"), collection("notes", OTHER)
    mine = passage("d", "release")
    for ref in (ours, theirs):
        await index.ensure_collection(ref, SPACE)
    await index.upsert(ours, [embedded(mine)])
    await index.update(theirs, [passage("d", "release", metadata={"stolen": "yes"})])
    await index.delete_chunks(theirs, [mine.chunk.chunk_id])
    assert [item.passage for item in await index.search(ours, hybrid("release"))] == [mine]
    assert await index.search(theirs, hybrid("release")) == []
    assert await index.stored_chunks(theirs, "d") == {}


async def test_points_from_before_there_were_tenants_are_the_default_tenants_alone(shared: OneWall) -> None:
    index = shared.index
    ours, theirs = collection("notes"), collection("notes", OTHER)
    old, new = passage("old", "release one"), passage("new", "release two")
    await index.ensure_collection(ours, SPACE)
    await index.upsert(ours, [embedded(old)])
    payload = {key: value for key, value in to_payload(old, DEFAULT_TENANT).items() if key != "tenant"}
    shared.shard("notes").update(UpdateOperation.overwrite_payload([old.chunk.chunk_id], payload))
    await index.upsert(ours, [embedded(new)])
    assert {item.passage.chunk.document_id for item in await index.search(ours, hybrid("release"))} == {"old", "new"}
    assert [item.document_id for item in (await index.list_documents(ours)).documents] == ["new", "old"]
    assert await index.search(theirs, hybrid("release")) == []
    assert await index.delete_documents(theirs, ["old", "new"]) == frozenset()
    assert await index.delete_documents(ours, ["old", "new"]) == {"old", "new"}


async def test_a_collection_from_before_there_were_tenants_gets_the_index(
    remote: QdrantServerIndex, server: QdrantTestServer
) -> None:
    ref = collection("notes")
    await remote.ensure_collection(ref, SPACE)
    server.collections["notes"].schema.pop("tenant")
    again = QdrantServerIndex.connect(server.url)
    await again.search(ref, hybrid("release"))
    assert "tenant" in server.collections["notes"].schema
    await again.close()


# --- names, errors and tokens -----------------------------------------------------------------------------------------


def test_no_two_collections_have_the_same_name_inside_an_engine() -> None:
    names = ["a", "b", "a-b", "a_b", "default", "0", "a" * 63]
    refs = [CollectionRef(tenant, name) for tenant in names for name in names]
    assert len({ref.physical for ref in refs}) == len({ref.namespace for ref in refs}) == len(refs)
    assert [ref_of(ref.physical) for ref in refs] == refs
    assert {ref_of(name) for name in ("a.b.c", ".a", "a.", "", ".", "default.a", "A.b", "a.B", "a/b", "a.b\n")} == {None}


async def test_tenants_use_the_same_name_without_sharing_anything(index: PassageIndex) -> None:
    served = servicer(index)
    ours, theirs = Caller(served, "north"), Caller(served, "south")
    await ours.ingest("notes", {"a": "A release of the north."})
    for call in (theirs.search("notes", "release"), theirs.documents("notes"), theirs.delete("notes", "a")):
        with pytest.raises(CollectionNotFound) as caught:
            await call
        assert caught.value.metadata == {"collection": "notes"}
        assert "south" not in caught.value.message and "north" not in caught.value.message
    with pytest.raises(CollectionNotFound):
        await theirs.delete_collection("notes")
    assert not (await theirs.collections()).collections
    await theirs.ingest("notes", {"a": "A release of the south.", "b": "More of it."})
    [mine] = (await ours.search("notes", "release")).passages
    assert mine.passage.text == "A release of the north."
    await theirs.delete_collection("notes")
    [listed] = (await ours.collections()).collections
    assert (listed.name, listed.documents, listed.chunks) == ("notes", 1, 1)
    await ours.delete_collection("notes")


async def test_a_collection_may_have_another_embedding_for_each_tenant(index: PassageIndex) -> None:
    north, south = collection("notes", "north"), collection("notes", "south")
    await index.ensure_collection(north, SPACE)
    await index.ensure_collection(south, EmbeddingSpace("other", 2))
    assert (await index.embedding_space(north), (await index.embedding_space(south)).dimensions) == (SPACE, 2)
    with pytest.raises(EmbeddingMismatch) as caught:
        await index.ensure_collection(south, SPACE)
    assert caught.value.metadata["collection"] == "notes" and "south" not in caught.value.message
    for ref in (north, south):
        await index.delete_collection(ref)


async def test_equal_documents_of_two_tenants_have_ids_of_their_own(remote: QdrantServerIndex) -> None:
    served = servicer(remote)
    ids: list[str] = []
    for tenant in (*TENANTS, "globex"):
        caller = Caller(served, tenant)
        await caller.ingest("notes", {"a": "A release."})
        ids.extend(item.passage.passage_id for item in (await caller.search("notes", "release")).passages)
    assert len(set(ids)) == 3


async def test_a_page_token_is_of_no_use_to_another_tenant(remote: QdrantServerIndex) -> None:
    served = servicer(remote)
    ours, theirs = Caller(served, "north"), Caller(served, "south")
    for caller in (ours, theirs):
        for name in ("one", "two"):
            await caller.ingest(name, {"a": "A release.", "b": "Another release."})
    documents = (await ours.documents("one", page_size=1)).next_page_token
    collections = (await ours.collections(page_size=1)).next_page_token
    assert [item.document_id for item in (await ours.documents("one", page_token=documents)).documents] == ["b"]
    assert [item.name for item in (await ours.collections(page_token=collections)).collections] == ["two"]
    for call in (theirs.documents("one", page_token=documents), theirs.collections(page_token=collections)):
        with pytest.raises(InvalidFields) as caught:
            await call
        assert [violation.field for violation in caught.value.violations] == ["page_token"]


@pytest.mark.parametrize("name", ["north.notes", "default.notes", ".notes"])
async def test_no_name_of_a_collection_reaches_into_another_tenant(remote: QdrantServerIndex, name: str) -> None:
    served = servicer(remote)
    await Caller(served, "north").ingest("notes", {"a": "A release."})
    intruder = Caller(served, DEFAULT_TENANT)
    calls = [
        intruder.search(name, "release"),
        intruder.documents(name),
        intruder.delete(name, "a"),
        intruder.delete_collection(name),
        intruder.ingest(name, {"a": "x"}),
    ]
    for call in calls:
        with pytest.raises(InvalidFields, match="collection"):
            await call


async def test_no_filter_of_a_caller_can_name_the_tenant(remote: QdrantServerIndex) -> None:
    caller = Caller(servicer(remote), OTHER)
    await caller.ingest("notes", {"a": "A release."}, {"tenant": "north"})
    with pytest.raises(InvalidFields, match="unknown field"):
        await caller.search("notes", "release", filter=where("tenant", equals="north"))
    [found] = (await caller.search("notes", "release", filter=where("metadata.tenant", equals="north"))).passages
    assert found.passage.metadata == {"tenant": "north"}


async def test_metrics_name_no_tenant(remote: QdrantServerIndex) -> None:
    metrics = Metrics()
    caller = Caller(servicer(remote, metrics), "north")
    await caller.ingest("notes", {"a": "A release.", "b": ""})
    exposed = generate_latest(metrics.registry).decode()
    assert 'errata_documents_ingested_total{result="ok"} 1.0' in exposed
    assert "north" not in exposed and "notes" not in exposed
