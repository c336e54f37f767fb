"""A small Qdrant server for tests: the gRPC services that the index uses, over the embedded engine, on
loopback.

It takes the real client's messages and gives the real client's answers, so what goes over the wire is
exercised; what the engine does is the engine's own. RPCs that the index does not use answer UNIMPLEMENTED.
"""

# ruff: noqa: N802 - the methods carry the names of their RPCs

import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import qdrant_edge as engine
from qdrant_client import grpc as wire
from qdrant_client import models
from qdrant_client.conversions.conversion import GrpcToRest, RestToGrpc
from qdrant_client.grpc import (
    collections_service_pb2_grpc,
    points_service_pb2_grpc,
)

_OK = wire.UpdateResult(operation_id=1, status=wire.UpdateStatus.Completed)
# Several times what the engine wants to have free before it writes.
_ENOUGH_BYTES = 2 << 30
_SCHEMAS = {
    wire.FieldType.FieldTypeKeyword: engine.PayloadSchemaType.Keyword,
    wire.FieldType.FieldTypeInteger: engine.PayloadSchemaType.Integer,
    wire.FieldType.FieldTypeFloat: engine.PayloadSchemaType.Float,
    wire.FieldType.FieldTypeBool: engine.PayloadSchemaType.Bool,
    wire.FieldType.FieldTypeDatetime: engine.PayloadSchemaType.Datetime,
}
_SCHEMA_NAMES = {
    wire.FieldType.FieldTypeKeyword: wire.PayloadSchemaType.Keyword,
    wire.FieldType.FieldTypeInteger: wire.PayloadSchemaType.Integer,
    wire.FieldType.FieldTypeFloat: wire.PayloadSchemaType.Float,
    wire.FieldType.FieldTypeBool: wire.PayloadSchemaType.Bool,
    wire.FieldType.FieldTypeDatetime: wire.PayloadSchemaType.Datetime,
}


def in_memory() -> Path | None:
    """Where folders that need not survive a test are quick, if there is such a place: a new collection waits for the disk."""
    memory = Path("/dev/shm")  # noqa: S108 - only the parent of a folder with a name of its own
    return memory if memory.is_dir() and shutil.disk_usage(memory).free > _ENOUGH_BYTES else None


class QdrantTestServer:
    """Started by `async with`; then `url` is where it listens. Its data is gone when it stops.

    `calls` counts what was asked, by RPC, and `requests` holds the messages themselves, in order, as RPC and message.
    While `failing` holds a status code, every call ends with it.
    """

    def __init__(self) -> None:
        self.calls: dict[str, int] = {}
        self.requests: list[tuple[str, Any]] = []
        self.failing: grpc.StatusCode | None = None
        self.url = ""
        self._folder = Path(tempfile.mkdtemp(prefix="qdrant-test-", dir=in_memory()))
        self._server: grpc.aio.Server | None = None
        self.collections: dict[str, _Collection] = {}

    async def __aenter__(self) -> "QdrantTestServer":
        options = [("grpc.so_reuseport", 0), ("grpc.max_receive_message_length", 64 << 20)]
        self._server = grpc.aio.server(options=options)
        add_collections: Any = collections_service_pb2_grpc.add_CollectionsServicer_to_server
        add_points: Any = points_service_pb2_grpc.add_PointsServicer_to_server
        add_collections(_Collections(self), self._server)
        add_points(_Points(self), self._server)
        self.url = f"http://127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"
        await self._server.start()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        if self._server is not None:
            await self._server.stop(None)
        for collection in self.collections.values():
            collection.shard.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    async def admit(self, context: "grpc.aio.ServicerContext[Any, Any]", rpc: str, request: Any) -> None:
        """Count a call, and end it if the server is to fail."""
        self.calls[rpc] = self.calls.get(rpc, 0) + 1
        self.requests.append((rpc, request))
        if self.failing is not None:
            await context.abort(self.failing, "the internals of a driver: segment 17")

    async def collection(self, context: "grpc.aio.ServicerContext[Any, Any]", name: str) -> "_Collection":
        """Return a collection or end the call with NOT_FOUND, as the real server does."""
        if name not in self.collections:
            await context.abort(grpc.StatusCode.NOT_FOUND, f"Not found: Collection `{name}` doesn't exist!")
        return self.collections[name]

    def create(self, request: wire.CreateCollection) -> None:
        """Make a collection's shard."""
        vectors = GrpcToRest.convert_vectors_config(request.vectors_config)
        assert isinstance(vectors, dict)
        path = self._folder / f"{len(list(self._folder.iterdir()))}"
        config = engine.EdgeConfig(
            vectors={name: engine.EdgeVectorParams(p.size, engine.Distance.Cosine) for name, p in vectors.items()} or None,
            sparse_vectors={
                name: engine.EdgeSparseVectorParams(modifier=engine.Modifier.Idf) for name in request.sparse_vectors_config.map
            },
        )
        shard = engine.EdgeShard.create(str(path), config)
        self.collections[request.collection_name] = _Collection(shard, request)


