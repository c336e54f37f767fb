"""The sentences of the passages that say most nearly what a sentence of an answer says."""

import heapq
import re
from collections import defaultdict
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from errata_kit.text.sentences import split_sentences
from errata_kit.text.terms import content_terms
from services.judge.guard.alignment import MOST_TOKENS, Alignment, align
from services.judge.guard.tokens import Token, tokens

# How many source sentences are laid beside the claim: those that share most with it.
_CANDIDATES: Final = 4
# A word that more source sentences have does not help to find one, and of a claim only its rarest words are
# looked up: both keep the work for hostile texts within bounds.
_MOST_PLACES: Final = 100
_MOST_WORDS: Final = 24
# Words after these are neither compared nor looked up: no sentence that people write is as long.
_READ: Final = 20 * MOST_TOKENS
_PIECE: Final = re.compile(r"[^\W_]{1,60}")


class SourceSentences:
    """The sentences of the passages, found by their words."""

    def __init__(self, texts: Iterable[str]) -> None:
        units = (unit.text[:_READ] for text in texts for unit in split_sentences(text) if unit.kind != "code")
        # The same sentence in two passages, as overlapping ones have it, is one.
        self._texts: Final = tuple(dict.fromkeys(units))
        self._tokens: Final[dict[int, list[Token]]] = {}
        self._exact: Final[set[str]] = set()
        self._places: Final[defaultdict[str, list[int]]] = defaultdict(list)
        for index, text in enumerate(self._texts):
            pieces = _PIECE.findall(text)
            self._exact.add(" ".join(pieces).lower())
            for key in {key for key in map(_key, pieces) if key}:
                self._places[key].append(index)

    def has(self, sentence: str) -> bool:
        """Whether a source sentence has the same words and numbers in the same order, and no more."""
        return " ".join(_PIECE.findall(sentence[:_READ])).lower() in self._exact

    def nearest(self, sentence: str) -> list[Alignment]:
        """Return the alignments with the nearest source sentences, the best first."""
        shared: defaultdict[int, float] = defaultdict(float)
        keys = {key for key in map(_key, _PIECE.findall(sentence[:_READ])) if key in self._places}
        for key in sorted(keys, key=lambda key: (len(self._places[key]), key))[:_MOST_WORDS]:
            places = self._places[key]
            for place in places[:_MOST_PLACES]:
                shared[place] += 1 / (1 + len(places)) ** 0.5
        best = heapq.nsmallest(_CANDIDATES, shared, key=lambda place: (-shared[place], place))
        ours = tokens(sentence[:_READ])
        aligned = (align(ours, self._read(place)) for place in best)
        return sorted(aligned, key=lambda alignment: (-alignment.cover, -alignment.cover_of_theirs))

    def _read(self, place: int) -> list[Token]:
        if place not in self._tokens:
            self._tokens[place] = tokens(self._texts[place])
        return self._tokens[place]


@lru_cache(maxsize=1 << 15)
def _key(piece: str) -> str:
    """Return the stem of a word, "" of one that says nothing."""
    return next(iter(content_terms(piece.lower())), "")
