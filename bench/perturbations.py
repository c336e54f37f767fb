"""One detail of a supported sentence changed into something plausible that its sources do not say.

Each kind takes the first detail of its sort that a seeded choice picks, and puts another in its place: a number near by or a
power of ten off, another unit of the same dimension, a name with one part exchanged, a negation put in or taken out.

A draw is thrown away when the sources may say the changed sentence:
- a name, option, path, address, code or quotation, when the new one stands in any of the passages, in any casing;
- a value (number, unit, version, date), when a sentence or line of the passages has the new value in the same role: next to
  the same word (stop words aside), with half of the sentence's other words around it;
- any kind, when the changed sentence itself stands in the passages, word for word.
So a number that by chance stands elsewhere in the passages, about something else, is kept: the guard has to see that.
"""

import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from bench.supported import Supported, in_words, prose_matches
from errata_kit.text.terms import STOP_WORDS

_VALUES: Final = frozenset({"number", "number_word", "unit", "version", "date"})
_SHARED_WORDS: Final = 0.5
_TRIES: Final = 4


@dataclass(frozen=True, slots=True)
class Perturbed:
    """A sentence with one detail changed: `old` became `new`."""

    kind: str
    text: str
    old: str
    new: str
    source: Supported


@dataclass(frozen=True, slots=True)
class _Change:
    """What stands between `start` and `end` is replaced by `new`."""

    start: int
    end: int
    new: str


