"""Passages, vectors and queries for tests of the index."""

import contextlib
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence

from errata_kit.access.principals import DEFAULT_TENANT
from errata_kit.search import Filter, SearchMode
from services.retriever.chunking import Chunk
from services.retriever.index.base import EmbeddedPassage, EmbeddingSpace, Passage, PassageIndex, SearchQuery
from services.retriever.index.sparse import SparseEncoder
from services.retriever.tenancy import CollectionRef

SPACE = EmbeddingSpace("test-model", 4)
SPARSE = SparseEncoder()


def collection(name: str, tenant: str = DEFAULT_TENANT) -> CollectionRef:
    return CollectionRef(tenant, name)


@contextlib.asynccontextmanager
async def fresh_collection(index: PassageIndex, tenant: str = DEFAULT_TENANT) -> AsyncIterator[CollectionRef]:
    """An empty collection inside the block, which a test may delete itself."""
    ref = collection(f"test-{uuid.uuid4().hex[:12]}", tenant)
    await index.ensure_collection(ref, SPACE)
    yield ref
    if ref.name in [info.name for info in await index.list_collections(tenant)]:
        await index.delete_collection(ref)


def passage(
    document_id: str,
    text: str,
    position: int = 0,
    metadata: Mapping[str, str] | None = None,
    code: bool = False,
) -> Passage:
    chunk_id = str(uuid.uuid5(uuid.NAMESPACE_URL, f"{document_id}/{text}"))
    chunk = Chunk(chunk_id, document_id, position, text, ("Guide", "Setup"), 3, 9, code, "0" * 64)
    return Passage(chunk, f"Title of {document_id}", f"docs/{document_id}.md", metadata or {})


def embedded(item: Passage, dense: Sequence[float] = (1.0, 0.0, 0.0, 0.0)) -> EmbeddedPassage:
    return EmbeddedPassage(item, dense, SPARSE.passage(item.chunk.text))


def hybrid(text: str, dense: Sequence[float] = (1.0, 0.0, 0.0, 0.0), top_k: int = 5) -> SearchQuery:
    return SearchQuery(SearchMode.HYBRID, top_k, dense, SPARSE.query(text))


async def matching(index: PassageIndex, ref: CollectionRef, filter_: Filter) -> set[str]:
    """The documents that a filter lets through, the same ones in every mode."""
    answers = []
    for mode in (SearchMode.HYBRID, SearchMode.DENSE, SearchMode.SPARSE):
        query = SearchQuery(mode, 100, (1.0, 0.0, 0.0, 0.0), SPARSE.query("release"), filter_)
        answers.append({found.passage.chunk.document_id for found in await index.search(ref, query)})
    assert answers[0] == answers[1] == answers[2]
    return answers[0]
