"""`errata ingest` against a running suite: what goes in, what fails by name, and what is not done twice."""

import os
import re
from pathlib import Path

import pytest

from tests.harness.suite import Finished, Suite, write_files

pytestmark = [pytest.mark.system, pytest.mark.xdist_group("suite")]

MILVUS = Path(__file__).parents[3] / "shared" / "data" / "docs_milvus" / "site" / "en" / "about"
COUNTS = re.compile(r"(\d+) documents in \S+; (\d+) chunks: (\d+) embedded, (\d+) unchanged, (\d+) deleted")
# Enough text in a section that each becomes a chunk of its own.
SECTION = "The {0} pump moves water through the {0} valve at a steady rate, and an operator reads its gauge every hour. " * 6


def handbook(*topics: str) -> str:
    sections = (f"## The {topic} pump\n\n{SECTION.format(topic)}\n" for topic in topics)
    return "# Handbook\n\n" + "\n".join(sections)


def counts_of(done: Finished) -> tuple[int, ...]:
    """Documents, chunks, embedded, unchanged, deleted."""
    found = COUNTS.search(done.out)
    assert found, done.out + done.err
    return tuple(map(int, found.groups()))


def documents_of(suite: Suite, collection: str) -> list[str]:
    listed = suite.errata("documents", "--collection", collection)
    assert listed.code == 0, listed.err
    return [line.split("\t")[0] for line in listed.out.splitlines()]


def test_folders_globs_and_files_go_in(suite: Suite, tmp_path: Path) -> None:
    files = {
        "guide/one.md": "# One\n\nThe first page.\n",
        "guide/deep/two.txt": "The second page.\n",
        "guide/picture.svg": "<svg/>",
        "guide/.hidden/three.md": "# Hidden\n\nNot for anybody.\n",
        "notes/four.log": "The fourth page.\n",
        "notes/five.log": "The fifth page.\n",
        "notes/six.csv": "no,page\n",
        "seven.cfg": "seventh = page\n",
    }
    write_files(tmp_path, files)
    done = suite.errata("ingest", "guide", "notes/*.log", "seven.cfg", "--collection", "paths", cwd=tmp_path)
    assert done.code == 0, done.err
    assert counts_of(done)[0] == 5
    assert "1 files of other types passed over" in done.out
    assert "\x1b" not in done.out + done.err, "a pipe gets plain text"
    assert len(done.out.splitlines()) == 1
    expected = ["guide/deep/two.txt", "guide/one.md", "notes/five.log", "notes/four.log"]
    assert [name for name in documents_of(suite, "paths") if "seven.cfg" not in name] == expected
    assert [name for name in documents_of(suite, "paths") if "seven.cfg" in name]
    listed = suite.errata("collections")
    assert any(line.startswith("paths\t5\t") for line in listed.out.splitlines()), listed.out


def test_files_that_fail_are_named_and_the_rest_goes_in(suite: Suite, tmp_path: Path) -> None:
    write_files(tmp_path, {"mixed/good.md": "# Good\n\nThis one goes in.\n", "mixed/empty.md": "", "mixed/blank.md": " \n\n"})
    folder = tmp_path / "mixed"
    (folder / "binary.md").write_bytes(b"# Title\n\0\0\0")
    (folder / "latin.md").write_bytes("# Größe\n".encode("latin-1"))
    (folder / "huge.md").write_bytes(b"x" * (4 * 1024 * 1024 + 1))
    (folder / "secret.md").write_text("# Secret\n\nNot readable.\n", encoding="utf-8")
    (folder / "secret.md").chmod(0)
    (folder / "dangling.md").symlink_to(folder / "nothing")
    done = suite.errata("ingest", "mixed", "--collection", "mixed", cwd=tmp_path)
    assert done.code == 1
    failed = dict(re.findall(r"^failed  mixed/(\w+)\.md: (.*)$", done.err, re.MULTILINE))
    # Root reads whatever it likes.
    unreadable = set() if os.access(folder / "secret.md", os.R_OK) else {"secret"}
    assert set(failed) == {"empty", "blank", "binary", "latin", "huge"} | unreadable
    assert "empty" in failed["empty"]
    assert "empty" in failed["blank"]
    assert "binary" in failed["binary"]
    assert "not UTF-8" in failed["latin"]
    assert "4194305 bytes" in failed["huge"]
    assert f"{len(failed)} files failed" in done.out
    there = ["mixed/good.md"] if unreadable else ["mixed/good.md", "mixed/secret.md"]
    assert documents_of(suite, "mixed") == there
    assert "Traceback" not in done.err


