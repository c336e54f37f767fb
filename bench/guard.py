"""What the guard finds in sentences with one detail changed, and what it raises in sentences that their sources support.

`bench/judge.py` prints these figures. The named ones are of the held-out half of the documents.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.figures import Figure
from bench.perturbations import KINDS, Perturbed, perturbations
from bench.supported import Supported, rewritings, supported_sentences
from services.judge.claims.verdicts import Finding
from services.judge.guard import find_ungrounded

FOUND_AT_LEAST: Final = 0.95
FALSE_AT_MOST: Final = 0.02
_OF_A_KIND: Final = 60
_OF_A_DOCUMENT: Final = 4
_OF_A_WRITING: Final = 150
# Words of no sentence, so that nothing is excused as a repetition of the question.
_QUESTION: Final = "What should I know?"


@dataclass(frozen=True, slots=True)
class Tried:
    """A sentence that the guard has seen. `sort` is the kind of change, or the way of writing of an unchanged one."""

    sort: str
    text: str
    source: Supported
    findings: tuple[Finding, ...]
    changed: Perturbed | None = None


@dataclass(frozen=True, slots=True)
class Half:
    """What was tried on one half of the documents, and how many draws were thrown away."""

    changed: tuple[Tried, ...]
    unchanged: tuple[Tried, ...]
    thrown: int


def measure_guard(pages: Path, mtrag: Path) -> list[Figure]:
    """Return the guard's figures, shares between 0 and 1 and counts."""
    sentences = supported_sentences(pages, mtrag)
    held_out, tuned_on = (try_half([s for s in sentences if s.held_out is part]) for part in (True, False))
    return [
        Figure("perturbations_found", _share(held_out.changed), at_least=FOUND_AT_LEAST),
        Figure("false_findings", _share(held_out.unchanged), at_most=FALSE_AT_MOST),
        Figure("perturbations_found_dev", _share(tuned_on.changed)),
        Figure("false_findings_dev", _share(tuned_on.unchanged)),
        *_breakdown("found", held_out.changed),
        *_breakdown("false", held_out.unchanged),
        Figure("perturbations", len(held_out.changed)),
        Figure("perturbations_thrown_away", held_out.thrown),
        Figure("supported_sentences", len(held_out.unchanged)),
    ]


def try_half(sentences: Sequence[Supported]) -> Half:
    """Show the guard changed and unchanged sentences, a set number of each sort."""
    changed: list[Tried] = []
    thrown = 0
    for kind in KINDS:
        for drawn in perturbations(sentences, kind, _OF_A_KIND, _OF_A_DOCUMENT):
            if isinstance(drawn, int):
                thrown += drawn
            else:
                changed.append(_tried(kind, drawn.text, drawn.source, drawn))
    return Half(tuple(changed), tuple(_unchanged(sentences)), thrown)


def _unchanged(sentences: Sequence[Supported]) -> Iterator[Tried]:
    seen: Counter[str] = Counter()
    for sentence in sentences:
        for writing, text in rewritings(sentence):
            if seen[writing] < _OF_A_WRITING:
                seen[writing] += 1
                yield _tried(writing, text, sentence)


def _tried(sort: str, text: str, source: Supported, changed: Perturbed | None = None) -> Tried:
    return Tried(sort, text, source, find_ungrounded(text, _QUESTION, source.passages), changed)


def _breakdown(what: str, tried: Sequence[Tried]) -> Iterator[Figure]:
    by_sort: defaultdict[str, list[Tried]] = defaultdict(list)
    for one in tried:
        by_sort[one.sort].append(one)
        by_sort[f"in_{one.source.origin}"].append(one)
    yield from (Figure(f"{what}_{sort}", _share(group)) for sort, group in by_sort.items())


def _share(tried: Sequence[Tried]) -> float:
    return sum(bool(one.findings) for one in tried) / len(tried) if tried else float("nan")