class _Collection:
    def __init__(self, shard: engine.EdgeShard, made_with: wire.CreateCollection) -> None:
        self.shard = shard
        self.made_with = made_with
        self.schema: dict[str, wire.PayloadSchemaInfo] = {}

    def info(self) -> wire.CollectionInfo:
        params = wire.CollectionParams(
            shard_number=1,
            vectors_config=self.made_with.vectors_config,
            sparse_vectors_config=self.made_with.sparse_vectors_config,
        )
        config = wire.CollectionConfig(
            params=params,
            hnsw_config=wire.HnswConfigDiff(m=16, ef_construct=100, full_scan_threshold=10_000),
            optimizer_config=wire.OptimizersConfigDiff(
                deleted_threshold=0.2,
                vacuum_min_vector_number=1000,
                default_segment_number=0,
                flush_interval_sec=5,
            ),
            wal_config=wire.WalConfigDiff(wal_capacity_mb=32, wal_segments_ahead=0),
            metadata=self.made_with.metadata,
        )
        return wire.CollectionInfo(
            status=wire.CollectionStatus.Green,
            optimizer_status=wire.OptimizerStatus(ok=True),
            segments_count=1,
            points_count=self.shard.info().points_count,
            config=config,
            payload_schema=self.schema,
        )


class _Collections(collections_service_pb2_grpc.CollectionsServicer):
    def __init__(self, server: QdrantTestServer) -> None:
        self._server = server

    async def List(self, request: Any, context: Any) -> wire.ListCollectionsResponse:
        await self._server.admit(context, "List", request)
        names = [wire.CollectionDescription(name=name) for name in self._server.collections]
        return wire.ListCollectionsResponse(collections=names)

    async def Get(self, request: Any, context: Any) -> wire.GetCollectionInfoResponse:
        await self._server.admit(context, "Get", request)
        collection = await self._server.collection(context, request.collection_name)
        return wire.GetCollectionInfoResponse(result=collection.info())

    async def CollectionExists(self, request: Any, context: Any) -> wire.CollectionExistsResponse:
        await self._server.admit(context, "CollectionExists", request)
        exists = request.collection_name in self._server.collections
        return wire.CollectionExistsResponse(result=wire.CollectionExists(exists=exists))

    async def Create(self, request: Any, context: Any) -> wire.CollectionOperationResponse:
        await self._server.admit(context, "Create", request)
        if request.collection_name in self._server.collections:
            await context.abort(grpc.StatusCode.ALREADY_EXISTS, "Collection already exists!")
        self._server.create(request)
        return wire.CollectionOperationResponse(result=True)

    async def Delete(self, request: Any, context: Any) -> wire.CollectionOperationResponse:
        await self._server.admit(context, "DeleteCollection", request)
        collection = self._server.collections.pop(request.collection_name, None)
        if collection is not None:
            collection.shard.close()
        return wire.CollectionOperationResponse(result=collection is not None)


