"""Offline measures of subject: how near a draft lies to its task, and how much of the task it covers.

With a sentence encoder nearness is the cosine of meanings beside shared words; without one it is the words alone, and weaker.
Like the offline grader it reads nearness of subject, not truth.
"""

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from errata_kit.drafts import Criterion, IssueSeverity
from errata_kit.encoding import Encoder, Vectors
from errata_kit.text.terms import content_terms
from services.judge.claims.splitting import plain_text
from services.judge.review.coverage import Words
from services.judge.review.findings import listed, shortened
from services.judge.review.measured import Measured, Remark, measured
from services.judge.review.reading import Reading
from services.judge.review.task import Point, Task

# A draft of 64 KiB has hundreds of sentences; that many, evenly spread, tell its subject.
_MOST_UNITS: Final = 64
_LONGEST_UNIT: Final = 300
_SHORT_UNIT: Final = 25
_BEST: Final = 0.98
# Strength at which relevance is 0.90, its default threshold, and how fast the score moves around it.
_CUT: Final = 0.52
_CUT_LEXICAL: Final = 0.42
_STEEPNESS: Final = 11.0
_AT_CUT: Final = 0.90
_MEANING_WEIGHT: Final = 0.7
# A block wanders off when few of its sentences name the task's words and it lies this far from the task and from the rest.
_FAR_FROM_TASK: Final = 0.22
_FAR_FROM_DRAFT: Final = 0.30
_WANDERING_LEAST: Final = 0.1
# Paragraphs without a heading are taken together until they have this many sentences: fewer tell too little of a subject.
_BLOCK_UNITS: Final = 3
# Cosine of a point and its nearest sentence: from where on it counts, and where it counts in full.
_COVERED_FROM: Final = 0.20
_COVERED_AT: Final = 0.50
_COVERED_WORDS: Final = 0.67
_LOOSE_WEIGHT: Final = 0.6
# A sentence of this form that names several points announces them, and covers none.
_ANNOUNCES: Final = re.compile(
    r"\b(?:this (?:page|article|guide|tutorial|document|section|post|text)|in the following"
    r"|it (?:covers|explains|describes|shows)|(?:we|you) will (?:learn|see|look|cover))\b",
    re.I,
)
_NAMED: Final = 0.5
_OWN_WORDS: Final = 2
_REPEATED_TASK: Final = 0.6
_CLOSING: Final = " \n\"'”’)*_`"
_ON_HEADING: Final = 0.5
_HEADINGS_USUAL: Final = 0.5
_NO_HEADING: Final = 0.7
_SHORT_OF: Final = 0.75


@dataclass(frozen=True, slots=True)
class Unit:
    """A sentence of the draft, with the heading before it, and which block it belongs to."""

    text: str
    words: Words
    block: int


@dataclass(frozen=True, slots=True)
class Block:
    """Sentences under one heading, or some paragraphs: its cosine to the task, and to the rest of the draft."""

    units: tuple[Unit, ...]
    task: float
    rest: float


@dataclass(frozen=True, slots=True)
class Near:
    """A draft's units beside its task. whole: the cosine of draft and task. points, own: one row for each point of the task and
    each description of a user's criterion, with its cosine to each unit. Without an encoder there are no cosines and no blocks.
    """

    units: tuple[Unit, ...]
    whole: float = 0.0
    points: Vectors | None = None
    own: Vectors | None = None
    blocks: tuple[Block, ...] = ()


def look(draft: Reading, task: Task, own: Sequence[Criterion], encoder: Encoder | None) -> Near:
    """Encode what is compared, all in one go."""
    units = _units(draft)
    if encoder is None or not units:
        return Near(units)
    asked = [task.text[:2000], *(point.text[:_LONGEST_UNIT] for point in task.points), *(_meaning(item) for item in own)]
    rows = encoder.encode([*asked, *(unit.text for unit in units)])
    vectors = rows[len(asked) :]
    points = 1 + len(task.points)
    return Near(
        units,
        float(_middle(vectors) @ rows[0]),
        rows[1:points] @ vectors.T,
        rows[points : len(asked)] @ vectors.T,
        tuple(_blocks(units, vectors, rows[0])),
    )


