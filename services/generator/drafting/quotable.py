"""What of a passage can be quoted in an answer: whole sentences, whole lists and whole code blocks that read
by themselves.
"""

import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, Literal

from errata_kit.text.sentences import Sentence, split_sentences

QuoteKind = Literal["sentence", "list", "code"]

_SHORTEST: Final = 20
_LONGEST_SENTENCE: Final = 420
_LONGEST_BLOCK: Final = 1200
_MOST_ITEMS: Final = 12
# How many sentences after a question still count as its answer.
_ANSWERS_WITHIN: Final = 2
_ITEM: Final = re.compile(r"(?P<indent>[ \t]*)(?P<marker>[-*+]|\d{1,3}[.)])[ \t]+(?=\S)")
_ENDS: Final = re.compile(r"[.!。！][\"'”’»)*_`]*\Z")
_FRONT_MATTER: Final = re.compile(r"\A---\n.*?\n---\n", re.DOTALL)
# HTML, images, template holes, footnotes, and citations of another text: none reads well, or truly, inside an
# answer. Escapes, brackets in a row and comment signs are the traces of code or data that a chunk's edge has
# cut open.
_UNREADABLE: Final = re.compile(
    r"</?[A-Za-z][^>]*>|<!--|!\[|\{\{|\{%|\[\^|\|.*\|"
    r"|(?<![\w\])])\[\d{1,3}(?:\s*,\s*\d{1,3})*\](?!\()"
    r"|\\[nt\"]|[\])}]\s*,\s*[\[({]|\s#\s|\w\(\)?\s*\{|[\[{]\s*$|^[\])}]"
)
_OPENING: Final = re.compile(r"[\"'“‘*_`(\[]*[A-Z0-9`À-ÖØ-Þ]|[\"'“‘*_`(\[]*[a-z]+[A-Z_]\w*|[\"'“‘*_]*[^\x00-\x7f]")
_LEADS_TO_BLOCK: Final = re.compile(r":[*_]*\Z|\b(?:following|below|as follows|steps|example|command|run)\b", re.IGNORECASE)
_PAIRS: Final = (("(", ")"), ("[", "]"), ("“", "”"))


@dataclass(frozen=True, slots=True)
class Quote:
    """A part of a passage that can stand in an answer.

    `start` and `end` are character offsets in the passage. `lead` is the sentence that introduces a list or
    code block, "" for a sentence; `answers` is the question that its document asks just before it, if any;
    `lines` are a list's items with their markers, a code block's whole fence, or the sentence alone.
    """

    kind: QuoteKind
    lead: str
    lines: tuple[str, ...]
    start: int
    end: int
    answers: str = ""

    @property
    def text(self) -> str:
        """The quoted words."""
        return "\n".join((*((self.lead,) if self.lead else ()), *self.lines))

    @property
    def compared(self) -> str:
        """The words to compare with a question: the quoted ones, after the question that they answer in their
        document.
        """
        return f"{self.answers} {self.text}" if self.answers else self.text


def quotes(text: str, whole: bool = True, any_lead: bool = False) -> tuple[Quote, ...]:
    """Return what can be quoted of a passage's text, in order; no two overlap.

    `whole` asks for complete sentences; without it any readable line will do, for passages that hold nothing
    better. `any_lead` also takes code that no sentence announces, with an
    empty lead: it needs a heading or text above it.
    """
    matter = _FRONT_MATTER.match(text)
    begin = matter.end() if matter else 0
    units = [unit for unit in split_sentences(text) if unit.start >= begin]
    found = _apart([*_code_blocks(text, units, any_lead), *_lists(text, units)])
    taken = [(quote.start, quote.end) for quote in found]
    asked, since = "", 0
    for unit in units:
        words = _one_line(unit.text)
        if words.endswith("?"):
            asked, since = words, 0
        elif unit.kind in ("prose", "list") and not any(start <= unit.start < end for start, end in taken):
            since += 1
            if is_whole_sentence(words) or (not whole and _is_readable(words)):
                answers = asked if since <= _ANSWERS_WITHIN and len(asked) <= _LONGEST_SENTENCE else ""
                found.append(Quote("sentence", "", (words,), unit.start, unit.end, answers))
        elif unit.kind == "heading":
            asked = ""
    return tuple(sorted(found, key=lambda quote: quote.start))


def _apart(blocks: list[Quote]) -> list[Quote]:
    """Keep the first of blocks that overlap: a list's last item may introduce a code block."""
    kept: list[Quote] = []
    for block in sorted(blocks, key=lambda quote: quote.start):
        if not kept or block.start >= kept[-1].end:
            kept.append(block)
    return kept