_MONTHS_TEXT: Final = "January February March April May June July August September October November December"
_MONTHS: Final = tuple(_MONTHS_TEXT.split())
_SHORT_MONTHS: Final = ("February", "April", "June", "September", "November")
_MONTH: Final = "|".join(_MONTHS)
_NUMBER: Final = re.compile(
    r"(?<![\w.,:/#\-–])(?<!Step )(?<!step )(?:\d{1,3}(?:,\d{3})+|\d{1,12})(?:\.\d+)?(?![\w:/°–]|[.,]\d|-\w)"
)
_WORDS_TEXT: Final = "two three four five six seven eight nine ten eleven twelve fifteen twenty thirty forty fifty sixty"
_WORDS: Final = _WORDS_TEXT.split()
_NUMBER_WORD: Final = re.compile(rf"\b(?:{'|'.join(_WORDS)})\b(?!-)", re.I)
_UNITS: Final = (
    ("ms", "s", "min", "h"),
    ("milliseconds", "seconds", "minutes", "hours", "days", "weeks", "months", "years"),
    ("millisecond", "second", "minute", "hour", "day", "week", "month", "year"),
    ("KB", "MB", "GB", "TB"),
    ("thousand", "million", "billion"),
)
_UNIT: Final = re.compile(rf"(?<=\d)[ -]?\b({'|'.join(unit for row in _UNITS for unit in row)})\b(?!/)")
_VERSION: Final = re.compile(r"(?<![\w.\-/])(?:v\d{1,3}(?:\.\d{1,3}){0,3}|\d{1,3}(?:\.\d{1,3}){2,3})(?![\w\-/]|\.\w)")
_DATES: Final = (
    re.compile(rf"\b(?:{_MONTH}) \d{{1,2}}, \d{{4}}\b"),
    re.compile(rf"\b\d{{1,2}} (?:{_MONTH}) \d{{4}}\b"),
    re.compile(rf"\b(?:{_MONTH}) \d{{4}}\b"),
    re.compile(r"(?<![\w\-])\d{4}-\d{2}-\d{2}(?![\w\-])"),
)
_SCREAMING: Final = re.compile(r"(?<![\w./\-$])[A-Z][A-Z0-9]+(?:_[A-Z0-9]+)+(?![\w./])")
_SNAKE: Final = re.compile(r"(?<![\w./\-])[a-z][a-z0-9]*(?:_[a-z0-9]+)+(?![\w/=]|\.\w)")
_CAMEL: Final = re.compile(r"(?<![\w./\-])(?:[A-Z]?[a-z]{2,})(?:[A-Z][a-z]+)+(?![\w/=]|\.\w)")
_KEBAB: Final = re.compile(r"(?<=`)[a-z][a-z0-9]+(?:-[a-z0-9]+)+(?=`)")
_FLAG: Final = re.compile(r"(?<![\w\-])--?[a-z][a-z0-9]*(?:[-_][a-z0-9]+)*(?=[\s`=.,])")
_OPTION: Final = re.compile(
    r"(?<![\w./\-@])[a-z][A-Za-z_]+(?:\.[a-z][A-Za-z_]+)+(?![\w/(@=]|\.\w)(?<!\.md)(?<!\.yaml)(?<!\.ini)"
)
_EXTENSION: Final = r"\.(?:ya?ml|json|py|sh|md|toml|txt|conf|ini|go|log|csv|parquet|zip)"
_FILE: Final = re.compile(rf"(?<![\w./\-:])((?:[\w.\-]+/)*[\w\-]+){_EXTENSION}\b(?![./\w])")
_FOLDERS: Final = re.compile(r"(?<![\w./\-:<])(?:~|\.{1,2})?(?:/[A-Za-z][\w.\-]+){2,}(?![\w])")
_URL: Final = re.compile(r"https?://([\w.\-]+(?::\d+)?(?:/[\w.\-]+)*)")
_CODE: Final = re.compile(r"(?<!`)`([^`\n]{2,80})`(?!`)")
_QUOTED: Final = re.compile(r"[\"“]([A-Za-z][^\"“”`]{2,120})[\"”]")
_LETTERS: Final = re.compile(r"[A-Za-z]{3,}")
# What parts of technical names are made of: a name with one part exchanged looks like any other of its product.
_PARTS_TEXT: Final = (
    "buffer retry queue worker batch cache shard limit token policy quota ratio window level backend session handler region "
    "bucket offset latency cluster filter parser cursor daemon ledger probe digest anchor mirror"
)
_PARTS: Final = _PARTS_TEXT.split()
_VERBS_TEXT: Final = (
    "supports provides requires allows uses contains includes returns stores needs enables offers creates makes has means "
    "gives shows takes runs works depends helps describes determines specifies consists allows represents"
)
_VERBS: Final = _VERBS_TEXT.split()
_PLURAL_VERBS_TEXT: Final = "support provide require allow use contain include return store need enable offer have"
_PLURAL_VERBS: Final = _PLURAL_VERBS_TEXT.split()
_AUXILIARY: Final = re.compile(
    r"\b(?:is|are|was|were|will|should|must|may|does|do|did|would|could|can)\b(?! (?:not|only|no)\b|n't)"
)
_VERB: Final = re.compile(rf"(?<=[a-z)`] )(?:{'|'.join(_VERBS)})\b(?! been)")
_PLURAL_VERB: Final = re.compile(rf"(?<=[a-z)`]s )(?:{'|'.join(_PLURAL_VERBS)})\b")
_NOT: Final = (
    (re.compile(r"\b(is|are|was|were|will|should|must|may|would|could|can|does|do|did) not (?!only\b)"), r"\1 "),
    (re.compile(r"\b(is|are|was|were|does|do|did|would|could|should)n['’]t\b"), r"\1"),
    (re.compile(r"\bcannot\b"), "can"),
    (re.compile(r"\bcan['’]t\b"), "can"),
    (re.compile(r"\bnever\b"), "always"),
)
_PAIRS: Final = (
    "always/never enabled/disabled enable/disable enables/disables before/after minimum/maximum increase/decrease "
    "increases/decreases true/false required/optional higher/lower larger/smaller ascending/descending allowed/forbidden "
    "supported/unsupported with/without add/remove start/stop includes/excludes more/fewer first/last"
)
_OPPOSITES: Final = {
    word: other for pair in _PAIRS.split() for one, two in (pair.split("/"),) for word, other in ((one, two), (two, one))
}
# "For more information" points somewhere and states nothing.
_OPPOSITE: Final = re.compile(rf"\b(?:{'|'.join(_OPPOSITES)})\b(?! information| details| about)")


def perturbed(sentence: Supported, kind: str) -> tuple[Perturbed | None, int]:
    """Return `sentence` with a detail of `kind` changed, and how many draws were thrown away on the way to it.

    None when it has no such detail, or when every draw was thrown away.
    """
    thrown = 0
    for attempt in range(_TRIES):
        change = KINDS[kind](sentence.text, sentence.chance(f"{kind} {attempt}"))
        if change is None:
            break
        text = sentence.text[: change.start] + change.new + sentence.text[change.end :]
        result = Perturbed(kind, text, sentence.text[change.start : change.end], change.new, sentence)
        if not _said(result, change):
            return result, thrown
        thrown += 1
    return None, thrown


# --- whether the sources may say it -----------------------------------------------------------------------------------


def _said(result: Perturbed, change: _Change) -> bool:
    sources = [" ".join([p.title, *p.heading_path, p.text]) for p in result.source.passages]
    if any(_plain(result.text) in _plain(source) for source in sources):
        return True
    if result.kind in _VALUES:
        return any(_in_role(result, change, line) for source in sources for line in _lines(source))
    if result.kind in ("negation", "opposite"):
        return False
    if result.kind == "flag":
        return any(re.search(rf"(?<![\w\-]){re.escape(change.new)}(?![\w\-])", source) for source in sources)
    needle = _joined(change.new)
    return any(needle in _joined(source) for source in sources)


