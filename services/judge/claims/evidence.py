"""Quote is checked itself: a quote that is not in the passage supports nothing."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from errata_kit.grades import Verdict
from errata_kit.passages import Passage
from errata_kit.text.matching import FoldedText, find_whole, fold, fold_with_origin
from services.judge.claims.verdicts import CheckedClaim, Quote

# A quote of one short word occurs almost anywhere, so that finding it shows nothing.
_SHORTEST_QUOTE: Final = 3


def check_evidence(quote: str, passage: Passage) -> str | None:
    """Return the exact words of `passage` that `quote` quotes, or None when they are not in it.

    Case, the shape of quotes and dashes, blanks, and enclosing quotation marks are not held against a quote;
    a word that differs, or an ellipsis over left-out words, is.
    """
    return quoted_words(quote, passage.text, fold_with_origin(passage.text))


def quoted_words(quote: str, text: str, folded: FoldedText) -> str | None:
    """Do what `check_evidence` does for any text, folded once for many quotes."""
    wanted = fold(quote.strip().strip("\"'“”‘’«»")).strip()
    if len(wanted) < _SHORTEST_QUOTE:
        return None
    position = find_whole(wanted, folded.folded)
    if position is None:
        return None
    start, end = folded.source_span(position, position + len(wanted))
    return text[start:end]


def with_checked_evidence(claims: Iterable[CheckedClaim], passages: Mapping[str, Passage]) -> tuple[CheckedClaim, ...]:
    """Drop evidence that cannot be found, and lower each SUPPORTED claim that is left without any to
    UNSUPPORTED.

    `passages` is keyed by passage id; evidence from an unknown passage is dropped like a quote that is not
    there.
    """
    # Folded once each, and only those that are quoted.
    folded: dict[str, FoldedText] = {}
    return tuple(_checked(claim, passages, folded) for claim in claims)


def _checked(claim: CheckedClaim, passages: Mapping[str, Passage], folded: dict[str, FoldedText]) -> CheckedClaim:
    kept: list[Quote] = []
    for item in claim.evidence:
        passage = passages.get(item.passage_id)
        if passage is None:
            continue
        if item.passage_id not in folded:
            folded[item.passage_id] = fold_with_origin(passage.text)
        quote = quoted_words(item.quote, passage.text, folded[item.passage_id])
        if quote is not None:
            kept.append(Quote(item.passage_id, quote))
    checked = replace(claim, evidence=tuple(kept))
    if claim.verdict is not Verdict.SUPPORTED or kept:
        return checked
    return without_evidence(checked, given=bool(claim.evidence))


def without_evidence(claim: CheckedClaim, *, given: bool) -> CheckedClaim:
    """Return a claim of which no evidence is left as UNSUPPORTED. given: whether there was any before it was looked up."""
    why = "The evidence given for it is not in the passages." if given else "No evidence was given for it."
    support = None if claim.support is None else 0.0
    return replace(claim, verdict=Verdict.UNSUPPORTED, support=support, explanation=why)