def _is_readable(words: str) -> bool:
    if not (words[0].isalnum() or words[0] in "\"'“‘(`"):
        return False
    return _SHORTEST <= len(words) <= _LONGEST_SENTENCE and len(words.split()) > 2 and _reads_well(words)


def is_whole_sentence(sentence: str) -> bool:
    """Whether a sentence reads by itself: begins and ends as one, and holds no broken or foreign markup."""
    fits = _SHORTEST <= len(sentence) <= _LONGEST_SENTENCE
    return fits and bool(_OPENING.match(sentence)) and bool(_ENDS.search(sentence)) and _reads_well(sentence)


def _reads_well(words: str) -> bool:
    balanced = all(words.count(left) == words.count(right) for left, right in _PAIRS)
    return (
        balanced
        and words.count("`") % 2 == 0
        and words.count("**") % 2 == 0
        and words.count('"') % 2 == 0
        and not _UNREADABLE.search(words)
    )


def _one_line(words: str) -> str:
    """Join wrapped lines: in Markdown a line break inside a paragraph is a blank."""
    return " ".join(words.split())


def _code_blocks(text: str, units: list[Sentence], any_lead: bool) -> Iterator[Quote]:
    for before, unit in itertools.pairwise(units):
        if unit.kind != "code" or text[before.end : unit.start].strip():
            continue
        lead = _one_line(before.text) if before.kind in ("prose", "list") else ""
        lines = unit.text.splitlines()
        closed = len(lines) > 2 and lines[-1].strip()[:3] in ("```", "~~~")
        indented = unit.start > 0 and text[unit.start - 1] not in "\n"
        if not closed or indented or len(unit.text) > _LONGEST_BLOCK:
            continue
        if lead and _introduces(lead):
            yield Quote("code", lead, (unit.text,), before.start, unit.end)
        elif any_lead:
            yield Quote("code", "", (unit.text,), unit.start, unit.end)


def _introduces(lead: str) -> bool:
    begins = bool(_OPENING.match(lead)) and _SHORTEST // 2 <= len(lead) <= _LONGEST_SENTENCE
    return (
        begins
        and bool(_LEADS_TO_BLOCK.search(lead))
        and (lead.rstrip("*_").endswith(":") or bool(_ENDS.search(lead)))
        and _reads_well(lead)
    )


def _lists(text: str, units: list[Sentence]) -> Iterator[Quote]:
    """Yield each flat list that a sentence introduces. Nested, broken and endless lists are left to their
    sentences.
    """
    by_end = {unit.end: unit for unit in units if unit.kind == "prose"}
    for start, end, items in _item_runs(text):
        lead_end = len(text[:start].rstrip())
        lead = by_end.get(lead_end)
        if lead is None or not 2 <= len(items) <= _MOST_ITEMS or end - start > _LONGEST_BLOCK:
            continue
        words = _one_line(lead.text)
        if words.rstrip("*_").endswith(":") and _introduces(words) and all(map(_reads_well, items)):
            yield Quote("list", words, tuple(items), lead.start, end)


@dataclass(slots=True)
class _Run:
    start: int
    indent: str
    end: int = 0
    flat: bool = True
    items: list[str] = field(default_factory=list)


def _item_runs(text: str) -> Iterator[tuple[int, int, list[str]]]:
    """Yield the runs of items at one indentation, each with its span and its items on one line each."""
    run: _Run | None = None
    position, fenced = 0, False
    for line in [*text.splitlines(keepends=True), "\n", "#\n"]:
        begin, position = position, position + len(line)
        words, fence = line.strip(), line.lstrip().startswith(("```", "~~~"))
        item = None if fence or fenced else _ITEM.match(line)
        fenced ^= fence
        if item:
            run = run or _Run(begin, item["indent"])
            run.flat &= item["indent"] == run.indent
            run.items.append(words)
            run.end = begin + len(line.rstrip())
        elif run and words:
            indented = line[0] in " \t"
            if indented and not fence and not fenced:
                run.items[-1] += f" {words}"
                run.end = begin + len(line.rstrip())
                continue
            if run.flat and not indented:
                yield run.start, run.end, _without_cut_end(run.items, run.end == len(text.rstrip()))
            run = None


def _without_cut_end(items: list[str], at_end: bool) -> list[str]:
    """Leave out a last item that the passage's end has cut: all but it close with a full stop."""
    cut = at_end and len(items) > 2 and all(_ENDS.search(item) for item in items[:-1]) and not _ENDS.search(items[-1])
    return items[:-1] if cut else items
