"""Extractive answers: verbatim, cited, readable."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from errata_kit.passages import Passage
from services.generator.drafting.drafts import CitedText, read_citations
from services.generator.drafting.extract import Extractor
from services.generator.drafting.quotable import quotes

RETRIES = Passage("a", "A failed call is retried three times by default. Bread is baked in an oven.")
THRESHOLD = Passage(
    "b",
    "# Thresholds\n\nThe relevance threshold is the score a passage must reach. It is 0.75.",
    title="Grading",
)
INSTALL = Passage(
    "c",
    "Intro text here.\n\nInstall the package with this command:\n\n```bash\npip install errata\n```\n\nThen restart the shell.",
)
OPTIONS = Passage(
    "d",
    "Errata has these providers for models:\n\n"
    "- `openai`: any compatible endpoint.\n- `offline`: no network, no key.\n\nEnd of list.",
)
EXTRACTOR = Extractor(None)


def spans(draft: CitedText) -> list[str]:
    raw = draft.text.encode()
    return [raw[citation.span.start : citation.span.end].decode() for citation in draft.citations]


def test_the_best_sentence_is_quoted_and_cited() -> None:
    draft = EXTRACTOR.answer("How often is a failed call retried?", [THRESHOLD, RETRIES])
    assert draft.text == "A failed call is retried three times by default. [2]"
    assert [(citation.number, citation.passage_id) for citation in draft.citations] == [(2, "a")]
    assert spans(draft) == ["A failed call is retried three times by default."]


def test_a_definition_is_preferred_for_what_is() -> None:
    other = Passage("x", "Set the relevance threshold in the settings to tune the relevance threshold.")
    draft = EXTRACTOR.answer("What is the relevance threshold?", [other, THRESHOLD])
    assert draft.text.startswith("The relevance threshold is the score a passage must reach. [2]")


def test_how_to_gets_code_with_its_lead_in() -> None:
    draft = EXTRACTOR.answer("How do I install the package?", [RETRIES, INSTALL])
    assert draft.text.startswith("Install the package with this command: [2]\n\n```bash\npip install errata\n```")
    assert spans(draft)[:2] == ["Install the package with this command:", "```bash\npip install errata\n```"]


def test_a_list_comes_whole_each_item_cited() -> None:
    draft = EXTRACTOR.answer("Which providers for models are there?", [OPTIONS])
    assert draft.text == (
        "Errata has these providers for models:\n\n"
        "- `openai`: any compatible endpoint. [1]\n- `offline`: no network, no key. [1]"
    )
    assert spans(draft) == ["`openai`: any compatible endpoint.", "`offline`: no network, no key."]


def test_overlapping_passages_say_a_thing_once() -> None:
    again = Passage("z", "A failed call is retried three times by default. Something else entirely is said.")
    draft = EXTRACTOR.answer("How often is a failed call retried?", [RETRIES, again])
    assert draft.text.count("retried three times") == 1


def test_a_leaning_sentence_brings_the_one_before_it() -> None:
    passage = Passage("p", "Runs are stored in SQLite. However, runs of the production stack are stored in PostgreSQL.")
    text = EXTRACTOR.answer("Where are runs of the production stack stored?", [passage]).text
    assert text.index("Runs are stored in SQLite.") < text.index("However,")


@pytest.mark.parametrize(
    "text",
    [
        "---\ntitle: The run store\n---\n",
        "# The run store\n",
        "| run | store |\n|---|---|\n| run | SQLite |\n",
        "<div>The run store is here.</div>\n",
        "What is the run store?\n",
        " ",
    ],
)
def test_what_does_not_read_as_an_answer_is_not_quoted(text: str) -> None:
    assert EXTRACTOR.answer("What is the run store?", [Passage("p", text)]) == CitedText("")


def test_without_whole_sentences_a_readable_line_is_better_than_nothing() -> None:
    assert EXTRACTOR.answer("What is the run store?", [Passage("p", "the run store keeps runs and events")]).text


def test_broken_markup_and_foreign_citations_are_left_out() -> None:
    text = "The `run store is broken here. The run store [3] is cited elsewhere. The run store keeps all events."
    assert [quote.text for quote in quotes(text)] == ["The run store keeps all events."]


def test_a_code_block_that_the_chunk_cut_is_left_out() -> None:
    assert all(quote.kind == "sentence" for quote in quotes("Run this command to start:\n\n```bash\nerrata up\n"))


def test_no_passages_give_an_empty_draft() -> None:
    assert EXTRACTOR.answer("What is a run?", []) == CitedText("")


WORDS = st.sampled_from(
    [
        "The run store keeps events. ",
        "Is it? ",
        "- item one.\n",
        "- item two: é\n",
        "\n\n",
        "```py\nx[0]\n```\n",
        "However, ä runs end. ",
        "# Head\n",
        "Use this command:\n\n",
        "| a | b |\n",
        "1. First.\n",
        "[2] ",
        "`code` ",
        "**bold ",
        "These are runs:\n\n",
        "日本語の文。",
    ]
)
TEXTS = st.one_of(st.text(max_size=300), st.lists(WORDS, max_size=15).map("".join))


@settings(max_examples=150, deadline=None)
@given(question=st.text(max_size=60), texts=st.lists(TEXTS, max_size=4))
def test_drafts_are_sound_whatever_the_passages(question: str, texts: list[str]) -> None:
    passages = [Passage(f"p{place}", text) for place, text in enumerate(texts) if text]
    draft = EXTRACTOR.answer(question, passages)
    assert "".join(draft.pieces()) == draft.text
    raw = draft.text.encode("utf-8", "surrogatepass")
    for citation in draft.citations:
        assert 1 <= citation.number <= len(passages)
        assert citation.passage_id == passages[citation.number - 1].passage_id
        assert 0 <= citation.span.start < citation.span.end <= len(raw)
        quoted = " ".join(raw[citation.span.start : citation.span.end].decode("utf-8", "surrogatepass").split())
        assert quoted in " ".join(passages[citation.number - 1].text.split())
    assert bool(draft.text) == bool(draft.citations)
    assert not re.search(r"^\s*[-*+]\s*$|^#", re.sub(r"```.*?```", "", draft.text, flags=re.S), re.MULTILINE)


def test_markers_of_a_draft_from_elsewhere_are_read() -> None:
    text = "Café runs end [1]. They restart. [2, 3] Code `x[1]` is none."
    found = read_citations(text, ("a", "b"))
    assert [citation.number for citation in found] == [1, 2]
    assert text.encode()[found[1].span.start : found[1].span.end].decode() == "They restart."
