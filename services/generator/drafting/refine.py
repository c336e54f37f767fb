"""Corrects an answer without a language model: what the passages say otherwise is put right with their own sentence, what
fails besides goes, all else stays as it is, byte for byte.
"""

from collections.abc import Sequence

from errata_kit.grades import Claim, Evidence, Verdict
from errata_kit.passages import Passage
from errata_kit.text.sentences import split_sentences
from services.generator.drafting.drafts import said
from services.generator.drafting.extract import Extractor
from services.generator.drafting.proposals import fitting
from services.generator.drafting.quotable import is_whole_sentence
from services.generator.drafting.surgery import Corrected, Surgery, answers
from services.generator.drafting.touching import FailingUnit


def refine(
    question: str,
    answer: str,
    failing: Sequence[Claim],
    passages: Sequence[Passage],
    extractor: Extractor,
) -> Corrected:
    """The answer with its failing claims corrected or removed, and the edits that do so.

    A sentence whose claim a passage's sentence contradicts gives way to that sentence, cited. Every other sentence, list
    item, table row or code block that a failing claim touches is removed with its citations, list marker and what it leaves
    without meaning: headings and lead-ins of nothing. When the rest names nothing that the question asks about, the
    passages' best extracts take the place of the first failing sentence; when there are none, the text comes back empty.
    """
    surgery = Surgery(answer, failing)
    if not surgery.failing:
        return Corrected(answer, ())
    put_in = _from_evidence(surgery, passages)
    done = surgery.finished(put_in) or surgery.without_failing()
    if answers(question, done.text):
        return done
    with_extract = _with_extract(surgery, question, passages, extractor)
    return with_extract or Corrected("", surgery.without_failing().edits)


def _from_evidence(surgery: Surgery, passages: Sequence[Passage]) -> dict[int, str]:
    """What contradicts a failing sentence, in its place, where it is a whole sentence of a passage."""
    put_in: dict[int, str] = {}
    for place, item in surgery.failing.items():
        for words in _contradicting(item, passages):
            fits = fitting(surgery, place, words, len(passages))
            if fits and surgery.fits({**put_in, place: fits}):
                put_in[place] = fits
                break
    return put_in


def _contradicting(item: FailingUnit, passages: Sequence[Passage]) -> list[str]:
    if item.unit.kind not in ("prose", "list"):
        return []
    against = [claim for claim in item.claims if claim.verdict is Verdict.CONTRADICTED]
    said_against = [_cited(evidence, passages) for claim in against for evidence in claim.evidence]
    return [words for words in said_against if words and not _is_claimed(words, item.claims)]


def _is_claimed(words: str, claims: Sequence[Claim]) -> bool:
    return said(words) in {said(claim.text) for claim in claims}


def _cited(evidence: Evidence, passages: Sequence[Passage]) -> str:
    """A quote with the mark of its passage, when it is one of its whole sentences; else nothing."""
    wanted = " ".join(evidence.quote.split())
    if not is_whole_sentence(wanted):
        return ""
    for number, passage in enumerate(passages, start=1):
        if passage.passage_id == evidence.passage_id:
            whole = any(" ".join(unit.text.split()) == wanted for unit in split_sentences(passage.text))
            return f"{wanted} [{number}]" if whole else ""
    return ""


def _with_extract(surgery: Surgery, question: str, passages: Sequence[Passage], extractor: Extractor) -> Corrected | None:
    """The answer with the best extracts in the place of its first failing sentence, the other failing ones removed."""
    claimed = {said(claim.text) for item in surgery.failing.values() for claim in item.claims}
    extract = extractor.answer(question, passages, surgery.wrong | surgery.kept | claimed).text
    if not extract:
        return None
    first = next(iter(surgery.failing))
    inline = "\n" not in extract and fitting(surgery, first, extract, len(passages))
    done = surgery.finished({first: extract}) if inline else None
    return done or surgery.finished({}, {first: extract})
