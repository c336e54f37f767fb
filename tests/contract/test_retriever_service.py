"""The retriever over gRPC, on the embedded engine: documents in, passages out, and one bad document among good ones."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import grpc
import pytest
from errata.corpus.v1 import filter_pb2
from errata.errors.v1 import errors_pb2
from errata.retriever.v1 import retriever_service_pb2 as pb2
from google.protobuf.timestamp_pb2 import Timestamp

from errata_kit.errors import IndexUnavailable
from tests.harness.model_faults import HTTP_FAULTS, SECRET
from tests.harness.model_rules import Endpoint, Rule
from tests.harness.model_server import ModelServer
from tests.harness.services import CALL_SECONDS, Failure, Served, collected, failure_of, retriever

HYBRID, DENSE, SPARSE = filter_pb2.SEARCH_MODE_HYBRID, filter_pb2.SEARCH_MODE_DENSE, filter_pb2.SEARCH_MODE_SPARSE
DOCUMENTS = {
    "retention.md": "# Retention\n\nFiles are kept for thirty days. After that the archive deletes them.",
    "parsing.md": "# Parsing\n\nThe parser reads YAML from standard input and rejects tabs.",
    "network.md": "# Network\n\nEvery node listens on port 7000 for gossip messages.",
}


def document(document_id: str, text: str = "Some words about files.", **fields: Any) -> pb2.Document:
    body: dict[str, Any] = {} if "content" in fields else {"text": text}
    return pb2.Document(document_id=document_id, **body, **fields)


async def ingest(
    served: Served, documents: Iterable[pb2.Document], collection: str = ""
) -> dict[str, pb2.IngestDocumentsResponse]:
    requests = [pb2.IngestDocumentsRequest(collection=collection, document=item) for item in documents]
    return await ingest_requests(served, requests)


async def ingest_requests(
    served: Served, requests: Iterable[pb2.IngestDocumentsRequest]
) -> dict[str, pb2.IngestDocumentsResponse]:
    results = await collected(served.stub.IngestDocuments(iter(requests), timeout=CALL_SECONDS))
    found = {item.document_id: item for item in results}
    assert len(found) == len(results)
    return found


async def ingest_all(served: Served, collection: str = "") -> None:
    results = await ingest(served, (document(name, text) for name, text in DOCUMENTS.items()), collection)
    assert all(item.ingested.chunks == 1 for item in results.values())


async def search(served: Served, query: str, **fields: Any) -> pb2.SearchResponse:
    return await served.stub.Search(pb2.SearchRequest(query=query, **fields), timeout=CALL_SECONDS)  # type: ignore[no-any-return]


async def found_ids(served: Served, query: str, **fields: Any) -> list[str]:
    return [item.passage.document_id for item in (await search(served, query, **fields)).passages]


async def refused(served: Served, method: str, request: Any) -> Failure:
    return await failure_of(getattr(served.stub, method)(request, timeout=CALL_SECONDS))


def reason(result: pb2.IngestDocumentsResponse) -> str:
    assert result.WhichOneof("result") == "error"
    return errors_pb2.ErrorReason.Name(result.error.reason).removeprefix("ERROR_REASON_")


def where(**test: Any) -> filter_pb2.MetadataFilter:
    return filter_pb2.MetadataFilter(condition=filter_pb2.MetadataCondition(**test))


def all_of(*filters: filter_pb2.MetadataFilter) -> filter_pb2.MetadataFilter:
    return filter_pb2.MetadataFilter(all_of=filter_pb2.MetadataFilterList(filters=filters))


# --- search -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("embedding", "asked", "used"),
    [
        ("local", None, HYBRID),
        ("local", HYBRID, HYBRID),
        ("local", DENSE, DENSE),
        ("local", SPARSE, SPARSE),
        ("none", None, SPARSE),
        ("none", HYBRID, SPARSE),
        ("none", SPARSE, SPARSE),
    ],
)
async def test_each_mode_finds_the_passage_and_says_which_it_was(tmp_path: Path, embedding: str, asked: Any, used: int) -> None:
    async with retriever(tmp_path, embedding) as served:
        await ingest_all(served)
        reply = await search(served, "How long are files kept?", top_k=2, mode=asked)
    assert reply.mode == used
    best = reply.passages[0].passage
    assert best.document_id == "retention.md" and best.title == "Retention" and "thirty days" in best.text
    assert best.start_line >= 1 and best.end_line >= best.start_line and not best.has_code
    assert len(reply.passages) <= 2
    scores = [item.score for item in reply.passages]
    assert scores == sorted(scores, reverse=True)


async def test_a_dense_search_without_embeddings_is_a_broken_field(tmp_path: Path) -> None:
    async with retriever(tmp_path) as served:
        await ingest_all(served)
        failure = await refused(served, "Search", pb2.SearchRequest(query="files", mode="SEARCH_MODE_DENSE"))
    assert failure.code is grpc.StatusCode.INVALID_ARGUMENT and list(failure.violations) == ["mode"]


async def test_an_empty_collection_name_means_default(tmp_path: Path) -> None:
    async with retriever(tmp_path) as served:
        await ingest_all(served)
        assert await found_ids(served, "files", collection="default") == await found_ids(served, "files") == ["retention.md"]
        listed = await served.stub.ListCollections(pb2.ListCollectionsRequest())
    [collection] = listed.collections
    assert (collection.name, collection.documents, collection.chunks) == ("default", 3, 3)
    assert (collection.embedding_model, collection.embedding_dimensions) == ("", 0)


async def test_five_passages_are_found_unless_told_otherwise(tmp_path: Path) -> None:
    async with retriever(tmp_path) as served:
        await ingest(served, (document(f"d{number}", f"Note {number} about files.") for number in range(8)))
        assert [len(await found_ids(served, "files", top_k=top_k)) for top_k in (0, 1, 100)] == [5, 1, 8]


async def test_equal_passages_come_in_the_order_of_their_ids(tmp_path: Path) -> None:
    async with retriever(tmp_path) as served:
        await ingest(served, (document(f"d{number}", "Files are kept.") for number in range(8)))
        reply = await search(served, "files", top_k=8)
    ids = [item.passage.passage_id for item in reply.passages]
    assert len(ids) == 8 and ids == sorted(ids)


@pytest.mark.parametrize(
    ("method", "request_"),
    [
        ("Search", pb2.SearchRequest(query="files", collection="nowhere")),
        ("ListDocuments", pb2.ListDocumentsRequest(collection="nowhere")),
        ("DeleteDocuments", pb2.DeleteDocumentsRequest(collection="nowhere", document_ids=["d"])),
        ("DeleteCollection", pb2.DeleteCollectionRequest(collection="nowhere")),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_an_unknown_collection_is_not_found_and_named(tmp_path: Path, method: str, request_: Any) -> None:
    async with retriever(tmp_path) as served:
        failure = await refused(served, method, request_)
    assert (failure.code, failure.reason, failure.domain) == (grpc.StatusCode.NOT_FOUND, "COLLECTION_NOT_FOUND", "errata")
    assert failure.metadata == {"collection": "nowhere"}
    assert failure.resource == ("collection", "nowhere")


async def test_a_collection_of_another_embedding_is_a_failed_precondition(tmp_path: Path) -> None:
    async with retriever(tmp_path) as served:
        await ingest_all(served)
    async with retriever(tmp_path, "local") as served:
        failure = await refused(served, "Search", pb2.SearchRequest(query="files", mode="SEARCH_MODE_HYBRID"))
        call = served.stub.IngestDocuments(iter([pb2.IngestDocumentsRequest(document=document("d"))]))
        ingesting = await failure_of(call)
        # Words need no embedding.
        assert await found_ids(served, "files", mode="SEARCH_MODE_SPARSE") == ["retention.md"]
    for item in (failure, ingesting):
        assert (item.code, item.reason) == (grpc.StatusCode.FAILED_PRECONDITION, "EMBEDDING_MISMATCH")
        assert item.metadata["collection"] == "default" and {"expected", "actual"} <= item.metadata.keys()


async def test_a_title_of_many_bytes_can_be_found_again(tmp_path: Path) -> None:
    heading = "保存期間" * 120
    async with retriever(tmp_path) as served:
        results = await ingest(served, [document("long.md", f"# {heading}\n\nFiles are kept for thirty days.")])
        assert results["long.md"].ingested.chunks >= 1
        reply = await search(served, "files kept thirty days")
    assert reply.passages and len(reply.passages[0].passage.title.encode()) <= 1024


async def test_a_long_line_without_blanks_can_be_found_again(tmp_path: Path) -> None:
    async with retriever(tmp_path) as served:
        await ingest(served, [document("long.md", f"Files are kept.\n\n```\nfiles {'x' * 40_000}\n```\n")])
        reply = await search(served, "files", top_k=100)
    assert reply.passages and all(len(item.passage.text.encode()) <= 16 * 1024 for item in reply.passages)


# --- ingestion --------------------------------------------------------------------------------------------------------


async def test_bad_documents_are_errors_by_name_and_the_rest_goes_in(tmp_path: Path) -> None:
    requests = [
        pb2.IngestDocumentsRequest(collection="notes", document=document("first")),
        pb2.IngestDocumentsRequest(document=document("bad-key", metadata={"not a key": "1"})),
        pb2.IngestDocumentsRequest(collection="other", document=document("elsewhere")),
        pb2.IngestDocumentsRequest(collection="Not A Name", document=document("no-name")),
        pb2.IngestDocumentsRequest(document=document("empty", "")),
        pb2.IngestDocumentsRequest(document=document("blank", " \n ")),
        pb2.IngestDocumentsRequest(document=document("binary", content=b"\x00\x01")),
        pb2.IngestDocumentsRequest(document=document("latin", content="Größe".encode("latin-1"))),
        pb2.IngestDocumentsRequest(document=document("huge", "word " * 900_000)),
        pb2.IngestDocumentsRequest(document=document("long-title", title="t" * 1025)),
        pb2.IngestDocumentsRequest(),
        pb2.IngestDocumentsRequest(collection="notes", document=document("last", content=b"Some words.")),
    ]
    async with retriever(tmp_path) as served:
        results = await ingest_requests(served, requests)
        assert len(results) == len(requests)
        listed = await served.stub.ListDocuments(pb2.ListDocumentsRequest(collection="notes"))
        collections = await served.stub.ListCollections(pb2.ListCollectionsRequest())
    assert [item.document_id for item in listed.documents] == ["first", "last"]
    assert [item.name for item in collections.collections] == ["notes"]
    for name in ("bad-key", "elsewhere", "no-name", "long-title", ""):
        assert reason(results[name]) == "INVALID_FIELD", name
    causes = {"empty": "EMPTY", "blank": "EMPTY", "binary": "BINARY", "latin": "NOT_UTF8", "huge": "TOO_LARGE"}
    for name, cause in causes.items():
        assert reason(results[name]) == "DOCUMENT_REJECTED", name
        assert results[name].error.metadata == {"document_id": name, "cause": cause}


async def test_what_did_not_change_is_not_embedded_again(tmp_path: Path) -> None:
    text = "\n\n".join(f"## Part {number}\n\n" + f"Sentence {number} about files. " * 30 for number in range(4))
    async with retriever(tmp_path, "local") as served:
        first = (await ingest(served, [document("d", text)]))["d"].ingested
        second = (await ingest(served, [document("d", text)]))["d"].ingested
        changed = (await ingest(served, [document("d", text.replace("Sentence 2", "Phrase 2"))]))["d"].ingested
        shorter = (await ingest(served, [document("d", "Nothing of it.")]))["d"].ingested
        [left] = (await served.stub.ListDocuments(pb2.ListDocumentsRequest())).documents
    assert first.chunks == first.chunks_embedded >= 4 and first.chunks_deleted == 0
    assert (second.chunks, second.chunks_embedded, second.chunks_unchanged) == (first.chunks, 0, first.chunks)
    assert 1 <= changed.chunks_embedded < first.chunks and changed.chunks_deleted == changed.chunks_embedded
    assert (shorter.chunks, shorter.chunks_embedded, shorter.chunks_deleted) == (1, 1, first.chunks)
    assert left.chunks == 1


async def test_an_empty_stream_is_an_empty_answer(tmp_path: Path) -> None:
    async with retriever(tmp_path) as served:
        assert await ingest(served, []) == {}
        assert not (await served.stub.ListCollections(pb2.ListCollectionsRequest())).collections


async def test_the_first_message_decides_on_the_collection_and_a_bad_name_ends_the_stream(tmp_path: Path) -> None:
    requests = [pb2.IngestDocumentsRequest(collection="Bad Name", document=document("d"))]
    async with retriever(tmp_path) as served:
        failure = await failure_of(served.stub.IngestDocuments(iter(requests), timeout=CALL_SECONDS))
    assert failure.code is grpc.StatusCode.INVALID_ARGUMENT and list(failure.violations) == ["collection"]


async def test_a_failing_embedding_model_is_an_error_for_each_document(tmp_path: Path) -> None:
    rules = [Rule(HTTP_FAULTS["http_401"], endpoint=Endpoint.EMBEDDINGS, contains="secret plan")]
    async with ModelServer(rules) as model:
        reach = {"base_url": model.base_url, "max_attempts": 1}
        async with retriever(tmp_path, "openai", **reach) as served:
            await ingest_all(served)
            results = await ingest(served, [document("bad", "A secret plan.")])
            assert await found_ids(served, "How long are files kept?", top_k=1) == ["retention.md"]
            model.rules.replace([Rule(HTTP_FAULTS["http_401"], endpoint=Endpoint.EMBEDDINGS)])
            failure = await refused(served, "Search", pb2.SearchRequest(query="something new"))
    assert reason(results["bad"]) == failure.reason == "MODEL_AUTHENTICATION"
    assert SECRET not in f"{results['bad']} {failure}"


# --- lists and deletion -----------------------------------------------------------------------------------------------


async def pages(served: Served, **fields: Any) -> list[list[str]]:
    found: list[list[str]] = []
    token = ""
    while not found or token:
        reply = await served.stub.ListDocuments(pb2.ListDocumentsRequest(page_token=token, **fields), timeout=CALL_SECONDS)
        found.append([item.document_id for item in reply.documents])
        token = reply.next_page_token
    return found


async def test_documents_come_in_pages_in_the_order_of_their_ids(tmp_path: Path) -> None:
    names = ["a/1", "a/2", "a/3", "b/1", "ä/1", "z"]
    async with retriever(tmp_path) as served:
        await ingest(served, (document(name, metadata={"team": "x"}) for name in reversed(names)))
        assert await pages(served, page_size=2) == [["a/1", "a/2"], ["a/3", "b/1"], ["z", "ä/1"]]
        assert await pages(served, page_size=6) == [[*names[:4], "z", "ä/1"]]
        assert await pages(served, page_size=600) == await pages(served) == [[*names[:4], "z", "ä/1"]]
        assert await pages(served, page_size=2, document_id_prefix="a/") == [["a/1", "a/2"], ["a/3"]]
        assert await pages(served, document_id_prefix="none") == [[]]
        [first] = (await served.stub.ListDocuments(pb2.ListDocumentsRequest(page_size=1))).documents
    assert (first.document_id, first.metadata["team"], first.chunks) == ("a/1", "x", 1)


async def test_collections_come_in_pages_in_the_order_of_their_names(tmp_path: Path) -> None:
    async with retriever(tmp_path) as served:
        for name in ("c", "a", "b"):
            await ingest(served, [document("d")], name)
        first = await served.stub.ListCollections(pb2.ListCollectionsRequest(page_size=2))
        token = first.next_page_token
        second = await served.stub.ListCollections(pb2.ListCollectionsRequest(page_size=2, page_token=token))
        foreign = await refused(served, "ListDocuments", pb2.ListDocumentsRequest(collection="a", page_token=token))
    assert [item.name for item in first.collections] == ["a", "b"] and token
    assert [item.name for item in second.collections] == ["c"] and not second.next_page_token
    assert list(foreign.violations) == ["page_token"]


def encoded(value: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode()


@pytest.mark.parametrize("method", ["ListDocuments", "ListCollections"])
@pytest.mark.parametrize(
    "token",
    ["not a token", "====", "ä", encoded(1), encoded([1]), encoded([["documents"], "a"]), encoded({"a": 1}), encoded(None)],
)
async def test_a_token_that_is_none_is_a_broken_field(tmp_path: Path, method: str, token: str) -> None:
    request = pb2.ListDocumentsRequest if method == "ListDocuments" else pb2.ListCollectionsRequest
    async with retriever(tmp_path) as served:
        await ingest_all(served)
        failure = await refused(served, method, request(page_token=token))
    assert failure.code is grpc.StatusCode.INVALID_ARGUMENT and list(failure.violations) == ["page_token"]


async def test_a_token_made_to_break_the_reader_is_a_broken_field(tmp_path: Path) -> None:
    deep = base64.urlsafe_b64encode(b"[" * 200_000).decode()
    async with retriever(tmp_path) as served:
        failure = await refused(served, "ListCollections", pb2.ListCollectionsRequest(page_token=deep))
    assert failure.code is grpc.StatusCode.INVALID_ARGUMENT and list(failure.violations) == ["page_token"]


@pytest.mark.parametrize("other", [{"collection": "two"}, {"document_id_prefix": "d"}])
async def test_a_token_of_another_query_is_a_broken_field(tmp_path: Path, other: dict[str, str]) -> None:
    async with retriever(tmp_path) as served:
        for name in ("default", "two"):
            await ingest(served, (document(f"d{number}") for number in range(3)), name)
        first = await served.stub.ListDocuments(pb2.ListDocumentsRequest(page_size=1))
        request = pb2.ListDocumentsRequest(page_size=1, page_token=first.next_page_token, **other)
        failure = await refused(served, "ListDocuments", request)
    assert failure.code is grpc.StatusCode.INVALID_ARGUMENT and list(failure.violations) == ["page_token"]


async def test_deleted_documents_are_gone_and_unknown_ones_reported(tmp_path: Path) -> None:
    async with retriever(tmp_path) as served:
        await ingest_all(served)
        ids = ["retention.md", "never-was", "retention.md"]
        reply = await served.stub.DeleteDocuments(pb2.DeleteDocumentsRequest(document_ids=ids))
        again = await served.stub.DeleteDocuments(pb2.DeleteDocumentsRequest(document_ids=ids[:1]))
        assert await found_ids(served, "files kept") == []
        assert await pages(served) == [["network.md", "parsing.md"]]
    assert list(reply.deleted_document_ids) == ["retention.md"] and list(reply.unknown_document_ids) == ["never-was"]
    assert not again.deleted_document_ids and list(again.unknown_document_ids) == ["retention.md"]


async def test_a_deleted_collection_is_gone_with_its_documents(tmp_path: Path) -> None:
    async with retriever(tmp_path) as served:
        await ingest_all(served, "one")
        await ingest_all(served, "two")
        await served.stub.DeleteCollection(pb2.DeleteCollectionRequest(collection="one"))
        failure = await refused(served, "Search", pb2.SearchRequest(query="files", collection="one"))
        assert await found_ids(served, "files", collection="two") == ["retention.md"]
    assert failure.reason == "COLLECTION_NOT_FOUND"


async def test_documents_outlive_the_service(tmp_path: Path) -> None:
    async with retriever(tmp_path) as served:
        await ingest_all(served)
    async with retriever(tmp_path) as served:
        assert await found_ids(served, "files kept") == ["retention.md"]


async def test_a_second_service_on_the_same_folder_is_told_so(tmp_path: Path) -> None:
    async with retriever(tmp_path):
        with pytest.raises(IndexUnavailable, match="process"):
            async with retriever(tmp_path):
                pass


# --- filters ----------------------------------------------------------------------------------------------------------


def moment(seconds: int) -> Timestamp:
    return Timestamp(seconds=seconds)


OLD, NEW = 946_684_800, 1_735_689_600  # 2000-01-01 and 2025-01-01
NESTED = all_of(all_of(all_of(where(field="metadata.team", equals="a"))))
FILTERS: dict[str, tuple[filter_pb2.MetadataFilter, set[str]]] = {
    "nothing": (filter_pb2.MetadataFilter(), {"a", "b", "c"}),
    "all_of nothing": (all_of(), {"a", "b", "c"}),
    "equals": (where(field="metadata.team", equals="a"), {"a"}),
    "equals nothing": (where(field="metadata.team", equals=""), set()),
    "document_id": (where(field="document_id", equals="b"), {"b"}),
    "title": (where(field="title", equals="Title of c"), {"c"}),
    "source_uri": (where(field="source_uri", equals="file:///b"), {"b"}),
    "has_code": (where(field="has_code", equals="true"), {"c"}),
    "has no code": (where(field="has_code", equals="false"), {"a", "b"}),
    "one_of": (where(field="metadata.team", one_of=filter_pb2.StringList(values=["a", "b"])), {"a", "b"}),
    "exists": (where(field="metadata.size", exists=True), {"a", "b"}),
    "exists not": (where(field="metadata.size", exists=False), {"c"}),
    "at least": (where(field="metadata.size", number_range=filter_pb2.NumberRange(minimum=5)), {"b"}),
    "at most": (where(field="metadata.size", number_range=filter_pb2.NumberRange(maximum=0)), set()),
    "between": (where(field="metadata.size", number_range=filter_pb2.NumberRange(minimum=3, maximum=3)), {"a"}),
    "since": (where(field="metadata.date", time_range=filter_pb2.TimeRange(earliest=moment(OLD + 1))), {"b"}),
    "until": (where(field="metadata.date", time_range=filter_pb2.TimeRange(latest=moment(OLD))), {"a"}),
    "nested 4 deep": (NESTED, {"a"}),
    "exists not, 4 deep": (all_of(all_of(all_of(where(field="metadata.size", exists=False)))), {"c"}),
    "any_of": (
        filter_pb2.MetadataFilter(
            any_of=filter_pb2.MetadataFilterList(
                filters=[where(field="document_id", equals="c"), where(field="metadata.team", equals="a")]
            )
        ),
        {"a", "c"},
    ),
    "none_of": (
        filter_pb2.MetadataFilter(none_of=filter_pb2.MetadataFilterList(filters=[where(field="metadata.team", equals="a")])),
        {"b", "c"},
    ),
}


async def test_filters_select_by_the_document(tmp_path: Path) -> None:
    documents = [
        document("a", "Files.", title="Title of a", metadata={"team": "a", "size": "3", "date": "2000-01-01"}),
        document("b", "Files.", source_uri="file:///b", metadata={"team": "b", "size": "10", "date": "2024-06-01T00:00:00Z"}),
        document("c", "Files.\n\n```\ncode\n```\n", title="Title of c", metadata={"team": "c", "date": "soon"}),
    ]
    async with retriever(tmp_path) as served:
        await ingest(served, documents)
        found = {name: set(await found_ids(served, "files", filter=chosen)) for name, (chosen, _) in FILTERS.items()}
    assert found == {name: expected for name, (_, expected) in FILTERS.items()}
