"""Compare the details of an answer with those of the passages, and its sentences with the nearest ones of theirs."""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Final

from errata_kit.passages import Passage
from errata_kit.text.matching import fold, occurs
from errata_kit.text.sentences import Sentence, split_sentences
from errata_kit.text.terms import content_terms
from services.judge.claims.splitting import abstention_end, bare_statement, plain_text
from services.judge.claims.verdicts import Finding
from services.judge.guard.details import Detail, details, squeezed
from services.judge.guard.disagreement import disagreements
from services.judge.guard.nearest import SourceSentences
from services.judge.guard.quantities import Quantities

MOST_FINDINGS: Final = 500
"""Details after which no more are looked up: each costs a look through all passages. No report shows as many."""
_NAMES: Final = {
    "code": "the code",
    "url": "the address",
    "email": "the address",
    "quote": "the quoted words",
    "date": "the date",
    "flag": "the flag",
    "path": "the path",
    "version": "version",
    "identifier": "the name",
    "option": "the option",
    "environment": "the environment variable",
}
_ENVIRONMENT: Final = re.compile(r"[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+")
_FLAG: Final = re.compile(r"--?[A-Za-z][\w\-]*")
_SIMPLE: Final = re.compile(r"\w+")
_DOTTED: Final = re.compile(r"\w+(?:\.\w+)+")
# Kebab-case names, which in prose cannot be told from hyphenated words.
_HYPHENATED: Final = re.compile(r"\w[\w.]*(?:-[\w.]+)+")
_PIECE: Final = re.compile(r"[^\s\"'()\[\]{}=,;|<>$]+")
# From this many letters on, quoted words are compared without blanks and hyphens: "long-term" is "long term".
_LONG_QUOTE: Final = 5
# Words of its own that a sentence may add and still merely repeat the question.
_REPEATING_WORDS: Final = 1
# Characters below which a sentence is too little to be held against others.
_SHORTEST_STATEMENT: Final = 12


def find_ungrounded(answer: str, question: str, passages: Sequence[Passage]) -> tuple[Finding, ...]:
    """Return the details of `answer` that no passage has, or that its nearest source sentences say otherwise, in order.

    Details are numbers (with units; also in words), versions, dates, names with underscores, inner capitals or
    dots, flags, environment variables, paths, addresses, code and quoted words. Compared without case,
    grouping and typography: 1,000 is one thousand, 60 s a minute, `maxRetries` `max_retries`. A detail that
    stands somewhere is still a finding where a nearly equal sentence has another in its place, and so is a
    negation or an opposite word ("negation") that turns such a sentence round. Not findings: citations, list
    markers, what stands in a statement that the documents do not know it, and words of the question in a
    sentence that only repeats it. A name that is in the question alone is a finding once more is said.
    At most `MOST_FINDINGS` details that are nowhere are returned. Deterministic.
    """
    parts = [part for p in passages for part in (p.title, *p.heading_path, p.text)]
    known = _Known(parts)
    asked = _Known([question])
    units = split_sentences(answer)
    found: list[Finding] = []
    for detail in details(answer):
        why = known.explain_missing(detail, answer)
        if why is None:
            continue
        unit = next((u for u in units if u.start <= detail.start < u.end), None)
        if unit is not None and _excused(detail, unit, question, asked, answer):
            continue
        found.append(Finding(_kind(detail), detail.text, detail.start, detail.end, why))
        if len(found) == MOST_FINDINGS:
            break
    found.extend(_otherwise(answer, units, found, parts))
    return tuple(sorted(found, key=lambda finding: finding.start))


