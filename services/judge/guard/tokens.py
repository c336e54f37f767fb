"""A sentence as tokens that can be matched with those of another sentence, however each is written."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Literal

from errata_kit.text.terms import STOP_WORDS, content_terms
from services.judge.guard.numerals import spelled_numbers
from services.judge.guard.quantities import Measure, halves, measure_at, unit_after

Sort = Literal["word", "function", "number", "version", "calendar", "name", "negation"]

_CITATION: Final = re.compile(r"\[\d{1,3}(?:[ ]?[,–-][ ]?\d{1,3}){0,9}\]")
_TARGET: Final = re.compile(r"(?<=\])\([^()\s]{1,500}\)")
_NUMBER: Final = r"(?<![\w.])(?:\d{1,3}(?:,\d{3}){1,6}|\d{1,18})(?:\.\d{1,12})?"
_ATTACHED: Final = r"(?:[kKMB]|[kKMGT]i?B|[µumn]?s|min|h|hrs?|[kMG]?Hz)"
# In this order: what an earlier group took is not looked at again.
_TOKEN: Final = re.compile(
    r"(?P<version>(?<![\w.])v?\d{1,5}(?:\.\d{1,6}){2,4}(?:-?(?:rc|alpha|beta|dev|post)\.?\d{0,4})?(?![\w]|\.\d)"
    r"|(?<![\w.])v\d{1,5}(?:\.\d{1,6})?(?![\w]|\.\d))"
    rf"|(?P<number>{_NUMBER}(?={_ATTACHED}\b|(?![\w]|[.:/]\d)))"
    r"|(?P<contracted>[A-Za-z]{2,10}n['’]t\b|\bcan['’]t\b)"
    r"|(?P<kebab>(?<=`)[A-Za-z]\w{0,40}(?:-\w{1,40}){1,12}(?=`))"
    r"|(?P<name>(?:(?<!\w)--?)?[^\W_]\w{0,80}(?:(?:[./:@]|::)\w{1,80}){1,12}|(?<!\w)--?[A-Za-z]\w{0,60}(?:-\w{1,60}){0,12}|_{0,2}\w{1,100})"
)
_INNER: Final = re.compile(r"[a-z\d][A-Z]|[A-Za-z0-9]_[A-Za-z0-9]|^-|\w[./:@]\w|^[A-Za-z]+\d|[A-Z]{2}[a-z]")
_NEGATIONS_TEXT: Final = "not never no cannot neither nor none nobody nothing without"
_NEGATIONS: Final = frozenset(_NEGATIONS_TEXT.split())
_MONTHS_TEXT: Final = (
    "january february march april may june july august september october november december",
    "jan feb mar apr may jun jul aug sep oct nov dec",
)
_DAYS_TEXT: Final = "monday tuesday wednesday thursday friday saturday sunday"
_DAYS: Final = _DAYS_TEXT.split()
_CALENDAR: Final = {
    **{name: f"month {index}" for names in _MONTHS_TEXT for index, name in enumerate(names.split()) if name != "may"},
    "sept": "month 8",
    **{name: f"day {name}" for name in _DAYS},
}
_NOT_LETTERS: Final = re.compile(r"[\W_]+")
_CONTRACTED: Final = {"can": "can", "won": "will"}


@dataclass(frozen=True, slots=True)
class Token:
    """A word, number or name with its half-open character offsets. Equal `key`s mean the same.

    `word` is the text in lower case, and `measure` what a number measures.
    """

    key: str
    sort: Sort
    word: str
    start: int
    end: int
    measure: Measure | None = None

    @property
    def weighs(self) -> bool:
        """Whether the token says what the sentence is about: no number, no negation, no word of grammar."""
        return self.sort in ("word", "name")


def tokens(text: str) -> list[Token]:
    """Return the tokens of one sentence, in order. Citations and the targets of links are left out, and units belong to
    their number. Linear in the text's length.
    """
    left_out = bytearray(len(text))
    for pattern in (_CITATION, _TARGET):
        for match in pattern.finditer(text):
            left_out[match.start() : match.end()] = b"\x01" * (match.end() - match.start())
    numbers = {start: (end, measure) for start, end, measure in _in_words(text)}
    found: list[Token] = []
    reached = 0
    for match in _TOKEN.finditer(text):
        start = match.start()
        if start < reached or left_out[start]:
            continue
        if start in numbers:
            end, measure = numbers[start]
            found.append(_number(text, start, end, measure))
        else:
            found.extend(_tokens_of(text, match))
        if found:
            last = found[-1]
            reached = last.measure.end if last.measure else last.end
    return found


def _in_words(text: str) -> Iterator[tuple[int, int, Measure]]:
    yield from halves(text)
    for spelled in spelled_numbers(text):
        # "one" counts something only before a unit; else it is a pronoun.
        if spelled.value != "1" or unit_after(text, spelled.end):
            yield spelled.start, spelled.end, measure_at(text, spelled.value, spelled.end)


def _tokens_of(text: str, match: re.Match[str]) -> Iterator[Token]:
    start, end, word = match.start(), match.end(), match[0]
    if match.lastgroup == "number":
        yield _number(text, start, end, measure_at(text, word, end))
    elif match.lastgroup == "version":
        yield Token(f"v{word.lower().lstrip('v')}", "version", word.lower(), start, end)
    elif match.lastgroup == "contracted":
        yield from _negated(word.lower(), start, end)
    elif word.lower() == "cannot":
        yield from _negated("can't", start, end)
    elif match.lastgroup == "kebab":
        yield Token(_NOT_LETTERS.sub("", word.lower()), "name", word.lower(), start, end)
    elif match.lastgroup == "name":
        yield _word(word, start, end, quoted=text[start - 1 : start] == "`" or text[end : end + 1] == "`")


def _negated(contraction: str, start: int, end: int) -> Iterator[Token]:
    """Read "don't" as "do not"."""
    verb = _CONTRACTED.get(contraction[:-2], contraction[:-3])
    yield Token(f"_{verb}", "function", verb, start, start + len(verb))
    yield Token("_not", "negation", "not", start, end)


def _number(text: str, start: int, end: int, measure: Measure) -> Token:
    key = f"{measure.size[0]} {measure.size[1]:.9g}" if measure.size else f"# {measure.value}"
    return Token(key, "number", text[start:end].lower(), start, end, measure)


def _word(text: str, start: int, end: int, *, quoted: bool) -> Token:
    key, sort = _read(text)
    return Token(key, "name" if quoted and sort == "word" else sort, text.lower(), start, end)


@lru_cache(maxsize=1 << 15)
def _read(text: str) -> tuple[str, Sort]:
    word = text.lower()
    if word in _NEGATIONS:
        return "_not", "negation"
    if word in _CALENDAR:
        return _CALENDAR[word], "calendar"
    if _INNER.search(text):
        return _NOT_LETTERS.sub("", word) or word, "name"
    if word in STOP_WORDS:
        return f"_{word}", "function"
    stems = content_terms(word)
    return (stems[0] if len(stems) == 1 else word), "word"
