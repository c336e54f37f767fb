"""What a task asks for: its points, its limits of length, and how much it takes to fulfil it."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Final, Literal

from errata_kit.text.questions import generic_terms
from errata_kit.text.sentences import split_sentences
from errata_kit.text.terms import content_terms

Unit = Literal["word", "sentence", "paragraph"]

_MOST_POINTS: Final = 40
# Words that say what kind of text is wanted and for whom, not what it is about.
_ABOUT_THE_TEXT: Final = (
    "write draft compose produce prepare short brief long concise detailed complete page article how-to guide tutorial post "
    "report section paragraph summary summarise summarize overview sentence text document documentation introduction "
    "explanation runbook code snippet "
    "cover include mention address outline present discuss describe explain markdown heading bullet list table reader user "
    "audience operator developer engineer beginner newcomer colleague team new first briefly clearly simple plain language "
    "purpose topic point aspect question answer important relevant following own reader's each every both one two three four"
)
_SPELLED: Final = "zero one two three four five six seven eight nine ten eleven twelve"
_NUMBERS: Final = {word: value for value, word in enumerate(_SPELLED.split())} | {
    "a": 1,
    "single": 1,
    "twenty": 20,
    "fifty": 50,
    "hundred": 100,
}
_N: Final = rf"(\d{{1,5}}|{'|'.join(_NUMBERS)})"
_UNIT: Final = r"[ -](?:short |plain |complete )?(word|sentence|paragraph)s?\b"
_AT_MOST: Final = re.compile(
    rf"\b(?:at most|no more than|not more than|up to|under|below|fewer than|less than|maximum(?: of)?|max\.?|within|"
    rf"not exceed(?:ing)?|limit(?:ed)? to) {_N}{_UNIT}",
    re.I,
)
_OR_LESS: Final = re.compile(rf"\b{_N}{_UNIT} (?:or (?:less|fewer)|at most|maximum|max)\b", re.I)
_AT_LEAST: Final = re.compile(
    rf"\b(?:at least|no fewer than|no less than|minimum(?: of)?|(?<!no )(?<!not )more than) {_N}{_UNIT}", re.I
)
_BETWEEN: Final = re.compile(rf"\b(?:between )?{_N}(?: and | to |[-–]){_N}{_UNIT}", re.I)
_EXACTLY: Final = re.compile(rf"\b(?:in|exactly|of) (?:exactly )?{_N}{_UNIT}", re.I)
_ABOUT: Final = re.compile(rf"\b(?:about|around|roughly|approximately|some) {_N}{_UNIT}|\b(\d{{2,5}})-(word)\b", re.I)
_LIMITS: Final = (_AT_LEAST, _AT_MOST, _OR_LESS, _BETWEEN, _EXACTLY, _ABOUT)
# "About 200 words" is kept by anything between these shares of it.
_ABOUT_FROM: Final = 0.6
_ABOUT_TO: Final = 1.5

_ITEM: Final = re.compile(r"[ \t>]{0,24}(?:[-*+•]|\d{1,3}[.)])[ \t]+(.*)")
_LISTING: Final = re.compile(
    r":[ \t]+|\b(?:cover(?:s|ing)?|includ(?:e|es|ing)|mention(?:s|ing)?|address(?:es|ing)?)\b:?[ \t]+", re.I
)
_PARTS: Final = re.compile(r"[,;][ \t]*(?:(?:and|or|then)[ \t]+)?|[ \t]+and[ \t]+")
# In running text "and" joins points only before words that open one; elsewhere it joins words ("search and filter").
_CLAUSES: Final = re.compile(
    r"[;]|,[ \t]*(?:and[ \t]+)?|[ \t]+and[ \t]+(?=(?:how|what|when|where|why|which|who|whether|explain|describe|show|list|"
    r"give|say|the|its|then)\b)"
)
_FOR_WHOM: Final = re.compile(
    r"\b(?:for|to|aimed at)\s+(?:(?:a|an|the|our|new|other|experienced)\s+){0,3}"
    r"(?:readers?|users?|operators?|developers?|engineers?|beginners?|newcomers?|colleagues?|teams?|people|somebody|someone)\b",
    re.I,
)
# "Write a short page for operators on …": what follows is the point.
_COMMISSION: Final = re.compile(
    r"\s*(?:please\s+)?(?:write|draft|compose|produce|prepare|create|explain|describe|summari[sz]e)\b"
    r"(?:(?:\s+\w[\w-]*){0,6}?\s+(?:on|about|to|of)\b)?",
    re.I,
)
_LONG_GENRE: Final = re.compile(r"\b(?:article|guide|tutorial|how-to|page|report|essay|post|chapter)\b", re.I)
_SECTION_GENRE: Final = re.compile(r"\b(?:section|overview|introduction|explanation|description)\b", re.I)
_WANTS_CODE: Final = re.compile(r"\b(?:code|commands?|snippets?|command line)\b", re.I)
_WORDS_A_POINT: Final = 5
_WORDS_A_SENTENCE: Final = 5


@dataclass(frozen=True, slots=True)
class Point:
    """Something that the task asks for. explicit: it stands in a list or an enumeration.

    terms say what it is about, and are empty where only general words do. words are all of its content words, of which a draft
    that covers it has at least one.
    """

    text: str
    terms: frozenset[str]
    words: frozenset[str]
    explicit: bool


@dataclass(frozen=True, slots=True)
class Limit:
    """A length that the task states; most is None without one. wording is the task's own."""

    unit: Unit
    least: int
    most: int | None
    wording: str


