"""Chunks of a document: sections first, so that an edit moves no boundary beyond the section it was made
in.
"""

import hashlib
import uuid
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final

from services.retriever.chunking.blocks import Block, BlockKind, parse_blocks, split_lines
from services.retriever.chunking.packing import ChunkSizes, Packer, Span
from services.retriever.documents import Document
from services.retriever.tenancy import CollectionRef

# Fixed for good: another namespace would give every stored chunk another id.
_NAMESPACE: Final = uuid.UUID("5f0cf5a4-6c1e-5a0e-9f0e-2b7a4c1d8e63")


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of a document that is embedded and found as one passage.

    `text` is the source's lines `start_line` to `end_line` (1-based, inclusive), or a part of them where a
    line is cut; a part of a long fence or table repeats its opening (and closing) line. `position` counts
    from 0. `content_hash` covers what is embedded: title, heading path and text. `chunk_id` follows from
    tenant, collection, document and content hash, not from the position, so a chunk that merely moves keeps its id
    and its vectors.
    """

    chunk_id: str
    document_id: str
    position: int
    text: str
    heading_path: tuple[str, ...]
    start_line: int
    end_line: int
    has_code: bool
    content_hash: str


@dataclass(frozen=True, slots=True)
class _Section:
    path: tuple[str, ...]
    level: int
    blocks: tuple[Block, ...]


class Chunker:
    """Cuts documents for one set of sizes. Pure and deterministic; time grows linearly with the text."""

    def __init__(self, sizes: ChunkSizes | None = None) -> None:
        self._sizes = sizes or ChunkSizes()

    def chunk(self, collection: CollectionRef, document: Document) -> list[Chunk]:
        """Return the document's chunks in order. A document with text has at least one."""
        lines = split_lines(document.text)
        blocks = parse_blocks(lines, document.body_line - 1) or parse_blocks(lines, 0)
        starts = list(accumulate((len(line) + 1 for line in lines), initial=0))
        packer = Packer(document.text, starts, self._sizes)
        chunks: list[Chunk] = []
        seen: Counter[str] = Counter()
        for section in self._join_small(_sections(blocks), starts):
            for span in packer.pack(section.blocks):
                text = span.render(document.text)
                digest = _content_hash(embedding_text(document.title, section.path, text))
                chunk_id = _chunk_id(collection.namespace, document.document_id, digest, seen[digest])
                seen[digest] += 1
                first, last = _line_range(starts, span)
                where = (document.document_id, len(chunks), text, section.path, first, last)
                chunks.append(Chunk(chunk_id, *where, span.has_code, digest))
        return chunks

    def _join_small(self, sections: Iterator[_Section], starts: Sequence[int]) -> Iterator[_Section]:
        group: _Section | None = None
        for section in sections:
            if group and self._takes_along(group, section, starts):
                group = _Section(_joint_path(group, section), group.level, group.blocks + section.blocks)
                continue
            if group:
                yield group
            group = section
        if group:
            yield group

    def _takes_along(self, group: _Section, section: _Section, starts: Sequence[int]) -> bool:
        if section.level < group.level:
            return False
        if section.level > group.level and all(block.kind is BlockKind.HEADING for block in group.blocks):
            return True
        begin = starts[group.blocks[0].start]
        short = starts[group.blocks[-1].end] - begin < self._sizes.minimum
        return short and starts[section.blocks[-1].end] - begin <= self._sizes.target


def embedding_text(title: str, heading_path: Sequence[str], text: str) -> str:
    """Return what is embedded for a chunk: where it stands (title, headings) and then what it says.

    What the chunk's own first line says already is not said twice.
    """
    first_line = text.split("\n", 1)[0]
    places = [place for place in dict.fromkeys((title, *heading_path)) if place and place not in first_line]
    return " > ".join(places) + "\n" + text if places else text


def _sections(blocks: Sequence[Block]) -> Iterator[_Section]:
    """Divide at the headings. A section knows the headings above it, its own last."""
    trail: list[tuple[int, str]] = []
    gathered: list[Block] = []
    for block in blocks:
        if block.kind is BlockKind.HEADING:
            if gathered:
                yield _section(trail, gathered)
            trail = [entry for entry in trail if entry[0] < block.level] + [(block.level, block.heading)]
            gathered = []
        gathered.append(block)
    if gathered:
        yield _section(trail, gathered)


def _section(trail: Sequence[tuple[int, str]], blocks: Sequence[Block]) -> _Section:
    level = trail[-1][0] if trail else 0
    return _Section(tuple(heading for _, heading in trail if heading), level, tuple(blocks))


def _joint_path(group: _Section, section: _Section) -> tuple[str, ...]:
    shared = []
    for one, other in zip(group.path, section.path, strict=False):
        if one != other:
            break
        shared.append(one)
    return tuple(shared)


def _line_range(starts: Sequence[int], span: Span) -> tuple[int, int]:
    return bisect_right(starts, span.start), bisect_right(starts, span.end - 1)


def _content_hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _chunk_id(namespace: str, document_id: str, content_hash: str, occurrence: int) -> str:
    return str(uuid.uuid5(_NAMESPACE, "\0".join((namespace, document_id, content_hash, str(occurrence)))))
