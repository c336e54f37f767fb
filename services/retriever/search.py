"""Answers one search: embeds the query, checks that the collection fits the embedder, and asks the index."""

from collections.abc import Sequence

from errata_kit.bounds import invalid
from errata_kit.search import Filter, SearchMode
from services.retriever.embedding.base import Embedder
from services.retriever.index.base import EmbeddingSpace, PassageIndex, ScoredPassage, SearchQuery, check_space
from services.retriever.index.sparse import SparseEncoder
from services.retriever.tenancy import CollectionRef


class Searcher:
    """Searches collections with one embedder. Knows no transport."""

    def __init__(self, index: PassageIndex, embedder: Embedder, sparse: SparseEncoder | None = None) -> None:
        self._index = index
        self._embedder = embedder
        self._sparse = sparse or SparseEncoder()

    async def search(
        self,
        collection: CollectionRef,
        text: str,
        mode: SearchMode = SearchMode.DEFAULT,
        top_k: int = 5,
        filter_: Filter | None = None,
    ) -> tuple[Sequence[ScoredPassage], SearchMode]:
        """Return at most `top_k` (1 to 100) passages for a question, best first, and the mode that was used.

        Without an embedder, a hybrid search is a sparse one.

        Raises:
            InvalidFields: `top_k`, `filter` or `mode` is out of bounds.
            CollectionNotFound, EmbeddingMismatch, EmbeddingFailed, IndexUnavailable: as their names say.
        """
        mode = SearchMode.HYBRID if mode is SearchMode.DEFAULT else mode
        # Checked before the model runs: a bad request costs nothing.
        SearchQuery(mode, top_k, filter=filter_)
        space = await self._index.embedding_space(collection)
        if mode is SearchMode.HYBRID and not space.dimensions and not self._embedder.dimensions:
            mode = SearchMode.SPARSE
        dense: Sequence[float] = ()
        if mode is not SearchMode.SPARSE:
            if not space.dimensions and not self._embedder.dimensions:
                raise invalid("mode", "must be sparse: the collection has no embeddings")
            check_space(collection, space, EmbeddingSpace(self._embedder.name, self._embedder.dimensions))
            dense = await self._embedder.embed_query(text)
        sparse = self._sparse.query(text)
        return await self._index.search(collection, SearchQuery(mode, top_k, dense, sparse, filter_)), mode
