"""Chunks: their lines are exact, code and tables stay whole, and an edit moves only what it touches."""

import time
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.retriever.chunking import Chunk, Chunker, ChunkSizes
from services.retriever.documents import Document, SourceDocument, read_document
from tests.harness.passages import collection

C = collection("c")
SMALL = ChunkSizes(target=120, overlap=30, hard_maximum=300, minimum=30)
SENTENCE = "The quick brown fox jumps over the lazy dog near the river bank. "

words = st.text(alphabet="abcé #*->|`~=\t.!:&<>[]()1", min_size=0, max_size=40)
blocks = st.one_of(
    words,
    st.sampled_from(
        [
            "",
            "---",
            "===",
            "# One",
            "## Two",
            "### Three ###",
            "Setext",
            "```",
            "```py",
            "~~~~",
            "- item",
            "  - nested",
        ]
    ),
    st.sampled_from(["> quote", "> ```", "| a | b |", "|---|---|", "| 1 | 2 |", "<div>", "</div>", "1. one", "    code"]),
    st.sampled_from([SENTENCE, SENTENCE * 9, "x" * 500, "wörd " * 90, "```" + "y" * 400]),
)
documents = st.builds(
    lambda lines, newline, end: newline.join(lines) + end,
    st.lists(blocks, min_size=1, max_size=40),
    st.sampled_from(["\n", "\r\n", "\r"]),
    st.sampled_from(["", "\n", "\n\n"]),
)


def read(text: str, document_id: str = "doc") -> Document:
    return read_document(SourceDocument(document_id, text.encode()))


def lines_of(document: Document, chunk: Chunk) -> list[str]:
    return document.text.split("\n")[chunk.start_line - 1 : chunk.end_line]


@settings(max_examples=400, deadline=None)
@given(documents, st.sampled_from([SMALL, ChunkSizes(target=40, overlap=0, hard_maximum=40, minimum=0)]))
def test_every_chunk_is_made_of_its_lines_and_every_line_is_in_a_chunk(text: str, sizes: ChunkSizes) -> None:
    if not text.strip():
        return
    document = read(text)
    chunks = Chunker(sizes).chunk(C, document)
    source = document.text.split("\n")
    covered: set[int] = set()
    assert chunks
    for number, chunk in enumerate(chunks):
        assert chunk.position == number
        assert 1 <= chunk.start_line <= chunk.end_line <= len(source)
        assert chunk.text.strip()
        covered.update(range(chunk.start_line, chunk.end_line + 1))
        _assert_made_of_its_lines(document, chunk)
    wanted = {number for number, line in enumerate(source, 1) if number >= document.body_line and line.strip()}
    assert wanted <= covered
    assert len({chunk.chunk_id for chunk in chunks}) == len(chunks)
    starts = [chunk.start_line for chunk in chunks]
    assert starts == sorted(starts)


def _assert_made_of_its_lines(document: Document, chunk: Chunk) -> None:
    """The text is in its lines and reaches from the first to the last, but for a repeated opening or
    closing.
    """
    joined = "\n".join(lines_of(document, chunk))
    rows = chunk.text.split("\n")
    for head in range(3):
        for tail in range(2):
            inner = "\n".join(rows[head : len(rows) - tail])
            at = joined.find(inner) if inner else -1
            if at >= 0:
                before, after = joined[:at], joined[at + len(inner) :]
                assert "\n" not in before and "\n" not in after
                return
    raise AssertionError(f"{chunk.text!r} is not made of {joined!r}")


@settings(max_examples=200, deadline=None)
@given(documents)
def test_a_chunk_of_prose_is_never_longer_than_target_and_overlap(text: str) -> None:
    if not text.strip():
        return
    for chunk in Chunker(SMALL).chunk(C, read(text)):
        limit = SMALL.hard_maximum if chunk.has_code else SMALL.target * 2
        assert len(chunk.text) <= limit + SMALL.overlap + 1 + SMALL.target


