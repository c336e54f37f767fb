"""The blocks of a Markdown text, by line: what may be cut, what is better kept whole, and where sections
begin.
"""

import enum
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

# Text of more lines is cut at blank lines only: the parser needs up to 60 microseconds a line on hostile
# input.
MAX_PARSED_LINES: Final = 100_000
_TITLE_WINDOW: Final = 64 * 1024
_ATTRIBUTES: Final = re.compile(r"\s*\{[#.:][^{}]*\}\s*$")
_LINK: Final = re.compile(r"!?\[([^\[\]]*)\]\([^()\s]*\)")
_MARKS: Final = re.compile(r"\*\*|__|`|</?[A-Za-z][^<>]{0,200}>")


class BlockKind(enum.Enum):
    """How a block may be cut: prose between sentences, code and tables between lines, and headings start a
    section.
    """

    HEADING = "heading"
    PROSE = "prose"
    CODE = "code"
    TABLE = "table"


@dataclass(frozen=True, slots=True)
class Block:
    """Lines `start` to `end` (0-based, half-open) that belong together.

    `level` and `heading` are set for headings. `opening` and `closing` are the lines that a part of a cut
    fence or table needs around it to be read on its own.
    """

    kind: BlockKind
    start: int
    end: int
    level: int = 0
    heading: str = ""
    opening: str = ""
    closing: str = ""


def split_lines(text: str) -> list[str]:
    """Split at `\\n` alone, as the line numbers of a document count."""
    return text.split("\n")


def parse_blocks(lines: Sequence[str], first: int) -> list[Block]:
    """Return the blocks of `lines[first:]`, in order and without overlap; together they hold every line not
    blank.
    """
    if len(lines) - first > MAX_PARSED_LINES:
        return _fill_gaps([], lines, first)
    tokens = _parser().parse("\n".join(lines[first:]))
    return _fill_gaps(_leaves(tokens, lines, first), lines, first)


def first_title(text: str, body_line: int) -> str:
    """Return the first level-one heading that stands near the top of the text, or nothing."""
    lines = split_lines(text[:_TITLE_WINDOW])
    headings = (block for block in parse_blocks(lines, body_line - 1) if block.kind is BlockKind.HEADING)
    return next((block.heading for block in headings if block.level == 1 and block.heading), "")


@cache
def _parser() -> "MarkdownIt":
    from markdown_it import MarkdownIt

    parser = MarkdownIt("commonmark", {"maxNesting": 20}).enable("table").disable("reference")
    # The structure of blocks is all that is asked for; inline parsing would take most of the time.
    parser.core.ruler.enableOnly(["normalize", "block"])
    return parser


def _leaves(tokens: "Sequence[Token]", lines: Sequence[str], first: int) -> Iterator[Block]:
    for index, token in enumerate(tokens):
        if token.map is None:
            continue
        start, end = token.map[0] + first, token.map[1] + first
        if token.type == "heading_open" and token.level == 0:
            heading = plain_heading(tokens[index + 1].content)
            yield Block(BlockKind.HEADING, start, end, level=int(token.tag[1:]), heading=heading)
        elif token.type == "fence":
            yield _fence(token, lines, start, end)
        elif token.type == "code_block":
            yield Block(BlockKind.CODE, start, end)
        elif token.type == "table_open":
            head = "\n".join(lines[start : start + 2])
            yield Block(BlockKind.TABLE, start, end, opening=head)
        elif token.type in ("paragraph_open", "html_block", "heading_open", "hr"):
            yield Block(BlockKind.PROSE, start, end)


def _fence(token: "Token", lines: Sequence[str], start: int, end: int) -> Block:
    opening = lines[start]
    # Inside a list item or a quote, the closing fence carries the same indentation or marker as the opening
    # one.
    before = re.sub(r"[^\s>]", " ", opening.split(token.markup, 1)[0])
    return Block(BlockKind.CODE, start, end, opening=opening, closing=before + token.markup)


def _fill_gaps(blocks: Iterable[Block], lines: Sequence[str], first: int) -> list[Block]:
    """Add, as prose, the lines that no leaf covers (empty list items, text past the nesting limit), and trim
    blanks.
    """
    filled: list[Block] = []
    at = first
    for block in blocks:
        start = max(block.start, at)
        end = block.end
        while end > start and not lines[end - 1].strip():
            end -= 1
        if end <= start:
            continue
        filled.extend(_prose_between(lines, at, start))
        filled.append(Block(block.kind, start, end, block.level, block.heading, block.opening, block.closing))
        at = end
    filled.extend(_prose_between(lines, at, len(lines)))
    return filled


def _prose_between(lines: Sequence[str], start: int, end: int) -> Iterator[Block]:
    begun: int | None = None
    for number in range(start, end):
        if lines[number].strip():
            begun = number if begun is None else begun
        elif begun is not None:
            yield Block(BlockKind.PROSE, begun, number)
            begun = None
    if begun is not None:
        yield Block(BlockKind.PROSE, begun, end)


def plain_heading(content: str) -> str:
    """Return a heading's text without links, emphasis, code marks, tags and trailing attributes, on one
    line.
    """
    text = _MARKS.sub("", _LINK.sub(r"\1", _ATTRIBUTES.sub("", content)))
    return " ".join(text.split())[:256]
