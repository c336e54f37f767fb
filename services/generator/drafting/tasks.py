"""What a writing task asks for: its subject, its points, and how long the text may be. Rules, no model."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from errata_kit.text.questions import generic_terms, read_question, strip_small_talk, tidy
from errata_kit.text.terms import content_terms
from services.generator.drafting.drafts import find_markers

_MOST_POINTS: Final = 24
_LONGEST_POINT: Final = 160
_LONGEST_TITLE: Final = 100
_FORMS: Final = (
    r"(?:how[- ]to|guide|tutorial|article|page|section|overview|summary|introduction|primer|notes?|blog|post|documents?|"
    r"documentation|report|explanation|reference|runbook|faq|comparison|paragraph|draft|description|instructions?|readme|"
    r"chapter|text|piece|essay|outline|checklist|walkthrough|cheat ?sheet|announcement|manual|topic|specification)"
)
# "Write a short how-to guide for …" up to the subject; the adjectives are few, so the match is quick.
_WRITE: Final = re.compile(
    r"(?:write|draft|create|prepare|produce|compose|make|provide|give|develop|author)\b(?: (?:me|us|up))?"
    rf"(?: (?:an?|the|some|one))?(?: [\w'-]+){{0,4}}? {_FORMS}(?: {_FORMS})*\b"
    r"(?:,? (?:on|about|for|to|of|into|in|that (?:covers|describes|explains|shows)|which (?:covers|describes|explains|shows)|"
    r"covering|describing|explaining|showing))?\b(?: how to(?= \w+ing\b))?[ :]*",
    re.IGNORECASE,
)
_TELL: Final = re.compile(
    r"(?:and |also |then |please |(?:it|this|the (?:text|page|guide|article|draft)|you) (?:should|must|has to|needs to) )*"
    r"(?:write(?: about)?|explain|describe|summari[sz]e|document|outline|discuss|compare|contrast|introduce|cover|mention|"
    r"include|add|say|show|state|list|name|tell (?:me|us)(?: about)?|expand on|elaborate on|address|present|give)\b[ :]*",
    re.IGNORECASE,
)
_MORE_WORDS: Final = re.compile(
    r"(?:(?:some |a (?:short |little )?(?:bit )?)?(?:more|something|a word|a section|a sentence|sections?|details?|information|"
    r"examples? of)(?: (?:about|on|for|regarding))?|about) ",
    re.IGNORECASE,
)
_COVERS: Final = re.compile(
    r"[,;.]?\s+(?:and\s+)?(?:covering|including|include|such as|namely|in particular|with sections? (?:on|about|for)|"
    r"(?:that|which|and|to|it should|it must|should) (?:covers?|includes?|mentions?)|with (?=an? ))\b:?\s*|:\s+",
    re.IGNORECASE,
)
_ITEM: Final = re.compile(r"\s*(?:[-*+•]|\(?\d{1,2}[.)]|\(?[a-h]\))\s+(?=\S)")
_INLINE_ITEM: Final = re.compile(r"(?:^|(?<=[\s,;:]))\(?(?:\d{1,2}|[a-h])\)\s+")
_SENTENCE_END: Final = re.compile(r"(?<=[.!?])\s+(?=[A-Z0-9`\"(])")
_COMMA: Final = re.compile(r"\s*[,;]\s+(?:(?:and|or|as well as|plus)\s+)?")
_AND: Final = re.compile(r"\s+(?:and|as well as|plus|&|versus|vs\.?)\s+", re.IGNORECASE)
_SHIELDED: Final = re.compile(r"`[^`]*`|\"[^\"]*\"|“[^”]*”|\([^()]*\)")
_LENGTH: Final = re.compile(
    r"[,;]?\s*\b(?:in|of|with|within|using|to|keep (?:it|this) (?:to|under|below))?\s*(?:about|around|roughly|at most|"
    r"no more than|not more than|up to|under|below|fewer than|less than|a maximum of|max\.?)\s+(?P<words>\d{1,5})\s+words\b",
    re.IGNORECASE,
)
# How it is to be written, which is no point of its content.
_MANNER: Final = re.compile(
    r"^(?:(?:please )?(?:keep|use|make|write|be|format|cite|avoid|do not|don't|no|assume|aim|target|answer|return|output)\b"
    r"(?!.*\babout\b)|(?:for|in|with) (?:beginners?|experts?|new users?|developers?|operators?|english|plain|simple|"
    r"markdown|a\b.*\b(?:tone|style|voice))\b)",
    re.IGNORECASE,
)
_EDGES: Final = " \t\n,;:.-–—"


@dataclass(frozen=True, slots=True)
class Point:
    """One thing to be covered. listed: the task names it as one of several, so that it may head a section."""

    text: str
    terms: frozenset[str]
    listed: bool = True

    @property
    def is_name(self) -> bool:
        """Whether it is a single name, such as IVF_FLAT or top_k, that must stand as it is."""
        return " " not in self.text and (self.text.isupper() or "_" in self.text)

    @property
    def is_vague(self) -> bool:
        """Whether its words name nothing by themselves, as in "when to use it"."""
        return len(self.terms) < 2 and self.terms <= generic_terms()


@dataclass(frozen=True, slots=True)
class Task:
    """A task taken apart. The title is never empty unless the task is blank; most_words is None without a limit."""

    title: str
    subject: str
    points: tuple[Point, ...]
    most_words: int | None = None


@lru_cache(maxsize=256)
def read_task(text: str) -> Task:
    """Take a task apart. Deterministic, and quick for every text within the contract's bounds."""
    lines, limit = _lines(text)
    items = [_ITEM.sub("", line, count=1) for line in lines if _ITEM.match(line)]
    spoken = strip_small_talk(" ".join(line.strip() for line in lines if not _ITEM.match(line)))
    first, *others = _SENTENCE_END.split(spoken) if spoken else [""]
    subject, listed = _subject(first)
    halves = _both(subject)
    phrases = [*listed, *items]
    for sentence in others:
        phrases.extend(_asked(sentence))
    about = frozenset(_key_terms(subject))
    points = list(_points(phrases, about))
    if not points or (len(halves) > 1 and not set(listed) & set(_enumerated(subject))):
        points[:0] = [Point(point.text, point.terms, listed=False) for point in _points(halves, about)]
    title = _title(subject or (points[0].text if points else "") or text)
    return Task(title, subject, tuple(points[:_MOST_POINTS]), limit)


