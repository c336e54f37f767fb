"""The retriever: documents in, passages out. The only service that knows Qdrant and an embedding model."""
