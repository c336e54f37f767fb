"""Which files are taken, and what their documents are called."""

from pathlib import Path

import pytest

from errata_cli.ingest import find_sources
from errata_cli.terminal import UsageError


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "here"
    for name in ("docs/a.md", "docs/deep/b.MD", "docs/c.png", "docs/.hidden/d.md", "note.txt", "data.csv"):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("text")
    (tmp_path / "elsewhere" / "en").mkdir(parents=True)
    (tmp_path / "elsewhere" / "en" / "x.md").write_text("text")
    monkeypatch.chdir(folder)
    return folder


def ids(*paths: str) -> list[str]:
    return [source.document_id for source in find_sources(paths).files]


def test_a_folder_gives_its_text_files_and_counts_the_others(here: Path) -> None:
    sources = find_sources(("docs",))
    assert [source.document_id for source in sources.files] == ["docs/a.md", "docs/deep/b.MD"]
    assert sources.passed_over == 1
    assert sources.prefixes == ("docs/",)


@pytest.mark.parametrize("argument", ["docs/a.md", "./docs/a.md", "docs/*.md", "docs/../docs/a.md"])
def test_a_file_has_one_id_however_it_is_named(here: Path, argument: str) -> None:
    assert ids(argument) == ["docs/a.md"]


def test_a_file_in_the_current_folder_has_one_id_too(here: Path) -> None:
    assert ids("note.txt") == ["here/note.txt"]
    assert ids("note.txt") == [document_id for document_id in ids(".") if document_id.endswith("note.txt")]


def test_a_folder_elsewhere_goes_by_its_name(here: Path) -> None:
    assert ids("../elsewhere/en") == ["en/x.md"]
    assert ids(str((here / "../elsewhere/en").resolve())) == ["en/x.md"]


def test_a_file_is_taken_once_and_whatever_its_suffix_when_named(here: Path) -> None:
    assert ids("docs", "docs/a.md", "docs/c.png") == ["docs/a.md", "docs/deep/b.MD", "docs/c.png"]


@pytest.mark.parametrize("argument", ["nothing", "docs/*.rst", "nothing/*.md"])
def test_what_is_not_there_is_wrong_usage_by_name(here: Path, argument: str) -> None:
    with pytest.raises(UsageError, match="no such file"):
        find_sources((argument,))
