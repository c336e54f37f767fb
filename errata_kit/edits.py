"""Changes of an answer, and the proof that they change nothing else.

A refinement is a row of edits of the text before. That it left alone what was not to be corrected is not taken from whoever
made it: `prove` works it out from the two texts, and everybody who hands a refinement on does so again.
"""

from collections.abc import Iterable, Sequence

from pydantic.dataclasses import dataclass

from errata_kit.grades import Claim
from errata_kit.passages import Span
from errata_kit.text.sentences import ByteOffsets, split_sentences


@dataclass(frozen=True, slots=True)
class Edit:
    """before, which stands at span in the text before, gives way to after; empty when it was removed.

    claim_ids: the failing claims that it corrects; empty for words that introduced nothing any more.
    """

    span: Span
    before: str
    after: str
    claim_ids: tuple[str, ...] = ()
    reason: str = ""


@dataclass(frozen=True, slots=True)
class RejectedEdit:
    """A change that a model wanted and that was not made."""

    after: str
    reason: str


class EditError(ValueError):
    """Edits that do not lead from the text before to the text after, or that touch what they must leave alone."""


def apply_edits(text: str, edits: Sequence[Edit]) -> str:
    """The text with its edits made. Spans count UTF-8 bytes of the text.

    Raises:
        EditError: they are out of order, overlap, lie outside of the text, or do not say what stands there.
    """
    raw = text.encode()
    pieces: list[bytes] = []
    position = 0
    for edit in edits:
        start, end = edit.span.start, edit.span.end
        if not position <= start < end <= len(raw):
            raise EditError("an edit overlaps the one before it, or lies outside of the text")
        if raw[start:end] != edit.before.encode():
            raise EditError("an edit does not say what stands at its place")
        pieces += (raw[position:start], edit.after.encode())
        position = end
    return b"".join((*pieces, raw[position:])).decode()


def prove(before: str, after: str, edits: Sequence[Edit], protected: Iterable[Span]) -> None:
    """Return when the edits lead from one text to the other, byte for byte, and none touches a protected span.

    protected: half-open spans of UTF-8 bytes in the text before.

    Raises:
        EditError: says what does not hold.
    """
    if apply_edits(before, edits) != after:
        raise EditError("the edits do not lead to the text after")
    for span in protected:
        for edit in edits:
            if _overlap(edit.span, span):
                raise EditError("an edit touches a sentence that was not to be corrected")


def protected_spans(claims: Iterable[Claim], failing: Iterable[Claim], text: str = "") -> tuple[Span, ...]:
    """Where the claims stand that are not to be corrected: every one but the failing ones.

    What shares bytes with a failing claim is not protected: it can't be left alone. Nor is, with the text that they stand in,
    what shares a sentence with one, since a sentence is the least that is corrected.
    """
    wrong = [claim.span for claim in failing]
    if text:
        offsets = ByteOffsets(text)
        units = [Span(*offsets.span(unit.start, unit.end)) for unit in split_sentences(text)]
        wrong += [unit for unit in units if any(_overlap(unit, bad) for bad in wrong)]
    return tuple(claim.span for claim in claims if not any(_overlap(claim.span, bad) for bad in wrong))


def _overlap(one: Span, other: Span) -> bool:
    return one.start < other.end and other.start < one.end
