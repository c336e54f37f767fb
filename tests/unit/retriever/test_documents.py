"""Reading documents: titles, front matter, and what is rejected."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from errata_kit.errors import DocumentRejected
from services.retriever.documents import (
    MAX_DOCUMENT_BYTES,
    SourceDocument,
    parse_front_matter,
    read_document,
)


def title(text: str, given_title: str = "", uri: str = "") -> str:
    return read_document(SourceDocument("id", text.encode(), given_title, source_uri=uri)).title


def test_the_title_is_the_callers_else_front_matter_else_heading_else_file_name() -> None:
    text = "---\ntitle: From YAML\n---\n# From Heading\n"
    assert title(text, "Given", "docs/file.md") == "Given"
    assert title(text, uri="docs/file.md") == "From YAML"
    assert title("## Two\n\n# From *Heading*\n", uri="docs/file.md") == "From *Heading*"
    assert title("```\n# no\n```\ntext", uri="docs/install-guide.md") == "install-guide"
    assert title("Grey's Anatomy (season 10)\nIt was renewed.\n") == "Grey's Anatomy (season 10)"
    assert title("It was renewed.\nAnd so on.\n") == ""


@pytest.mark.parametrize(
    "text",
    [
        "---\ntitle: [unclosed\n---\nBody\n",
        "---\n- a list\n---\nBody\n",
        "---\ndate: 2024-13-45\n---\nBody\n",
        "---\ntitle: never closed\nBody\n",
        "---\n!!python/object/apply:os.system [true]\n---\nBody\n",
        "---\n" + "[" * 3000 + "\n---\nBody\n",
        "text\n---\ntitle: x\n---\n",
    ],
)
def test_broken_front_matter_is_text(text: str) -> None:
    document = read_document(SourceDocument("id", text.encode()))
    assert document.body_line == 1
    assert document.text == text


def test_front_matter_values_are_its_scalars() -> None:
    parsed = parse_front_matter("---\ntitle: A\nid: 7\nnested: {a: 1}\nlist: [1]\n...\nBody")
    assert parsed.values == {"title": "A", "id": "7"}
    assert parsed.body_line == 7


@pytest.mark.parametrize(
    ("content", "cause"),
    [
        (b"", "EMPTY"),
        (b" \r\n\t\n", "EMPTY"),
        (b"\xef\xbb\xbf\n", "EMPTY"),
        (b"GIF89a\0\x01", "BINARY"),
        ("naïve".encode("latin-1"), "NOT_UTF8"),
        ("text".encode("utf-16"), "BINARY"),
        (b"\xed\xa0\x80", "NOT_UTF8"),
        (b"x" * (MAX_DOCUMENT_BYTES + 1), "TOO_LARGE"),
    ],
)
def test_what_cannot_be_indexed_is_rejected_by_name(content: bytes, cause: str) -> None:
    with pytest.raises(DocumentRejected) as caught:
        read_document(SourceDocument("id", content, source_uri="docs/x.bin"))
    assert caught.value.metadata == {"document_id": "id", "cause": cause}
    assert "docs/x.bin" in caught.value.message


def test_a_document_of_the_largest_size_is_taken() -> None:
    assert len(read_document(SourceDocument("id", b"x" * MAX_DOCUMENT_BYTES)).text) == MAX_DOCUMENT_BYTES


@given(st.binary(max_size=300))
def test_any_bytes_are_read_or_rejected(content: bytes) -> None:
    try:
        document = read_document(SourceDocument("id", content))
    except DocumentRejected:
        return
    assert "\r" not in document.text


@given(st.text(max_size=200))
def test_any_front_matter_is_parsed_or_left(block: str) -> None:
    parse_front_matter(f"---\n{block}\n---\nBody\n")


def test_a_number_of_thousands_of_digits_in_the_front_matter_breaks_nothing() -> None:
    text = f"---\ntitle: T\nhuge: {'7' * 5000}\n---\nThe body.\n"
    assert "The body." in read_document(SourceDocument("d", text.encode())).text
