"""How well each quote of the passages answers a question: by nearness, and by what else speaks for it."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from errata_kit.encoding import Encoder, Vectors
from errata_kit.passages import Passage
from errata_kit.text.questions import Question
from errata_kit.text.terms import content_terms
from services.generator.drafting.quotable import Quote, quotes

_COVERAGE_WEIGHT: Final = 0.25
_HEADING_WEIGHT: Final = 0.05
_SHAPE_BONUS: Final = 0.1
_LEANING_MALUS: Final = 0.06
_SIGNPOST_MALUS: Final = 0.15
_DEFINES: Final = re.compile(r"\b(?:is|are|was|refers to|means|stands for|describes|denotes)\b", re.IGNORECASE)
_LEANS: Final = re.compile(
    r"(?:it|its|their|this|that|these|those|they|he|she|however|therefore|thus|hence|otherwise|instead|"
    r"then|later|also|and|"
    r"but|so|such|as a result|in addition|for example|for instance|in this case|note that)\b",
    re.IGNORECASE,
)
# Sentences about the document instead of its subject, and calls to the reader.
_SIGNPOST: Final = re.compile(
    r"(?:this|the) (?:following )?(?:topic|page|guide|section|document|article|tutorial|chapter|example|"
    r"tables?)\b.{0,20}"
    r"\b(?:describes?|explains?|shows?|introduces?|illustrates?|lists?|walks?|covers?|provides?|"
    r"summari[sz]es?|"
    r"demonstrates?)\b|(?:join|contact|visit|follow|click|check out|learn) (?:us|our|here|more|the)\b|"
    r"welcome\b|see\b|"
    r"refer to\b|we invite\b|(?:for|to learn) more\b|for\b.{3,60}\b(?:refer to|see)\b",
    re.IGNORECASE,
)
# Sentences that promise what is not quoted with them.
_PROMISES: Final = re.compile(
    r"\b(?:the|these) following\b|\bas follows\b|\bthese steps\b|\b(?:shown|see|card|table|listed) below\b"
    r"|\bclick here\b",
    re.IGNORECASE,
)
_NUMBER: Final = re.compile(
    r"\d|\b(?:one|two|three|four|five|six|seven|eight|nine|ten|no limit|unlimited|free)\b", re.IGNORECASE
)
_ASKS_NUMBER: Final = re.compile(
    r"\bhow (?:much|many|long|old|big|large|often)\b|\b(?:default|maximum|minimum|limit|cost|price)\b|"
    r"^when\b",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A quote of the passage at a 0-based place, how well it answers, and its row in the table's vectors."""

    passage: int
    quote: Quote
    score: float
    row: int


def found_quotes(passages: Sequence[Passage], any_lead: bool = False) -> list[tuple[int, Quote]]:
    """Return what can be quoted, with its passage's place: whole sentences, or where there is none, any readable line."""
    return _found(passages, True, any_lead) or _found(passages, False, any_lead)


def _found(passages: Sequence[Passage], whole: bool, any_lead: bool) -> list[tuple[int, Quote]]:
    """What overlapping passages say twice counts once, where first."""
    found = [(place, quote) for place, passage in enumerate(passages) for quote in quotes(passage.text, whole, any_lead)]
    return list({" ".join(quote.text.split()).casefold(): (place, quote) for place, quote in reversed(found)}.values())[::-1]


class QuoteTable:
    """The quotes of some passages beside the questions that they may answer, as unit vectors in one space."""

    def __init__(
        self,
        encoder: Encoder | None,
        questions: Sequence[Question],
        passages: Sequence[Passage],
        found: Sequence[tuple[int, Quote]],
        headings: Sequence[str] = (),
    ) -> None:
        self._questions = tuple(questions)
        self._passages = passages
        self._found = found
        self.rows = _vectors(encoder, [*(item.core for item in questions), *(quote.compared for _, quote in found), *headings])

    def candidates(self, place: int) -> list[Candidate]:
        """Every quote with its score for the question at a 0-based place."""
        question, first = self._questions[place], len(self._questions)
        likeness = self.rows[first : first + len(self._found)] @ self.rows[place]
        return [
            Candidate(
                passage,
                quote,
                float(likeness[row]) + _merit(question, self._passages[passage], quote) - 0.01 * passage,
                row + first,
            )
            for row, (passage, quote) in enumerate(self._found)
        ]

    def headings(self, place: int) -> list[float]:
        """How near each heading is to the question at a 0-based place."""
        first = len(self._questions) + len(self._found)
        return [float(value) for value in self.rows[first:] @ self.rows[place]]


def _vectors(encoder: Encoder | None, texts: Sequence[str]) -> Vectors:
    """Return one unit row a text. Without an encoder, rows count terms."""
    if encoder is not None:
        return encoder.encode(texts)
    terms = [set(content_terms(text)) for text in texts]
    places = {term: place for place, term in enumerate(sorted(set().union(*terms)))}
    rows = np.zeros((len(texts), max(len(places), 1)), dtype=np.float32)
    for row, of_text in enumerate(terms):
        for term in of_text:
            rows[row, places[term]] = 1 / np.sqrt(len(of_text))
    return rows


def _merit(question: Question, passage: Passage, quote: Quote) -> float:
    """What speaks for a quote beside its nearness: the question's words, the kind of answer asked for,
    standing alone.
    """
    asked = set(question.key_terms or question.terms)
    own = set(content_terms(quote.text))
    headed = set(content_terms(" ".join((passage.title, *passage.heading_path))))
    share = len(asked & own) / len(asked) if asked else 0.0
    under = len(asked & headed) / len(asked) if asked else 0.0
    fits = {
        "how_to": quote.kind in ("list", "code"),
        "definition": bool(defines(question, quote)),
        "fact": bool(_ASKS_NUMBER.search(question.core) and _NUMBER.search(quote.text)),
    }.get(question.shape, False)
    leaning = _LEANING_MALUS * leans(quote)
    pointing = _SIGNPOST_MALUS * points_elsewhere(quote)
    return _COVERAGE_WEIGHT * share + _HEADING_WEIGHT * under + _SHAPE_BONUS * fits - leaning - pointing


def leans(quote: Quote) -> bool:
    """Whether a quote opens with a word that needs the sentence before it."""
    return bool(_LEANS.match((quote.lead or quote.lines[0]).lstrip("*_`\"'“(")))


def points_elsewhere(quote: Quote) -> bool:
    return quote.kind == "sentence" and bool(_SIGNPOST.match(quote.lines[0]) or _PROMISES.search(quote.lines[0]))


def defines(question: Question, quote: Quote) -> bool:
    """Whether a sentence says what the asked-for thing is: the thing comes before the verb, near the
    sentence's beginning.
    """
    verb = _DEFINES.search(quote.text)
    if verb is None or verb.start() > 80:
        return False
    return bool(set(question.key_terms) & set(content_terms(quote.text[: verb.start()])))
