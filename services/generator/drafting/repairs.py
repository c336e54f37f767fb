"""Takes out of a draft, or mends in it, what a review's issues point at. Rules, no model."""

import re
from collections.abc import Iterator, Sequence
from typing import Final

from errata_kit.drafts import DraftIssue
from errata_kit.text.sentences import Sentence, split_sentences
from services.generator.drafting.drafts import find_markers
from services.generator.drafting.mending import without_units

PLACEHOLDER: Final = re.compile(
    r"\b(?:TODO|TBD|TBA|FIXME|XXX+)\b|\blorem ipsum\b|\[(?:insert|add|your|placeholder|fill)\b[^\]\n]*\]"
    r"|<(?:insert|your|placeholder)\b[^>\n]*>|\bto be (?:written|added|done|determined|completed|defined)\b|\bcoming soon\b"
    r"|\b(?:more|details) to (?:come|follow)\b",
    re.IGNORECASE,
)
_SAYS_PLACEHOLDER: Final = re.compile(r"placeholder|todo|tbd|fill(?:ed)? in|template text", re.IGNORECASE)
_SAYS_REPEATED: Final = re.compile(
    r"repeat|repetit|duplicat|redundan|twice|more than once|same sentence|already (?:said|stated)", re.IGNORECASE
)
_SAYS_UNFINISHED: Final = re.compile(
    r"unfinished|incomplete|cut off|break(?:s|ing)? off|truncat|not (?:complete|finished|closed)|unclosed|never closed?\b|"
    r"ends? (?:in|with|without|abruptly|mid)|no end\b|dangling|nothing (?:stands|under|below|beneath|follows)|"
    r"empty (?:section|heading|items?)|(?:section|heading)\b.{0,40}\b(?:empty|no text|without (?:text|content))|"
    r"no text under|(?:open|broken) code",
    re.IGNORECASE,
)
_SAYS_UNSUPPORTED: Final = re.compile(
    r"invent|unsupported|made up|fabricat|hallucinat|contradict|wrong|incorrect|otherwise than|not supported|no passage|"
    r"in none of the passages|not (?:in|stand in|occur in|found in) (?:any|the|a) passage",
    re.IGNORECASE,
)
_OFF_TOPIC: Final = re.compile(
    r"off[- ]topic|irrelevant|wander|does not serve|unrelated|beside the point|nothing to do with", re.IGNORECASE
)
_WHOLE_PART: Final = re.compile(r"\b(?:part|paragraph|block)\b.{0,20}\bbegins?\b", re.IGNORECASE)
_EMPTY_ITEM: Final = re.compile(r"^[ \t]*(?:[-*+•]|\d{1,3}[.)])[ \t]*\n?", re.MULTILINE)
_ENDS: Final = re.compile(r"[.!?…。！？:][\"'”’»)\]*_`]*\Z")
_FENCE: Final = re.compile(r"[ \t>]*(`{3,}|~{3,})")


def repaired(draft: str, issues: Sequence[DraftIssue], with_passages: bool) -> str:
    """Return the draft without what the issues found, and otherwise byte for byte as it was.

    Taken out: placeholders; what is said again; what is beside the task; with passages, what they do not support; a last
    sentence that breaks off; headings of nothing. Mended: a code fence that nobody closed. An issue that no rule
    understands changes nothing.
    """
    units = split_sentences(draft)
    gone = {place for issue in issues for place in _found(draft, units, issue, with_passages)}
    text = without_units(draft, units, gone)
    if any(_SAYS_UNFINISHED.search(_words(issue)) for issue in issues):
        text = _finished(text)
    return text


def quoted_units(draft: str, units: Sequence[Sentence], quote: str) -> set[int]:
    """The places of the units in which a quote stands, blanks aside. Empty when it stands nowhere."""
    pattern = r"\s+".join(re.escape(word) for word in quote.split())
    found = re.search(pattern, draft) if pattern else None
    if found is None:
        return set()
    return {place for place, unit in enumerate(units) if unit.start < found.end() and found.start() < unit.end}


