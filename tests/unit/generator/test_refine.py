"""Refinement by rule: what fails goes, what stays is untouched."""

from hypothesis import given, settings
from hypothesis import strategies as st

from errata_kit.edits import apply_edits
from errata_kit.grades import Claim, Evidence, Verdict
from errata_kit.passages import Passage, Span
from errata_kit.text.sentences import byte_span, split_sentences
from services.generator.drafting.drafts import cited
from services.generator.drafting.extract import Extractor
from services.generator.drafting.refine import refine
from services.generator.drafting.surgery import Corrected

PASSAGES = [
    Passage("p1", "The relevance threshold is 0.75 by default. Set `relevance_threshold` to change it."),
    Passage("p2", "A run ends after three retrievals."),
]
QUESTION = "What is the relevance threshold?"


def failed_claim(words: str, start: int, end: int) -> Claim:
    return Claim("c1", words, Span(start, end), Verdict.UNSUPPORTED, 0.0, explanation="not in the passages")


def claim(draft: str, words: str) -> Claim:
    place = draft.index(words)
    return failed_claim(words, *byte_span(draft, place, place + len(words)))


def refined(draft: str, *words: str, question: str = QUESTION) -> Corrected:
    return refine(question, draft, [claim(draft, each) for each in words], PASSAGES, Extractor(None))


def contradicted(draft: str, words: str, quote: str, passage_id: str = "p1") -> Claim:
    place = draft.index(words)
    span = Span(*byte_span(draft, place, place + len(words)))
    return Claim("c1", words, span, Verdict.CONTRADICTED, 0.0, (Evidence(passage_id, quote, Span(0, 1)),), "It is 0.75.")


def test_only_the_failing_sentence_goes() -> None:
    draft = "Café: the relevance threshold is 0.75. [1] Use `--magic` to change it. A run ends after three. [2]"
    assert refined(draft, "Use `--magic` to change it.").text == (
        "Café: the relevance threshold is 0.75. [1] A run ends after three. [2]"
    )


def test_a_failing_clause_takes_its_sentence_and_citations_along() -> None:
    draft = "The relevance threshold is 0.75. [1] It is set by `--magic` and by name. [2] The end."
    assert refined(draft, "`--magic`").text == "The relevance threshold is 0.75. [1] The end."


def test_the_sentence_behind_a_failing_one_is_not_mended() -> None:
    draft = "The threshold is magic. However, the relevance threshold is 0.75. [1]"
    assert refined(draft, "The threshold is magic.").text == "However, the relevance threshold is 0.75. [1]"


def test_a_however_with_its_predecessor_stays() -> None:
    draft = "The relevance threshold exists. However, it is 0.75. It is magic."
    assert refined(draft, "It is magic.").text == "The relevance threshold exists. However, it is 0.75."


def test_a_list_item_goes_with_its_marker() -> None:
    draft = "The relevance threshold has options:\n\n- one is real. [1]\n- magic is not.\n- two is real. [2]\n"
    assert refined(draft, "magic is not.").text == (
        "The relevance threshold has options:\n\n- one is real. [1]\n- two is real. [2]\n"
    )


def test_a_list_that_vanishes_takes_its_lead_in_and_heading_along() -> None:
    draft = (
        "The relevance threshold is 0.75.\n\n## Options\n\nThere are options:\n\n- magic one\n- magic two\n\n## More\n\nMore."
    )
    assert refined(draft, "magic one", "magic two").text == "The relevance threshold is 0.75.\n\n## More\n\nMore."


def test_a_failing_code_block_takes_its_lead_in_along() -> None:
    draft = "The relevance threshold is 0.75.\n\nRun this:\n\n```bash\nerrata --magic\n```\n\nDone."
    assert refined(draft, "errata --magic").text == "The relevance threshold is 0.75.\n\nDone."


def test_what_introduced_what_failed_goes_by_an_edit_of_its_own() -> None:
    draft = "The relevance threshold is 0.75.\n\n## Options\n\nThere are options:\n\n- magic one\n\nThe end."
    done = refined(draft, "magic one")
    assert [(edit.before.strip(), edit.claim_ids) for edit in done.edits] == [
        ("There are options:", ()),
        ("- magic one", ("c1",)),
    ]
    assert all(edit.reason and not edit.after for edit in done.edits)
    assert done.text == "The relevance threshold is 0.75.\n\n## Options\n\nThe end."


def test_an_edit_says_which_claims_it_corrects_and_why() -> None:
    draft = "Ünï. The relevance threshold is 0.75. It is magic. It was."
    claims = [claim(draft, "It is"), claim(draft, "magic.")]
    claims[1] = Claim("c2", "magic.", claims[1].span, Verdict.UNSUPPORTED, 0.0, explanation="No magic anywhere.")
    [edit] = refine(QUESTION, draft, claims, PASSAGES, Extractor(None)).edits
    assert edit.claim_ids == ("c1", "c2")
    assert edit.reason == "not in the passages No magic anywhere."
    assert draft.encode()[edit.span.start : edit.span.end].decode() == edit.before == "It is magic. "


def test_nothing_left_gives_way_to_an_extract() -> None:
    done = refined("It is magic.", "It is magic.")
    assert done.text.startswith("The relevance threshold is 0.75 by default. [1]")
    assert cited(done.text, PASSAGES).citations[0].passage_id == "p1"
    assert done.edits[0].before == "It is magic."


