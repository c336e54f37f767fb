"""Which parts of which passages speak of a point: blocks under one heading, in the passages' own order."""

import math
import re
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from errata_kit.encoding import Encoder
from errata_kit.passages import Passage
from errata_kit.text.questions import Question, read_question
from errata_kit.text.sentences import split_sentences
from errata_kit.text.terms import content_terms
from services.generator.drafting.quotable import Quote, is_whole_sentence
from services.generator.drafting.ranking import Candidate, QuoteTable, found_quotes, leans, points_elsewhere
from services.generator.drafting.selection import TOO_ALIKE
from services.generator.drafting.tasks import Point, Task

# All judged by eye on documentation pages. Scores are the cosine of a quote and the point under its subject, and its merit.
_LEAST_SCORE: Final = 0.25
_SURE_SCORE: Final = 0.5
_VAGUE_SCORE: Final = 0.8
_ABOUT_SUBJECT: Final = 0.15
_ABOUT_WEIGHT: Final = 0.2
_DEFINES_SUBJECT: Final = 0.35
_HEADED: Final = 0.5
_HEADING_WEIGHT: Final = 0.35
_MOST_CODE: Final = 2
_SHORT_BLOCK: Final = 4
_MANY_POINTS: Final = 3
_MOST_FOLLOWERS: Final = 2
# Blanks and a list's marker that may lie between two quotes of one paragraph or list.
_GAP: Final = 6
# How far code without a sentence of its own may stand behind the quote that it belongs to.
_CODE_GAP: Final = 400
# Beyond so many quotes the encoder would take longer than a person waits; passages come best first.
_MOST_COMPARED: Final = 400
_CODE_WORDS: Final = frozenset(content_terms("example command code snippet sample"))
_NUMBERING: Final = re.compile(r"^(?:step )?\d+(?:\.\d+)*[.):]?\s+", re.IGNORECASE)
_LINK: Final = re.compile(r"(?<![!\w])\[([^\[\]]+)\]\((?!https?:)[^()\s]*\)")
_SAYS_WHAT: Final = re.compile(
    r"\b(?:(?:is|are) (?:an?|the|one of)\b|refers? to|means|stands for|(?:allows?|enables?|lets?) (?:you|users|to)\b|denotes?)",
    re.IGNORECASE,
)
# What an entry of a list of terms is about: "**Session**: …".
_LABEL: Final = re.compile(r"[*_`\"“]{1,3}([^*_`\"”:]{1,60})[*_`\"”]{1,3}(?: \([^()]*\))?(?::|\s[-–—])")
# Fences that show no code: pictures, and what a command printed.
_NO_CODE: Final = re.compile(r"\W*(?:mermaid|text|console|output|plaintext)\b", re.IGNORECASE)
# Sentences that send the reader elsewhere, or speak of the page that they stand on.
_AWAY: Final = re.compile(
    r"\brefer to\b|\bsee (?:also )?(?:the |our |how )?[\[`*]|\bsee also\b|\bmore information\b|"
    r"\bfor (?:more|further|detailed|details|information)\b|"
    r"\b(?:this|the (?:following|next|previous)) (?:topic|page|section|guide|tutorial|document|article|chapter|figure|"
    r"diagram|image|table|screenshot|snippet)\b|\b(?:above|below)[.:]?\Z|\bjust (?:installed|created)\b|\bnext step|"
    r"\bto recap\b|\b(?:the|this) (?:picture|drawing)\b|\byou can learn\b|https?://\S+\)?\.?\Z",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Room:
    """What a section holds at most: blocks, quotes and their characters; and how far below the best a block may lie."""

    blocks: int
    quotes: int
    characters: int
    near_best: float


@dataclass(frozen=True, slots=True)
class _Block:
    """Quotes, by their places in the table, that stand under one heading of one passage."""

    passage: int
    heading: str
    terms: frozenset[str]
    rows: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Run:
    merit: float
    quotes: tuple[Candidate, ...]


class PointTable:
    """The points of a task beside all quotes of its passages."""

    def __init__(self, encoder: Encoder | None, task: Task, points: Sequence[Point], passages: Sequence[Passage]) -> None:
        self._passages = passages
        self._points = tuple(points)
        self._subject = _weighted(task.subject, passages)
        found = [item for item in _with_items(found_quotes(passages, any_lead=True), points) if not _away(item[1])]
        found = [(place, _plain(quote)) for place, quote in found[:_MOST_COMPARED]]
        self._blocks = _blocks(found, passages)
        self._heading_of = {(found[row][0], found[row][1].start): block.heading for block in self._blocks for row in block.rows}
        questions = [read_question(task.subject or task.title), *(_question(point, task.subject) for point in points)]
        bare = [read_question(point.text) for point in points]
        headings = [block.heading for block in self._blocks]
        named = [f"{passages[block.passage].title}: {block.heading}" for block in self._blocks]
        self._table = QuoteTable(encoder, [*questions, *bare], passages, found, [*headings, *named])
        self._found = bool(found)
        # What names most points speaks of the subject, not of one of them.
        self._overall = {
            row
            for row, (_, quote) in enumerate(found)
            if sum(point.listed and _least(point, quote, False) <= _LEAST_SCORE for point in points) >= _MANY_POINTS
        }
        self._about = [
            max(_share(self._subject, block.terms), near)
            for block, near in zip(self._blocks, self._table.headings(0)[len(headings) :], strict=True)
        ]
        self._headed = [self._named(place) for place in range(len(points))]

    def opening(self) -> list[Candidate]:
        """The sentences that say what the subject is and name its points, when there are such."""
        found = [
            item
            for item in (self._table.candidates(0) if self._found and self._subject else [])
            if item.quote.kind == "sentence" and not leans(item.quote) and self._defines(item.quote)
        ]
        opening = [max(found, key=lambda item: item.score)] if found else []
        candidates = self._table.candidates(0) if self._found else []
        opening = _with_followers(opening, candidates)
        overall = [candidates[row] for row in sorted(self._overall) if candidates[row].quote.kind == "sentence"]
        if overall:
            best = max(overall, key=lambda item: item.score)
            opening.extend([best] if all(self._differ(best, item) for item in opening) and not leans(best.quote) else [])
        return opening

    def speaking(self, place: int, taken: Sequence[Candidate], room: Room, whole: bool = False) -> list[Candidate]:
        """What is said about the point at a 0-based place, without what was taken before; in an order that reads well.

        whole: the point is the whole subject, so that a third of its terms will do.
        """
        if not self._found:
            return []
        candidates = self._table.candidates(place + 1)
        runs = [self._run(place, number, candidates, whole) for number in range(len(self._blocks))]
        near = sorted((run for run in runs if run.quotes), key=lambda run: -run.merit)
        chosen: list[Candidate] = []
        blocks = 0
        for run in near:
            if blocks == room.blocks or run.merit < near[0].merit - room.near_best:
                break
            fitting = self._fitting(run.quotes, taken, chosen, room)
            blocks += bool(fitting)
            chosen.extend(fitting)
        return self._in_order(chosen)

    def heading(self, item: Candidate) -> str:
        """The heading that a quote stands under, without its numbering; empty when there is none."""
        return self._heading_of.get((item.passage, item.quote.start), "")

    def _named(self, place: int) -> list[float]:
        """How well the heading of each block names a point: by its terms, or by its meaning."""
        point = self._points[place]
        near = self._table.headings(1 + len(self._points) + place)
        shares = [len(point.terms & set(content_terms(block.heading))) / max(len(point.terms), 1) for block in self._blocks]
        return [max(share, like) for share, like in zip(shares, near, strict=False)]

    def _run(self, place: int, number: int, candidates: Sequence[Candidate], whole: bool) -> _Run:
        """The quotes of a block that speak of a point: all when its heading names it, else those that name it themselves."""
        point, headed, block = self._points[place], self._headed[place][number], self._blocks[number]
        others = max(row[number] for row in self._headed)
        # A block whose heading names another point belongs to that one.
        if self._about[number] < _ABOUT_SUBJECT or (not whole and headed < others >= _HEADED):
            return _Run(0.0, ())
        group = [candidates[row] for row in block.rows if row not in self._overall]
        if headed >= _HEADED and not point.is_vague:
            # Scores near zero stand under the heading by accident; code and short blocks need not resemble the point's words.
            short = len(group) <= _SHORT_BLOCK
            kept = [item for item in group if short or item.score >= _LEAST_SCORE / 2 or item.quote.kind == "code"]
        else:
            kept = [item for item in group if item.score >= _least(point, item.quote, whole)]
            if whole and any(item.score >= _SURE_SCORE for item in kept):
                kept = [item for item in group if item in kept or item.score >= _LEAST_SCORE]
            kept = _with_followers(kept, group)
        best = max((item.score for item in kept), default=0.0)
        return _Run(_HEADING_WEIGHT * headed + _ABOUT_WEIGHT * self._about[number] + best, tuple(kept))

    def _fitting(
        self, quotes: Sequence[Candidate], taken: Sequence[Candidate], chosen: Sequence[Candidate], room: Room
    ) -> list[Candidate]:
        """The quotes that are new and for which there is room, best first into it; none that leans on one left out."""
        kept: list[Candidate] = []
        for item in sorted(quotes, key=lambda item: -item.score):
            others = (*chosen, *kept)
            size = sum(len(other.quote.text) for other in others) + len(item.quote.text)
            code = item.quote.kind == "code" and sum(other.quote.kind == "code" for other in others) >= _MOST_CODE
            full = code or len(others) == room.quotes or (size > room.characters and bool(others))
            if not full and all(self._differ(item, other) for other in (*taken, *others)):
                kept.append(item)
        kept.sort(key=lambda item: item.quote.start)
        standing: list[Candidate] = []
        for item in kept:
            follows = bool(standing) and _follows(item, standing[-1])
            bare = item.quote.kind == "code" and not item.quote.lead
            shown = bare and standing and item.quote.start - standing[-1].quote.end <= _CODE_GAP
            if follows or shown or (bare and self._headed_code(item)) or not (bare or leans(item.quote)):
                standing.append(item)
        return standing

    def _headed_code(self, item: Candidate) -> bool:
        """Whether code stands directly under a heading, or at a passage's beginning."""
        before = self._passages[item.passage].text[: item.quote.start].rstrip().rsplit("\n", 1)[-1]
        return not before or before.lstrip().startswith("#")

    def _differ(self, one: Candidate, other: Candidate) -> bool:
        rows = self._table.rows
        first, second = one.quote, other.quote
        repeats = first.lines[0] in second.text or second.lines[0] in first.text
        return one.row != other.row and not repeats and float(rows[one.row] @ rows[other.row]) < TOO_ALIKE

    def _defines(self, quote: Quote) -> bool:
        verb = _SAYS_WHAT.search(quote.lines[0][:140])
        return verb is not None and _share(self._subject, content_terms(quote.lines[0][: verb.start()])) >= _DEFINES_SUBJECT

    def _in_order(self, chosen: Sequence[Candidate]) -> list[Candidate]:
        """The best block's document first; inside a document as its author wrote it."""
        documents = list(dict.fromkeys(self._document(item) for item in chosen))
        return sorted(
            chosen,
            key=lambda item: (
                documents.index(self._document(item)),
                self._passages[item.passage].start_line,
                item.passage,
                item.quote.start,
            ),
        )

    def _document(self, item: Candidate) -> str:
        passage = self._passages[item.passage]
        return passage.document_id or passage.passage_id


def _follows(item: Candidate, before: Candidate) -> bool:
    """Whether a quote stands directly behind another one in their passage."""
    return item.passage == before.passage and 0 <= item.quote.start - before.quote.end <= _GAP


def _with_followers(kept: Sequence[Candidate], group: Sequence[Candidate]) -> list[Candidate]:
    """The quotes, each with the one or two that follow it and lean on it: they go on with what it says."""
    whole: list[Candidate] = []
    for item in kept:
        last = item
        whole.extend([item] if item not in whole else [])
        for _ in range(_MOST_FOLLOWERS):
            after = next((other for other in group if other.quote.kind == "sentence" and _follows(other, last)), None)
            if after is None or not leans(after.quote) or after in whole:
                break
            whole.append(after)
            last = after
    return whole


def _blocks(found: Sequence[tuple[int, Quote]], passages: Sequence[Passage]) -> list[_Block]:
    headings = [_headings(passage) for passage in passages]
    groups: dict[tuple[int, int], list[int]] = {}
    for row, (place, quote) in enumerate(found):
        starts = [start for start, _ in headings[place]]
        groups.setdefault((place, bisect_right(starts, quote.start) - 1), []).append(row)
    blocks = []
    for (place, number), rows in groups.items():
        passage = passages[place]
        words = [passage.title, *passage.heading_path, headings[place][number][1], *(found[row][1].text for row in rows)]
        blocks.append(_Block(place, headings[place][number][1], frozenset(content_terms(" ".join(words))), tuple(rows)))
    return blocks


def _headings(passage: Passage) -> list[tuple[int, str]]:
    """The headings of a passage with the characters at which they stand: first the one that it begins under."""
    parts = [part for part in (passage.title, *passage.heading_path) if part.strip()]
    inside = [(unit.start, unit.text) for unit in split_sentences(passage.text) if unit.kind == "heading"]
    return [
        (-1, _NUMBERING.sub("", parts[-1].strip("# "))) if parts else (-1, ""),
        *((at, _NUMBERING.sub("", text)) for at, text in inside),
    ]


def _question(point: Point, subject: str) -> Question:
    """Near the subject, and measured by the point's own terms."""
    asked = read_question(point.text)
    core = f"{subject}: {asked.core}" if subject and subject.casefold() not in asked.core.casefold() else asked.core
    terms = tuple(sorted(point.terms))
    return Question(point.text, core, asked.shape, terms, terms)


def _least(point: Point, quote: Quote, whole: bool) -> float:
    """The score from which a quote speaks of a point: the fewer of the point's terms it holds, the higher."""
    wants_code = bool(point.terms & _CODE_WORDS)
    words = quote.lead if quote.kind == "code" and not wants_code else quote.compared
    if point.is_name and not re.search(rf"(?<!\w){re.escape(point.text)}(?!\w)", words):
        return math.inf
    label = _LABEL.match(words)
    if label and point.terms and 2 * len(point.terms & set(content_terms(label[1]))) >= len(point.terms):
        return -1.0
    terms = point.terms - _CODE_WORDS if wants_code and quote.kind == "code" else point.terms
    share = len(terms & set(content_terms(words))) / len(terms) if terms else 1.0
    if share < (1 / 3 if whole else 1 / 2):
        return math.inf
    if point.is_vague:
        return _VAGUE_SCORE
    return _LEAST_SCORE if share > 1 / 2 or whole else _SURE_SCORE


def _weighted(subject: str, passages: Sequence[Passage]) -> dict[str, float]:
    """The subject's terms with their weights: one that every passage holds tells little."""
    read = read_question(subject)
    held = [set(content_terms(" ".join((passage.title, *passage.heading_path, passage.text)))) for passage in passages]
    return {
        term: 0.1 + math.log((1 + len(held)) / (0.5 + sum(term in terms for terms in held)))
        for term in (read.key_terms or read.terms)
        if any(term in terms for terms in held)
    }


def _share(weights: dict[str, float], terms: Iterable[str]) -> float:
    """The weight of those terms in all; 1 when there is none."""
    total = sum(weights.values())
    return sum(weights.get(term, 0.0) for term in set(terms)) / total if total else 1.0


def _away(quote: Quote) -> bool:
    if quote.kind == "code" and _NO_CODE.match(quote.lines[0]):
        return True
    return points_elsewhere(quote) or bool(_AWAY.search(quote.lead or (quote.lines[0] if quote.kind == "sentence" else "")))


def _with_items(found: Sequence[tuple[int, Quote]], points: Sequence[Point]) -> list[tuple[int, Quote]]:
    """The quotes, with a list whose items speak of different points cut into its items."""
    apart: list[tuple[int, Quote]] = []
    for place, quote in found:
        items = [line.split(maxsplit=1)[1] for line in quote.lines] if quote.kind == "list" else []
        named = {number for item in items for number, point in enumerate(points) if point.terms & set(content_terms(item[:60]))}
        if len(named) > 1 and all(map(is_whole_sentence, items)):
            # Each a little after the one before, so that they keep their order.
            parts = enumerate(items)
            apart.extend((place, Quote("sentence", "", (item,), quote.start + n, quote.start + n)) for n, item in parts)
        else:
            apart.append((place, quote))
    return apart


def _plain(quote: Quote) -> Quote:
    """The quote without links into its document's own folder, which lead nowhere from a draft."""
    if quote.kind == "code":
        return replace(quote, lead=_LINK.sub(r"\1", quote.lead))
    return replace(quote, lead=_LINK.sub(r"\1", quote.lead), lines=tuple(_LINK.sub(r"\1", line) for line in quote.lines))