def _found(draft: str, units: Sequence[Sentence], issue: DraftIssue, with_passages: bool) -> Iterator[int]:
    quoted = quoted_units(draft, units, issue.quote)
    words = _words(issue)
    marked = {place for place, unit in enumerate(units) if unit.kind != "code" and PLACEHOLDER.search(unit.text)}
    yield from (place for place in quoted if place in marked)
    if _SAYS_PLACEHOLDER.search(issue.description) and not quoted:
        yield from marked
    if _SAYS_REPEATED.search(words):
        yield from _repeated(units, quoted)
    elif issue.criterion == "relevance" or _OFF_TOPIC.search(words) or (with_passages and _SAYS_UNSUPPORTED.search(words)):
        yield from _whole_part(draft, units, quoted) if _WHOLE_PART.search(words) else quoted


def _whole_part(draft: str, units: Sequence[Sentence], begins: set[int]) -> set[int]:
    """The units from those at which a part begins to the blank line behind it."""
    found = set(begins)
    place = max(found, default=len(units))
    while place + 1 < len(units) and "\n\n" not in draft[units[place].end : units[place + 1].start]:
        place += 1
        found.add(place)
    return found


def _words(issue: DraftIssue) -> str:
    # What a criterion is called says what its issues are about, also when their description is short.
    return f"{issue.criterion.replace('_', ' ')}: {issue.description}".removeprefix("completeness: ")


def _repeated(units: Sequence[Sentence], quoted: set[int]) -> Iterator[int]:
    """Every unit but the first of those that say the same; of all of them when nothing is quoted."""
    wanted = {_said(units[place]) for place in quoted} or {_said(unit) for unit in units}
    seen: set[str] = set()
    for place, unit in enumerate(units):
        said = _said(unit)
        if unit.kind in ("prose", "list") and said in wanted:
            if said in seen:
                yield place
            seen.add(said)


def _said(unit: Sentence) -> str:
    words = unit.text
    for marker in reversed(list(find_markers(words))):
        words = words[: marker.start()] + words[marker.end() :]
    return " ".join(words.casefold().split())


def _finished(draft: str) -> str:
    """The draft with its last fence closed, without a last sentence that breaks off, and without headings of nothing."""
    draft = _without_empty_items(draft)
    units = split_sentences(draft)
    if not units:
        return draft
    last = units[-1]
    if last.kind == "code" and (fence := _FENCE.match(last.text)) and not _is_closed(last.text, fence[1]):
        if len(last.text.splitlines()) > 1:
            return f"{draft.rstrip()}\n{fence[1]}"
        return without_units(draft, units, {len(units) - 1})
    gone = set(_bare_headings(draft, units))
    if last.kind in ("prose", "list") and not _ENDS.search(last.text) and len(units) > 1 and _breaks_off(units):
        gone.add(len(units) - 1)
    return without_units(draft, units, gone)


def _without_empty_items(draft: str) -> str:
    code = [unit for unit in split_sentences(draft) if unit.kind == "code"]
    for item in reversed(list(_EMPTY_ITEM.finditer(draft))):
        alone = draft[item.start() : item.end()].endswith("\n") or item.end() == len(draft)
        if alone and not any(unit.start <= item.start() < unit.end for unit in code):
            draft = draft[: item.start()] + draft[item.end() :]
    return draft


def _is_closed(code: str, mark: str) -> bool:
    lines = code.splitlines()
    return len(lines) > 1 and lines[-1].strip(" \t>").startswith(mark) and not lines[-1].strip(f" \t>{mark[0]}")


def _breaks_off(units: Sequence[Sentence]) -> bool:
    """Whether the last unit lacks the full stop that its fellows have: items of a list may all be without."""
    last = units[-1]
    fellows = [unit for unit in units[:-1] if unit.kind == last.kind]
    return last.kind == "prose" or any(_ENDS.search(unit.text) for unit in fellows)


def _bare_headings(draft: str, units: Sequence[Sentence]) -> Iterator[int]:
    """Headings under which nothing stands before the next one of their level or above, or the end."""
    below: Sentence | None = None
    for place in range(len(units) - 1, -1, -1):
        unit = units[place]
        if unit.kind == "heading" and (
            below is None or (below.kind == "heading" and _level(draft, below) <= _level(draft, unit))
        ):
            yield place
        else:
            below = unit


def _level(draft: str, heading: Sentence) -> int:
    return draft[draft.rfind("\n", 0, heading.start) + 1 : heading.start].count("#")
