"""Revises drafts without a language model: what was found wrong goes, what is missing is looked for in the passages."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from errata_kit.drafts import DraftIssue
from errata_kit.text.questions import generic_terms
from errata_kit.text.sentences import Sentence, split_sentences
from errata_kit.text.terms import content_terms
from services.generator.drafting.drafts import CitedText, read_citations, without_stray_markers
from services.generator.drafting.mending import without_units
from services.generator.drafting.repairs import quoted_units, repaired
from services.generator.drafting.tasks import Point, asked_points, most_words, read_task
from services.generator.drafting.touching import touched_units
from services.generator.drafting.write import OUTLINE, DraftWriter, capital
from services.generator.provider import MAX_TEXT_BYTES, Revision

# One wish each: sentences, and halves of one that ask for different things ("explain a, and remove b").
_WISHES: Final = re.compile(
    r"(?<=[.!?;])\s+|\n+|,?\s{1,8}(?:and|but|then)\s+(?:also\s+|please\s+)*"
    r"(?=(?:remove|drop|delete|leave out|omit|take out|do not|don't|add|mention|include|explain|describe|cover|make it|"
    r"shorten)\b)",
    re.IGNORECASE,
)
_REMOVE: Final = re.compile(
    r"\b(?:remove|drop|delete|leave out|omit|cut(?: out)?|take out|get rid of|(?:do not|don't|no need to) (?:mention|include|"
    r"talk about|discuss)|stop mentioning)\s+(?P<what>.+)",
    re.IGNORECASE,
)
_PART: Final = re.compile(
    r"^(?:(?:all|any|every|the|that|this|whole|entire|other) )*(?:parts?|sections?|sentences?|paragraphs?|mentions?|headings?|"
    r"bits?|references?|lines?|chapters?)(?: (?:about|on|of|with|that \w+|which \w+|to))?\s+",
    re.IGNORECASE,
)
_QUOTED: Final = re.compile(r"[\"“`']([^\"”`'\n]{3,200})[\"”`']")
_SHORTER: Final = re.compile(r"\b(?:shorter|shorten|more concise|too long|condense|trim|briefer|too wordy)\b", re.IGNORECASE)
# What a text that is to be shorter keeps of its words when no number is named.
_SHORTER_SHARE: Final = 2 / 3
_MISSING: Final = re.compile(
    r"missing|not (?:cover|mention|say|explain|address|describe|include|contain)|n't (?:cover|mention|say|explain)|leaves? out|"
    r"left out|omit|nothing (?:about|on)|lacks?\b|uncovered|no (?:mention|word) of|incomplete|add\b|cover\b|mention\b",
    re.IGNORECASE,
)
# What has been said too little about gets more, also where its words stand in the draft.
_MORE: Final = re.compile(r"\blittle is said\b|\bsay more\b|\bmore (?:about|on|detail)", re.IGNORECASE)
_ASKS: Final = re.compile(
    r"\W*(?:please )?(?:also )?(?:add|cover|mention|include|explain|describe|say|state|expand on)\b", re.IGNORECASE
)
_LONGEST_POINT: Final = 160


@dataclass(frozen=True, slots=True)
class _Wish:
    """What a person asks for: points to add, words to take away, and how many words may stay."""

    points: tuple[Point, ...]
    removals: tuple[str, ...]
    most_words: int | None


class DraftReviser:
    """Revises drafts. Deterministic; one instance may serve many threads. Blocking."""

    def __init__(self, writer: DraftWriter) -> None:
        self._writer = writer

    def revise(self, revision: Revision) -> CitedText:
        """Return the draft with what was found wanting changed, and all else byte for byte as it was.

        In this order: failing claims and what issues quote go or are mended; what a person wants gone goes; points that a
        person or the review misses are looked for in the passages and added, each sentence cited; a text that a person
        finds too long loses the sentences that say least about the task. Marks that stand for no passage go. When nothing
        is left, the draft is written anew. When no rule applies, the text is the one that was given.
        """
        text = self._without_failing(revision)
        text = _fitting(repaired(text, revision.issues, bool(revision.passages)), text)
        wish = _wish(revision.feedback, text)
        for removal in wish.removals:
            text = _without(text, removal)
        text = self._with_points(revision, text, wish)
        limit = wish.most_words or (read_task(revision.task).most_words if _too_long(revision) else None)
        text = _shortened(text, revision.task, limit)
        text = without_stray_markers(text, len(revision.passages))
        if not any(unit.kind != "heading" for unit in split_sentences(text)):
            return self._writer.write(revision.task, revision.passages)
        return CitedText(text, read_citations(text, tuple(passage.passage_id for passage in revision.passages)))

    def _without_failing(self, revision: Revision) -> str:
        units = split_sentences(revision.draft)
        gone = {place for claim in revision.failing_claims for place in touched_units(revision.draft, units, claim)}
        return without_units(revision.draft, units, gone)

    def _with_points(self, revision: Revision, text: str, wish: _Wish) -> str:
        task = read_task(revision.task)
        missing = _missing(task.points, text, revision.issues, revision.suggestions)
        points = list({point.text.casefold(): point for point in (*wish.points, *missing)}.values())
        if not points:
            return text
        if not revision.passages:
            return _with_items(text, points)
        # What has just been taken out must not come back in other words' place.
        known = f"{revision.draft}\n{text}"
        for point, (heading, found) in zip(
            points, self._writer.about(points, task.subject, revision.passages, known), strict=True
        ):
            if found.text:
                text = _fitting(_inserted(text, point, heading, found.text), text)
        return text


def _fitting(changed: str, before: str) -> str:
    """The changed text, unless it breaks the contract's bound."""
    return changed if len(changed.encode("utf-8", "surrogatepass")) <= MAX_TEXT_BYTES else before


