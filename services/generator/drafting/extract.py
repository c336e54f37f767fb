"""Answers without a language model: the sentences, lists and code of the passages that answer best, each
cited.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from errata_kit.encoding import Encoder, RememberingEncoder, Vectors
from errata_kit.passages import Citation, Passage, Span
from errata_kit.text.questions import Question, read_question
from errata_kit.text.sentences import byte_span
from errata_kit.text.terms import content_terms
from services.generator.drafting.drafts import Draft
from services.generator.drafting.quotable import Quote, quotes

_MOST_QUOTES: Final = 4
_MOST_CHARACTERS: Final = 1400
# A further quote must be nearly as good as the best, and say something else: both judged by eye on
# documentation pages.
_NEAR_BEST: Final = 0.12
_TOO_ALIKE: Final = 0.86
_REDUNDANCY: Final = 0.35
_COVERAGE_WEIGHT: Final = 0.25
_HEADING_WEIGHT: Final = 0.05
# Blanks that may lie between two sentences that follow each other.
_GAP: Final = 4
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
class _Candidate:
    passage: int
    quote: Quote
    score: float
    row: int


class Extractor:
    """Answers questions with extracts. Deterministic; one instance may serve many threads. Blocking."""

    def __init__(self, encoder: Encoder | None, cache_size: int = 4096) -> None:
        self._encoder = None if encoder is None else RememberingEncoder(encoder, cache_size)

    def answer(self, question: str, passages: Sequence[Passage]) -> Draft:
        """Return one to four extracts that answer best, cited `[n]`, n being the passage's 1-based place in
        `passages`.

        Every sentence is a passage's own, whole; only line breaks inside it became blanks. The draft is empty
        when nothing in the passages can be quoted.
        """
        read = read_question(question)
        found = _found(passages, whole=True) or _found(passages, whole=False)
        if not found:
            return Draft("")
        rows = _vectors(self._encoder, read, [quote for _, quote in found])
        likeness = rows[1:] @ rows[0]
        candidates = [
            _Candidate(
                place,
                quote,
                float(likeness[row]) + _merit(read, passages[place], quote) - 0.01 * place,
                row + 1,
            )
            for row, (place, quote) in enumerate(found)
        ]
        chosen = _with_predecessors(_chosen(read, candidates, rows), candidates)
        return _written(_in_reading_order(chosen), passages)


def _found(passages: Sequence[Passage], whole: bool) -> list[tuple[int, Quote]]:
    """Return what can be quoted, with its passage's place. What overlapping passages say twice counts once,
    where first.
    """
    found = [(place, quote) for place, passage in enumerate(passages) for quote in quotes(passage.text, whole)]
    return list({" ".join(quote.text.split()).casefold(): (place, quote) for place, quote in reversed(found)}.values())[::-1]


def _vectors(encoder: Encoder | None, question: Question, found: list[Quote]) -> Vectors:
    """Return unit rows: the question's, then one per quote. Without an encoder, rows count terms."""
    texts = [question.core, *(quote.compared for quote in found)]
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
        "definition": bool(_defines(question, quote)),
        "fact": bool(_ASKS_NUMBER.search(question.core) and _NUMBER.search(quote.text)),
    }.get(question.shape, False)
    leaning = _LEANING_MALUS * _leans(quote)
    pointing = _SIGNPOST_MALUS * _points_elsewhere(quote)
    return _COVERAGE_WEIGHT * share + _HEADING_WEIGHT * under + _SHAPE_BONUS * fits - leaning - pointing


def _leans(quote: Quote) -> bool:
    """Whether a quote opens with a word that needs the sentence before it."""
    return bool(_LEANS.match((quote.lead or quote.lines[0]).lstrip("*_`\"'“(")))


def _points_elsewhere(quote: Quote) -> bool:
    return quote.kind == "sentence" and bool(_SIGNPOST.match(quote.lines[0]) or _PROMISES.search(quote.lines[0]))


def _defines(question: Question, quote: Quote) -> bool:
    """Whether a sentence says what the asked-for thing is: the thing comes before the verb, near the
    sentence's beginning.
    """
    verb = _DEFINES.search(quote.text)
    if verb is None or verb.start() > 80:
        return False
    return bool(set(question.key_terms) & set(content_terms(quote.text[: verb.start()])))


