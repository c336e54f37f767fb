"""Two sentences laid side by side: which words both have, in order, and what stands in between."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from services.judge.guard.tokens import Token

MOST_TOKENS: Final = 160
"""Tokens of a sentence that are laid beside another's; what a longer one has after them is not compared."""
# What a word of grammar counts for beside a word that means something.
_FUNCTION_WEIGHT: Final = 0.25


@dataclass(frozen=True, slots=True)
class Gap:
    """What stands between two common words: `ours[start:end]` of the claim, `theirs[...]` of the source."""

    ours: range
    theirs: range


@dataclass(frozen=True)
class Alignment:
    """A claim's tokens beside a source sentence's. `pairs` are the indices of equal tokens, growing on both sides."""

    ours: Sequence[Token]
    theirs: Sequence[Token]
    pairs: tuple[tuple[int, int], ...]

    @cached_property
    def partner(self) -> dict[int, int]:
        """The source's index for each matched index of the claim."""
        return dict(self.pairs)

    @cached_property
    def partner_of_theirs(self) -> dict[int, int]:
        """The claim's index for each matched index of the source."""
        return {theirs: ours for ours, theirs in self.pairs}

    @cached_property
    def cover(self) -> float:
        """The share, 0 to 1, of the claim that the source has in the same order; numbers and negations aside."""
        return _share(self.ours, [ours for ours, _ in self.pairs])

    @cached_property
    def cover_in_any_order(self) -> float:
        """The same share, wherever in the source the words stand."""
        return _share(self.ours, [index for index, token in enumerate(self.ours) if self.their_keys[token.key]])

    @cached_property
    def cover_of_theirs(self) -> float:
        """The same for the part of the source from its first to its last common word."""
        if not self.pairs:
            return 0.0
        first, last = self.pairs[0][1], self.pairs[-1][1]
        inside = [theirs - first for _, theirs in self.pairs]
        return _share(self.theirs[first : last + 1], inside)

    @cached_property
    def common_words(self) -> int:
        """How many words with a meaning are common."""
        return sum(self.ours[ours].weighs for ours, _ in self.pairs)

    @cached_property
    def our_keys(self) -> Counter[str]:
        """How often the claim has each key."""
        return Counter(token.key for token in self.ours)

    @cached_property
    def their_keys(self) -> Counter[str]:
        """How often the source has each key."""
        return Counter(token.key for token in self.theirs)

    def gaps(self) -> Iterator[Gap]:
        """Yield what lies between neighbouring pairs, where at least one side has something; the ends too."""
        ends = (*self.pairs, (len(self.ours), len(self.theirs)))
        last = (-1, -1)
        for pair in ends:
            ours, theirs = range(last[0] + 1, pair[0]), range(last[1] + 1, pair[1])
            if ours or theirs:
                yield Gap(ours, theirs)
            last = pair


def align(ours: Sequence[Token], theirs: Sequence[Token]) -> Alignment:
    """Return a longest common subsequence of the tokens' keys.

    One operation on integers of `MOST_TOKENS` bits per token: bit-parallel, after Hyyrö (2004), "Bit-parallel LCS-length
    computation revisited", with the rows kept to walk back.
    """
    ours, theirs = ours[:MOST_TOKENS], theirs[:MOST_TOKENS]
    places: defaultdict[str, int] = defaultdict(int)
    for index, token in enumerate(theirs):
        places[token.key] |= 1 << index
    full = (1 << len(theirs)) - 1
    row, rows = full, []
    for token in ours:
        common = row & places.get(token.key, 0)
        row = ((row + common) | (row - common)) & full
        rows.append(row)
    return Alignment(ours, theirs, tuple(reversed(list(_walk_back(rows, len(ours), len(theirs))))))


def _walk_back(rows: Sequence[int], i: int, j: int) -> Iterator[tuple[int, int]]:
    """Yield the matched pairs from the last to the first. A zero bit of a row marks where its length grows."""
    while i and j:
        bit = 1 << (j - 1)
        if rows[i - 1] & bit:
            j -= 1
        elif i > 1 and not rows[i - 2] & bit:
            i -= 1
        else:
            i, j = i - 1, j - 1
            yield i, j


def _share(tokens: Sequence[Token], matched: Sequence[int]) -> float:
    total = sum(map(_weight, tokens))
    return sum(_weight(tokens[index]) for index in matched) / total if total else 0.0


def _weight(token: Token) -> float:
    return 1.0 if token.weighs else _FUNCTION_WEIGHT if token.sort == "function" else 0.0
