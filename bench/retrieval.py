"""How well and how fast passages are found: recall@5 and nDCG@10 by mode, and search time over the raw
engine's.

Run: `.venv/bin/python bench/retrieval.py [--data DIR] [--json]`. Each passage of DIR/corpus.jsonl is ingested
as one document, and a document ranks where its best chunk does. Embedding takes most of the time: about four
minutes.
"""

import asyncio
import contextlib
import math
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from errata.retriever.v1 import retriever_service_pb2 as retriever_pb2
from errata.retriever.v1 import retriever_service_pb2_grpc as retriever_grpc

from bench.figures import MTRAG, Figure, Progress, arguments, print_figures, read_rows, require
from errata_kit.access.principals import DEFAULT_TENANT
from errata_kit.logs import configure_logs
from errata_kit.metrics import Metrics
from errata_kit.minilm import DIMENSIONS, MODEL_NAME
from errata_kit.rpc.channels import open_channel
from errata_kit.rpc.server import Service, running
from errata_kit.search import SearchMode
from services.retriever.documents import SourceDocument
from services.retriever.embedding.base import Embedder, Vector
from services.retriever.embedding.local import LocalEmbedder
from services.retriever.index.base import RRF_K, SearchQuery
from services.retriever.index.edge import EdgeIndex
from services.retriever.index.sparse import SparseEncoder
from services.retriever.ingest import IngestFailure, Ingestor
from services.retriever.search import Searcher
from services.retriever.server import RetrieverServicer
from services.retriever.settings import RetrieverSettings
from services.retriever.tenancy import CollectionRef

COLLECTION: Final = CollectionRef(DEFAULT_TENANT, "bench")
_AT_LEAST: Final = {"hybrid_recall_at_5": 0.72}
_AT_MOST: Final = {"search_over_engine_ratio": 1.5}
# Enough chunks that ten documents are among them.
_DEPTH: Final = 100
_SPEED_PASSAGES: Final = 10_000
_SPEED_QUERIES: Final = 100


@dataclass(frozen=True, slots=True)
class Question:
    """A question and the ids of all documents that are relevant to it."""

    text: str
    relevant: frozenset[str]


class IngestError(Exception):
    """A document was not taken, so that the figures would be those of another corpus."""


def recall_at(k: int, ranked: Sequence[str], relevant: frozenset[str]) -> float:
    """Return the share of the relevant documents that are among the first `k`."""
    return len(relevant & set(ranked[:k])) / len(relevant)


def ndcg_at(k: int, ranked: Sequence[str], relevant: frozenset[str]) -> float:
    """Return the normalised discounted cumulative gain of the first `k`, with gain 1 for a relevant
    document.
    """
    gain = sum(1 / math.log2(rank + 2) for rank, document in enumerate(ranked[:k]) if document in relevant)
    return gain / sum(1 / math.log2(rank + 2) for rank in range(min(k, len(relevant))))


async def corpus(rows: Sequence[dict[str, str]]) -> AsyncIterator[SourceDocument]:
    """Yield each passage as a document without a file name."""
    for row in rows:
        yield SourceDocument(row["id"], row["text"].encode())


def questions(rows: Sequence[dict[str, Any]]) -> list[Question]:
    """The questions of queries.jsonl."""
    return [Question(row["query"], frozenset(row["relevant"])) for row in rows]


async def ingest(index: EdgeIndex, embedder: Embedder, documents: AsyncIterator[SourceDocument], progress: Progress) -> int:
    """Ingest all documents and return the number of chunks."""
    chunks = 0
    async for result in Ingestor(index, embedder).ingest(COLLECTION, documents):
        if isinstance(result, IngestFailure):
            raise IngestError(f"{result.document_id} was not ingested: {result.error.message}")
        chunks += result.chunks_total
        progress.advance()
    return chunks


async def quality(searcher: Searcher, asked: Sequence[Question]) -> dict[str, float]:
    """Return both measures for each mode, as means over the questions."""
    figures: dict[str, float] = {}
    for mode in (SearchMode.SPARSE, SearchMode.DENSE, SearchMode.HYBRID):
        ranked = []
        for question in asked:
            found, _ = await searcher.search(COLLECTION, question.text, mode, _DEPTH)
            ranked.append(list(dict.fromkeys(item.passage.chunk.document_id for item in found)))
        pairs = list(zip(ranked, (question.relevant for question in asked), strict=True))
        figures[f"{mode.value}_recall_at_5"] = statistics.mean(recall_at(5, *pair) for pair in pairs)
        figures[f"{mode.value}_ndcg_at_10"] = statistics.mean(ndcg_at(10, *pair) for pair in pairs)
    return figures


class RandomEmbedder:
    """Stands in while the 10,000 passages go in, whose vectors need no meaning; queries use the model."""

    name: str = MODEL_NAME
    dimensions: int = DIMENSIONS

    def __init__(self, model: Embedder) -> None:
        self._model = model
        self._random = np.random.default_rng(7)

    async def embed_passages(self, texts: Sequence[str]) -> Sequence[Vector]:
        """Return random unit vectors."""
        vectors = self._random.standard_normal((len(texts), self.dimensions)).astype(np.float32)
        unit: list[list[float]] = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).tolist()
        return unit

    async def embed_query(self, text: str) -> Vector:
        """Ask the model."""
        return await self._model.embed_query(text)


