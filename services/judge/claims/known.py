"""Claims that were checked before: which claims of an answer they are, and what holds of them still.

Their verdicts are taken as they are, since whoever hands them over could as well ignore ours. What can be looked up is looked
up: each quote must stand in its passage, and the guard reads them like all others.
"""

from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from errata_kit.grades import Claim, Verdict
from errata_kit.passages import Passage
from services.judge.claims.evidence import without_evidence
from services.judge.claims.splitting import ClaimText
from services.judge.claims.verdicts import CheckedClaim, Quote

LONGEST_CLAIM: Final = 2000
"""Characters of a claim's text, and of its explanation, that leave the judge."""


def recall(texts: Sequence[ClaimText], known: Sequence[Claim], passages: Mapping[str, Passage]) -> dict[int, CheckedClaim]:
    """By place in texts, the claims that are known, with what is left of their evidence. passages: by passage_id.

    Equal texts are matched in order, each known claim once. A text that may have been cut off when it left the judge equals
    none: what was cut off may differ.
    """
    waiting: defaultdict[str, deque[Claim]] = defaultdict(deque)
    for claim in known:
        waiting[claim.text].append(claim)
    recalled: dict[int, CheckedClaim] = {}
    for place, text in enumerate(texts):
        if len(text.text) < LONGEST_CLAIM and (equal := waiting.get(text.text)):
            recalled[place] = _recalled(text, equal.popleft(), passages)
    return recalled


def _recalled(text: ClaimText, known: Claim, passages: Mapping[str, Passage]) -> CheckedClaim:
    # To the letter: what left the judge is a piece of its passage as it stands, though it may end within a word.
    quotes = tuple(
        Quote(item.passage_id, item.quote)
        for item in known.evidence
        if item.passage_id in passages and item.quote.strip() and item.quote in passages[item.passage_id].text
    )
    claim = CheckedClaim(text.text, text.start, text.end, known.verdict, known.support, quotes, known.explanation)
    if known.verdict is not Verdict.SUPPORTED or quotes:
        return claim
    return without_evidence(replace(claim, support=0.0), given=bool(known.evidence))
