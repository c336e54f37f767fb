"""The offline grader: does a passage answer a question, told without a language model.

It weighs how near the question lies to the passage's best sentence and to the passage as a whole (cosines of
a sentence encoder), and how many of the question's key words the passage names. Without an encoder it has the
words alone, and is weaker for it. It reads nearness of subject, not truth: a passage on the right subject
without the answer can pass.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from errata_kit.encoding import Encoder, RememberingEncoder, Vectors
from errata_kit.grades import PassageGrade
from errata_kit.passages import Passage
from errata_kit.text.questions import Question, is_small_talk, read_question
from errata_kit.text.sentences import split_sentences
from errata_kit.text.terms import content_terms

# The strength of evidence at which the score is 0.75, the default relevance threshold, and how fast the score
# moves around it. bench/refusal_lab.py prints how far the cut may move before a target is missed: 0.04 either
# way.
_CUT: Final = 0.565
_CUT_LEXICAL: Final = 0.60
_STEEPNESS: Final = 14.0
_SCORE_AT_CUT: Final = 0.75
_RELEVANT_FROM: Final = 0.5
# A sentence answers, the passage around it confirms the subject: weights of 0.5 to 0.8 measure alike on open
# questions, and the heavier ones do better on dense documentation.
_BEST_WEIGHT: Final = 0.65
_COVERAGE_WEIGHT: Final = 0.1
_MISSING_NAME_COST: Final = 0.08
_MISSING_SUPPORT_COST: Final = 0.3
_EDGES: Final = "\"'“”‘’.,;:?!()[]{}*`"
# A passage of the retriever has about ten units; one of 16 KiB would otherwise cost seconds.
_MAX_UNITS: Final = 48
_SHORT_UNIT: Final = 25
# What a table row or code block is about shows in its beginning; the rest would cost time.
_LONGEST_UNIT: Final = 300
_QUOTE_LENGTH: Final = 120

# Questions that only a number or a date answers, and what counts as one.
_ASKS_AMOUNT: Final = re.compile(
    r"\bhow (?:much|many|long|old|big|large|far|often)\b|\b(?:cost|price|salary|average|minimum|maximum)\b"
    r"|\bwhen (?:did|was|were)\b|\bwh(?:at|ich) year\b",
    re.IGNORECASE,
)
_AMOUNT: Final = re.compile(
    r"\d|\b(?:one|two|three|four|five|six|seven|eight|nine|ten|dozen|hundred|thousand|million|free|unlimited|"
    r"no (?:limit|charge|cost|fee)s?|once|twice|daily|weekly|monthly|yearly)\b",
    re.IGNORECASE,
)
# "Does it support X?" is about X: a passage that never names X has no answer, however near its subject.
_ASKS_SUPPORT: Final = re.compile(
    r"^(?:does|do|can|is|are|will)\b.*\b(?:supports?|supported|integrates?|compatible|works? with)\b",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class _Evidence:
    """What was found in a passage; cosines in -1–1, `nearest` is the sentence of the best one, "" without an
    encoder.
    """

    strength: float
    closeness: float
    nearest: str
    lacks_amount: bool = False


@dataclass(frozen=True, slots=True)
class _Wording:
    """The question's key words, each with its terms, parted into those that the passage or its headings name
    and not.
    """

    words: dict[str, tuple[str, ...]]
    named: tuple[str, ...]
    missing: tuple[str, ...]
    missing_name: bool

    @property
    def coverage(self) -> float:
        return len(self.named) / len(self.words) if self.words else 0.0


class OfflineGrader:
    """Grades passages. Deterministic. One instance may serve many threads; it remembers the vectors of
    `cache_size` texts.
    """

    def __init__(self, encoder: Encoder | None, cache_size: int = 4096) -> None:
        self._vectors = None if encoder is None else RememberingEncoder(encoder, cache_size)

    def grade(self, question: str, passage: Passage) -> PassageGrade:
        """Grade one passage against the core of the question: small talk, versions and the asker's own tools
        do not count.

        Raises nothing of its own; an error of the encoder passes through, since a failure is no verdict.
        """
        read = read_question(question)
        if not read.terms or is_small_talk(read.terms):
            return PassageGrade(0.0, False, "The question asks for nothing that a passage could answer.")
        units = _units(passage)
        if not units:
            return PassageGrade(0.0, False, "The passage holds no text to answer from.")
        wording = _wording(read, passage)
        if self._vectors is None:
            return _grade(wording, _lexical_evidence(wording, units), _CUT_LEXICAL)
        return _grade(wording, _encoded_evidence(read, wording, units, self._vectors.encode([read.core, *units])), _CUT)


def _units(passage: Passage) -> list[str]:
    """Cut a passage into what is compared with the question. Fragments join what follows; headings lead."""
    heading = " > ".join(dict.fromkeys(part for part in (passage.title, *passage.heading_path) if part.strip()))
    units: list[str] = []
    carried = ""
    for sentence in split_sentences(passage.text):
        carried = f"{carried} {sentence.text}".strip()
        if len(carried) >= _SHORT_UNIT:
            units.append(carried[:_LONGEST_UNIT])
            carried = ""
    if carried:
        units.append(carried[:_LONGEST_UNIT])
    return ([heading] if heading and units else []) + units[:_MAX_UNITS]


def _key_words(question: Question) -> dict[str, tuple[str, ...]]:
    """Return the words of the core that say what it is about, as written, each with its terms; all words if
    none do.
    """
    telling: dict[str, tuple[str, ...]] = {}
    every: dict[str, tuple[str, ...]] = {}
    for raw in question.core.split():
        word = raw.strip(_EDGES)
        terms = content_terms(word)
        if not terms or terms in every.values():
            continue
        every[word] = terms
        if not set(terms).isdisjoint(question.key_terms):
            telling[word] = terms
    return telling or every


def _wording(question: Question, passage: Passage) -> _Wording:
    words = _key_words(question)
    known = set(content_terms("\n".join((passage.title, *passage.heading_path, passage.text))))
    named = tuple(word for word, terms in words.items() if _names(known, terms))
    missing = tuple(word for word in words if word not in named)
    missing_all = set(missing)
    # The first word has its capital from its place; only later capitals, digits and joints mark a name.
    first = question.core.split(maxsplit=1)[0] if question.core.strip() else ""
    names = [word for word in words if _is_name(word, first.strip(_EDGES) == word)]
    return _Wording(words, named, missing, not missing_all.isdisjoint(names))


def _is_name(word: str, opens: bool) -> bool:
    """Whether a word looks like the name of a thing: `S3fs`, `max_length`, or a capital inside a sentence."""
    return "_" in word or any(map(str.isupper, word[1:])) or (word[:1].isupper() and not opens)


def _names(known: set[str], terms: tuple[str, ...]) -> bool:
    # The last term of an identifier is its whole; all of its parts together name it too.
    return terms[-1] in known or known.issuperset(terms[:-1] if len(terms) > 1 else terms)


def _encoded_evidence(question: Question, wording: _Wording, units: list[str], rows: Vectors) -> _Evidence:
    target, vectors = rows[0], rows[1:]
    cosines = vectors @ target
    middle = vectors.sum(axis=0)
    whole = float(middle @ target / max(float(np.linalg.norm(middle)), 1e-9))
    answering = list(range(len(units)))
    if _ASKS_AMOUNT.search(question.core):
        # Only a sentence with a number can answer "how many"; how near the others are says nothing.
        answering = [index for index in answering if _AMOUNT.search(units[index])]
    best = max(answering, key=lambda index: float(cosines[index]), default=None)
    closeness = 0.0 if best is None else float(cosines[best])
    cost = _MISSING_SUPPORT_COST if _ASKS_SUPPORT.search(question.core) else _MISSING_NAME_COST
    near = _BEST_WEIGHT * closeness + (1 - _BEST_WEIGHT) * whole
    strength = near + _COVERAGE_WEIGHT * wording.coverage - cost * wording.missing_name
    return _Evidence(strength, closeness, "" if best is None else units[best], lacks_amount=best is None)


def _lexical_evidence(wording: _Wording, units: list[str]) -> _Evidence:
    best, nearest = 0.0, ""
    for unit in units:
        known = set(content_terms(unit))
        share = sum(_names(known, terms) for terms in wording.words.values()) / max(len(wording.words), 1)
        if share > best:
            best, nearest = share, unit
    return _Evidence((best + wording.coverage) / 2, best, nearest)


def _grade(wording: _Wording, evidence: _Evidence, cut: float) -> PassageGrade:
    logit = math.log(_SCORE_AT_CUT / (1 - _SCORE_AT_CUT)) + _STEEPNESS * (evidence.strength - cut)
    score = round(1 / (1 + math.exp(-logit)), 4)
    return PassageGrade(score, score >= _RELEVANT_FROM, _reasoning(wording, evidence, score >= _SCORE_AT_CUT))


def _reasoning(wording: _Wording, evidence: _Evidence, answers: bool) -> str:
    if evidence.lacks_amount:
        return "The question asks for a number or a date, and the passage gives none."
    quote = " ".join(evidence.nearest.split())
    quote = quote if len(quote) <= _QUOTE_LENGTH else quote[: _QUOTE_LENGTH - 1].rstrip() + "…"
    if wording.named:
        words = f"names {_listed(wording.named)}"
        words += f", not {_listed(wording.missing)}" if wording.missing else ""
    else:
        words = f"names none of {_listed(wording.missing)}" if wording.missing else "shares no words"
    verdict = "Close to the question" if answers else "Not close enough to the question"
    nearest = f"; nearest is “{quote}” ({evidence.closeness:.2f})" if quote else ""
    return f"{verdict}: it {words}{nearest}."


def _listed(words: Sequence[str], most: int = 6) -> str:
    shown = [f"“{word}”" for word in words[:most]]
    if len(words) > most:
        return f"{', '.join(shown)} and {len(words) - most} more"
    return " and ".join((", ".join(shown[:-1]), shown[-1])) if len(shown) > 1 else shown[0]
