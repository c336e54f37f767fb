"""Places that a writer meant to fill later: TODO, "lorem ipsum", "[insert name]", a line of dots."""

import re
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

_FENCE: Final = re.compile(r"[ \t>]{0,12}(`{3,}|~{3,})")
_CODE_SPAN: Final = re.compile(r"`[^`\n]+`")
_MARKER: Final = r"(?:TODO|TBD|TBC|FIXME|XXX|TKTK)"
# Nothing but a marker, behind a list or comment sign and emphasis, or a note ("TODO: say why"): such a line goes as a whole.
# Words right behind a marker ("TODO It also …") stay, and a heading stays a heading, so that no fault of theirs vanishes too.
_MARKED_LINE: Final = re.compile(
    rf"[ \t]{{0,24}}(?:(?:[-*+>]|//|<!--|\d{{1,3}}[.)])[ \t]*)?[*_\[(]{{0,3}}{_MARKER}\b[*_]{{0,3}}(?:\([^()\n]{{0,40}}\))?"
    r"(?:[ \t]*:.*|[*_\])!. \t]*(?:-->)?[ \t]*)"
)
# Inside a line, a note runs to the line's end.
_INLINE_MARKER: Final = re.compile(rf"(?:(?<=\w)[ \t]+)?[\[(]?\b{_MARKER}\b(?::.*|[\])]?)")
_LOREM: Final = re.compile(r"\blorem ipsum\b", re.I)
_EMPTY_LINE: Final = re.compile(
    r"[ \t]{0,24}(?:(?:[-*+]|\d{1,3}[.)])[ \t]+)?"
    r"(?:\.{2,}|…{1,9}|\?{2,}|[\[(][ ]?(?:\.{3}|…)[ ]?[\])]"
    r"|[\[(]?to be (?:continued|written|added|completed|determined)[.)\]]{0,4})"
    r"[ \t]*",
    re.I,
)
_BRACKETED: Final = re.compile(
    r"(?:(?<=\w)[ \t]+)?(?:\[(?:insert|add|fill in|placeholder|describe|write|replace|your|to be|more)\b"
    r"[^\[\]\n]{0,120}\](?!\()"
    r"|<(?:insert|placeholder|fill in)\b[^<>\n]{0,120}>"
    r"|\{\{ ?(?:insert|placeholder|fill in)\b[^{}\n]{0,120}\}\}"
    r"|\((?:(?:insert|add)\b[^()\n]{0,120}\bhere|to be (?:written|added|completed|determined))\))",
    re.I,
)
_GOES_HERE: Final = re.compile(
    r"(?:(?<=\w)[ \t]+)?\b(?:coming soon"
    r"|(?:text|content|details?|examples?|description|explanation) (?:goes|go|will go|to come|to follow) here)\b",
    re.I,
)
_INSERT: Final = re.compile(r"(?:(?<=\w)[ \t]+)?(?:\[insert\b[^\[\]\n]{0,120}\]|<insert\b[^<>\n]{0,120}>)", re.I)
_INLINE: Final = (_INLINE_MARKER, _BRACKETED, _GOES_HERE)
_IN_CODE: Final = (_INLINE_MARKER, _INSERT)


@dataclass(frozen=True, slots=True)
class WithoutPlaceholders:
    """A text with its placeholders taken out, and the placeholders as they stood in it, in order."""

    text: str
    placeholders: tuple[str, ...]


def without_placeholders(text: str, task: str) -> WithoutPlaceholders:
    """Take the placeholders out, so that what is measured besides is the same with and without them.

    Words in code spans are mentions, not placeholders; in code blocks only markers such as TODO and "[insert …]" count. A task
    that is itself about such a word ("write about TODO comments") may use it. Linear in the text's length.
    """
    mentioned = task.lower()
    kept: list[str] = []
    found: list[str] = []
    fence = ""
    for line in text.split("\n"):
        turned = fence_behind(line, fence)
        if turned is not None:
            fence = turned
            kept.append(line)
            continue
        rest, taken = _without(line, bool(fence), mentioned)
        found.extend(taken)
        # A line that held nothing else goes with its line break.
        if rest.strip() or not taken:
            kept.append(rest)
    # Blank lines are evened out in any case, so that nothing but the placeholders tells the two texts apart.
    return WithoutPlaceholders("\n".join(_without_doubled_blanks(kept)), tuple(found))


def fence_behind(line: str, fence: str) -> str | None:
    """The fence that is open behind a line that opens or closes a code block, "" for none; None for any other line.

    fence: what is open before it. Only a fence as long, with nothing behind it, closes a block.
    """
    mark = _FENCE.match(line)
    if mark is None:
        return None
    if not fence:
        return mark[1]
    return "" if mark[1].startswith(fence) and not line[mark.end() :].strip() else None


def _without(line: str, in_code: bool, mentioned: str) -> tuple[str, list[str]]:
    if _MARKED_LINE.fullmatch(line) and not _is_mentioned(line, mentioned):
        return "", [line.strip()]
    if not in_code and _EMPTY_LINE.fullmatch(line):
        return "", [line.strip()]
    if not in_code and _LOREM.search(line) and "lorem" not in mentioned:
        return "", [line.strip()]
    spans = [] if in_code else [match.span() for match in _CODE_SPAN.finditer(line)]
    taken = []
    for pattern in _IN_CODE if in_code else _INLINE:
        for match in pattern.finditer(line):
            inside = any(start <= match.start() < end for start, end in spans)
            if not inside and not _is_mentioned(match[0], mentioned):
                taken.append(match.span())
    return _cut(line, taken)


def _is_mentioned(found: str, mentioned: str) -> bool:
    marker = re.search(_MARKER, found)
    return marker is not None and marker[0].lower() in mentioned


def _cut(line: str, spans: list[tuple[int, int]]) -> tuple[str, list[str]]:
    """The line without the spans, and what stood there; a span that overlaps an earlier one is part of it."""
    rest, taken, position = "", [], 0
    for start, end in sorted(spans):
        if start >= position:
            rest += line[position:start]
            taken.append(line[start:end].strip())
        position = max(position, end)
    return rest + line[position:], taken


def _without_doubled_blanks(lines: list[str]) -> list[str]:
    """A paragraph taken out leaves two blank lines where one was."""
    first = [line for line in lines[:1] if line.strip()]
    kept = [line for before, line in pairwise(lines) if before.strip() or line.strip()]
    while kept and not kept[-1].strip():
        kept.pop()
    return first + kept