class _Points(points_service_pb2_grpc.PointsServicer):
    def __init__(self, server: QdrantTestServer) -> None:
        self._server = server

    async def Upsert(self, request: Any, context: Any) -> wire.PointsOperationResponse:
        collection = await self._enter(request, context, "Upsert")
        points = [_edge_point(GrpcToRest.convert_point_struct(point)) for point in request.points]
        collection.shard.update(engine.UpdateOperation.upsert_points(points))
        return wire.PointsOperationResponse(result=_OK)

    async def Delete(self, request: Any, context: Any) -> wire.PointsOperationResponse:
        collection = await self._enter(request, context, "Delete")
        selector = GrpcToRest.convert_points_selector(request.points)
        assert isinstance(selector, models.FilterSelector), "whose points are deleted, a filter says"
        condition = edge_filter(selector.filter)
        assert condition is not None
        collection.shard.update(engine.UpdateOperation.delete_points_by_filter(condition))
        return wire.PointsOperationResponse(result=_OK)

    async def UpdateBatch(self, request: Any, context: Any) -> wire.UpdateBatchResponse:
        collection = await self._enter(request, context, "UpdateBatch")
        for operation in request.operations:
            change = GrpcToRest.convert_points_update_operation(operation)
            if not isinstance(change, models.OverwritePayloadOperation):
                await context.abort(grpc.StatusCode.UNIMPLEMENTED, f"{type(change).__name__} is not served")
            assert isinstance(change, models.OverwritePayloadOperation)
            body = change.overwrite_payload
            condition = edge_filter(body.filter)
            assert condition is not None and not body.points, "whose points are overwritten, a filter says"
            collection.shard.update(engine.UpdateOperation.overwrite_payload_by_filter(condition, body.payload))
        return wire.UpdateBatchResponse(result=[_OK] * len(request.operations))

    async def CreateFieldIndex(self, request: Any, context: Any) -> wire.PointsOperationResponse:
        collection = await self._enter(request, context, "CreateFieldIndex")
        schema: Any = _SCHEMAS[request.field_type]
        if request.field_index_params.keyword_index_params.is_tenant:
            schema = engine.KeywordIndexParams(is_tenant=True)
        collection.shard.update(engine.UpdateOperation.create_field_index(request.field_name, schema))
        data_type = _SCHEMA_NAMES[request.field_type]
        collection.schema[request.field_name] = wire.PayloadSchemaInfo(data_type=data_type, points=0)
        return wire.PointsOperationResponse(result=_OK)

    async def Scroll(self, request: Any, context: Any) -> wire.ScrollResponse:
        collection = await self._enter(request, context, "Scroll")
        offset = GrpcToRest.convert_point_id(request.offset) if request.HasField("offset") else None
        scroll = engine.ScrollRequest(
            offset=offset,
            limit=request.limit,
            filter=_grpc_filter(request),
            with_payload=_payload_fields(request.with_payload),
            with_vector=False,
        )
        records, following = collection.shard.scroll(scroll)
        found = [models.Record(id=str(record.id), payload=record.payload) for record in records]
        response = wire.ScrollResponse(result=[RestToGrpc.convert_retrieved_point(item) for item in found])
        if following is not None:
            response.next_page_offset.CopyFrom(RestToGrpc.convert_extended_point_id(str(following)))
        return response

    async def Facet(self, request: Any, context: Any) -> wire.FacetResponse:
        collection = await self._enter(request, context, "Facet")
        facet = engine.FacetRequest(request.key, request.limit, request.exact, _grpc_filter(request))
        hits = [
            wire.FacetHit(value=wire.FacetValue(string_value=str(hit.value)), count=hit.count)
            for hit in collection.shard.facet(facet).hits
        ]
        return wire.FacetResponse(hits=hits)

    async def Query(self, request: Any, context: Any) -> wire.QueryResponse:
        collection = await self._enter(request, context, "Query")
        query = engine.QueryRequest(
            limit=request.limit,
            query=_edge_query(request.query, request.using),
            prefetches=[
                engine.Prefetch(
                    limit=prefetch.limit,
                    query=_edge_query(prefetch.query, prefetch.using),
                    filter=_grpc_filter(prefetch),
                )
                for prefetch in request.prefetch
            ],
            filter=_grpc_filter(request),
            with_payload=True,
            with_vector=False,
        )
        points = [
            models.ScoredPoint(id=str(p.id), version=p.version, score=p.score, payload=p.payload)
            for p in collection.shard.query(query)
        ]
        return wire.QueryResponse(result=[RestToGrpc.convert_scored_point(point) for point in points])

    async def _enter(self, request: Any, context: Any, rpc: str) -> _Collection:
        await self._server.admit(context, rpc, request)
        return await self._server.collection(context, request.collection_name)


