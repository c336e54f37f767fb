"""Passages and answers, as every service sees them."""

from collections.abc import Mapping
from dataclasses import field
from typing import Annotated

from pydantic import Field
from pydantic.dataclasses import dataclass

from errata_kit.bounds import KIB, utf8_at_most

MetadataField = Annotated[Mapping[Annotated[str, utf8_at_most(KIB)], Annotated[str, utf8_at_most(KIB)]], Field(max_length=64)]


@dataclass(frozen=True, slots=True)
class Passage:
    """A piece of a document. Lines count from 1, inclusive; 0 means unknown. The text is never trusted."""

    passage_id: Annotated[str, Field(min_length=1), utf8_at_most(128)]
    text: Annotated[str, Field(min_length=1), utf8_at_most(16 * KIB)]
    title: Annotated[str, utf8_at_most(KIB)] = ""
    heading_path: Annotated[tuple[Annotated[str, utf8_at_most(512)], ...], Field(max_length=16)] = ()
    document_id: Annotated[str, utf8_at_most(512)] = ""
    start_line: Annotated[int, Field(ge=0)] = 0
    end_line: Annotated[int, Field(ge=0)] = 0
    has_code: bool = False
    source_uri: Annotated[str, utf8_at_most(2 * KIB)] = ""
    metadata: MetadataField = field(default_factory=dict)

    def under_headings(self) -> str:
        """The text with its title and headings above it, as a model reads it."""
        heading = " > ".join(dict.fromkeys(part for part in (self.title, *self.heading_path) if part))
        return f"{heading}\n\n{self.text}" if heading else self.text


@dataclass(frozen=True, slots=True)
class Span:
    """Half-open range of UTF-8 bytes in a text."""

    start: Annotated[int, Field(ge=0)]
    end: Annotated[int, Field(ge=0)]


@dataclass(frozen=True, slots=True)
class Citation:
    """The mark [number] in an answer, the passage it stands for, and the part of the answer that it backs, mark left out."""

    number: int
    passage_id: str
    span: Span


@dataclass(frozen=True, slots=True)
class Answer:
    """A text with its citations. refusal: the fixed text of a refusal, for which no model was asked."""

    text: str
    citations: tuple[Citation, ...] = ()
    model: str = ""
    refusal: bool = False


@dataclass(frozen=True, slots=True)
class Draft:
    """A longer text that a compose run works on. model is empty when it came with the request."""

    text: str
    citations: tuple[Citation, ...] = ()
    model: str = ""


def different_ids(passages: tuple[Passage, ...]) -> tuple[Passage, ...]:
    """The passages, when no two have the same passage_id; ValueError otherwise."""
    if len({passage.passage_id for passage in passages}) != len(passages):
        raise ValueError("must have different passage_ids")
    return passages
