"""No dense vectors: collections are sparse only."""

from collections.abc import Sequence

from errata_kit.errors import EmbeddingFailed
from services.retriever.embedding.base import Vector


class NoEmbedder:
    """Stands for the absence of a model. Passages get empty vectors; a query has none."""

    name: str = "none"
    dimensions: int = 0

    async def embed_passages(self, texts: Sequence[str]) -> Sequence[Vector]:
        """Return an empty vector per text."""
        return [()] * len(texts)

    async def embed_query(self, text: str) -> Vector:
        """Refuse: nothing that asks for a query's vector can go on without it."""
        raise EmbeddingFailed("this retriever has no embedding model", {"embedder": self.name})

    async def warm_up(self) -> None:
        """There is nothing to load."""

    async def close(self) -> None:
        """There is nothing to let go of."""
