"""The checkable details of a text: what is either in the passages or made up."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from errata_kit.text.terms import STOP_WORDS
from services.judge.guard.numerals import plain_digits, spelled_numbers
from services.judge.guard.quantities import unit_after

_MONTHS_TEXT: Final = "january february march april may june july august september october november december"
_MONTHS: Final = tuple(_MONTHS_TEXT.split())
_MONTH: Final = r"(?:jan|feb|mar|apr|may|jun|jul|aug|sept?|oct|nov|dec)(?:[a-z]{0,6})\b\.?"
_EXTENSIONS: Final = (
    "md|txt|rst|py|pyi|js|ts|tsx|json|jsonl|ya?ml|toml|ini|cfg|conf|env|sh|sql|csv|html?|xml|proto|go|rs|java|c|h|cpp|lock|"
    "log|pem|crt|key|gz|zip|tar|whl|ipynb|db|sqlite|properties|tf|pdf|png|jpg|svg|exe|dll|so|bat|ps1|rb|php|css|parquet"
)
_DAY: Final = r"\d{1,2}(?:st|nd|rd|th)?"
_DATE: Final = (
    rf"\b(?:{_MONTH}\s+{_DAY}(?:\s*,)?\s+\d{{4}}|{_DAY}\s+(?:of\s+)?{_MONTH}\s*,?\s+\d{{4}}"
    rf"|{_MONTH}\s*,?\s+\d{{4}})(?!\d)"
)
_SCHEME: Final = r"(?:https?|ftp|wss?|grpcs?|postgres(?:ql)?|redis|file)"
_RELEASE: Final = r"(?:-?(?:rc|alpha|beta|dev|post)\.?\d{0,4})?\b"
_FILE: Final = (
    r"(?:[\w.\-]{1,60}/){0,12}\.?[\w\-]{1,80}(?:\.[\w\-]{1,30}){0,4}"
    rf"\.(?:{_EXTENSIONS})\b(?![.\-/]\w)"
)
_SNAKE: Final = r"_{0,2}[A-Za-z][A-Za-z0-9]{0,60}(?:_{1,2}[A-Za-z0-9]{1,60}){1,12}_{0,2}(?:\.\w{1,60}){0,6}"
_CAMEL: Final = r"[a-z]{1,40}[0-9]{0,4}(?:[A-Z][a-z0-9]{1,40}){1,8}"
_PASCAL: Final = r"[A-Z][a-z0-9]{1,40}(?:[A-Z][a-z0-9]{1,40}){1,8}"
# In this order: what an earlier pattern took is not looked at again. Every repeat is bounded or its classes
# are disjoint.
_PATTERNS: Final[tuple[tuple[str, re.Pattern[str]], ...]] = (
    ("code", re.compile(r"(?<!`)`{1,3}(?P<inner>[^`\s](?:[^`\n]{0,300}[^`\s])?)`{1,3}(?!`)")),
    ("url", re.compile(_SCHEME + r"://[^\s<>\"'`)\]}]{1,500}", re.I)),
    ("email", re.compile(r"(?<![\w.+\-])[\w.+\-]{1,64}@[\w\-]{1,63}(?:\.[\w\-]{1,63}){1,5}")),
    ("quote", re.compile(r"[\"“](?P<inner>[^\"“”\n]{2,200})[\"”]")),
    ("date", re.compile(r"(?<![\w\-])\d{4}-\d{2}-\d{2}(?!\d)")),
    ("date", re.compile(_DATE, re.I)),
    ("flag", re.compile(r"(?<![\w\-])--[A-Za-z][\w]{0,60}(?:-[\w]{1,60}){0,12}")),
    ("flag", re.compile(r"(?<![\w\-])-[A-Za-z](?![\w\-])")),
    ("path", re.compile(r"(?<![\w/.~\-])(?:~|\.{1,2})?(?:/[\w.@+\-]{1,100}){2,20}/?")),
    ("path", re.compile(r"(?<![\w/.~\-])(?:~|\.{1,2})/[\w.@+\-]{1,100}")),
    ("path", re.compile(r"(?<![\w/.\-])" + _FILE)),
    ("version", re.compile(r"(?<![\w.])v\d{1,5}(?:\.\d{1,6}){0,4}" + _RELEASE, re.I)),
    ("version", re.compile(r"(?<![\w.])\d{1,5}(?:\.\d{1,6}){2,4}" + _RELEASE, re.I)),
    ("identifier", re.compile(r"(?<![\w.])" + _SNAKE)),
    ("option", re.compile(r"(?<![\w.@/])[A-Za-z][\w\-]{1,60}(?:\.[A-Za-z][\w\-]{1,60}){1,8}(?![\w@])")),
    ("identifier", re.compile(rf"\b(?:{_CAMEL}|{_PASCAL})\b")),
    (
        "number",
        re.compile(r"(?<![\w.,])(?<![A-Za-z]-)(?:\d{1,3}(?:,\d{3}){1,6}|\d{1,18})(?:\.\d{1,12})?(?![\d])"),
    ),
)
_CITATION: Final = re.compile(r"\[\d{1,3}(?:[ ]?[,–-][ ]?\d{1,3}){0,9}\]")
# Numbers that say nothing ("24/7") or only count the answer's own parts: list markers, "(1)", "Step 2".
_ORDER_MARK: Final = re.compile(
    r"^[ \t>#*_]{0,12}\d{1,3}[.):][*_]{0,3}(?=\s)|\(\d{1,2}\)(?=\s)"
    r"|\b(?:step|option|part|example|phase|item|tip|method|way|point)s?\s+\d{1,2}\b|\b24/7\b",
    re.I | re.M,
)
_INLINE_MARK: Final = re.compile(r"(?<!\S)[*_]{0,3}(\d{1,2})[.)](?=\s|\*)")
_NOT_LETTERS: Final = re.compile(r"[\W_]+")


@dataclass(frozen=True, slots=True)
class Detail:
    """A detail of a text: half-open character offsets, and `key`, which its spellings share."""

    kind: str
    text: str
    key: str
    start: int
    end: int


def details(text: str) -> Iterator[Detail]:
    """Yield the details of `text`, grouped by kind; none overlaps another. Linear in the text's length."""
    taken = bytearray(len(text))
    marks = [match.span() for pattern in (_CITATION, _ORDER_MARK) for match in pattern.finditer(text)]
    for start, end in (*marks, *_inline_marks(text)):
        taken[start:end] = b"\x01" * (end - start)
    for kind, pattern in _PATTERNS:
        for match in pattern.finditer(text):
            start, end = match.span("inner") if "inner" in pattern.groupindex else match.span()
            detail = None if any(taken[start:end]) else _detail(kind, text, start, end)
            if detail is not None:
                taken[detail.start : detail.end] = b"\x01" * (detail.end - detail.start)
                yield detail
    for spelled in spelled_numbers(text):
        # Up to ten, people count what a text only lists: "in two ways".
        counts = len(spelled.value) > 1 and spelled.value != "10"
        if (counts or unit_after(text, spelled.end)) and not any(taken[spelled.start : spelled.end]):
            yield Detail("number", text[spelled.start : spelled.end], spelled.value, spelled.start, spelled.end)


