"""Where a sentence that is nearly that of a source says something else: another value or name, or the opposite."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from services.judge.guard.alignment import Alignment, Gap
from services.judge.guard.opposites import denies, opposite
from services.judge.guard.tokens import Token

# The share of the claim that a source sentence must have, in order, before a difference between them is a
# disagreement rather than another statement. A name is exchanged in honest paraphrase more often than a number.
_SAME_STATEMENT: Final = {"number": 0.6, "version": 0.6, "calendar": 0.6, "name": 0.8, "negation": 0.6}
# Less will do where the words on both sides of a negation stand side by side in the source.
_SAME_PLACE: Final = 0.4
# Of the source's words between the first and the last common one, at least this share is common.
_SAME_PART: Final = 0.5
_COMMON_WORDS: Final = 2
# A sentence that agrees and is as near as this to the one that disagrees settles it.
_AS_NEAR: Final = 0.1
# Words between a value and the one that it replaces.
_WIDEST_GAP: Final = 4
# Words before another within which a negation denies it.
_REACH: Final = 3
_SHARES: Final = ("%", "percent")
_HUNDREDTHS: Final = 100
_KIND: Final = {"number": "number", "version": "version", "calendar": "date", "name": "identifier"}


@dataclass(frozen=True, slots=True)
class Disagreement:
    """What the claim says otherwise, as the guard's kind of finding, with half-open offsets into the claim."""

    kind: str
    start: int
    end: int
    why: str


def disagreements(alignments: Sequence[Alignment]) -> list[Disagreement]:
    """Return what a claim says otherwise than the nearest source sentences, in the claim's order.

    What another source sentence, nearly as near, says as the claim does is no disagreement. `alignments` are of the same
    claim, the nearest first.
    """
    kept: dict[int, Disagreement] = {}
    for place, alignment in enumerate(alignments):
        if alignment.cover < alignments[0].cover - _AS_NEAR:
            break
        rivals = [other for index, other in enumerate(alignments) if index != place]
        for one in _between(alignment):
            if not any(_agrees(rival, one, alignment) for rival in rivals):
                kept.setdefault(one.start, one)
    return [kept[start] for start in sorted(kept)]


def _agrees(rival: Alignment, found: Disagreement, alignment: Alignment) -> bool:
    """Whether another source sentence, nearly as near in any order of its words, says what the claim says there."""
    if found.kind != "negation" and any(
        _in_place(rival, index) for index, token in enumerate(rival.ours) if token.start == found.start
    ):
        return True
    if rival.cover_in_any_order < alignment.cover_in_any_order - _AS_NEAR:
        return False
    if found.kind == "negation":
        return not any(one.start < found.end and found.start < one.end for one in _between(rival))
    return any(token.start == found.start and _surplus(rival, token) <= 0 for token in rival.ours)


def _in_place(alignment: Alignment, ours: int) -> bool:
    """Whether a source, be it of another statement, has the value between the same two words."""
    theirs = alignment.partner.get(ours)
    around = (alignment.partner.get(ours - 1), alignment.partner.get(ours + 1))
    return theirs is not None and around == (theirs - 1, theirs + 1)


def _near(alignment: Alignment, share: float) -> bool:
    enough = alignment.common_words >= _COMMON_WORDS
    return enough and alignment.cover >= share and alignment.cover_of_theirs >= _SAME_PART


def _between(alignment: Alignment) -> Iterator[Disagreement]:
    turned = False
    for gap in alignment.gaps():
        yield from _other_value(alignment, gap)
        for one in _opposites(alignment, gap):
            turned = True
            yield one
    # "Always" for "never" is one change, not a negation taken out besides.
    if not turned:
        yield from _negations(alignment)


def _other_value(alignment: Alignment, gap: Gap) -> Iterator[Disagreement]:
    """Find a value of the claim where the source has another of its sort, which the claim has nowhere."""
    if not _near(alignment, min(_SAME_STATEMENT.values())) or max(len(gap.ours), len(gap.theirs)) > _WIDEST_GAP:
        return
    for index in gap.ours:
        said = alignment.ours[index]
        if said.sort not in _KIND or alignment.cover < _SAME_STATEMENT[said.sort] or _surplus(alignment, said) <= 0:
            continue
        for other in gap.theirs:
            meant = alignment.theirs[other]
            replaced = meant.sort == said.sort and _surplus(alignment, meant) < 0 and _beside_same(alignment, index, other)
            if replaced and not _same_value(said, meant):
                why = f'The nearest sentence says "{_written(meant)}", not "{_written(said)}".'
                yield Disagreement(_KIND[said.sort], said.start, said.end, why)
                break


def _beside_same(alignment: Alignment, ours: int, theirs: int) -> bool:
    """Whether the word before or the word after is the same: else the two may count different things."""
    return alignment.partner.get(ours - 1) == theirs - 1 or alignment.partner.get(ours + 1) == theirs + 1


