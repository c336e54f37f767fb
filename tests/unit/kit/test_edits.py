"""Edits are what they say, and the proof that they touch nothing else fails wherever they do."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from errata_kit.edits import Edit, EditError, apply_edits, protected_spans, prove
from errata_kit.grades import Claim, Verdict
from errata_kit.passages import Span

TEXT = "Größe zählt. Es regnet. Ende."


def edit(before: str, after: str, text: str = TEXT) -> Edit:
    start = text.encode().index(before.encode())
    return Edit(Span(start, start + len(before.encode())), before, after)


def claim(words: str, claim_id: str = "c") -> Claim:
    start = TEXT.encode().index(words.encode())
    return Claim(claim_id, words, Span(start, start + len(words.encode())), Verdict.SUPPORTED, 1.0)


def test_edits_are_made_where_they_stand() -> None:
    assert apply_edits(TEXT, []) == TEXT
    assert apply_edits(TEXT, [edit("Es regnet. ", ""), edit("Ende.", "Schluß.")]) == "Größe zählt. Schluß."


@pytest.mark.parametrize(
    "edits",
    [
        [edit("Ende.", ""), edit("Es regnet.", "")],
        [edit("Es regnet.", ""), edit("regnet. Ende.", "")],
        [Edit(Span(0, 0), "", "More. ")],
        [Edit(Span(5, 2), "", "")],
        [Edit(Span(0, 900), TEXT, "")],
        [Edit(Span(0, 5), "Size", "Größe")],
        [Edit(Span(0, 3), "Grö", "")],
    ],
    ids=["out of order", "overlap", "of nothing", "backwards", "outside", "says something else", "cuts a character"],
)
def test_edits_that_do_not_fit_are_errors(edits: list[Edit]) -> None:
    with pytest.raises(EditError):
        apply_edits(TEXT, edits)


def test_the_proof_holds_for_edits_beside_what_is_protected() -> None:
    prove(TEXT, "Größe zählt. Ende.", [edit("Es regnet. ", "")], [claim("Größe zählt.").span, claim("Ende.").span])


@pytest.mark.parametrize("before", [" Es regnet.", "t. Es regnet. ", "Es regnet. E"])
def test_a_byte_of_a_protected_sentence_is_not_touched(before: str) -> None:
    touching = edit(before, "")
    spans = [claim("Größe zählt.").span, claim("Ende.").span]
    if before.startswith(" "):
        prove(TEXT, apply_edits(TEXT, [touching]), [touching], spans)
        return
    with pytest.raises(EditError, match="not to be corrected"):
        prove(TEXT, apply_edits(TEXT, [touching]), [touching], spans)


def test_a_text_that_the_edits_do_not_lead_to_is_no_proof() -> None:
    with pytest.raises(EditError, match="do not lead"):
        prove(TEXT, TEXT, [edit("Es regnet. ", "")], [])


def test_what_does_not_fail_is_protected_unless_it_shares_bytes_with_what_does() -> None:
    claims = [claim("Größe zählt.", "a"), claim("Es regnet.", "b"), claim("regnet.", "c"), claim("Ende.", "d")]
    assert protected_spans(claims, [claims[2]]) == (claims[0].span, claims[3].span)
    assert protected_spans(claims, []) == tuple(item.span for item in claims)


def test_a_claim_beside_a_failing_one_in_its_sentence_is_protected_only_where_sentences_are_unknown() -> None:
    claims = [claim("Größe zählt.", "a"), claim("regnet.", "b"), claim("Es", "finding")]
    assert protected_spans(claims[:2], [claims[2]]) == (claims[0].span, claims[1].span)
    assert protected_spans(claims[:2], [claims[2]], TEXT) == (claims[0].span,)


@given(st.lists(st.tuples(st.text(max_size=8), st.text(max_size=8)), max_size=8), st.data())
def test_pieces_put_in_are_the_only_difference(pieces: list[tuple[str, str]], data: st.DataObject) -> None:
    before, after, edits, kept = "", "", [], []
    for old, new in pieces:
        start = len(before.encode())
        before += old
        span = Span(start, len(before.encode()))
        if old and data.draw(st.booleans()):
            edits.append(Edit(span, old, new))
            after += new
        else:
            kept.append(span)
            after += old
    prove(before, after, edits, [span for span in kept if span.start < span.end])
