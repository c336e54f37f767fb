"""The interface to stored passages. Both implementations pass the same conformance suite."""

import abc
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Final, TypeVar

from errata_kit.bounds import invalid
from errata_kit.errors import CollectionNotFound, EmbeddingMismatch
from errata_kit.search import Filter, SearchMode, validate
from services.retriever.chunking.chunker import Chunk
from services.retriever.tenancy import CollectionRef

Item = TypeVar("Item")

MAX_TOP_K: Final = 100
# More in one call would hold the embedded engine, and with it the interpreter, for longer than 50 ms.
UPSERT_BATCH: Final = 200
# Constant of reciprocal rank fusion. Measured on two sets of questions: 3 to 6 differ by less than one
# question.
RRF_K: Final = 5
# How deep each ranking is read before fusion: deeper changes nothing that reaches the first hundred.
MIN_PREFETCH: Final = 50
PREFETCH_FACTOR: Final = 4
# Read beyond top_k, so that equal scores around the cut are ordered by id and not by chance.
TIE_MARGIN: Final = 16
# Halves the way to 1; BM25 scores have no upper bound, and only their order means something.
_SPARSE_SCORE_HALF: Final = 10.0


@dataclass(frozen=True, slots=True)
class EmbeddingSpace:
    """What made a collection's dense vectors. `dimensions` is 0 where there are none (sparse only)."""

    embedder: str
    dimensions: int


@dataclass(frozen=True, slots=True)
class CollectionInfo:
    """A collection and how much it holds. `name` is the one its tenant knows."""

    name: str
    embedding: EmbeddingSpace
    documents: int = 0
    passages: int = 0


@dataclass(frozen=True, slots=True)
class SparseVector:
    """Weights by term; `indices` are distinct. Without any term it matches nothing."""

    indices: tuple[int, ...]
    values: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Passage:
    """A chunk as it is stored and found, with what its document says about itself."""

    chunk: Chunk
    title: str = ""
    source_uri: str = ""
    metadata: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class EmbeddedPassage:
    """A passage with its vectors. `dense` is empty in a collection without dense vectors."""

    passage: Passage
    dense: Sequence[float]
    sparse: SparseVector


@dataclass(frozen=True, slots=True)
class DocumentSummary:
    """A stored document. `passages` counts its chunks."""

    document_id: str
    title: str
    source_uri: str
    metadata: Mapping[str, str]
    passages: int


@dataclass(frozen=True, slots=True)
class DocumentPage:
    """Documents in the order of their ids, and the id to go on after, or None at the end."""

    documents: tuple[DocumentSummary, ...]
    next_after: str | None


@dataclass(frozen=True, slots=True)
class SearchQuery:
    """What to look for.

    `dense` is needed for HYBRID and DENSE, `sparse` for HYBRID and SPARSE; `top_k` is 1 to 100.
    """

    mode: SearchMode
    top_k: int
    dense: Sequence[float] = ()
    sparse: SparseVector = SparseVector((), ())
    filter: Filter | None = None

    def __post_init__(self) -> None:
        """Check the bounds.

        Raises:
            InvalidFields: naming `top_k` or `filter`.
        """
        if not 1 <= self.top_k <= MAX_TOP_K:
            raise invalid("top_k", f"top_k is {self.top_k}; it must be 1 to {MAX_TOP_K}")
        if self.filter is not None:
            validate(self.filter)

    @property
    def prefetch(self) -> int:
        """How many passages each ranking contributes to the fusion."""
        return max(MIN_PREFETCH, PREFETCH_FACTOR * self.top_k)

    @property
    def rankings(self) -> tuple[SearchMode, ...]:
        """The rankings that can be made with the vectors given.

        A query of stop words alone has no sparse one.
        """
        wanted = (SearchMode.DENSE, SearchMode.SPARSE) if self.mode is SearchMode.HYBRID else (self.mode,)
        given = {SearchMode.DENSE: len(self.dense) > 0, SearchMode.SPARSE: len(self.sparse.indices) > 0}
        return tuple(mode for mode in wanted if given[mode])


@dataclass(frozen=True, slots=True)
class ScoredPassage:
    """A passage found.

    `score` is 0 to 1 and orders one result list; it is no probability, and no threshold fits it.
    """

    passage: Passage
    score: float