def _in_role(result: Perturbed, change: _Change, line: str) -> bool:
    value = re.search(rf"(?<![\w.]){re.escape(change.new)}(?![\w])", line, re.I)
    if value is None:
        return False
    before, after = _words(result.text[: change.start]), _words(result.text[change.start + len(change.new) :])
    around = {*before[-1:], *after[:1]}
    beside = {*_words(line[: value.start()])[-1:], *_words(line[value.end() :])[:1]}
    rest = {*before, *after}
    return bool(around & beside) and len(rest & set(_words(line))) >= _SHARED_WORDS * len(rest)


def _lines(source: str) -> list[str]:
    return re.split(r"\n+|(?<=[.!?])\s", source)


def _words(text: str) -> list[str]:
    return [word for word in re.findall(r"\w+", text.lower()) if word not in STOP_WORDS]


def _plain(text: str) -> str:
    return " ".join(re.findall(r"\w+", text.lower()))


def _joined(text: str) -> str:
    return re.sub(r"[\W_]+", "", text.lower())


# --- the changes ------------------------------------------------------------------------------------------------------


def _number(text: str, chance: random.Random) -> _Change | None:
    matches = prose_matches(_NUMBER, text)
    if not matches:
        return None
    match = chance.choice(matches)
    return _Change(match.start(), match.end(), _other_number(match[0], chance))