async def speed(folder: Path, model: Embedder, texts: Sequence[str], asked: Sequence[Question]) -> dict[str, float]:
    """Return how long the RPC Search takes over the raw engine's query plus the embedding, at 10,000 passages."""
    index = await EdgeIndex.open(folder)
    embedder = RandomEmbedder(model)
    await ingest(index, embedder, _short_documents(texts), Progress("short passages ingested", _SPEED_PASSAGES))
    [info] = await index.list_collections(COLLECTION.tenant)
    raw_query = _raw_query(index, SparseEncoder())
    ours, engine, embedding = [], [], []
    wanted = [asked[number % len(asked)].text for number in range(_SPEED_QUERIES)]
    async with _served(index, embedder) as search:
        # The two take turns, so that whatever else the machine does falls on both.
        for text in wanted:
            started = time.perf_counter()
            vector = await model.embed_query(text)
            embedded = time.perf_counter()
            raw_query(text, vector)
            ended = time.perf_counter()
            await search(text)
            ours.append(time.perf_counter() - ended)
            embedding.append(embedded - started)
            engine.append(ended - embedded)
    await index.close()
    baseline = statistics.median(a + b for a, b in zip(engine, embedding, strict=True))
    return {
        "search_over_engine_ratio": statistics.median(ours) / baseline,
        "search_ms": statistics.median(ours) * 1000,
        "engine_ms": statistics.median(engine) * 1000,
        "embedding_ms": statistics.median(embedding) * 1000,
        "passages": info.passages,
    }


@contextlib.asynccontextmanager
async def _served(index: EdgeIndex, embedder: Embedder) -> AsyncIterator[Callable[[str], Awaitable[object]]]:
    """Serve the index over loopback; what is yielded calls Search."""
    metrics = Metrics()
    servicer = RetrieverServicer(index, Searcher(index, embedder), Ingestor(index, embedder), metrics)
    service = Service(
        name="retriever",
        port=0,
        metrics_port=0,
        proto_name="errata.retriever.v1.RetrieverService",
        register=lambda server: retriever_grpc.add_RetrieverServiceServicer_to_server(servicer, server),
        metrics=metrics,
    )
    settings = RetrieverSettings.model_validate({})
    async with running(service, settings) as started, open_channel(f"127.0.0.1:{started.port}") as channel:
        stub = retriever_grpc.RetrieverServiceStub(channel)

        async def search(text: str) -> object:
            request = retriever_pb2.SearchRequest(collection=COLLECTION.name, query=text, top_k=5)
            return await stub.Search(request, wait_for_ready=True)

        await search("warm up")
        yield search


def _raw_query(index: EdgeIndex, sparse: SparseEncoder) -> Callable[[str, Vector], Any]:
    import qdrant_edge as engine

    # The comparison is the engine itself, so it is reached behind the interface on purpose.
    shard = index._store.shard(COLLECTION)

    def query(text: str, vector: Vector) -> Any:
        terms = sparse.query(text)
        words = engine.SparseVector(list(terms.indices), list(terms.values))
        depth = SearchQuery(SearchMode.HYBRID, 5).prefetch
        prefetches = [
            engine.Prefetch(depth, engine.Query.Nearest(list(vector), using="dense")),
            engine.Prefetch(depth, engine.Query.Nearest(words, using="sparse")),
        ]
        fusion: Any = engine.Fusion.Rrf(RRF_K)
        request = engine.QueryRequest(5, query=fusion, prefetches=prefetches, with_payload=True)
        return shard.query(request)

    return query


async def _short_documents(texts: Sequence[str]) -> AsyncIterator[SourceDocument]:
    """Yield 10,000 documents of one chunk each, in other words of the corpus."""
    random = np.random.default_rng(7)
    words = " ".join(texts).split()
    for number in range(_SPEED_PASSAGES):
        chosen = random.integers(0, len(words), 100)
        text = " ".join(words[place] for place in chosen)[:700]
        yield SourceDocument(f"passage-{number}", text.replace("#", "").encode())


async def measure(rows: Sequence[dict[str, str]], asked: Sequence[Question]) -> dict[str, float]:
    """Run everything in folders that are gone afterwards."""
    texts = [row["text"] for row in rows]
    model = LocalEmbedder()
    with tempfile.TemporaryDirectory() as folder:
        # First, while the process is as small as a service is.
        timed = await speed(Path(folder) / "speed", model, texts, asked)
        index = await EdgeIndex.open(Path(folder) / "quality")
        started = time.perf_counter()
        chunks = await ingest(index, model, corpus(rows), Progress("documents ingested", len(rows)))
        seconds = time.perf_counter() - started
        figures = await quality(Searcher(index, model), asked)
        await index.close()
    await model.close()
    return figures | timed | {"chunks": chunks, "ingest_seconds": seconds}


def with_bounds(figures: dict[str, float]) -> list[Figure]:
    """The figures in the order of the table."""
    return [Figure(name, value, at_least=_AT_LEAST.get(name), at_most=_AT_MOST.get(name)) for name, value in figures.items()]


def main() -> int:
    """Measure and print; 1 when the index does not take the corpus."""
    configure_logs("retrieval", "warning", "json")
    options = arguments("Measure how well and how fast passages are found.", MTRAG).parse_args()
    files = (options.data / "corpus.jsonl", options.data / "queries.jsonl")
    require(files)
    rows, asked = map(read_rows, files)
    try:
        figures = asyncio.run(measure(rows, questions(asked)))
    except IngestError as error:
        print(error, file=sys.stderr)
        return 1
    print_figures(with_bounds(figures), options.json)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
