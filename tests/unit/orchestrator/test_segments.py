"""A text that comes in pieces of any size is cut as the whole text would be."""

from __future__ import annotations

import time
from collections import defaultdict
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from errata_kit.text.sentences import split_sentences
from services.orchestrator.workflows.answer.segments import Piece, Segment, Segmenter

_SENTENCES = (
    "The default is 7 days.",
    "Files are kept for 30 days [1].",
    "Files are kept for 30 days. [1]",
    "Both say so. [1] [2]",
    "They agree. [1, 12]",
    "Set `log.retention.hours` to 168.",
    "Run `echo Done. Next` first.",
    "E.g. Kafka does that.",
    "Use disks, tapes etc. as you like.",
    "Write to Acme Inc. Therapists do.",
    "See No. 5 for Dr. Smith.",
    "It is 3.5 GB (approx. 4 GB).",
    "Is it kept? Yes!",
    'He said: "Keep it." It was kept.',
    "**Never delete it.** Ask first.",
    "Sie heißt Größe, naïve café 🙂.",
    "保存されます。[1] 既定は七日です。",
    "v2 is out. v3 follows.",
    "There are two. 1. First this. 2. Then that.",
    "Wait… Now go on.",
    "Take it - or leave it. - Or both.",
    "A link: https://example.org/a.b?c=d.",
    "No",
)
_HEADINGS = ("# Retention", "## How long. Really?", "### 保存")
_CODE = ("```yaml\na: 1. B\n# no heading\n```", "~~~\nx. Y\n\n- z\n~~~", "```\nnot closed. Yet\n")
_TABLES = ("| Name | Value |\n|---|---|\n| a. B | 1 |\n| c | 2 [1] |",)


