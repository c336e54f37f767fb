"""Cuts Markdown into chunks: `Chunker` is the way in, `blocks` finds the structure and `packing` fills the
chunks.
"""

from services.retriever.chunking.chunker import Chunk, Chunker
from services.retriever.chunking.packing import ChunkSizes

__all__ = ["Chunk", "ChunkSizes", "Chunker"]