def _chosen(question: Question, candidates: list[_Candidate], rows: Vectors) -> list[_Candidate]:
    """Pick greedily by maximal marginal relevance (Carbonell and Goldstein, 1998)."""
    best = max(candidates, key=lambda candidate: candidate.score)
    chosen = [best]
    left = [c for c in candidates if c is not best and c.score >= best.score - _NEAR_BEST and _adds(question, c)]
    while left and len(chosen) < _MOST_QUOTES:
        alike = {id(c): max(float(rows[c.row] @ rows[kept.row]) for kept in chosen) for c in left}
        left = [c for c in left if alike[id(c)] < _TOO_ALIKE and _fits(c, chosen)]
        if left:
            following = max(left, key=lambda c: c.score - _REDUNDANCY * alike[id(c)])
            chosen.append(following)
            left.remove(following)
    return chosen


def _adds(question: Question, candidate: _Candidate) -> bool:
    """Whether a quote may stand beside a better one: on the question's subject, and not about the document
    itself.
    """
    shared = set(question.key_terms or question.terms) & set(content_terms(candidate.quote.compared))
    return bool(shared) and not _points_elsewhere(candidate.quote)


def _fits(candidate: _Candidate, chosen: list[_Candidate]) -> bool:
    """Whether a quote has room beside those chosen: in length, one block at most, and nothing said twice."""
    quote = candidate.quote
    others = [kept.quote for kept in chosen]
    room = _MOST_CHARACTERS - sum(len(other.text) for other in others)
    second_block = quote.kind != "sentence" and any(other.kind != "sentence" for other in others)
    repeats = any(quote.lines[0] in other.text or other.lines[0] in quote.text for other in others)
    return len(quote.text) <= room and not second_block and not repeats


def _with_predecessors(chosen: list[_Candidate], candidates: list[_Candidate]) -> list[_Candidate]:
    """Give a sentence that leans on the one before it that sentence too; without one to give, only the best
    may lean.
    """
    by_place = {(c.passage, place): c for c in candidates for place in range(c.quote.end, c.quote.end + _GAP)}
    kept = [chosen[0]]
    for candidate in chosen[1:]:
        before = by_place.get((candidate.passage, candidate.quote.start))
        if not _leans(candidate.quote) or before in chosen:
            kept.append(candidate)
    for candidate in tuple(kept):
        before = by_place.get((candidate.passage, candidate.quote.start))
        if _leans(candidate.quote) and before and before not in kept and _fits(before, kept) and len(kept) < _MOST_QUOTES:
            kept.append(before)
    return kept


def _in_reading_order(chosen: list[_Candidate]) -> list[_Candidate]:
    """The best quote's passage first, then the others; inside a passage as its author wrote it."""
    order = list(dict.fromkeys(candidate.passage for candidate in chosen))
    return sorted(chosen, key=lambda candidate: (order.index(candidate.passage), candidate.quote.start))


def _written(chosen: list[_Candidate], passages: Sequence[Passage]) -> Draft:
    text = ""
    spans: list[tuple[int, int, int]] = []

    def put(words: str, number: int, marker: bool = True) -> None:
        nonlocal text
        spans.append((number, len(text), len(text) + len(words)))
        text += f"{words} [{number}]" if marker else words

    after_block = False
    for candidate in chosen:
        number, quote = candidate.passage + 1, candidate.quote
        if text:
            text += "\n\n" if after_block or quote.kind != "sentence" else " "
        after_block = quote.kind != "sentence"
        if quote.kind == "code":
            put(quote.lead, number)
            text += "\n\n"
            put(quote.lines[0], number, marker=False)
        elif quote.kind == "list":
            text += f"{quote.lead}\n"
            for item in quote.lines:
                head, body = item.split(maxsplit=1)
                text += f"\n{head} "
                put(body, number)
        else:
            put(quote.lines[0], number)
    cited = (Citation(n, passages[n - 1].passage_id, Span(*byte_span(text, start, end))) for n, start, end in spans)
    return Draft(text, tuple(cited))