def _otherwise(answer: str, units: Sequence[Sentence], found: Sequence[Finding], parts: Sequence[str]) -> Iterator[Finding]:
    """Yield what sentences of `answer` say otherwise than the nearest ones of `parts`, but for what was `found` already."""
    source: SourceSentences | None = None
    taken = bytearray(len(answer))
    for finding in found:
        taken[finding.start : finding.end] = b"\x01" * (finding.end - finding.start)
    for unit in units:
        said = bare_statement(unit.text[abstention_end(unit.text) :])
        if unit.kind in ("code", "heading") or said.endswith(("?", ":")) or len(said) < _SHORTEST_STATEMENT:
            continue
        source = source or SourceSentences(parts)
        offset = unit.end - len(said)
        for one in () if source.has(said) else disagreements(source.nearest(said)):
            start, end = offset + one.start, offset + one.end
            if not any(taken[start:end]):
                yield Finding(one.kind, answer[start:end], start, end, one.why)


class _Known:
    """The details of texts, looked up by key; each index is made when it is first asked."""

    def __init__(self, texts: Sequence[str]) -> None:
        # A line between them, so that nothing is found across two passages.
        self._text = "\n\n".join(text for text in texts if text)

    @cached_property
    def _folded(self) -> str:
        return fold(self._text)

    @cached_property
    def _squeezed(self) -> str:
        return squeezed(self._text)

    @cached_property
    def _quantities(self) -> Quantities:
        return Quantities(self._text)

    @cached_property
    def _keys(self) -> Mapping[str, set[str]]:
        keys: defaultdict[str, set[str]] = defaultdict(set)
        for detail in details(self._text):
            keys[detail.kind].add(detail.key)
        return keys

    @cached_property
    def _names(self) -> frozenset[str]:
        words = (*_DOTTED.findall(self._text), *_SIMPLE.findall(self._text), *_HYPHENATED.findall(self._text))
        return frozenset(squeezed(word) for word in set(words))

    def explain_missing(self, detail: Detail, text: str) -> str | None:
        """Return why `detail` of `text` is ungrounded, or None when the passages have it."""
        if detail.kind == "number":
            return self._quantities.explain_missing(text, detail.key, detail.start, detail.end)
        if self._has(detail):
            return None
        if detail.kind == "code" and (missing := self._missing_piece(detail.text)) != detail.text:
            return f'No passage has "{missing}".' if missing else None
        return f"No passage has {_NAMES[_kind(detail)]} {detail.text}."

    def _has(self, detail: Detail) -> bool:
        keys = self._keys[detail.kind]
        if detail.key in keys:
            return True
        if detail.kind == "date":
            return any(key.startswith(detail.key + "-") for key in keys)
        if detail.kind == "version":
            return occurs(detail.key, self._folded)
        if detail.kind == "flag":
            return False if detail.text.startswith("--") else occurs(detail.text.lower(), self._folded)
        if detail.kind in ("identifier", "option") and detail.key in self._names:
            return True
        if detail.kind == "quote" and len(squeezed(detail.text)) >= _LONG_QUOTE:
            return squeezed(detail.text) in self._squeezed
        return occurs(fold(detail.text), self._folded)

    def _missing_piece(self, code: str) -> str:
        """Return the first word of a command or expression that no passage has; "" when all are known."""
        for match in _PIECE.finditer(code):
            piece = match[0].strip(".,:")
            if piece and squeezed(piece) not in self._names and not occurs(fold(piece), self._folded):
                return piece
        return ""


def _kind(detail: Detail) -> str:
    """Return the detail's kind; variables and flags are named as such inside code spans, too."""
    if detail.kind in ("identifier", "code") and _ENVIRONMENT.fullmatch(detail.text):
        return "environment"
    return "flag" if detail.kind == "code" and _FLAG.fullmatch(detail.text) else detail.kind


def _excused(detail: Detail, unit: Sentence, question: str, asked: _Known, answer: str) -> bool:
    """Whether the detail is only mentioned: as not known, or as what the question asked."""
    if detail.start < unit.start + abstention_end(unit.text):
        return True
    if asked.explain_missing(detail, answer) is not None:
        return False
    if detail.kind == "quote" or unit.text.endswith(("?", ":")):
        return True
    own = set(content_terms(plain_text(unit.text))) - set(content_terms(question))
    return len(own) <= _REPEATING_WORDS
