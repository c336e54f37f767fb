"""Sparse BM25 vectors.

The engine weighs the query's terms by their rarity in the collection (its IDF modifier).
"""

from functools import cached_property
from typing import TYPE_CHECKING, Final

from services.retriever.index.base import SparseVector

if TYPE_CHECKING:
    from qdrant_edge import Bm25

# Terms a chunk of the default size has after stop words are taken out: 55 to 65, counted on three sets of
# documents.
AVERAGE_TERMS: Final = 60
# Within the usual 1.2 to 2; see bench/retrieval.py for what it was measured on.
_TERM_SATURATION: Final = 1.5


class SparseEncoder:
    """Turns texts into term weights: English stemming and stop words, k 1.5, b 0.75.

    Safe to call from the loop.
    """

    def __init__(self, average_terms: float = AVERAGE_TERMS) -> None:
        self._average_terms = average_terms

    @cached_property
    def _model(self) -> "Bm25":
        import qdrant_edge

        return qdrant_edge.Bm25(qdrant_edge.Bm25Config(k=_TERM_SATURATION, avg_len=self._average_terms))

    def passage(self, text: str) -> SparseVector:
        """Return a passage's term weights."""
        vector = self._model.embed_document(text)
        return SparseVector(tuple(vector.indices), tuple(vector.values))

    def query(self, text: str) -> SparseVector:
        """Return a query's terms, each with weight 1. A query of stop words alone has none."""
        vector = self._model.embed_query(text)
        return SparseVector(tuple(vector.indices), tuple(vector.values))