def _middle(vectors: Vectors) -> Vectors:
    """The direction of all vectors together; nothing for none."""
    middle = vectors.sum(axis=0)
    return np.asarray(middle / max(float(np.linalg.norm(middle)), 1e-9), dtype=np.float32)


def _blocks(units: Sequence[Unit], vectors: Vectors, task: Vectors) -> Iterator[Block]:
    numbers = np.array([unit.block for unit in units])
    for number in dict.fromkeys(numbers.tolist()):
        inside = numbers == number
        middle = _middle(vectors[inside])
        chosen = tuple(unit for unit in units if unit.block == number)
        yield Block(chosen, float(middle @ task), float(middle @ _middle(vectors[~inside])))


def _units(draft: Reading) -> tuple[Unit, ...]:
    """Sentences, each heading joined to what follows it, evenly spread over the draft when there are many."""
    units: list[Unit] = []
    carried, block, size, end = "", 0, 0, 0
    for sentence in draft.units:
        parted = "\n\n" in draft.text[end : sentence.start] and size >= _BLOCK_UNITS
        if size and (parted or (sentence.kind == "heading" and not carried)):
            block, size = block + 1, 0
        end = sentence.end
        carried = f"{carried} {plain_text(sentence.text) if sentence.kind != 'code' else sentence.text}".strip()
        if len(carried) >= _SHORT_UNIT and sentence.kind != "heading":
            units.append(Unit(carried[:_LONGEST_UNIT], Words(carried), block))
            carried, size = "", size + 1
    if carried:
        units.append(Unit(carried[:_LONGEST_UNIT], Words(carried), block))
    step = max(1.0, len(units) / _MOST_UNITS)
    return tuple(units[int(place * step)] for place in range(min(len(units), _MOST_UNITS)))


def relevance(near: Near, task: Task, draft: Reading) -> Measured:
    """How much of the draft serves the task."""
    if not near.units:
        return Measured(0.0, "It has no text.")
    words = Words(draft.text)
    share = words.share(task.terms)
    if near.blocks:
        strength, cut = _MEANING_WEIGHT * near.whole + (1 - _MEANING_WEIGHT) * share, _CUT
    else:
        serving = sum(any(unit.words.has(term) for term in task.terms) for unit in near.units)
        strength, cut = (share + serving / len(near.units)) / 2, _CUT_LEXICAL
    logit = math.log(_AT_CUT / (1 - _AT_CUT)) + _STEEPNESS * (strength - cut)
    score = min(_BEST, 1 / (1 + math.exp(-logit)))
    missing = sorted(term for term in task.terms if not words.has(term))
    seen = f"It names {share:.0%} of the task's key words" + (f", not {listed(missing)}" if missing else "")
    seen += (
        f"; its meaning lies {'near' if strength >= cut else 'far from'} the task ({near.whole:.2f})." if near.blocks else "."
    )
    away = [block for block in near.blocks if len(near.blocks) > 1 and _wanders(block, task)]
    if not away:
        return measured(score, seen, [])
    part = sum(len(block.units) for block in away) / len(near.units)
    start = away[0].units[0].text
    said = f"A part that begins with “{shortened(start)}” has nothing to do with the task."
    remark = Remark(said, "Take out what does not serve the task.", start, IssueSeverity.MAJOR)
    return measured(score, seen, [(score * min(1.0, _WANDERING_LEAST + part), remark)])


def _wanders(block: Block, task: Task) -> bool:
    serving = sum(any(unit.words.has(term) for term in task.terms) for unit in block.units)
    # A single sentence tells too little of a subject.
    return (
        len(block.units) > 1
        and block.task < _FAR_FROM_TASK
        and block.rest < _FAR_FROM_DRAFT
        and serving <= len(block.units) / 4
    )


