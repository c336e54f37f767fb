"""A passage as the engine's payload, and back. Both implementations store the same form.

Beside `metadata`, values that read as numbers or times are stored once more under `numbers` and `times`,
because the engine compares values by type. Paths quote the key, which may contain dots.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

from errata_kit.access.principals import DEFAULT_TENANT
from errata_kit.search import METADATA_KEY, AllOf, AnyOf, Equals, Exists, Filter, Range, as_number, as_time, metadata_key
from services.retriever.chunking.chunker import Chunk
from services.retriever.index.base import DocumentSummary, Passage

DENSE: Final = "dense"
SPARSE: Final = "sparse"
FINGERPRINT: Final = "fingerprint"
# Whose the point is. No filter of a caller can name it: theirs name `metadata.tenant`, which is another path.
TENANT: Final = "tenant"
# `has_code` is a keyword, true or false: the embedded engine's binding takes a boolean for the number 1.
KEYWORD_FIELDS: Final = ("document_id", "title", "source_uri", "has_code")
INTEGER_FIELD: Final = "position"
# Kinds: keyword, integer, float, datetime, and tenant, a keyword by which a server may group what it stores.
FIELD_INDEXES: Final = {**dict.fromkeys(KEYWORD_FIELDS, "keyword"), INTEGER_FIELD: "integer", TENANT: "tenant"}
SUMMARY_FIELDS: Final = ["document_id", "title", "source_uri", "metadata"]
# Keys that get a payload index, per collection; a filter on further ones works, by reading every passage.
MAX_INDEXED_KEYS: Final = 64

# The engine's own form of a payload: JSON.
Payload = dict[str, Any]


def to_payload(passage: Passage, tenant: str) -> Payload:
    """Return the payload of a tenant's passage, fingerprint included."""
    payload = _payload(passage)
    return payload | {FINGERPRINT: _fingerprint(payload), TENANT: tenant}


def _payload(passage: Passage) -> Payload:
    chunk = passage.chunk
    metadata = dict(passage.metadata)
    numbers = {key: as_number(value) for key, value in metadata.items()}
    times = {key: as_time(value) for key, value in metadata.items()}
    return {
        "document_id": chunk.document_id,
        "title": passage.title,
        "source_uri": passage.source_uri,
        "position": chunk.position,
        "text": chunk.text,
        "heading_path": list(chunk.heading_path),
        "start_line": chunk.start_line,
        "end_line": chunk.end_line,
        "has_code": "true" if chunk.has_code else "false",
        "content_hash": chunk.content_hash,
        "metadata": metadata,
        "numbers": {key: number for key, number in numbers.items() if number is not None},
        "times": {key: time.isoformat() for key, time in times.items() if time is not None},
    }


def of_tenant(tenant: str, *conditions: Filter) -> AllOf:
    """Return the filter that lets through the tenant's own points, where `conditions` hold as well.

    Points that were stored before there were tenants say nothing, and belong to the default tenant alone.
    """
    own = Equals(TENANT, tenant)
    mine = AnyOf((own, Exists(TENANT, False))) if tenant == DEFAULT_TENANT else own
    return AllOf((mine, *conditions))


def from_payload(chunk_id: str, payload: Mapping[str, Any]) -> Passage:
    """Return the passage that a payload describes."""
    chunk = Chunk(
        chunk_id=chunk_id,
        document_id=payload["document_id"],
        position=int(payload["position"]),
        text=payload["text"],
        heading_path=tuple(payload["heading_path"]),
        start_line=int(payload["start_line"]),
        end_line=int(payload["end_line"]),
        has_code=payload["has_code"] == "true",
        content_hash=payload["content_hash"],
    )
    return Passage(chunk, payload["title"], payload["source_uri"], dict(payload["metadata"]))


def fingerprint(passage: Passage) -> str:
    """Return a hash of all that is stored of a passage beside its vectors and tenant: equal ones need no writing."""
    return _fingerprint(_payload(passage))


def summarise(document_id: str, passages: int, payload: Mapping[str, Any]) -> DocumentSummary:
    """Return what a document's first passage says about it."""
    title, uri = payload.get("title", ""), payload.get("source_uri", "")
    return DocumentSummary(document_id, title, uri, dict(payload.get("metadata", {})), passages)


def field_path(field: str) -> str:
    """Return the payload path of a filter's field."""
    key = metadata_key(field)
    return field if key is None else _quoted("metadata", key)


def range_path(condition: Range) -> str:
    """Return the payload path on which a range is compared."""
    return _quoted("times" if condition.is_time else "numbers", metadata_key(condition.field) or "")


def metadata_indexes(passages: Iterable[Passage]) -> dict[str, str]:
    """Return the payload indexes, path to kind (keyword, float, datetime), that these passages' metadata
    calls for.
    """
    indexes: dict[str, str] = {}
    for passage in passages:
        for key, value in passage.metadata.items():
            if not METADATA_KEY.fullmatch(key):
                # No filter can name it, and a quote in it would end the path.
                continue
            indexes[_quoted("metadata", key)] = "keyword"
            if as_number(value) is not None:
                indexes[_quoted("numbers", key)] = "float"
            if as_time(value) is not None:
                indexes[_quoted("times", key)] = "datetime"
    return indexes


def missing_indexes(passages: Iterable[Passage], present: Iterable[str]) -> dict[str, str]:
    """Return the indexes still to make, none for keys beyond the limit."""
    known = set(present)
    room = MAX_INDEXED_KEYS - sum(path.startswith("metadata.") for path in known)
    missing = {path: kind for path, kind in metadata_indexes(passages).items() if path not in known}
    allowed: dict[str, str] = {}
    for path, kind in missing.items():
        if kind == "keyword":
            if room <= 0:
                continue
            room -= 1
        elif _quoted("metadata", path.split('"')[1]) not in known | allowed.keys():
            continue
        allowed[path] = kind
    return allowed


def _quoted(parent: str, key: str) -> str:
    return f'{parent}."{key}"'


def _fingerprint(payload: Payload) -> str:
    text = json.dumps(payload, sort_keys=True, ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:32]
