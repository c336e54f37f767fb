"""Embeddings of an OpenAI-compatible endpoint, through the shared model client."""

from collections.abc import Sequence

from errata_kit.calls import remaining_seconds
from errata_kit.llm.openai_embeddings import OpenAIEmbedder as Client
from services.retriever.embedding.base import Vector


class OpenAIEmbedder:
    """Embeds over HTTP."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.name = client.name
        self.dimensions = client.dimensions

    async def embed_passages(self, texts: Sequence[str]) -> Sequence[Vector]:
        """See `Embedder`."""
        return (await self._client.embed(texts, caller_seconds=remaining_seconds())).vectors

    async def embed_query(self, text: str) -> Vector:
        """See `Embedder`."""
        return (await self.embed_passages([text]))[0]

    async def warm_up(self) -> None:
        """See `ServedEmbedder`."""
        await self._client.warm_up()

    async def close(self) -> None:
        """See `ServedEmbedder`."""
        await self._client.aclose()
