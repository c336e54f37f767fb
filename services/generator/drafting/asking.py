"""What a model is shown of an answer that it corrects: the failing sentences, and around them no more than is needed."""

from collections.abc import Sequence
from typing import Final

from errata_kit.passages import Passage
from errata_kit.text.evidence_set import evidence_set
from services.generator.drafting.drafts import find_markers, said
from services.generator.drafting.removal import line_head
from services.generator.drafting.surgery import Surgery
from services.generator.drafting.touching import FailingUnit

# Of an answer with more characters, only what stands beside a failing sentence is shown: about four sentences.
_SHORT_ANSWER: Final = 400
_LONGEST_NEIGHBOUR: Final = 400
_GAP: Final = "\n…\n"


def shown_answer(surgery: Surgery) -> str:
    """The answer with "(sentence 1)" in the place of its first failing sentence; what is far from all of them left out."""
    numbers = {place: number for number, place in enumerate(surgery.failing, start=1)}
    everything = len(surgery.answer) <= _SHORT_ANSWER
    shown = ""
    last = -1
    for place, unit in enumerate(surgery.units):
        if not everything and numbers.keys().isdisjoint((place - 1, place, place + 1)):
            continue
        if place == last + 1:
            shown += surgery.answer[surgery.units[last].end if place else 0 : unit.start]
        else:
            shown += _GAP + line_head(surgery.answer, unit)
        shown += f"(sentence {numbers[place]})" if place in numbers else _clipped(unit.text)
        last = place
    return shown.strip()


def told_sentence(item: FailingUnit, passages: Sequence[Passage], suggestion: str) -> str:
    """A failing sentence, and why it fails. suggestion: what stands for the reason where no claim has one."""
    numbers = {passage.passage_id: number for number, passage in enumerate(passages, start=1)}
    reasons: dict[str, None] = {}
    for claim in item.claims:
        reason = claim.explanation.strip() or f"{claim.verdict.lower()}. {suggestion}".strip()
        if said(claim.text) not in said(item.unit.text):
            reason = f"“{claim.text}”: {reason}"
        places = sorted({numbers[found.passage_id] for found in claim.evidence if found.passage_id in numbers})
        reasons["".join((reason, *(f" See passage {number}." for number in places)))] = None
    return f"{item.unit.text}\n\nWhy it fails: {' '.join(reasons)}"


def needed_passages(surgery: Surgery, passages: Sequence[Passage]) -> tuple[int, ...]:
    """The places of the passages that the failing sentences must be held against."""
    places = {passage.passage_id: place for place, passage in enumerate(passages)}
    named: set[int] = set()
    statements: list[str] = []
    for item in surgery.failing.values():
        if item.unit.kind != "code":
            cited = (number for marker in find_markers(item.unit.text) for number in marker[1].split(","))
            named.update(int(number) - 1 for number in cited)
        for claim in item.claims:
            # Not the explanation: it says what is missing, and what it rests on is in the evidence.
            statements.append(claim.text)
            named.update(places[found.passage_id] for found in claim.evidence if found.passage_id in places)
    return evidence_set(statements, [passage.under_headings() for passage in passages], named)


def _clipped(words: str) -> str:
    return words if len(words) <= _LONGEST_NEIGHBOUR else f"{words[:_LONGEST_NEIGHBOUR]}…"