def edge_filter(filter_: models.Filter | None) -> engine.Filter | None:
    """Return the embedded engine's filter for the client's."""
    if filter_ is None:
        return None
    return engine.Filter(
        must=_conditions(filter_.must),
        should=_conditions(filter_.should),
        must_not=_conditions(filter_.must_not),
    )


def _conditions(conditions: Any) -> list[Any] | None:
    if not conditions:
        return None
    each: Iterable[Any] = conditions if isinstance(conditions, list) else [conditions]
    return [_condition(condition) for condition in each]


def _condition(condition: Any) -> Any:
    if isinstance(condition, models.Filter):
        return edge_filter(condition)
    if isinstance(condition, models.HasIdCondition):
        return engine.HasIdCondition({str(item) for item in condition.has_id})
    if isinstance(condition, models.IsEmptyCondition):
        return engine.IsEmptyCondition(condition.is_empty.key)
    assert isinstance(condition, models.FieldCondition), condition
    match: Any = None
    if isinstance(condition.match, models.MatchValue):
        match = engine.MatchValue(condition.match.value)
    elif isinstance(condition.match, models.MatchAny):
        values: list[Any] = list(condition.match.any)
        match = engine.MatchAny(values)
    return engine.FieldCondition(condition.key, match=match, range=_range(condition.range))


def _range(bounds: Any) -> Any:
    sides = ("gt", "gte", "lt", "lte")
    if isinstance(bounds, models.DatetimeRange):
        times = {side: getattr(bounds, side) for side in sides}
        return engine.RangeDateTime(**{side: time.isoformat() for side, time in times.items() if time is not None})
    return bounds and engine.RangeFloat(**{side: getattr(bounds, side) for side in sides})


def _grpc_filter(request: Any) -> engine.Filter | None:
    return edge_filter(GrpcToRest.convert_filter(request.filter)) if request.HasField("filter") else None


def _payload_fields(selector: wire.WithPayloadSelector) -> bool | list[str]:
    return list(selector.include.fields) if selector.HasField("include") else selector.enable


def _edge_query(query: wire.Query, using: str) -> Any:
    converted = GrpcToRest.convert_query(query)
    if isinstance(converted, models.RrfQuery):
        assert converted.rrf.k is not None
        return engine.Fusion.Rrf(converted.rrf.k)
    assert isinstance(converted, models.NearestQuery), converted
    return engine.Query.Nearest(_edge_vector(converted.nearest), using=using)


def _edge_vector(vector: Any) -> Any:
    if isinstance(vector, models.SparseVector):
        return engine.SparseVector(list(vector.indices), list(vector.values))
    return list(vector)


def _edge_point(point: models.PointStruct) -> engine.Point:
    assert isinstance(point.vector, dict)
    vectors = {name: _edge_vector(vector) for name, vector in point.vector.items()}
    return engine.Point(point.id, vectors, point.payload)
