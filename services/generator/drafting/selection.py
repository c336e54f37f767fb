"""Which quotes go into a text together: good ones that do not repeat each other, in an order that reads well."""

from dataclasses import dataclass
from typing import Final

from errata_kit.encoding import Vectors
from errata_kit.text.questions import Question
from errata_kit.text.terms import content_terms
from services.generator.drafting.ranking import Candidate, leans, points_elsewhere

# Judged by eye on documentation pages.
TOO_ALIKE: Final = 0.86
_REDUNDANCY: Final = 0.35
# Blanks that may lie between two sentences that follow each other.
_GAP: Final = 4


@dataclass(frozen=True, slots=True)
class Limits:
    """How much may be chosen: quotes, their characters, and how far below the best one a score may lie."""

    quotes: int
    characters: int
    near_best: float


def chosen_quotes(question: Question, candidates: list[Candidate], rows: Vectors, limits: Limits) -> list[Candidate]:
    """Pick greedily by maximal marginal relevance (Carbonell and Goldstein, 1998). There is at least one candidate."""
    best = max(candidates, key=lambda candidate: candidate.score)
    chosen = [best]
    left = [c for c in candidates if c is not best and c.score >= best.score - limits.near_best and _adds(question, c)]
    while left and len(chosen) < limits.quotes:
        alike = {id(c): max(float(rows[c.row] @ rows[kept.row]) for kept in chosen) for c in left}
        left = [c for c in left if alike[id(c)] < TOO_ALIKE and _fits(c, chosen, limits)]
        if left:
            following = max(left, key=lambda c: c.score - _REDUNDANCY * alike[id(c)])
            chosen.append(following)
            left.remove(following)
    return chosen


def _adds(question: Question, candidate: Candidate) -> bool:
    """Whether a quote may stand beside a better one: on the question's subject, and not about the document
    itself.
    """
    shared = set(question.key_terms or question.terms) & set(content_terms(candidate.quote.compared))
    return bool(shared) and not points_elsewhere(candidate.quote)


def _fits(candidate: Candidate, chosen: list[Candidate], limits: Limits) -> bool:
    """Whether a quote has room beside those chosen: in length, one block at most, and nothing said twice."""
    quote = candidate.quote
    others = [kept.quote for kept in chosen]
    room = limits.characters - sum(len(other.text) for other in others)
    second_block = quote.kind != "sentence" and any(other.kind != "sentence" for other in others)
    repeats = any(quote.lines[0] in other.text or other.lines[0] in quote.text for other in others)
    return len(quote.text) <= room and not second_block and not repeats


def with_predecessors(chosen: list[Candidate], candidates: list[Candidate], limits: Limits) -> list[Candidate]:
    """Give a sentence that leans on the one before it that sentence too; without one to give, only the best
    may lean.
    """
    by_place = {(c.passage, place): c for c in candidates for place in range(c.quote.end, c.quote.end + _GAP)}
    kept = [chosen[0]]
    for candidate in chosen[1:]:
        before = by_place.get((candidate.passage, candidate.quote.start))
        if not leans(candidate.quote) or before in chosen:
            kept.append(candidate)
    for candidate in tuple(kept):
        before = by_place.get((candidate.passage, candidate.quote.start))
        if not leans(candidate.quote) or before is None or before in kept:
            continue
        if _fits(before, kept, limits) and len(kept) < limits.quotes:
            kept.append(before)
    return kept


def in_reading_order(chosen: list[Candidate]) -> list[Candidate]:
    """The best quote's passage first, then the others; inside a passage as its author wrote it."""
    order = list(dict.fromkeys(candidate.passage for candidate in chosen))
    return sorted(chosen, key=lambda candidate: (order.index(candidate.passage), candidate.quote.start))
