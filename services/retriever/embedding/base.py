"""The protocol of an embedding provider."""

from collections.abc import Sequence
from typing import Protocol

Vector = Sequence[float]


class Embedder(Protocol):
    """Makes dense vectors.

    `name` identifies model and variant; vectors of different names are never compared.
    """

    @property
    def name(self) -> str:
        """Name of the model, as recorded with each collection."""

    @property
    def dimensions(self) -> int:
        """Length of a vector; 0 when the provider makes none."""

    async def embed_passages(self, texts: Sequence[str]) -> Sequence[Vector]:
        """Return one vector per text, in order.

        Raises:
            EmbeddingFailed: the model could not be loaded or reached, or answered with something else.
        """

    async def embed_query(self, text: str) -> Vector:
        """Return the vector of a question. Raises as `embed_passages` does."""


class ServedEmbedder(Embedder, Protocol):
    """An embedder with a life of its own."""

    async def warm_up(self) -> None:
        """Load what the first call would have to wait for."""

    async def close(self) -> None:
        """Let go of threads and connections."""