def _inline_marks(text: str) -> Iterator[tuple[int, int]]:
    """Yield the markers of lists written in one line ("1. one 2. two"): only numbers that count up from 1."""
    expected = 1
    for match in _INLINE_MARK.finditer(text):
        value = int(match[1])
        if value in (1, expected):
            expected = value + 1
            yield match.span(1)


def squeezed(name: str) -> str:
    """Return a name without case and joints: `maxRetries`, `max_retries` and `MAX-RETRIES` are one."""
    return name.lower() if name.isalnum() else _NOT_LETTERS.sub("", name).lower()


def _detail(kind: str, text: str, start: int, end: int) -> Detail | None:
    found = text[start:end]
    if kind in ("url", "path", "email", "option"):
        found = found.rstrip(".,;:!?*_'")
    if kind == "option" and _is_prose(found):
        return None
    if kind == "quote":
        found = found.strip(" .,;:!?")
        start = text.index(found, start) if found else start
    key = _KEYS.get(kind, squeezed)(found)
    return Detail(kind, found, key, start, start + len(found)) if key else None


def _is_prose(dotted: str) -> bool:
    """Whether dots join words for want of a blank ("stock.The") or in an abbreviation ("U.S")."""
    parts = dotted.split(".")
    capitalised = any(part[:1].isupper() and part[1:].islower() for part in parts[1:])
    return capitalised or any(part.lower() in STOP_WORDS for part in parts)


def date_key(text: str) -> str:
    """Return "year-month-day", or "year-month" when no day is given; "" when the month is none."""
    if re.fullmatch(r"\d{4}-\d{2}-\d{2}", text):
        return text
    year = re.search(r"\d{4}", text)
    named = next((match[0].lower() for match in re.finditer(r"[A-Za-z]{3,}", text)), "")
    month = next((i for i, name in enumerate(_MONTHS, 1) if name.startswith(named[:3])), 0)
    if not year or not named or not month or not (_MONTHS[month - 1].startswith(named) or named == "sept"):
        return ""
    day = re.search(r"(?<!\d)\d{1,2}(?!\d)", text)
    return f"{year[0]}-{month:02d}" + (f"-{int(day[0]):02d}" if day else "")


def _version_key(text: str) -> str:
    return text.lower().lstrip("v")


def _same(text: str) -> str:
    return text.lower().rstrip("/")


_SPELLED: Final = ("url", "path", "flag", "email", "quote", "code")
_KEYS: Final[Mapping[str, Callable[[str], str]]] = {
    "date": date_key,
    "number": plain_digits,
    "version": _version_key,
    **dict.fromkeys(_SPELLED, _same),
}