def test_again_embeds_nothing_and_an_edit_only_its_chunks(suite: Suite, tmp_path: Path) -> None:
    write_files(tmp_path, {"book/pumps.md": handbook("red", "green", "blue"), "book/other.md": handbook("brass", "iron")})
    first = counts_of(suite.errata("ingest", "book", "--collection", "again", cwd=tmp_path))
    documents, chunks, embedded, unchanged, deleted = first
    assert (documents, embedded, unchanged, deleted) == (2, chunks, 0, 0)
    assert chunks >= 5
    again = counts_of(suite.errata("ingest", "book", "--collection", "again", cwd=tmp_path))
    assert again == (2, chunks, 0, chunks, 0)
    write_files(tmp_path, {"book/pumps.md": handbook("red", "green", "blue").replace("blue pump moves", "blue pump lifts", 1)})
    edited = counts_of(suite.errata("ingest", "book", "--collection", "again", cwd=tmp_path))
    documents, total, embedded, unchanged, deleted = edited
    assert (documents, total) == (2, chunks)
    assert 1 <= embedded == deleted < chunks / 2
    assert unchanged == chunks - embedded


def test_sync_removes_what_vanished_and_nothing_else(suite: Suite, tmp_path: Path) -> None:
    pages = {f"{folder}/{name}.md": f"# {name}\n\nA page about {name}.\n" for folder in ("a", "ab") for name in ("one", "two")}
    write_files(tmp_path, pages)
    assert suite.errata("ingest", "a", "ab", "--collection", "sync", cwd=tmp_path).code == 0
    (tmp_path / "a" / "two.md").unlink()
    (tmp_path / "ab" / "two.md").unlink()
    kept = suite.errata("ingest", "a", "--collection", "sync", cwd=tmp_path)
    assert kept.code == 0
    assert len(documents_of(suite, "sync")) == 4
    synced = suite.errata("ingest", "a", "--sync", "--collection", "sync", cwd=tmp_path)
    assert synced.code == 0, synced.err
    assert "1 vanished documents removed" in synced.out
    assert documents_of(suite, "sync") == ["a/one.md", "ab/one.md", "ab/two.md"]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("no-such-folder",), "no-such-folder: there is no such file or folder"),
        (("*.nothing",), "*.nothing: there is no such file or folder"),
        (("one.md", "--sync"), "--sync compares folders"),
        (("one.md", "--collection", "Not a name"), "collection: "),
    ],
)
def test_wrong_usage_is_two(suite: Suite, tmp_path: Path, arguments: tuple[str, ...], sentence: str) -> None:
    write_files(tmp_path, {"one.md": "# One\n\nA page.\n"})
    done = suite.errata("ingest", *arguments, cwd=tmp_path)
    assert done.code == 2
    assert done.err.startswith("errata: ")
    assert sentence in done.err
    assert "Traceback" not in done.err


def test_documents_and_collections_can_be_deleted(suite: Suite, tmp_path: Path) -> None:
    write_files(tmp_path, {"d/one.md": "# One\n\nA page.\n", "d/two.md": "# Two\n\nA page.\n"})
    assert suite.errata("ingest", "d", "--collection", "gone", cwd=tmp_path).code == 0
    done = suite.errata("documents", "--collection", "gone", "--delete", "d/one.md", "--delete", "d/never.md")
    assert (done.code, done.out, done.err) == (1, "deleted  d/one.md\n", "unknown  d/never.md\n")
    assert documents_of(suite, "gone") == ["d/two.md"]
    assert suite.errata("collections", "--delete", "gone").code == 0
    missing = suite.errata("documents", "--collection", "gone")
    assert missing.code == 1
    assert missing.err.startswith("errata: There is no collection 'gone'")


@pytest.mark.skipif(not MILVUS.is_dir(), reason="the Milvus documentation is not in ../shared/data")
def test_real_documentation_goes_in_and_stays(suite: Suite) -> None:
    files = sorted(MILVUS.rglob("*.md"))
    done = suite.errata("ingest", str(MILVUS), "--collection", "milvus", timeout=110)
    assert done.code == 0, done.err
    documents, chunks, embedded, unchanged, _ = counts_of(done)
    assert (documents, embedded, unchanged) == (len(files), chunks, 0)
    again = suite.errata("ingest", str(MILVUS), "--collection", "milvus")
    assert counts_of(again) == (len(files), chunks, 0, chunks, 0)
    listed = documents_of(suite, "milvus")
    assert listed == [f"about/{path.relative_to(MILVUS).as_posix()}" for path in files]