def test_a_fence_that_fits_is_never_cut() -> None:
    code = "```python\n" + "".join(f"line_{n} = {n}  # some text\n" for n in range(80)) + "```"
    text = f"# Guide\n\n{SENTENCE * 5}\n\n{code}\n\n{SENTENCE * 5}\n"
    assert 800 < len(code) < 3200
    holders = [chunk for chunk in Chunker().chunk(C, read(text)) if "line_" in chunk.text]
    assert len(holders) == 1
    assert code in holders[0].text
    assert holders[0].has_code


def test_a_huge_fence_is_cut_between_lines_and_each_part_is_fenced() -> None:
    rows = [f"value_{n} = compute({n})" for n in range(400)]
    text = "# Data\n\n- item\n\n  ```python\n" + "".join(f"  {row}\n" for row in rows) + "  ```\n"
    parts = [chunk for chunk in Chunker().chunk(C, read(text)) if "value_" in chunk.text]
    assert len(parts) > 5
    for chunk in parts:
        body = chunk.text.strip().split("\n")
        assert body[0].strip() == "```python"
        assert body[-1].strip() == "```"
        assert len(chunk.text) <= 900
    told = [row.strip() for chunk in parts for row in chunk.text.split("\n") if "value_" in row]
    assert told == rows


def test_a_table_that_fits_is_whole_and_a_longer_one_repeats_its_head() -> None:
    head = "| option | meaning |\n|--------|---------|"
    short = head + "".join(f"\n| opt{n} | does {n} |" for n in range(30))
    long = head + "".join(f"\n| option{n} | does {n} |" for n in range(200))
    chunks = Chunker().chunk(C, read(f"# A\n\n{SENTENCE * 6}\n\n{short}\n\n# B\n\n{long}\n"))
    assert sum(short in chunk.text for chunk in chunks) == 1
    parts = [chunk for chunk in chunks if "option1" in chunk.text or "option9" in chunk.text]
    assert len(parts) > 2
    assert all(head in chunk.text for chunk in parts)


def test_a_heading_in_a_fence_is_none_and_setext_headings_are() -> None:
    text = "Top\n===\n\nIntro " + SENTENCE * 4 + "\n\nSub\n---\n\n```sh\n# not a heading\n```\n" + SENTENCE * 4
    chunks = Chunker().chunk(C, read(text))
    assert [chunk.heading_path for chunk in chunks] == [("Top",), ("Top", "Sub")]


def test_heading_paths_follow_the_levels() -> None:
    body = "\n\n" + SENTENCE * 4 + "\n\n"
    text = f"# `A` {{#anchor}}{body}## **B**{body}#### D{body}## [C](x.md){body}# E{body}"
    chunks = Chunker().chunk(C, read(text))
    paths = [("A",), ("A", "B"), ("A", "B", "D"), ("A", "C"), ("E",)]
    assert [chunk.heading_path for chunk in chunks] == paths


def test_a_heading_without_text_goes_with_its_first_subsection() -> None:
    chunks = Chunker().chunk(C, read("# A\n\n## B\n\n" + SENTENCE * 12))
    assert chunks[0].text.startswith("# A\n\n## B\n\nThe quick")


def test_prose_overlaps_at_a_sentence_and_sections_do_not() -> None:
    sentences = [f"Sentence number {n} says something that is worth saying here." for n in range(60)]
    text = "# A\n\n" + " ".join(sentences) + "\n\n# B\n\n" + SENTENCE * 4
    chunks = Chunker().chunk(C, read(text))
    for one, following in pairwise(chunks[:-1]):
        start = following.text[:60]
        assert start.startswith("Sentence number")
        assert start in one.text
        assert 0 < len(one.text) - one.text.index(start) <= 151
    assert chunks[-1].text.startswith("# B")


