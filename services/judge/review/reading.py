"""A draft, read once: its lines, its sentences, its size, and what is left of it without placeholders."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, Literal

from errata_kit.text.sentences import Sentence, split_sentences
from services.judge.claims.splitting import plain_text
from services.judge.review.placeholders import fence_behind, without_placeholders

LineKind = Literal["text", "heading", "item", "table", "blank", "code", "fence"]

_HEADING: Final = re.compile(r"[ ]{0,3}(#{1,6})(?:[ \t]|$)")
_ITEM: Final = re.compile(r"[ \t>]{0,24}(?:[-*+•]|\d{1,3}[.)])(?:[ \t]|$)")
_TABLE: Final = re.compile(r"[ \t]{0,12}\|")
_RULE: Final = re.compile(r"[ ]{0,3}(?:[-*_][ \t]*){3,}")
_WORD: Final = re.compile(r"[^\W_]+(?:[_.'’\-/][^\W_]+)*")


@dataclass(frozen=True, slots=True)
class Line:
    """A line without its break. level: of a heading, 1–6."""

    text: str
    kind: LineKind
    level: int = 0


@dataclass(frozen=True, slots=True)
class Reading:
    """What rules and measures look at. text is the draft without its placeholders; words leaves code blocks out."""

    text: str
    placeholders: tuple[str, ...]
    lines: tuple[Line, ...]
    fence_left_open: bool
    units: tuple[Sentence, ...]
    words: int

    @property
    def sentences(self) -> tuple[Sentence, ...]:
        """The sentences of prose and list items."""
        return tuple(unit for unit in self.units if unit.kind in ("prose", "list"))

    @property
    def code_lines(self) -> int:
        """Lines inside code blocks."""
        return sum(line.kind == "code" for line in self.lines)

    @property
    def paragraphs(self) -> int:
        """Blocks of prose, parted by blank lines or by other kinds of lines."""
        kinds = ["blank", *(line.kind for line in self.lines)]
        return sum(kind == "text" and before != "text" for before, kind in pairwise(kinds))


def read_draft(draft: str, task: str) -> Reading:
    """Read a draft. The task tells which words are its subject rather than placeholders. Linear in both lengths."""
    cleared = without_placeholders(draft, task)
    lines, left_open = _lines(cleared.text)
    units = split_sentences(cleared.text)
    words = sum(count_words(plain_text(unit.text)) for unit in units if unit.kind != "code")
    return Reading(cleared.text, cleared.placeholders, lines, left_open, units, words)


def count_words(text: str) -> int:
    """How many words a text has; names with joints inside count once."""
    return sum(1 for _ in _WORD.finditer(text))


def _lines(text: str) -> tuple[tuple[Line, ...], bool]:
    fence = ""
    found: list[Line] = []
    for line in text.split("\n"):
        turned = fence_behind(line, fence)
        if turned is not None:
            fence = turned
            found.append(Line(line, "fence"))
        else:
            found.extend(_line(line, bool(fence)))
    return tuple(found), bool(fence)


def _line(line: str, in_code: bool) -> Iterator[Line]:
    if in_code:
        yield Line(line, "code")
    elif not line.strip() or _RULE.fullmatch(line):
        yield Line(line, "blank")
    elif heading := _HEADING.match(line):
        yield Line(line, "heading", len(heading[1]))
    elif _ITEM.match(line):
        yield Line(line, "item")
    else:
        yield Line(line, "table" if _TABLE.match(line) else "text")
