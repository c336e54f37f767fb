"""Documents as they arrive, and what reading one yields: text with known line numbers, a title and its
metadata.
"""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Final

from errata_kit.errors import DocumentRejected

MAX_DOCUMENT_BYTES: Final = 4 * 1024 * 1024
# YAML is read by a slow parser that expands aliases: no honest front matter comes near this.
MAX_FRONT_MATTER_CHARACTERS: Final = 64 * 1024
# At most 1 KiB of UTF-8, the bound of a passage's title.
MAX_TITLE_CHARACTERS: Final = 256
_OPENING_LINE: Final = 100
_NEWLINES: Final = re.compile(r"\r\n?")
_FILE_SUFFIX: Final = re.compile(r"\.[A-Za-z][A-Za-z0-9]{0,7}$")


@dataclass(frozen=True, slots=True)
class SourceDocument:
    """A document as the caller sent it.

    `document_id` identifies it in its collection; `content` is UTF-8 Markdown.
    """

    document_id: str
    content: bytes
    title: str = ""
    metadata: Mapping[str, str] = field(default_factory=dict)
    source_uri: str = ""


@dataclass(frozen=True, slots=True)
class Document:
    """A document that was read.

    `text` is the whole document, front matter included, with `\\n` as its only line end and no byte order
    mark, so that its line numbers are those of the source. `body_line` is the 1-based line on which the
    content starts, after the front matter. `title` is empty when nothing names the document.
    """

    document_id: str
    title: str
    text: str
    metadata: Mapping[str, str] = field(default_factory=dict)
    source_uri: str = ""
    body_line: int = 1

    @property
    def content_hash(self) -> str:
        """SHA-256 of the text, in hexadecimal."""
        return hashlib.sha256(self.text.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class FrontMatter:
    """The YAML block at a document's top: its scalar entries, and the 1-based line after its closing
    fence.
    """

    values: Mapping[str, str]
    body_line: int


def read_document(source: SourceDocument) -> Document:
    """Read a document, or say why it cannot be indexed.

    The title is the caller's, else the front matter's `title`, else the first level-one heading, else the
    file name, else (for text that came without any name) an opening line that reads like a title.

    Raises:
        DocumentRejected: it is empty, binary (has NUL), not UTF-8, or larger than `MAX_DOCUMENT_BYTES`.
    """
    text = _decode(source)
    front_matter = parse_front_matter(text)
    return Document(
        document_id=source.document_id,
        title=_title(source, text, front_matter)[:MAX_TITLE_CHARACTERS],
        text=text,
        metadata=dict(source.metadata),
        source_uri=source.source_uri,
        body_line=front_matter.body_line,
    )


def parse_front_matter(text: str) -> FrontMatter:
    """Parse the YAML front matter of a text whose line ends are `\\n`.

    One that is broken counts as ordinary text.
    """
    absent = FrontMatter({}, 1)
    if not text.startswith("---\n"):
        return absent
    head = text[: MAX_FRONT_MATTER_CHARACTERS + 8].split("\n")
    close = next((number for number, line in enumerate(head[1:], 1) if line.rstrip() in ("---", "...")), None)
    if close is None:
        return absent
    values = _safe_yaml("\n".join(head[1:close]))
    return absent if values is None else FrontMatter(values, close + 2)


def file_title(name: str) -> str:
    """Return a file name without folders and suffix, or nothing where `name` does not look like a file's."""
    last = PurePosixPath(name.split("?")[0].split("#")[0]).name
    return _FILE_SUFFIX.sub("", last) if _FILE_SUFFIX.search(last) else ""


def _decode(source: SourceDocument) -> str:
    if len(source.content) > MAX_DOCUMENT_BYTES:
        raise _rejected(source, "TOO_LARGE", f"is {len(source.content)} bytes; the limit is {MAX_DOCUMENT_BYTES}")
    if b"\0" in source.content:
        raise _rejected(source, "BINARY", "is binary: it contains NUL bytes")
    try:
        text = source.content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise _rejected(source, "NOT_UTF8", f"is not UTF-8: byte {error.start} cannot be decoded") from None
    if not text.strip():
        raise _rejected(source, "EMPTY", "is empty")
    return _NEWLINES.sub("\n", text)


def _rejected(source: SourceDocument, cause: str, why: str) -> DocumentRejected:
    name = source.source_uri or source.document_id
    return DocumentRejected(f"document {name!r} {why}", {"document_id": source.document_id, "cause": cause})


def _safe_yaml(block: str) -> Mapping[str, str] | None:
    import yaml

    try:
        loaded = yaml.load(block, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506 - both loaders are safe ones
        return _values(loaded)
    except (yaml.YAMLError, ValueError, OverflowError, RecursionError, TypeError, AttributeError):
        # PyYAML lets errors of its value constructors through: a date of month 13 is a ValueError, and so is a number of
        # thousands of digits that is to be shown.
        return None


def _values(loaded: object) -> Mapping[str, str] | None:
    if loaded is None:
        return {}
    if not isinstance(loaded, dict):
        return None
    return {str(key): str(value) for key, value in loaded.items() if isinstance(value, str | int | float)}


def _title(source: SourceDocument, text: str, front_matter: FrontMatter) -> str:
    from services.retriever.chunking.blocks import first_title

    return (
        " ".join(source.title.split())
        or " ".join(front_matter.values.get("title", "").split())
        or first_title(text, front_matter.body_line)
        or file_title(source.source_uri or source.document_id)
        or _opening_line(text)
    )


def _opening_line(text: str) -> str:
    """Return the first line if it is short, ends like no sentence, and more text follows it."""
    first, _, rest = text.strip()[: 4 * _OPENING_LINE].partition("\n")
    first = first.strip()
    reads_like_title = len(first) <= _OPENING_LINE and first[-1:].isalnum() | first.endswith(")") and first[:1].isalnum()
    return first if reads_like_title and rest.strip() else ""
