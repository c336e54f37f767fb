"""The passages as a claim is held against them: sentence by sentence, and as a whole."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
import numpy.typing as npt

from errata_kit.encoding import Vectors
from errata_kit.passages import Passage
from errata_kit.text.matching import fold
from errata_kit.text.sentences import split_sentences
from errata_kit.text.terms import content_terms
from services.judge.claims.names import initials

Counts = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class SourceSentence:
    """One unit of a passage; `text` occurs in the passage as it stands."""

    passage_id: str
    text: str
    terms: frozenset[str]


class Source:
    """All passages of one request, cut into sentences and counted once."""

    def __init__(self, passages: Sequence[Passage]) -> None:
        sentences: list[SourceSentence] = []
        neighbours: list[int] = []
        pairs: set[tuple[str, str]] = set()
        for passage in passages:
            units = split_sentences(passage.text)
            neighbours.extend(range(len(sentences), len(sentences) + len(units) - 1))
            for unit in units:
                words = content_terms(unit.text)
                pairs.update(pairwise(words))
                sentences.append(SourceSentence(passage.passage_id, unit.text, frozenset(words)))
        titles = (name for passage in passages for name in (passage.title, *passage.heading_path))
        self.sentences: Final = tuple(sentences)
        # Indices i whose sentence i + 1 follows in the same passage.
        self.neighbours: Final = tuple(neighbours)
        self.pairs: Final = frozenset(pairs)
        self.terms: Final = frozenset().union(*(s.terms for s in sentences), content_terms(" ".join(titles)))
        self._postings = _postings(sentences)
        self.capitals: Final = tuple(initials(passage.text) for passage in passages)
        self.folded: Final = tuple(fold(passage.text) for passage in passages)

    def overlaps(self, terms: Iterable[str]) -> Counts:
        """Return how many of the `terms` each sentence has, shape (sentences,)."""
        counts = np.zeros(len(self.sentences), dtype=np.int32)
        for term in terms:
            if (places := self._postings.get(term)) is not None:
                counts[places] += 1
        return counts


def _postings(sentences: Sequence[SourceSentence]) -> Mapping[str, Counts]:
    """Return the indices of the sentences that have each term."""
    places: defaultdict[str, list[int]] = defaultdict(list)
    for index, sentence in enumerate(sentences):
        for term in sentence.terms:
            places[term].append(index)
    return {term: np.asarray(indices, dtype=np.int32) for term, indices in places.items()}


def cosines(claims: Vectors, sentences: Vectors, neighbours: Sequence[int]) -> tuple[Vectors, Vectors]:
    """Return each claim's cosine to each sentence, and its best to any sentence or two neighbouring ones.

    Two neighbours are represented by the direction of their vectors' sum, which spares encoding them again.
    """
    each = claims @ sentences.T
    best = each.max(axis=1)
    if neighbours:
        first = np.asarray(neighbours)
        sums = sentences[first] + sentences[first + 1]
        lengths = np.maximum(np.linalg.norm(sums, axis=1, keepdims=True), np.finfo(np.float32).eps)
        best = np.maximum(best, (claims @ (sums / lengths).T).max(axis=1))
    return each, best