def _other_number(number: str, chance: random.Random) -> str:
    if "." in number:
        whole, fraction = number.split(".")
        digits = [d for d in "123456789" if d != fraction[-1]]
        return f"{whole}.{fraction[:-1]}{chance.choice(digits)}"
    value = int(number.replace(",", ""))
    if 1500 <= value <= 2100 and "," not in number:
        return str(value + chance.choice([-7, -3, -2, -1, 1, 2, 3, 5]))
    near = [value + 1, value + 2, value * 2, value * 10, value + 10, *([value // 2, value - 1] if value > 3 else [])]
    other = chance.choice([v for v in near if v != value])
    return f"{other:,}" if "," in number else str(other)


def _number_word(text: str, chance: random.Random) -> _Change | None:
    if match := _any(prose_matches(_NUMBER_WORD, text), chance):
        new = chance.choice([word for word in _WORDS if word != match[0].lower()])
        return _Change(match.start(), match.end(), new.capitalize() if match[0][0].isupper() else new)
    digits = prose_matches(_NUMBER, text)
    if match := _any([m for m in digits if m[0].isdigit() and int(m[0]) < 1000 and text[m.end() : m.end() + 1] == " "], chance):
        return _Change(match.start(), match.end(), in_words(int(_other_number(match[0], chance))))
    return None


def _unit(text: str, chance: random.Random) -> _Change | None:
    if match := _any(prose_matches(_UNIT, text), chance):
        row = next(row for row in _UNITS if match[1] in row)
        return _Change(match.start(1), match.end(1), chance.choice([unit for unit in row if unit != match[1]]))
    return None


def _version(text: str, chance: random.Random) -> _Change | None:
    if match := _any(prose_matches(_VERSION, text), chance):
        parts = match[0].lstrip("v").split(".")
        place = chance.randrange(1, len(parts)) if len(parts) > 1 else 0
        parts[place] = str(max(0, int(parts[place]) + chance.choice([1, 2, 3, -1])))
        new = ("v" if match[0].startswith("v") else "") + ".".join(parts)
        return _Change(match.start(), match.end(), new) if new != match[0] else None
    return None


def _date(text: str, chance: random.Random) -> _Change | None:
    if match := _any([m for pattern in _DATES for m in prose_matches(pattern, text)], chance):
        pieces = list(re.finditer(rf"{_MONTH}|\d+", match[0]))
        piece = chance.choice(pieces)
        start = match.start() + piece.start()
        return _Change(match.start(), match.end(), _spliced(text, match, start, piece[0], _other_piece(piece[0], chance)))
    return None


def _other_piece(piece: str, chance: random.Random) -> str:
    if piece in _MONTHS:
        return chance.choice([month for month in _MONTHS if month != piece and month not in _SHORT_MONTHS])
    if len(piece) == 4:
        return str(int(piece) + chance.choice([-2, -1, 1, 2]))
    other = chance.choice([v for v in range(1, 13) if v != int(piece)])
    return f"{other:0{len(piece)}d}" if piece[0] == "0" else str(other)


def _spliced(text: str, match: re.Match[str], start: int, old: str, new: str) -> str:
    return text[match.start() : start] + new + text[start + len(old) : match.end()]


def _one_word(pattern: re.Pattern[str], separators: str = "_") -> Callable[[str, random.Random], _Change | None]:
    """Exchange one part of a name that `pattern` finds, keeping the case in which the part was written."""

    def change(text: str, chance: random.Random) -> _Change | None:
        match = _any(list(pattern.finditer(text)), chance)
        if match is None:
            return None
        group = 1 if pattern.groups else 0
        words = list(_LETTERS.finditer(match[group]) if separators else re.finditer(r"[A-Z]?[a-z]+", match[group]))
        word = _any(words, chance)
        if word is None:
            return None
        start = match.start(group) + word.start()
        return _Change(match.start(group), match.end(group), _exchanged(text, match.span(group), start, word[0], chance))

    return change


def _exchanged(text: str, span: tuple[int, int], start: int, old: str, chance: random.Random) -> str:
    new = chance.choice([part for part in _PARTS if part != old.lower()])
    new = new.upper() if old.isupper() else new.capitalize() if old[0].isupper() else new
    return text[span[0] : start] + new + text[start + len(old) : span[1]]


def _path(text: str, chance: random.Random) -> _Change | None:
    patterns = chance.sample([_FILE, _FOLDERS], 2)
    return next((change for pattern in patterns if (change := _one_word(pattern)(text, chance)) is not None), None)


def _flag(text: str, chance: random.Random) -> _Change | None:
    if match := _any(list(_FLAG.finditer(text)), chance):
        if match[0].startswith("--"):
            return _one_word(_FLAG)(text, chance)
        letter = chance.choice([c for c in "abcdefghijklmnopqrstuvwxyz" if c != match[0][1]])
        return _Change(match.start(), match.end(), f"-{letter}") if len(match[0]) == 2 else None
    return None


def _negation(text: str, chance: random.Random) -> _Change | None:
    """Take a negation out where there is one; else put one in."""
    for pattern, new in _NOT:
        if match := pattern.search(text):
            return _Change(match.start(), match.end(), match.expand(new))
    if match := _any(prose_matches(_AUXILIARY, text), chance):
        if match[0] == "can":
            return _Change(match.start(), match.end(), chance.choice(["cannot", "can not", "can't"]))
        short = match[0] not in ("may", "will", "can") and chance.random() < 0.25
        return _Change(match.start(), match.end(), f"{match[0]}n't" if short else f"{match[0]} not")
    if match := _any(prose_matches(_VERB, text), chance):
        verb = "have" if match[0] == "has" else match[0][:-1]
        return _Change(match.start(), match.end(), chance.choice([f"does not {verb}", f"never {match[0]}"]))
    if match := _any(prose_matches(_PLURAL_VERB, text), chance):
        return _Change(match.start(), match.end(), chance.choice([f"do not {match[0]}", f"never {match[0]}"]))
    return None


def _opposite(text: str, chance: random.Random) -> _Change | None:
    if match := _any(prose_matches(_OPPOSITE, text), chance):
        return _Change(match.start(), match.end(), _OPPOSITES[match[0]])
    return None


def _any(matches: list[re.Match[str]], chance: random.Random) -> re.Match[str] | None:
    return chance.choice(matches) if matches else None


KINDS: Final[Mapping[str, Callable[[str, random.Random], _Change | None]]] = {
    "number": _number,
    "number_word": _number_word,
    "unit": _unit,
    "version": _version,
    "date": _date,
    "snake_case": _one_word(_SNAKE),
    "camel_case": _one_word(_CAMEL, ""),
    "kebab_case": _one_word(_KEBAB),
    "environment": _one_word(_SCREAMING),
    "flag": _flag,
    "option": _one_word(_OPTION),
    "path": _path,
    "url": _one_word(_URL),
    "code": _one_word(_CODE),
    "quote": _one_word(_QUOTED),
    "negation": _negation,
    "opposite": _opposite,
}


def perturbations(sentences: Sequence[Supported], kind: str, most: int, each_document: int) -> Iterator[Perturbed | int]:
    """Yield up to `most` changed sentences of a kind, at most `each_document` of a document, and counts of thrown draws."""
    left: dict[str, int] = {}
    found = 0
    for sentence in sentences:
        if left.get(sentence.document, 0) >= each_document:
            continue
        result, thrown = perturbed(sentence, kind)
        yield thrown
        if result is not None:
            left[sentence.document] = left.get(sentence.document, 0) + 1
            found += 1
            yield result
        if found == most:
            return