def test_editing_a_paragraph_at_the_top_changes_only_its_section() -> None:
    parts = [f"## Section {n}\n\n" + f"{SENTENCE}Number {n}. " * 20 for n in range(12)]
    before = Chunker().chunk(C, read("# Doc\n\nShort intro.\n\n" + "\n\n".join(parts)))
    after = Chunker().chunk(C, read("# Doc\n\nShort intro,\nnow on\nfour\nlines.\n\n" + "\n\n".join(parts)))
    old, new = ({chunk.chunk_id for chunk in chunks} for chunks in (before, after))
    assert len(new - old) == 1
    assert len(old - new) == 1
    assert after[-1].start_line == before[-1].start_line + 3


def test_chunk_ids_depend_on_collection_document_and_content_and_are_distinct_for_repeats() -> None:
    text = "".join(f"## Same\n\n{SENTENCE * 4}\n\n" for _ in range(3))
    ids = [chunk.chunk_id for chunk in Chunker().chunk(C, read(text))]
    assert len(set(ids)) == 3
    assert ids == [chunk.chunk_id for chunk in Chunker().chunk(C, read(text))]
    assert not set(ids) & {chunk.chunk_id for chunk in Chunker().chunk(collection("d"), read(text))}
    assert not set(ids) & {chunk.chunk_id for chunk in Chunker().chunk(C, read(text, "other"))}


def test_chunk_ids_of_the_default_tenant_are_those_from_before_there_were_tenants() -> None:
    """Another id would embed every stored document anew."""
    [chunk] = Chunker().chunk(C, read("# Setup\n\nRun the installer.\n"))
    assert chunk.chunk_id == "6a155f7b-c797-5e1f-a700-574f205dc88a"


def test_equal_documents_of_two_tenants_have_other_chunk_ids_whatever_they_are_called() -> None:
    def id_of(name: str, tenant: str, document_id: str) -> str:
        return Chunker().chunk(collection(name, tenant), read("Run the installer.", document_id))[0].chunk_id

    names = ["default", "acme", "notes"]
    ids = {id_of(name, tenant, "doc") for name in names for tenant in names}
    assert len(ids) == 9
    # A document's id may hold anything, also what parts of an id are joined with.
    assert id_of("acme", "default", "notes\0doc") not in ids


def test_crlf_gives_the_same_chunks() -> None:
    text = "---\ntitle: T\n---\n# A\n\n" + SENTENCE * 20 + "\n\n```\ncode\n```\n"
    assert Chunker().chunk(C, read(text)) == Chunker().chunk(C, read(text.replace("\n", "\r\n")))


def test_front_matter_is_in_no_chunk_unless_there_is_nothing_else() -> None:
    chunks = Chunker().chunk(C, read("---\ntitle: T\n---\n\nBody.\n"))
    assert [(chunk.text, chunk.start_line, chunk.end_line) for chunk in chunks] == [("Body.", 5, 5)]
    alone = Chunker().chunk(C, read("---\ntitle: T\n---\n"))
    assert "title: T" in alone[0].text


@pytest.mark.parametrize(
    "text",
    [
        "a" * (1 << 20),
        "word " * (1 << 18),
        "```\n" + "z" * (1 << 20),
        "> " * (1 << 19),
        "| " * (1 << 19),
        "- " * (1 << 19),
        "[" * (1 << 20),
        "* a\n" * 30_000,
        "\n" * (1 << 21) + "end",
        ("> a\n" + "b\n") * 60_000,
        (SENTENCE + "\n\n") * 15_000,
    ],
    ids=[
        "letters",
        "words",
        "fence",
        "quotes",
        "pipes",
        "dashes",
        "brackets",
        "list",
        "blank",
        "lazy",
        "prose",
    ],
)
def test_hostile_text_takes_linear_time(text: str) -> None:
    document = read(text)
    started = time.process_time()
    chunks = Chunker().chunk(C, document)
    assert time.process_time() - started < 20
    assert chunks
    assert all(len(chunk.text) <= 3500 for chunk in chunks)


def test_impossible_sizes_are_refused() -> None:
    with pytest.raises(ValueError, match="chunk sizes"):
        ChunkSizes(target=100, overlap=100)
