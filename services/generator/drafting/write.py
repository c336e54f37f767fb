"""Writes drafts without a language model: the passages' own words, put in the order of the task's points."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from errata_kit.encoding import Encoder, RememberingEncoder
from errata_kit.passages import Passage
from errata_kit.text.terms import content_terms
from services.generator.drafting.assembly import Assembly
from services.generator.drafting.drafts import CitedText
from services.generator.drafting.ranking import Candidate
from services.generator.drafting.speaking import PointTable, Room
from services.generator.drafting.tasks import Point, Task, clipped, read_task

# Judged by eye on documentation pages. A task of one point is answered at the length of a page, a point of several at the
# length of a section.
_SECTION: Final = Room(blocks=3, quotes=6, characters=1500, near_best=0.25)
_WHOLE: Final = Room(blocks=8, quotes=24, characters=5000, near_best=0.5)
_MOST_CHARACTERS: Final = 10_000
_LONGEST_HEADING: Final = 100
OUTLINE: Final = (
    "This outline names what the task asks for. It was made without passages, so it states nothing about its points."
)


@dataclass(frozen=True, slots=True)
class _Section:
    """Quotes under a heading. asked: the task lists the point, so that other sections go before it."""

    heading: str
    quotes: tuple[Candidate, ...]
    asked: bool = False


class DraftWriter:
    """Writes drafts from passages. Deterministic; one instance may serve many threads. Blocking."""

    def __init__(self, encoder: Encoder | None, cache_size: int = 4096) -> None:
        self._encoder = None if encoder is None else RememberingEncoder(encoder, cache_size)

    def write(self, task: str, passages: Sequence[Passage]) -> CitedText:
        """Return a title, and for each point of the task that a passage speaks of, a section of extracts, each cited.

        A point that no passage speaks of is left out, not invented. Without passages, or when nothing in them can be
        quoted, the draft is an outline: the task's own points and the remark that nothing is said about them.
        """
        read = read_task(task)
        sections = _merged(self._sections(read, passages))
        if not sections:
            return outline(read)
        text = Assembly()
        text.heading(1, read.title)
        for section in _within(sections, read.most_words):
            if section.heading and section.heading.casefold() != read.title.casefold():
                text.heading(2, section.heading)
            _put(text, section.quotes)
        return text.finished(passages)

    def about(
        self, points: Sequence[Point], subject: str, passages: Sequence[Passage], known: str
    ) -> list[tuple[str, CitedText]]:
        """Return for each point a heading and what the passages say about it that the known text does not hold.

        The text is empty for a point about which nothing new is said.
        """
        table = PointTable(self._encoder, Task(subject, subject, tuple(points)), points, passages)
        held, taken = " ".join(known.split()), list[Candidate]()
        additions = []
        for place, point in enumerate(points):
            found = table.speaking(place, taken, _SECTION)
            chosen = [item for item in found if not all(" ".join(line.split()) in held for line in item.quote.lines)]
            taken.extend(chosen)
            text = Assembly()
            _put(text, chosen)
            additions.append((_heading(point, chosen, table), text.finished(passages)))
        return additions

    def _sections(self, task: Task, passages: Sequence[Passage]) -> list[_Section]:
        if not passages:
            return []
        listed = tuple(point for point in task.points if point.listed) if len(task.points) > 1 else ()
        others = tuple(point for point in task.points if not point.listed)
        terms = frozenset(content_terms(task.subject or task.title))
        points = (*listed, *others, Point(task.subject or task.title, terms))
        table = PointTable(self._encoder, task, points, passages)
        taken = table.opening()
        sections = [_Section("", tuple(taken), asked=True)]
        if others or not listed:
            chosen = table.speaking(len(points) - 1, taken, _WHOLE, whole=True)
            taken.extend(chosen)
            sections.extend(_by_heading(chosen, table))
        for place, point in enumerate(points[:-1]):
            # The halves of a subject have been looked for already, with the whole of it.
            if point.listed or not any(_speaks(item, point) for item in taken):
                chosen = table.speaking(place, taken, _SECTION)
                taken.extend(chosen)
                sections.append(_Section(_heading(point, chosen, table), tuple(chosen), point.listed))
        if listed and not others and all(not section.quotes for section in sections[1:]):
            sections.extend(_by_heading(table.speaking(len(points) - 1, taken, _WHOLE, whole=True), table))
        return sections


def outline(task: Task) -> CitedText:
    """What a draft is when there is nothing to write it from: the task's points, and nothing said about them."""
    text = Assembly()
    text.heading(1, task.title)
    text.paragraph(OUTLINE)
    if len(task.points) > 1 or any(point.listed for point in task.points):
        text.paragraph("\n".join(f"- {capital(point.text)}" for point in task.points))
    return text.finished(())