def asked_points(text: str) -> tuple[Point, ...]:
    """What a person's remark or a review's suggestion asks to be said, such as "add the default and its limits"."""
    lines = [_ITEM.sub("", line, count=1) for line in _lines(text)[0]]
    sentences = [sentence for line in lines for sentence in _SENTENCE_END.split(strip_small_talk(line))]
    return tuple(_points([phrase for sentence in sentences for phrase in _asked(sentence)], frozenset()))


def most_words(text: str) -> int | None:
    """The number of words that a text allows ("in at most 300 words"), or None."""
    return _lines(text)[1]


def clipped(words: str, longest: int) -> str:
    """The words on one line, without marks of citations, cut between words when they are longer."""
    plain = words
    for marker in reversed(list(find_markers(plain))):
        plain = plain[: marker.start()] + plain[marker.end() :]
    plain = " ".join(plain.split())
    return plain if len(plain) <= longest else (plain[:longest].rsplit(" ", 1)[0] or plain[:longest])


def _lines(text: str) -> tuple[list[str], int | None]:
    """The lines that are not blank, each with single blanks, and the number of words that they allow."""
    lines = [" ".join(line.split()) for line in text.splitlines() if line.strip()]
    limits = [int(match["words"]) for line in lines if (match := _LENGTH.search(line))]
    rest = [line for line in (_LENGTH.sub("", line) for line in lines) if line.strip()]
    return rest, limits[0] if limits else None


def _subject(sentence: str) -> tuple[str, list[str]]:
    """What the first sentence is about, and what it lists."""
    opened = _WRITE.match(sentence) or _TELL.match(sentence)
    rest = sentence[opened.end() :] if opened else sentence
    shields = _shields(rest)
    cover = next((match for match in _COVERS.finditer(rest) if not _shielded(shields, match.start())), None)
    if cover is None:
        parts = _split(_COMMA, rest)
        several = len(parts) > 2 or (len(parts) == 2 and len(_AND.split(parts[1])) > 1)
        return rest.strip(_EDGES), _enumerated(rest) if several and not _MANNER.match(parts[1]) else []
    return rest[: cover.start()].strip(_EDGES), _enumerated(rest[cover.end() :])


def _asked(sentence: str) -> list[str]:
    opened = _WRITE.match(sentence) or _TELL.match(sentence)
    if opened is None and _MANNER.match(sentence):
        return []
    rest = sentence[opened.end() :] if opened else sentence
    return _enumerated(_MORE_WORDS.sub("", rest, count=1) if _MORE_WORDS.match(rest) else rest)


def _enumerated(text: str) -> list[str]:
    """The parts of "a, b and c", of "a and b", and of "1) a 2) b"."""
    numbered = _INLINE_ITEM.split(text)
    if len(numbered) > 2:
        return [part for part in numbered if part.strip(_EDGES)]
    return [half for part in _split(_COMMA, text) for half in _both(part)]


def _both(text: str) -> list[str]:
    """The two sides of an "and", where each says something by itself."""
    sides = _split(_AND, text)
    return sides if len(sides) > 1 and all(_key_terms(side) for side in sides) else [text]


def _split(at: re.Pattern[str], text: str) -> list[str]:
    """Split outside code, quotation marks and brackets."""
    parts, start, shields = [], 0, _shields(text)
    for match in at.finditer(text):
        if not _shielded(shields, match.start()):
            parts.append(text[start : match.start()])
            start = match.end()
    return [part for part in (*parts, text[start:]) if part.strip(_EDGES)]


def _shields(text: str) -> list[tuple[int, int]]:
    return [match.span() for match in _SHIELDED.finditer(text)]


def _shielded(shields: Sequence[tuple[int, int]], place: int) -> bool:
    return any(start < place < end for start, end in shields)


def _points(phrases: Sequence[str], about: frozenset[str]) -> Iterator[Point]:
    seen: set[str] = set()
    for phrase in phrases:
        words = tidy(clipped(phrase, _LONGEST_POINT)).strip(_EDGES).removesuffix("?")
        if not content_terms(words) or _MANNER.match(words) or words.casefold() in seen:
            continue
        seen.add(words.casefold())
        own = frozenset(_key_terms(words)) - about or frozenset(content_terms(words)) - about
        yield Point(words, own or frozenset(_key_terms(words)) or about)
        if len(seen) == _MOST_POINTS:
            return


def _key_terms(text: str) -> tuple[str, ...]:
    read = read_question(text)
    return tuple(term for term in (read.key_terms or read.terms) if term not in generic_terms())


def _title(words: str) -> str:
    title = clipped(re.sub(r"^[#>*_\s-]+", "", words), _LONGEST_TITLE).strip(_EDGES) or clipped(words, _LONGEST_TITLE)
    return title[:1].upper() + title[1:]