@dataclass(frozen=True, slots=True)
class Task:
    """A task taken apart. terms say what it is about; least_words is far below what a good draft has."""

    text: str
    points: tuple[Point, ...]
    terms: frozenset[str]
    limits: tuple[Limit, ...]
    wants_code: bool
    least_words: int


@lru_cache(maxsize=64)
def read_task(text: str) -> Task:
    """Take a task apart. Deterministic, linear in the text's length."""
    limits = tuple(_limits(text))
    plain = text
    for limit in limits:
        plain = plain.replace(limit.wording, " ")
    plain = _FOR_WHOM.sub(" ", plain)
    points = tuple(dict.fromkeys(_points(plain)))[:_MOST_POINTS]
    terms = frozenset(term for point in points for term in point.terms) | frozenset(_telling(plain))
    return Task(text, points, terms, limits, _WANTS_CODE.search(text) is not None, _least_words(text, points, limits))


def _limits(text: str) -> Iterator[Limit]:
    taken: list[tuple[int, int]] = []
    for pattern in _LIMITS:
        for match in pattern.finditer(text):
            if any(start < match.end() and match.start() < end for start, end in taken):
                continue
            taken.append(match.span())
            yield _limit(pattern, match)


def _limit(pattern: re.Pattern[str], match: re.Match[str]) -> Limit:
    *numbers, unit = [group for group in match.groups() if group]
    values = sorted(
        _NUMBERS.get(number.lower(), 0) or int(number) if not number.isdecimal() else int(number) for number in numbers
    )
    least, most = values[0], values[-1]
    bounds: tuple[int, int | None] = (0, most)
    if pattern is _AT_LEAST:
        bounds = (least, None)
    elif pattern is _BETWEEN:
        bounds = (least, most)
    elif pattern is _EXACTLY and unit.lower() != "word":
        bounds = (most, most)
    elif pattern in (_ABOUT, _EXACTLY):
        bounds = (int(most * _ABOUT_FROM), int(most * _ABOUT_TO))
    return Limit(_UNITS[unit.lower()], bounds[0], bounds[1], match[0])


_UNITS: Final[dict[str, Unit]] = {"word": "word", "sentence": "sentence", "paragraph": "paragraph"}


def _points(text: str) -> Iterator[Point]:
    running: list[str] = []
    for line in text.splitlines():
        item = _ITEM.match(line)
        if item:
            yield from _point(item[1], True)
        else:
            running.append(line)
    for sentence in split_sentences("\n".join(running)):
        listing = _LISTING.search(sentence.text)
        head = sentence.text[: listing.start()] if listing else sentence.text
        subject = frozenset(_telling(head))
        for clause in _CLAUSES.split(head):
            yield from _point(clause, False)
        for part in _PARTS.split(sentence.text[listing.end() :]) if listing else ():
            yield from _point(part, True, subject)


def _point(text: str, explicit: bool, subject: frozenset[str] = frozenset()) -> Iterator[Point]:
    """The point that a piece of the task makes; none when it says nothing of its own besides the subject."""
    terms = frozenset(_telling(text))
    own = terms - subject or terms
    commission = _COMMISSION.match(text)
    text = text[commission.end() :] if commission and text[commission.end() :].strip() else text
    words = frozenset(term for term in content_terms(text) if not (term in _ignored() or term.isdigit()))
    if own or (explicit and words):
        yield Point(text.strip(" \t.,:;"), own, words, explicit)


def _telling(text: str) -> Iterator[str]:
    return (term for term in content_terms(text) if not (term in _ignored() or term in generic_terms() or term.isdigit()))


@cache
def _ignored() -> frozenset[str]:
    return frozenset(content_terms(_ABOUT_THE_TEXT))


def _least_words(text: str, points: tuple[Point, ...], limits: tuple[Limit, ...]) -> int:
    base = 40 if _LONG_GENRE.search(text) else 15 if _SECTION_GENRE.search(text) else 0
    wanted = base + _WORDS_A_POINT * max(len(points), 1)
    for limit in limits:
        if limit.unit == "word" and limit.most is not None:
            wanted = min(wanted, limit.most // 3)
        elif limit.unit == "sentence" and limit.most is not None:
            wanted = min(wanted, limit.most * _WORDS_A_SENTENCE)
        elif limit.unit == "paragraph" and limit.most is not None:
            wanted = min(wanted, limit.most * 20)
    return wanted