def capital(words: str) -> str:
    """The words with a capital first, unless they begin with a name such as top_k."""
    first = words.split(maxsplit=1)[0] if words.strip() else ""
    return words[:1].upper() + words[1:] if first.isalpha() and first.islower() else words


def _speaks(item: Candidate, point: Point) -> bool:
    return 2 * len(point.terms & set(content_terms(item.quote.compared))) >= len(point.terms)


def _heading(point: Point, chosen: Sequence[Candidate], table: PointTable) -> str:
    """The point's own words where the task lists it and what is quoted names it, else the heading of what is quoted."""
    if not chosen:
        return ""
    own = {term for item in chosen for term in content_terms(f"{item.quote.compared} {table.heading(item)}")}
    if point.listed and 2 * len(point.terms & own) >= len(point.terms):
        return capital(clipped(point.text, _LONGEST_HEADING))
    return clipped(table.heading(chosen[0]), _LONGEST_HEADING)


def _by_heading(chosen: Sequence[Candidate], table: PointTable) -> list[_Section]:
    """Sections by the passages' own headings; a single one needs no heading."""
    groups: dict[str, list[Candidate]] = {}
    for item in chosen:
        groups.setdefault(clipped(table.heading(item), _LONGEST_HEADING), []).append(item)
    if len(groups) == 1:
        return [_Section("", tuple(chosen))]
    return [_Section(heading, tuple(group)) for heading, group in groups.items()]


def _merged(sections: Sequence[_Section]) -> list[_Section]:
    """Sections under one heading become one, where the first of them stands; empty ones go."""
    merged: dict[str, _Section] = {}
    for section in sections:
        before = merged.get(section.heading)
        if before is not None:
            both = (*before.quotes, *section.quotes)
            merged[section.heading] = _Section(section.heading, both, before.asked or section.asked)
        elif section.quotes:
            merged[section.heading] = section
    return list(merged.values())


def _within(sections: Sequence[_Section], most_words: int | None) -> list[_Section]:
    """The sections that the words and characters allowed have room for: those asked for, with fewer quotes where they must,
    then of the others the best that fit. One quote always stays.
    """
    asked = [section for section in sections if section.asked]
    others = sorted((section for section in sections if not section.asked), key=lambda section: -_best(section))
    if not asked:
        asked, others = others[:1], others[1:]
    kept = _thinned(asked, most_words)
    for section in others:
        if not _too_long([*kept, section], most_words):
            kept.append(section)
    order = {section.heading: place for place, section in enumerate(sections)}
    return sorted(kept, key=lambda section: order[section.heading])


def _thinned(sections: Sequence[_Section], most_words: int | None) -> list[_Section]:
    """The sections without their weakest quotes; a section's only quote goes when no section has two."""
    left = list(sections)
    while _too_long(left, most_words) and sum(len(section.quotes) for section in left) > 1:
        several = [place for place, section in enumerate(left) if len(section.quotes) > 1] or list(range(len(left)))
        place = min(several, key=lambda place: min(item.score for item in left[place].quotes))
        weakest = min(left[place].quotes, key=lambda item: item.score)
        left[place] = replace(left[place], quotes=tuple(item for item in left[place].quotes if item is not weakest))
        left = [section for section in left if section.quotes]
    return left


def _best(section: _Section) -> float:
    return max(item.score for item in section.quotes)


def _too_long(sections: Sequence[_Section], most_words: int | None) -> bool:
    texts = [section.heading for section in sections]
    texts += [f"{item.quote.text} [1]" for section in sections for item in section.quotes]
    words = sum(len(text.split()) for text in texts)
    return sum(map(len, texts)) > _MOST_CHARACTERS or (most_words is not None and words > most_words)


def _put(text: Assembly, quotes: Sequence[Candidate]) -> None:
    before: Candidate | None = None
    for item in quotes:
        apart = before is not None and (item.passage != before.passage or item.quote.start - before.quote.end > 4)
        text.quote(item.passage + 1, item.quote, new_paragraph=apart)
        before = item
