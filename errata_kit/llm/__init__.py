"""Clients of language and embedding models; importing this package loads no model library."""