def _surplus(alignment: Alignment, token: Token) -> int:
    """How many more of the token the claim has than the source: in another order, nothing is said otherwise."""
    return alignment.our_keys[token.key] - alignment.their_keys[token.key]


def _same_value(said: Token, meant: Token) -> bool:
    """Whether two numbers may be the same although one has no unit, or is a share of one instead of a hundred."""
    if said.measure is None or meant.measure is None:
        return said.key.endswith(meant.key) or meant.key.endswith(said.key)
    one, other = said.measure, meant.measure
    if one.value == other.value or one.number == other.number:
        return not (one.unit and other.unit)
    shares = [float(m.value) / (_HUNDREDTHS if m.unit in _SHARES else 1) for m in (one, other)]
    return (one.unit in _SHARES) != (other.unit in _SHARES) and shares[0] == shares[1]


def _opposites(alignment: Alignment, gap: Gap) -> Iterator[Disagreement]:
    if not _near(alignment, _SAME_STATEMENT["negation"]) or max(len(gap.ours), len(gap.theirs)) > _WIDEST_GAP:
        return
    for index in gap.ours:
        said = alignment.ours[index]
        for other in gap.theirs:
            meant = alignment.theirs[other]
            turned = opposite(said.key, meant.key)
            if turned and _surplus(alignment, said) > 0 > _surplus(alignment, meant):
                why = f'It says "{_written(said)}" where the nearest sentence says "{_written(meant)}".'
                yield Disagreement("negation", said.start, said.end, why)


def _negations(alignment: Alignment) -> Iterator[Disagreement]:
    """Find the one negation that one side has and the other lacks, where both have the word that it denies."""
    if not _near(alignment, _SAME_PLACE):
        return
    ours = [i for i, token in enumerate(alignment.ours) if token.sort == "negation" and i not in alignment.partner]
    first, last = alignment.pairs[0][1], alignment.pairs[-1][1]
    theirs = [
        i for i in range(first, last + 1) if alignment.theirs[i].sort == "negation" and i not in alignment.partner_of_theirs
    ]
    if abs(len(ours) - len(theirs)) != 1 or _denied_otherwise(alignment):
        return
    if len(ours) > len(theirs):
        yield from _put_in(alignment, ours)
    elif _near(alignment, _SAME_STATEMENT["negation"]):
        yield from _taken_out(alignment, theirs)


def _put_in(alignment: Alignment, ours: Sequence[int]) -> Iterator[Disagreement]:
    for index in ours:
        head = _head(alignment.ours, index)
        near = _near(alignment, _SAME_STATEMENT["negation"]) or _joined_without(alignment, index)
        if near and head in alignment.partner and not _denied(alignment.theirs, alignment.partner[head]):
            token = alignment.ours[index]
            why = f'It says "{_written(token)}" where the nearest sentence denies nothing.'
            yield Disagreement("negation", token.start, token.end, why)
            return


def _joined_without(alignment: Alignment, negation: int) -> bool:
    """Whether the words on both sides of the claim's negation stand side by side in the source."""
    before, after = alignment.partner.get(negation - 1), alignment.partner.get(negation + 1)
    return before is not None and after == before + 1


def _taken_out(alignment: Alignment, theirs: Sequence[int]) -> Iterator[Disagreement]:
    for index in theirs:
        head = _head(alignment.theirs, index)
        if head in alignment.partner_of_theirs and not _denied(alignment.ours, alignment.partner_of_theirs[head]):
            token = alignment.ours[alignment.partner_of_theirs[head]]
            why = f'The nearest sentence denies "{_written(token)}" ("{_written(alignment.theirs[index])}"), and it does not.'
            yield Disagreement("negation", token.start, token.end, why)
            return


def _head(tokens: Sequence[Token], negation: int) -> int:
    """Return the index of the word that the negation denies: the next one with a meaning of its own; -1 without one."""
    following = range(negation + 1, len(tokens))
    return next((index for index in following if tokens[index].sort not in ("function", "negation")), -1)


def _denied(tokens: Sequence[Token], word: int) -> bool:
    """Whether a negation stands shortly before the word."""
    return any(token.sort == "negation" for token in tokens[max(0, word - _REACH) : word])


def _denied_otherwise(alignment: Alignment) -> bool:
    """Whether one side has a word that can stand for the other's negation ("fails to" for "does not")."""
    ours = (token for index, token in enumerate(alignment.ours) if index not in alignment.partner)
    theirs = (token for index, token in enumerate(alignment.theirs) if index not in alignment.partner_of_theirs)
    return any(denies(token.word) for side in (ours, theirs) for token in side)


def _written(token: Token) -> str:
    unit = token.measure.unit if token.measure else ""
    return f"{token.word} {unit}".strip()