class PassageIndex(abc.ABC):
    """Collections of passages. Every method may raise `IndexUnavailable`.

    A collection is named together with its tenant, so that no path can leave the tenant out. Tenants share no
    physical collection; and should they ever, each point says whose it is, and whatever searches, lists, counts
    or deletes asks for the tenant's own points only.

    Methods that name a collection raise `CollectionNotFound` where there is none. When a method that writes
    returns, what it wrote survives the death of the process.
    """

    @abc.abstractmethod
    async def ensure_collection(self, ref: CollectionRef, embedding: EmbeddingSpace) -> CollectionInfo:
        """Create the collection if it is missing.

        Raises:
            EmbeddingMismatch: it exists, made with another embedder or size.
        """

    @abc.abstractmethod
    async def embedding_space(self, ref: CollectionRef) -> EmbeddingSpace:
        """Return what made the collection's vectors. Cheap: meant to be asked before every search."""

    @abc.abstractmethod
    async def list_collections(self, tenant: str) -> Sequence[CollectionInfo]:
        """Return the tenant's collections, by name. Those of other tenants and of other products are left out."""

    @abc.abstractmethod
    async def delete_collection(self, ref: CollectionRef) -> None:
        """Delete a collection with everything in it."""

    @abc.abstractmethod
    async def stored_chunks(self, ref: CollectionRef, document_id: str) -> Mapping[str, str]:
        """Return, by chunk id, the fingerprint (`payload.fingerprint`) of each stored passage of a
        document.
        """

    @abc.abstractmethod
    async def upsert(self, ref: CollectionRef, passages: Sequence[EmbeddedPassage]) -> None:
        """Store passages, replacing those with the same chunk id."""

    @abc.abstractmethod
    async def update(self, ref: CollectionRef, passages: Sequence[Passage]) -> None:
        """Replace what stored passages say, and keep their vectors. All of them must be stored."""

    @abc.abstractmethod
    async def delete_chunks(self, ref: CollectionRef, chunk_ids: Sequence[str]) -> None:
        """Delete chunks; ids that are not stored are passed over."""

    @abc.abstractmethod
    async def delete_documents(self, ref: CollectionRef, document_ids: Sequence[str]) -> frozenset[str]:
        """Delete documents and return the ids of those that were stored."""

    @abc.abstractmethod
    async def list_documents(self, ref: CollectionRef, after: str = "", limit: int = 50, prefix: str = "") -> DocumentPage:
        """Return up to `limit` documents whose ids start with `prefix` and come after `after`, in the order of their ids."""

    @abc.abstractmethod
    async def search(self, ref: CollectionRef, query: SearchQuery) -> Sequence[ScoredPassage]:
        """Return at most `top_k` passages, best first, equal scores by chunk id.

        Raises:
            InvalidFields: a dense search in a collection without dense vectors.
        """

    @abc.abstractmethod
    async def close(self) -> None:
        """Let go of files and connections. Closing twice is allowed."""


def not_found(ref: CollectionRef) -> CollectionNotFound:
    """Return the error for a collection that does not exist. It names the collection as its tenant knows it."""
    return CollectionNotFound(ref.name)


def check_space(ref: CollectionRef, actual: EmbeddingSpace, expected: EmbeddingSpace) -> None:
    """Raise `EmbeddingMismatch` unless the collection was made with the embedder in use."""
    if actual != expected:
        made, used = (f"{space.embedder}/{space.dimensions}" for space in (actual, expected))
        message = f"collection {ref.name!r} was made with the embedding {made}; this retriever uses {used}"
        raise EmbeddingMismatch(message, {"collection": ref.name, "expected": made, "actual": used})


def check_dense(query: SearchQuery, space: EmbeddingSpace) -> None:
    """Raise `InvalidFields` for a dense query that the collection cannot answer."""
    if len(query.dense) and len(query.dense) != space.dimensions:
        raise invalid(
            "mode", f"must be sparse: the collection has embeddings of size {space.dimensions}, not {len(query.dense)}"
        )


def unit_score(rankings: Sequence[SearchMode], raw: float) -> float:
    """Bring an engine's score into 0 to 1 without changing the order: fused, cosine, or BM25."""
    if len(rankings) > 1:
        raw = raw * RRF_K / len(rankings)
    elif rankings[0] is SearchMode.SPARSE:
        raw = raw / (raw + _SPARSE_SCORE_HALF) if raw > 0 else 0.0
    return min(1.0, max(0.0, raw))


def best_first(found: Sequence[ScoredPassage], top_k: int) -> list[ScoredPassage]:
    """Order by score, equal ones by chunk id, and cut."""
    return sorted(found, key=lambda item: (-item.score, item.passage.chunk.chunk_id))[:top_k]


def page_of(document_ids: Iterable[str], after: str, limit: int, prefix: str) -> tuple[list[str], str | None]:
    """Return the first `limit` ids behind `after` that start with `prefix`, in order, and the id to go on after, if any."""
    later = sorted(name for name in document_ids if name > after and name.startswith(prefix))
    chosen = later[:limit]
    return chosen, chosen[-1] if len(later) > limit else None


def batches(items: Sequence[Item]) -> Iterator[list[Item]]:
    """Yield the items in lists of at most `UPSERT_BATCH`."""
    remaining = iter(items)
    while batch := list(islice(remaining, UPSERT_BATCH)):
        yield batch
