import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from errata_kit.text.sentences import byte_span, split_sentences

MARKDOWN = st.lists(
    st.sampled_from([*list("aB1 .!?\n`#|-*[]()\"'_:é。"), "```\n", "1. ", "| a |\n", "e.g. ", "[1]"]),
    max_size=200,
).map("".join)


def texts(text: str) -> list[str]:
    return [sentence.text for sentence in split_sentences(text)]


@given(MARKDOWN | st.text(max_size=200))
def test_units_slice_back_to_the_text_in_order_and_are_never_blank(text: str) -> None:
    end = 0
    for sentence in split_sentences(text):
        assert text[sentence.start : sentence.end] == sentence.text
        assert sentence.text.strip() == sentence.text != ""
        assert sentence.start >= end
        end = sentence.end


@given(st.text(max_size=80), st.integers(0, 80), st.integers(0, 80))
def test_byte_spans_cut_the_same_words(text: str, one: int, other: int) -> None:
    start, end = sorted((min(one, len(text)), min(other, len(text))))
    first, last = byte_span(text, start, end)
    assert text.encode("utf-8", "surrogatepass")[first:last] == text[start:end].encode("utf-8", "surrogatepass")


@pytest.mark.parametrize(
    "text",
    [
        "Use it, e.g. for caching.",
        "The U.S. Army uses v1.2.3 and 3.14 of file.names at https://a.b/c.d today.",
        "Ask Dr. Smith, i.e. the owner.",
        "Call `a. B` first.",
        "It is Fig. 3 of the report.",
        "no final punctuation",
    ],
)
def test_one_sentence_stays_one(text: str) -> None:
    assert texts(text) == [text]


def test_tokenised_text_is_split_at_its_detached_full_stops() -> None:
    assert texts("in flight , or on the ground . Types of it include air .") == [
        "in flight , or on the ground .",
        "Types of it include air .",
    ]


def test_citations_stay_with_the_sentence_they_follow() -> None:
    assert texts("It is set. [1][2] Next one [3]. Last") == ["It is set. [1][2]", "Next one [3].", "Last"]


def test_markdown_units_have_their_kind_and_leave_markers_out() -> None:
    text = "# Title\nSome prose. More.\n\n- item one\n- **two**\n"
    text += "| a | b |\n|---|---|\n| 1 | 2 |\n```sh\nx. Y\n```\nend"
    assert [(unit.kind, unit.text) for unit in split_sentences(text)] == [
        ("heading", "Title"),
        ("prose", "Some prose."),
        ("prose", "More."),
        ("list", "item one"),
        ("list", "**two**"),
        ("table", "| a | b |"),
        ("table", "| 1 | 2 |"),
        ("code", "```sh\nx. Y\n```"),
        ("prose", "end"),
    ]


def test_a_title_line_above_its_text_is_a_unit_and_wrapped_prose_is_not_cut() -> None:
    title = "Aviation photography\nAviation photography is the act of taking images of aircraft in flight."
    assert texts(title)[0] == "Aviation photography"
    assert len(texts("A line that was wrapped by an editor at some\nwidth goes on here until it ends.")) == 1


def test_an_open_fence_is_one_unit() -> None:
    assert [unit.kind for unit in split_sentences("```\na. B\n\nc")] == ["code"]


@pytest.mark.parametrize("piece", [".", "`", "a. A ", "[1] ", ".[1]", '."', "| \n", "- \n", "~~~\n", " ", "x", "\n", "。"])
def test_hostile_text_takes_linear_time(piece: str) -> None:
    text = (piece * 200_000)[:400_000]
    started = time.perf_counter()
    split_sentences(text)
    assert time.perf_counter() - started < 5
