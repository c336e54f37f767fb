"""Offline measures that need the draft's words alone: how clear it is, and how sound its technical side looks."""

import re
from collections import defaultdict
from collections.abc import Sequence
from statistics import mean
from typing import Final

from errata_kit.drafts import IssueSeverity
from errata_kit.grades import Verdict
from errata_kit.passages import Passage
from errata_kit.text.terms import STOP_WORDS
from services.judge.claims.offline import OfflineChecker
from services.judge.claims.splitting import plain_text
from services.judge.claims.verdicts import CheckedClaim
from services.judge.guard.details import details, squeezed
from services.judge.review.findings import listed, shortened
from services.judge.review.measured import Measured, Remark, measured
from services.judge.review.reading import Reading, count_words
from services.judge.review.task import Task

# What a draft without a fault gets: rules see no brilliance, so never 1.
_BEST: Final = 0.97
# Technical writing averages 15 to 20 words a sentence; from these on a reader is held up.
_LONG_SENTENCE: Final = 40
_LONG_MEAN: Final = 26.0
_LONG_PARAGRAPH: Final = 170
_UNSTRUCTURED_WORDS: Final = 350
# English prose has a third and more of function words; notes strung together have next to none.
_LEAST_FUNCTION_WORDS: Final = 0.12
_PROSE_WORDS: Final = 30
_WORD: Final = re.compile(r"[A-Za-z]+")
# Without passages nothing tells right from wrong: what is left to see is form.
_UNCHECKED: Final = 0.92
# Share of a draft that the passages support, and the score it is worth: linear between these.
_SUPPORT_LEAST: Final = 0.40
# Support of a plain paraphrase, see claims/scoring.py.
_FULL_SUPPORT: Final = 0.55
_NO_CODE: Final = 0.20
_CONTRADICTED: Final = 0.15
_UNSUPPORTED_SHOWN: Final = 3


def clarity(draft: Reading) -> Measured:
    """How easy it is to read: length of sentences and paragraphs, structure, whole sentences."""
    lengths = [(count_words(plain_text(unit.text)), unit.text) for unit in draft.sentences]
    if not lengths:
        return Measured(0.3, "It has no sentences.", (Remark("It has no sentences.", "Write whole sentences."),))
    average = mean(length for length, _ in lengths)
    costs: list[tuple[float, Remark]] = []
    long = [(length, text) for length, text in lengths if length > _LONG_SENTENCE]
    if long:
        share = len(long) / len(lengths)
        length, text = max(long)
        remark = Remark(f"A sentence of {length} words is hard to follow.", "Cut the long sentences.", text)
        costs.append((min(0.45, 0.03 + 0.5 * share + 0.002 * max(0, length - 60)), remark))
    if average > _LONG_MEAN:
        remark = Remark(f"Sentences have {average:.0f} words on average.", "Write shorter sentences.")
        costs.append((min(0.3, 0.02 * (average - _LONG_MEAN)), remark))
    costs.extend(_structure(draft))
    costs.extend(_strung_together(draft))
    return measured(
        _BEST,
        f"It has {len(lengths)} {'sentence' if len(lengths) == 1 else 'sentences'} of {average:.0f} words on average.",
        costs,
    )


def _structure(draft: Reading) -> list[tuple[float, Remark]]:
    marks = sum(line.kind in ("heading", "item", "fence", "table") for line in draft.lines)
    costs = []
    if draft.words > _UNSTRUCTURED_WORDS and not marks:
        remark = Remark("It is long and has no headings, lists or code.", "Part it with headings or lists.")
        costs.append((0.08, remark))
    longest, current = 0, 0
    for line in draft.lines:
        current = current + count_words(line.text) if line.kind == "text" else 0
        longest = max(longest, current)
    if longest > _LONG_PARAGRAPH:
        remark = Remark(f"A paragraph has {longest} words.", "Cut the long paragraph.")
        costs.append((min(0.25, 0.06 + 0.0004 * (longest - _LONG_PARAGRAPH)), remark))
    return costs