def completeness(near: Near, task: Task, draft: Reading) -> Measured:
    """How many of the task's points it covers, and whether there is enough of it."""
    if not near.units:
        return Measured(0.0, "It has no text.")
    covered = _coverage(near, task, draft)
    weights = [1.0 if point.explicit else _LOOSE_WEIGHT for point in task.points]
    share = sum(c * w for c, w in zip(covered, weights, strict=True)) / sum(weights) if covered else 1.0
    thin = [point for point, c in zip(task.points, covered, strict=True) if c < _SHORT_OF]
    seen = (
        f"It covers {len(task.points) - len(thin)} of {len(task.points)} points of the task."
        if covered
        else "The task has no points."
    )
    costs = [
        (
            (_BEST - 0.1) * (1 - share) / len(thin),
            Remark(
                f"Little is said about “{shortened(point.text)}”.",
                f"Say more about “{shortened(point.text)}”.",
                "",
                IssueSeverity.MAJOR,
            ),
        )
        for point in thin
    ]
    return measured(_BEST, seen, costs)


def _coverage(near: Near, task: Task, draft: Reading) -> list[float]:
    """How well each point is covered, 0–1, by the best sentence that does not merely announce it."""
    points = task.points
    shares = np.array([[unit.words.share(_looked_up(point)) for unit in near.units] for point in points], dtype=np.float32)
    if not points:
        return []
    scores = np.minimum(1.0, shares / _COVERED_WORDS)
    if near.points is not None:
        meaning = np.clip((near.points - _COVERED_FROM) / (_COVERED_AT - _COVERED_FROM), 0.0, 1.0)
        # Naming a point is not yet saying something about it: its words count by half, and in full where the meaning is near.
        scores = np.maximum(scores * (1 + meaning) / 2, meaning)
    scores[:, [_merely_repeats(unit, frozenset(content_terms(task.text))) for unit in near.units]] *= _REPEATED_TASK
    announcing = np.array([_ANNOUNCES.search(unit.text) is not None for unit in near.units])
    announcing &= (shares >= _NAMED).sum(axis=0) > 1
    scores = scores[:, ~announcing] if not announcing.all() else scores
    return [float(score) for score in scores.max(axis=1) * _without_heading(points, draft)]


def _merely_repeats(unit: Unit, asked: frozenset[str]) -> bool:
    """Whether a unit is no sentence and says no more than the task does, as the lines of an outline."""
    return len(unit.words.terms - asked) < _OWN_WORDS and not unit.text.rstrip(_CLOSING).endswith((".", "!", "?"))


def _looked_up(point: Point) -> frozenset[str]:
    """The words that show a point: its telling ones, or all of them where those are too few to tell anything."""
    return point.terms if len(point.terms) > 1 else point.words


def _without_heading(points: Sequence[Point], draft: Reading) -> Vectors:
    """A factor for each point: below 1 where others have a heading of their own and this one has none."""
    headings = [Words(line.text) for line in draft.lines if line.kind == "heading"]
    named = np.array([any(words.share(point.terms) >= _ON_HEADING for words in headings) for point in points])
    explicit = np.array([point.explicit for point in points])
    usual = explicit.any() and named[explicit].mean() >= _HEADINGS_USUAL
    return np.where(explicit & ~named & usual, _NO_HEADING, 1.0).astype(np.float32)


def own_criterion(place: int, criterion: Criterion, near: Near, draft: Reading) -> Measured:
    """A criterion of the user's own: how much of its description the draft takes up."""
    terms = tuple(dict.fromkeys(content_terms(_meaning(criterion))))
    words = Words(draft.text)
    share = words.share(terms)
    closest = share if near.own is None else float(near.own[place].max(initial=0.0))
    meaning = share if near.own is None else min(1.0, max(0.0, (closest - 0.1) / 0.5))
    score = _BEST * max(meaning, (share + meaning) / 2)
    missing = [term for term in terms if not words.has(term)]
    said = f"Measured by its description: {share:.0%} of the description's words occur"
    said += f", not {listed(missing)}" if missing else ""
    said += "." if near.own is None else f"; the nearest part lies at {closest:.2f}."
    remark = Remark(f"It takes little of “{shortened(_meaning(criterion))}” up.", f"Mind: {shortened(_meaning(criterion))}")
    return Measured(round(score, 4), said, (remark,) if score < criterion.threshold else ())


def _meaning(criterion: Criterion) -> str:
    return criterion.description.strip() or criterion.name.replace("_", " ")