def test_what_is_left_without_an_answer_has_an_extract_where_the_failing_sentence_stood() -> None:
    done = refined("Glad to help! It is magic relevance.", "It is magic relevance.")
    assert done.text.startswith("Glad to help! The relevance threshold is 0.75 by default. [1]")


def test_an_extract_of_several_blocks_stands_in_paragraphs_of_its_own() -> None:
    passage = Passage("p1", "To set the threshold, do this:\n\n1. Stop the run.\n2. Set the threshold.\n\nThe end.")
    draft = "Glad to help!\n\n- It is magic.\n- Bye."
    done = refine("How do I set the threshold?", draft, [claim(draft, "It is magic.")], [passage], Extractor(None))
    assert done.text.startswith("Glad to help!\n\nTo set the threshold, do this:\n\n1. Stop the run. [1]")
    assert done.text.endswith("\n\n- Bye.")


def test_an_extract_does_not_say_again_what_failed() -> None:
    draft = "The relevance threshold is 0.75 by default. [1]"
    done = refined(draft, "The relevance threshold is 0.75 by default.")
    assert "by default" not in done.text and "`relevance_threshold`" in done.text


def test_without_an_extract_nothing_is_left_and_the_edits_say_what_went() -> None:
    draft = "It is magic. [1]"
    done = refine(QUESTION, draft, [claim(draft, "magic")], [Passage("p", "nothing")], Extractor(None))
    assert done.text == "" and [edit.before for edit in done.edits] == [draft]


def test_a_contradicted_sentence_gives_way_to_the_passages_own() -> None:
    draft = "Hello. The threshold is 0.9. [2] It is relevance that counts."
    quote = "The relevance threshold is 0.75 by default."
    done = refine(QUESTION, draft, [contradicted(draft, "The threshold is 0.9.", quote)], PASSAGES, Extractor(None))
    assert done.text == f"Hello. {quote} [1] It is relevance that counts."
    assert [(edit.before, edit.after, edit.reason) for edit in done.edits] == [
        ("The threshold is 0.9. [2]", f"{quote} [1]", "It is 0.75.")
    ]


def test_a_contradicted_item_keeps_its_marker() -> None:
    draft = "The relevance threshold:\n\n- it is 0.9\n- it is kept"
    quote = "A run ends after three retrievals."
    done = refine(QUESTION, draft, [contradicted(draft, "it is 0.9", quote, "p2")], PASSAGES, Extractor(None))
    assert done.text == f"The relevance threshold:\n\n- {quote} [2]\n- it is kept"


def test_what_contradicts_is_not_put_in_when_it_is_no_sentence_or_stands_there() -> None:
    stands = "The relevance threshold is 0.75 by default. [1] It is 0.9."
    quote = "The relevance threshold is 0.75 by default."
    for evidence in (quote, "0.75 by default", "The relevance threshold is 0.8 by default."):
        done = refine(QUESTION, stands, [contradicted(stands, "It is 0.9.", evidence)], PASSAGES, Extractor(None))
        assert done.text == "The relevance threshold is 0.75 by default. [1]"


def test_marks_of_passages_not_given_stay_in_sentences_that_stay() -> None:
    draft = "The relevance threshold is 0.75. [9] It is magic. Code `x [9]`."
    done = refined(draft, "It is magic.")
    assert done.text == "The relevance threshold is 0.75. [9] Code `x [9]`."
    assert not cited(done.text, PASSAGES).citations


def test_a_claim_with_a_wrong_span_is_found_by_its_words() -> None:
    draft = "The relevance threshold is 0.75. It uses magic dust."
    failed = failed_claim("It uses magic dust.", 900, 950)
    assert refine(QUESTION, draft, [failed], PASSAGES, Extractor(None)).text == "The relevance threshold is 0.75."


def test_without_failing_claims_the_draft_is_untouched() -> None:
    draft = "  The relevance threshold is 0.75. [1]\n\n\n\n- \n"
    assert refined(draft).text == draft


SENTENCES = [
    "The relevance threshold is 0.75. [1]",
    "Ünïcode runs end. [2]",
    "Magic is used.",
    "Also, it is fast.",
    "Runs are kept.",
]


@settings(max_examples=150, deadline=None)
@given(chosen=st.lists(st.sampled_from(SENTENCES), min_size=1, max_size=6, unique=True), data=st.data())
def test_kept_sentences_keep_their_bytes(chosen: list[str], data: st.DataObject) -> None:
    text = data.draw(st.sampled_from([" ", "\n\n", "\n- "])).join(chosen)
    failing = data.draw(st.lists(st.sampled_from(chosen), unique=True))
    draft = refined(text, *failing)
    for sentence in chosen:
        if sentence in failing:
            assert sentence not in draft.text or sentence.removesuffix(" [1]") in PASSAGES[0].text
        else:
            assert sentence in draft.text
    assert apply_edits(text, draft.edits) == draft.text
    assert all(unit.text.strip("-* ") for unit in split_sentences(draft.text))


@settings(max_examples=150, deadline=None)
@given(
    text=st.text(max_size=200),
    start=st.integers(0, 300),
    end=st.integers(0, 300),
    words=st.text(max_size=20),
)
def test_any_draft_and_any_span_are_survived(text: str, start: int, end: int, words: str) -> None:
    done = refine("What?", text, [failed_claim(words, start, end)], PASSAGES, Extractor(None))
    raw = done.text.encode()
    assert apply_edits(text, done.edits) == done.text or not done.text
    citations = cited(done.text, PASSAGES).citations
    assert all(0 <= citation.span.start < citation.span.end <= len(raw) for citation in citations)
