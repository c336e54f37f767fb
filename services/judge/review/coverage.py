"""Which points of a task a draft covers, told by words."""

from collections.abc import Iterable
from functools import cache
from typing import Final

from errata_kit.text.terms import content_terms
from services.judge.review.reading import Reading
from services.judge.review.task import Point, Task

# Words of one family are stemmed differently ("retention", "retained") and agree in this many first letters.
_FAMILY: Final = 5
# What a point may be called in tasks, and words by which a draft that never uses that name shows that it covers it.
_SAID_OTHERWISE: Final = {
    "prerequisites": "need require before install ready",
    "requirements": "need require must before",
    "cost costs price pricing": "cost price pay free dollar charge cheap expensive",
    "limits limitations caveats drawbacks": "not cannot limit only except unless never miss drawback most",
    "advantages benefits": "faster better easier less advantage benefit save",
    "defaults": "default unless otherwise",
    "conclusion": "finally sum conclude short",
    "errors troubleshooting": "error fail wrong problem fix",
    "installation setup": "install set up pip start",
    "usage": "use run call",
    "purpose": "for so that why serve",
    "risks": "risk danger lose careful beware warn",
    "cleanup": "delete remove clean stop",
}


@cache
def _families() -> dict[str, frozenset[str]]:
    return {
        term: frozenset(said.split()) | frozenset(content_terms(said))
        for names, said in _SAID_OTHERWISE.items()
        for term in content_terms(names)
    }


class Words:
    """The words of a text, for asking which terms occur in it."""

    def __init__(self, text: str) -> None:
        terms = content_terms(text)
        self.terms: Final = frozenset(terms)
        self._beginnings = frozenset(term[:_FAMILY] for term in terms if len(term) >= _FAMILY)
        self._plain = frozenset(text.lower().split())

    def has(self, term: str) -> bool:
        """Whether the term, a word of its family, or another word for it occurs."""
        if term in self.terms or (len(term) >= _FAMILY and term[:_FAMILY] in self._beginnings):
            return True
        others = _families().get(term, frozenset())
        return not others.isdisjoint(self.terms) or not others.isdisjoint(self._plain)

    def share(self, terms: Iterable[str]) -> float:
        """The share of the terms that occur, 0–1; 1 for no terms."""
        wanted = list(terms)
        return sum(self.has(term) for term in wanted) / len(wanted) if wanted else 1.0


def named_nowhere(task: Task, draft: Reading) -> tuple[Point, ...]:
    """The points of which no word occurs in the draft, not even one that nearly every task could have."""
    words = Words(draft.text)
    return tuple(point for point in task.points if point.terms and not words.share(point.words))