def documents(sentences: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """Markdown whose paragraphs and items are one line each."""
    prose = st.lists(sentences, min_size=1, max_size=4).map(" ".join)
    items = st.lists(st.tuples(st.sampled_from(("- ", "* ", "1. ", "  - ")), prose).map("".join), min_size=1, max_size=3)
    blocks = prose | items.map("\n".join) | st.sampled_from(_HEADINGS + _CODE[:2] + _TABLES)
    return st.builds(
        lambda parts, line, last: ("\n\n".join([*parts, *last])).replace("\n", line),
        st.lists(blocks, min_size=1, max_size=6),
        st.sampled_from(("\n", "\r\n")),
        st.sampled_from(((), (_CODE[2],), ("",))),
    )


MARKDOWN = documents(st.sampled_from(_SENTENCES))
# Titles above their text, markers without words, blanks of all sorts: where sentences end can depend on what comes later.
ANYTHING = st.text(alphabet=st.sampled_from("AbZ 1.!?。\n\r\t`#-*|[],:~é🙂\u2028\u00a0"), max_size=300) | st.text(max_size=200)


@st.composite
def streams(draw: st.DrawFn, texts: st.SearchStrategy[str]) -> list[str]:
    """A text in pieces, also empty ones, and pieces of single characters."""
    text = draw(texts)
    if draw(st.booleans()):
        size = draw(st.integers(1, 8))
        return [text[place : place + size] for place in range(0, len(text), size)]
    cuts = sorted(draw(st.lists(st.integers(0, len(text)), max_size=12)))
    return [text[start:end] for start, end in pairwise([0, *cuts, len(text)])]


def cut(stream: list[str], size: int) -> tuple[list[Piece], list[Segment]]:
    segmenter = Segmenter(size)
    pieces: list[Piece] = []
    segments: list[Segment] = []
    for shown, complete in [*map(segmenter.take, stream), segmenter.end()]:
        pieces += shown
        segments += complete
        # Whoever is told that a segment is complete has been shown it.
        told = "".join(piece.text for piece in pieces)
        assert all(told[segment.start :].startswith(segment.text) for segment in segments)
    return pieces, segments


def statements(text: str) -> list[str]:
    return [unit.text for unit in split_sentences(text) if unit.kind != "heading"]


@given(stream=streams(MARKDOWN | ANYTHING), size=st.integers(1, 5))
def test_nothing_is_lost_and_every_piece_is_in_its_segment(stream: list[str], size: int) -> None:
    text = "".join(stream)
    pieces, segments = cut(stream, size)
    assert "".join(piece.text for piece in pieces) == text
    assert all(piece.text for piece in pieces)
    assert [segment.number for segment in segments] == list(range(1, len(segments) + 1))
    for before, after in pairwise(segments):
        assert before.start + len(before.text) == after.start
    shown: dict[int, str] = defaultdict(str)
    for piece in pieces:
        shown[piece.segment] += piece.text
    assert [piece.segment for piece in pieces] == sorted(piece.segment for piece in pieces)
    # Blanks at the end of a text are shown, and are nothing that can be checked.
    rest = shown.pop(len(segments) + 1, "")
    assert not rest.strip()
    assert dict(shown) == {segment.number: segment.text for segment in segments}
    assert "".join(segment.text for segment in segments) + rest == text


@given(stream=streams(MARKDOWN), size=st.integers(1, 5))
def test_the_sentences_of_the_segments_are_those_of_the_whole(stream: list[str], size: int) -> None:
    _, segments = cut(stream, size)
    found = [statements(segment.text) for segment in segments]
    assert [words for segment in found for words in segment] == statements("".join(stream))
    assert all(len(words) >= size for words in found[:-1])


def test_a_citation_that_comes_letter_by_letter_stays_with_its_sentence() -> None:
    stream = ["It", " is", " kept", ".", " [", "1", "]", " [", "2", ",", " 3", "]", " It", " is", " gone", ".", " [", "4", "]"]
    pieces, segments = cut(stream, 1)
    assert [segment.text for segment in segments] == ["It is kept. [1] [2, 3] ", "It is gone. [4]"]
    assert [piece.segment for piece in pieces if "[" in piece.text] == [1, 1, 2]


@pytest.mark.parametrize(
    "text",
    [
        "Ask Acme Inc. Therapists know. Others do not.",
        "Run `echo Done. Next` first. Then go.",
        "There are two. 1. First this. Then that.",
        "It is so. ```x``` is code. Yes.",
    ],
)
def test_what_only_the_next_word_tells_is_waited_for(text: str) -> None:
    _, segments = cut(list(text), 1)
    assert [words for segment in segments for words in statements(segment.text)] == statements(text)


def test_a_segment_is_complete_as_soon_as_the_next_sentence_has_a_word() -> None:
    segmenter = Segmenter(2)
    assert segmenter.take("One. Two. Th")[1] == []
    pieces, complete = segmenter.take("ree ")
    assert complete == [Segment(1, 0, "One. Two. ")]
    assert pieces == [Piece(2, "Three ")]


def test_a_code_block_of_64_kib_is_cut_in_no_time() -> None:
    text = f"```\n{'key: 1 # 4 [1] `x`. Y' * 3}\n" * 1024
    began = time.process_time()
    pieces, segments = cut_quickly(text[: 64 * 1024])
    # 0.1 s where it was measured.
    assert time.process_time() - began < 1.0
    assert "".join(piece.text for piece in pieces) == text[: 64 * 1024]
    assert len(segments) >= 1


@pytest.mark.parametrize("words", ["[ [1 [2, [", "A. ", "a. 1. `", "Is it so? ", "- x\n", "x" * 64])
def test_a_text_that_is_hard_to_cut_costs_little(words: str) -> None:
    text = (words * 16 * 1024)[: 16 * 1024]
    began = time.process_time()
    pieces, segments = cut_quickly(text)
    assert time.process_time() - began < 2.0
    assert "".join(piece.text for piece in pieces) == text
    assert "".join(segment.text for segment in segments).strip() == text.strip()


def cut_quickly(text: str) -> tuple[list[Piece], list[Segment]]:
    """In pieces of four characters, and without a look at each step."""
    segmenter = Segmenter(4)
    pieces: list[Piece] = []
    segments: list[Segment] = []
    for start in range(0, len(text), 4):
        shown, complete = segmenter.take(text[start : start + 4])
        pieces += shown
        segments += complete
    shown, complete = segmenter.end()
    return [*pieces, *shown], [*segments, *complete]