def _strung_together(draft: Reading) -> list[tuple[float, Remark]]:
    words = [word.lower() for unit in draft.units if unit.kind == "prose" for word in _WORD.findall(unit.text)]
    if len(words) < _PROSE_WORDS:
        return []
    share = sum(word in STOP_WORDS for word in words) / len(words)
    if share >= _LEAST_FUNCTION_WORDS:
        return []
    return [(0.3, Remark("It strings words together instead of making sentences.", "Write whole sentences."))]


def technical_quality(draft: Reading, task: Task, passages: Sequence[Passage]) -> Measured:
    """How sound names, code and statements are: against the passages where there are some, by their form otherwise."""
    costs = _form(draft, task)
    if not passages:
        seen = "There are no passages to check it against, so only its form was looked at."
        return measured(_UNCHECKED, seen, costs)
    # Words alone: faithfulness is measured with the encoder in a call of its own, and long drafts would wait for it here.
    claims = [claim for claim in OfflineChecker(None).check(draft.text, passages) if claim.verdict is not Verdict.UNVERIFIABLE]
    if not claims:
        return measured(_UNCHECKED, "It states nothing that could be checked against the passages.", costs)
    unsupported = [claim for claim in claims if claim.verdict is not Verdict.SUPPORTED]
    total = sum(_weight(claim) for claim in claims)
    # Partly supported sentences count in part: explaining what passages say takes words of one's own.
    share = sum(_weight(claim) * min(1.0, (claim.support or 0.0) / _FULL_SUPPORT) for claim in claims) / total
    costs.extend((_CONTRADICTED, _against(claim)) for claim in unsupported if claim.verdict is Verdict.CONTRADICTED)
    missed = [_unsupported(claim) for claim in unsupported if claim.verdict is Verdict.UNSUPPORTED][:_UNSUPPORTED_SHOWN]
    costs.extend((0.0, remark) for remark in missed)
    best = _SUPPORT_LEAST + (_BEST - _SUPPORT_LEAST) * share
    return measured(best, f"The passages support {share:.0%} of what it says.", costs)


def _weight(claim: CheckedClaim) -> int:
    return max(1, min(count_words(claim.text), 12))


def _against(claim: CheckedClaim) -> Remark:
    said = f"The passages say otherwise than “{shortened(claim.text)}”. {claim.explanation}"
    return Remark(said, "Say what the passages say.", claim.text, IssueSeverity.MAJOR)


def _unsupported(claim: CheckedClaim) -> Remark:
    said = f"No passage says “{shortened(claim.text)}”."
    return Remark(said, "Take out or correct what no passage says.", claim.text, IssueSeverity.MAJOR)


def _form(draft: Reading, task: Task) -> list[tuple[float, Remark]]:
    costs = []
    prose = [line.text for line in draft.lines if line.kind not in ("code", "fence")]
    if sum(line.count("`") for line in prose) % 2:
        costs.append((0.12, Remark("A code span is opened and never closed.", "Close the code span.")))
    if task.wants_code and not draft.code_lines and not any("`" in line for line in prose):
        remark = Remark("The task asks for commands or code, and there are none.", "Show the commands or the code.")
        costs.append((_NO_CODE, remark))
    spellings: defaultdict[str, dict[str, None]] = defaultdict(dict)
    for detail in details(draft.text):
        if detail.kind == "identifier":
            spellings[squeezed(detail.text)].setdefault(detail.text)
    several = next((list(names) for names in spellings.values() if len({name.lower() for name in names}) > 1), None)
    if several:
        # A blemish: examples in two languages spell a name in two ways.
        remark = Remark(
            f"One name is spelled in several ways: {listed(several)}.", f"Spell {several[0]} in one way.", several[1]
        )
        costs.append((0.06, remark))
    return costs