def _too_long(revision: Revision) -> bool:
    """Whether the review says so."""
    return any(_SHORTER.search(words) for words in (*revision.suggestions, *(issue.description for issue in revision.issues)))


def _wish(feedback: str, text: str) -> _Wish:
    removals: list[str] = []
    points: list[Point] = []
    limit = most_words(feedback)
    for sentence in _WISHES.split(feedback):
        if removal := _REMOVE.search(sentence):
            removals.append(removal["what"].strip(" .!;,"))
        elif _SHORTER.search(sentence):
            limit = limit or int(len(text.split()) * _SHORTER_SHARE)
        elif sentence.strip():
            points.extend(asked_points(sentence))
    return _Wish(tuple(points), tuple(removals), limit)


def _without(text: str, removal: str) -> str:
    """The text without what a person names: words in quotation marks, a section by its heading, or sentences by their terms."""
    units = split_sentences(text)
    quoted = [match[1] for match in _QUOTED.finditer(removal)]
    gone = {place for words in quoted for place in quoted_units(text, units, words)}
    terms = set(content_terms(_PART.sub("", removal))) - generic_terms()
    if not gone and terms:
        gone = set(_section(text, units, terms))
        named = {place for place, unit in enumerate(units) if unit.kind != "heading" and terms <= set(content_terms(unit.text))}
        gone = gone or named
    return without_units(text, units, gone)


def _section(text: str, units: Sequence[Sentence], terms: set[str]) -> list[int]:
    """The units of the first section below the title whose heading holds all of the terms, its heading among them."""
    for place, unit in enumerate(units):
        if place and unit.kind == "heading" and terms <= set(content_terms(unit.text)):
            return [place, *range(place + 1, _section_end(text, units, place))]
    return []


def _section_end(text: str, units: Sequence[Sentence], heading: int) -> int:
    """The place of the first unit behind a section: the next heading of its level or above."""
    level = _level(text, units[heading])
    after = range(heading + 1, len(units))
    return next(
        (place for place in after if units[place].kind == "heading" and _level(text, units[place]) <= level), len(units)
    )


def _level(text: str, heading: Sentence) -> int:
    return text[text.rfind("\n", 0, heading.start) + 1 : heading.start].count("#")


def _missing(points: Sequence[Point], text: str, issues: Sequence[DraftIssue], suggestions: Sequence[str]) -> list[Point]:
    """The points of the task that the text does not speak of, when the review says that something is missing; and what it
    names as missing.
    """
    said = [issue.description for issue in issues if issue.criterion == "completeness" or _MISSING.search(issue.description)]
    said += [words for words in suggestions if _MISSING.search(words) or _MORE.search(words)]
    if not said:
        return []
    spoken = {term for unit in split_sentences(text) if unit.kind != "heading" for term in content_terms(unit.text)}
    found = [point for point in points if 2 * len(point.terms & spoken) < len(point.terms) or not point.terms & spoken]
    more: list[Point] = []
    for words in said:
        quoted = [match[1] for match in _QUOTED.finditer(words) if len(match[1]) <= _LONGEST_POINT]
        asked = [point for phrase in quoted for point in asked_points(phrase)]
        if not quoted and _ASKS.match(words):
            asked.extend(asked_points(words))
        (more if _MORE.search(words) else found).extend(asked)
    return [*(point for point in found if not point.terms <= spoken), *more]


def _inserted(text: str, point: Point, heading: str, addition: str) -> str:
    """The text with an addition at the end of the section that names the point, else in a section of its own at the end."""
    units = split_sentences(text)
    for place, unit in enumerate(units):
        own = set(content_terms(unit.text))
        shared = point.terms & own
        if place and unit.kind == "heading" and shared and (own <= point.terms or 2 * len(shared) >= len(point.terms)):
            last = units[_section_end(text, units, place) - 1]
            return f"{text[: last.end]}\n\n{addition}{text[last.end :]}"
    headed = any(unit.kind == "heading" for unit in units)
    words = heading or capital(point.text)
    return f"{text.rstrip()}\n\n## {words}\n\n{addition}" if headed else f"{text.rstrip()}\n\n{addition}"


def _with_items(text: str, points: Sequence[Point]) -> str:
    """An outline with further points. Any other text stays: nothing is known that could be said about them."""
    if OUTLINE not in text:
        return text
    new = [f"- {capital(point.text)}" for point in points if f"- {capital(point.text)}" not in text]
    gap = "\n" if text.rstrip().rsplit("\n", 1)[-1].startswith("- ") else "\n\n"
    return _fitting(f"{text.rstrip()}{gap}" + "\n".join(new), text) if new else text


def _shortened(text: str, task: str, limit: int | None) -> str:
    """The text without the units that share least with the task, the last first, until it has no more words than allowed.

    What stands first under a heading goes last, so that no point of the text is lost where there is room for it.
    """
    words = len(text.split())
    if limit is None or words <= limit:
        return text
    units = split_sentences(text)
    asked = set(content_terms(task))
    order = [place for place, unit in enumerate(units) if unit.kind != "heading"]
    order.sort(
        key=lambda place: (
            not place or units[place - 1].kind == "heading",
            len(asked & set(content_terms(units[place].text))),
            -place,
        )
    )
    gone: set[int] = set()
    for place in order[:-1]:
        if words <= limit:
            break
        gone.add(place)
        words -= len(units[place].text.split())
    return without_units(text, units, gone)
