"""Refinement by rule: what fails goes, what stays is untouched."""

from hypothesis import given, settings
from hypothesis import strategies as st

from errata_kit.grades import Claim, Verdict
from errata_kit.passages import Passage, Span
from errata_kit.text.sentences import byte_span, split_sentences
from services.generator.drafting.drafts import CitedText
from services.generator.drafting.extract import Extractor
from services.generator.drafting.refine import refine

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


def refined(draft: str, *words: str, question: str = QUESTION) -> CitedText:
    return refine(question, draft, [claim(draft, each) for each in words], PASSAGES, Extractor(None))


def test_only_the_failing_sentence_goes() -> None:
    draft = "Café: the relevance threshold is 0.75. [1] Use `--magic` to change it. A run ends after three. [2]"
    assert refined(draft, "Use `--magic` to change it.").text == (
        "Café: the relevance threshold is 0.75. [1] A run ends after three. [2]"
    )


def test_a_failing_clause_takes_its_sentence_and_citations_along() -> None:
    draft = "The relevance threshold is 0.75. [1] It is set by `--magic` and by name. [2] The end."
    assert refined(draft, "`--magic`").text == "The relevance threshold is 0.75. [1] The end."


def test_a_dangling_however_is_mended() -> None:
    draft = "The threshold is magic. However, the relevance threshold is 0.75. [1]"
    assert refined(draft, "The threshold is magic.").text == "The relevance threshold is 0.75. [1]"


def test_a_however_with_its_predecessor_stays() -> None:
    draft = "The relevance threshold exists. However, it is 0.75. It is magic."
    assert refined(draft, "It is magic.").text == "The relevance threshold exists. However, it is 0.75."


def test_a_list_item_goes_with_its_marker() -> None:
    draft = "The relevance threshold has options:\n\n- one is real. [1]\n- magic is not.\n- two is real. [2]\n"
    assert refined(draft, "magic is not.").text == (
        "The relevance threshold has options:\n\n- one is real. [1]\n- two is real. [2]"
    )


def test_a_list_that_vanishes_takes_its_lead_in_and_heading_along() -> None:
    draft = (
        "The relevance threshold is 0.75.\n\n## Options\n\nThere are options:\n\n- magic one\n- magic two\n\n## More\n\nMore."
    )
    assert refined(draft, "magic one", "magic two").text == "The relevance threshold is 0.75.\n\n## More\n\nMore."


def test_a_failing_code_block_takes_its_lead_in_along() -> None:
    draft = "The relevance threshold is 0.75.\n\nRun this:\n\n```bash\nerrata --magic\n```\n\nDone."
    assert refined(draft, "errata --magic").text == "The relevance threshold is 0.75.\n\nDone."


def test_nothing_left_is_replaced_by_an_extract() -> None:
    draft = refined("It is magic.", "It is magic.")
    assert draft.text.startswith("The relevance threshold is 0.75 by default. [1]")
    assert draft.citations[0].passage_id == "p1"


def test_what_is_left_without_an_answer_is_followed_by_an_extract() -> None:
    draft = refined("Glad to help! It is magic relevance.", "It is magic relevance.")
    assert draft.text.startswith("Glad to help!\n\nThe relevance threshold is 0.75 by default. [1]")


def test_markers_of_passages_not_given_go() -> None:
    draft = "The relevance threshold is 0.75. [9] A run ends. [2, 7] Code `x [9]`."
    assert "[9] A" not in refined(draft).text
    assert "A run ends. [2]" in refined(draft).text


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
            assert sentence.removeprefix("Also, it")[-8:] in draft.text
    raw = draft.text.encode()
    for citation in draft.citations:
        assert raw[citation.span.start : citation.span.end].decode()
    assert all(unit.text.strip("-* ") for unit in split_sentences(draft.text))


@settings(max_examples=150, deadline=None)
@given(
    text=st.text(max_size=200),
    start=st.integers(0, 300),
    end=st.integers(0, 300),
    words=st.text(max_size=20),
)
def test_any_draft_and_any_span_are_survived(text: str, start: int, end: int, words: str) -> None:
    draft = refine("What?", text, [failed_claim(words, start, end)], PASSAGES, Extractor(None))
    raw = draft.text.encode("utf-8", "surrogatepass")
    assert all(0 <= citation.span.start < citation.span.end <= len(raw) for citation in draft.citations)
