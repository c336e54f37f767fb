"""Drafts by rule: the task's points, in the passages' own words, each sentence cited."""

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from errata_kit.passages import Passage
from errata_kit.text.sentences import split_sentences
from services.generator.drafting.drafts import CitedText, find_markers, read_citations
from services.generator.drafting.tasks import asked_points, most_words, read_task
from services.generator.drafting.write import OUTLINE, DraftWriter
from services.generator.provider import MAX_TEXT_BYTES

BACKUP = Passage(
    "backup",
    "## Making a backup\n\nA backup of the archive is made every night at 02:00. It is kept for 30 days.\n\n"
    "For more information, refer to [the manual](manual.md).\n\n## Restoring\n\n"
    "Restore a backup with `archivectl restore`. The archive must be stopped first:\n\n```bash\narchivectl stop\n```\n",
    title="Archive backups",
)
LIMITS = Passage("limits", "The archive holds 900 files at most. An upload to the archive may have 64 MiB.", title="Limits")
WEATHER = Passage("weather", "It rains in Bergen on most days of the year. Umbrellas are sold at the harbour.", title="Weather")
TASK = "Write a guide to the archive, covering making a backup, restoring and upload limits."


def written(task: str = TASK, *passages: Passage) -> CitedText:
    return DraftWriter(None).write(task, passages or (BACKUP, LIMITS, WEATHER))


def plain(words: str) -> str:
    return " ".join(words.split())


def assert_rests_on(draft: CitedText, passages: tuple[Passage, ...]) -> None:
    """Every citation lies in the text and says what its passage says; everything but headings is cited."""
    raw = draft.text.encode()
    backed: list[str] = []
    for item in draft.citations:
        passage = passages[item.number - 1]
        assert passage.passage_id == item.passage_id
        assert 0 <= item.span.start < item.span.end <= len(raw)
        words = raw[item.span.start : item.span.end].decode()
        assert plain(words) in plain(passage.text)
        backed.append(words)
    for unit in split_sentences(draft.text):
        bare = unit.text
        for marker in reversed(list(find_markers(bare))):
            bare = bare[: marker.start()] + bare[marker.end() :]
        known = any(plain(bare) in plain(passage.text) for passage in passages)
        assert unit.kind == "heading" or known, unit


# --- writing ----------------------------------------------------------------------------------------------------------


def test_each_point_of_the_task_gets_a_section_from_the_passage_that_speaks_of_it() -> None:
    draft = written()
    title, *sections = draft.text.split("\n\n## ")
    assert title.startswith("# The archive")
    assert [section.partition("\n")[0] for section in sections] == ["Making a backup", "Restoring", "Upload limits"]
    assert "A backup of the archive is made every night at 02:00. [1] It is kept for 30 days. [1]" in sections[0]
    assert "```bash\narchivectl stop\n```" in sections[1]
    assert "An upload to the archive may have 64 MiB. [2]" in sections[2]
    assert_rests_on(draft, (BACKUP, LIMITS, WEATHER))


def test_what_no_point_asks_for_stays_out_and_so_do_pointers_elsewhere() -> None:
    text = written().text
    assert "Bergen" not in text and "Umbrella" not in text
    assert "refer to" not in text and "manual" not in text


def test_a_point_of_which_no_passage_speaks_is_left_out() -> None:
    draft = written("Write a guide to the archive, covering restoring and pricing.")
    assert "Restor" in draft.text and "ricing" not in draft.text
    assert_rests_on(draft, (BACKUP, LIMITS, WEATHER))


def test_nothing_is_said_twice() -> None:
    again = Passage("again", BACKUP.text, title="Copy")
    draft = written(TASK, BACKUP, again, LIMITS)
    said = [plain(unit.text) for unit in split_sentences(draft.text)]
    assert len(said) == len(set(said))


def test_a_task_of_one_point_takes_the_passages_headings() -> None:
    draft = written("Describe how a backup of the archive is made and restored")
    assert "## Making a backup" in draft.text or "## Restoring" in draft.text
    assert_rests_on(draft, (BACKUP, LIMITS, WEATHER))


def test_a_limit_in_words_is_kept() -> None:
    sentences = " ".join(f"The archive keeps file number {number} for exactly {number} days." for number in range(40))
    draft = written("Write about the archive in at most 60 words.", Passage("p", sentences, title="Archive"))
    assert 10 < len(draft.text.split()) <= 60 + len("# The archive")


@pytest.mark.parametrize("passages", [(), (Passage("p", "```\nx = 1\n```"),), (Passage("p", "| a | b |\n|---|---|"),)])
def test_without_anything_to_quote_it_is_an_outline_that_claims_nothing(passages: tuple[Passage, ...]) -> None:
    draft = DraftWriter(None).write(TASK, passages)
    assert draft.text.startswith("# The archive") and OUTLINE in draft.text
    for point in ("- Making a backup", "- Restoring", "- Upload limits"):
        assert point in draft.text
    assert draft.citations == ()


def test_marks_in_a_task_or_a_heading_cite_nothing() -> None:
    passage = Passage("p", "# Archive [2]\n\nThe archive [draft] holds 900 files at most.", heading_path=("Archive [7]",))
    draft = written("Write about the archive [3], covering files [1] and the archive.", passage)
    assert read_citations(draft.text, ("p",)) == tuple(item for item in draft.citations if item.number == 1)
    assert "[2]" not in draft.text and "[3]" not in draft.text and "[7]" not in draft.text


def test_the_same_draft_every_time() -> None:
    assert written() == written()


def test_a_large_task_over_many_passages_is_written_within_seconds() -> None:
    task = "Write about:\n" + "\n".join(f"- file number {number} and its retention" for number in range(250))
    text = " ".join(f"File number {number} of the archive is kept for {number} days." for number in range(240))
    passages = [Passage(f"p{place}", text[place:] or "x", title="Files") for place in range(100)]
    begun = time.process_time()
    draft = DraftWriter(None).write(task, passages)
    assert time.process_time() - begun < 10
    assert 0 < len(draft.text.encode()) <= MAX_TEXT_BYTES


_MARKDOWN = st.text(st.sampled_from('ab Z.:\n#`*-[]()1|>"“é[1]\\'), max_size=400) | st.text(max_size=200)


@given(
    task=_MARKDOWN.filter(str.strip),
    texts=st.lists(_MARKDOWN.filter(bool), max_size=5),
    headings=st.lists(_MARKDOWN, max_size=3),
)
@settings(max_examples=80, deadline=None)
def test_any_task_and_passages_give_a_bounded_draft_with_valid_citations(
    task: str, texts: list[str], headings: list[str]
) -> None:
    task = task.encode("utf-8", "ignore").decode()
    passages = tuple(
        Passage(f"p{place}", text, title=(headings or [""])[0][:200], heading_path=tuple(heading[:100] for heading in headings))
        for place, text in enumerate(item.encode("utf-8", "ignore").decode() or "x" for item in texts)
    )
    draft = DraftWriter(None).write(task or "x", passages)
    assert draft.text.strip() or not task.strip()
    raw = draft.text.encode("utf-8", "ignore")
    assert len(raw) <= MAX_TEXT_BYTES
    for item in draft.citations:
        assert passages[item.number - 1].passage_id == item.passage_id
        assert 0 <= item.span.start < item.span.end <= len(raw)


# --- tasks ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("task", "title", "points"),
    [
        ("Write a how-to guide for compaction, covering how to trigger it and how to check its status.", "Compaction",
         ["how to trigger it", "how to check its status"]),
        ("Explain the levels: Strong, Session and Eventual.", "The levels", ["Strong", "Session", "Eventual"]),
        ("Write a page on roles. It should cover:\n- creating a role\n- revoking a role", "Roles",
         ["creating a role", "revoking a role"]),
        ("Write an introduction to search for beginners, including: 1) embeddings 2) metrics. Mention limits and costs. "
         "Use plain language.", "Search for beginners", ["embeddings", "metrics", "limits", "costs"]),
        ("Compare partitions and partition keys", "Partitions and partition keys", ["partitions", "partition keys"]),
        ("Write about `search and replace` in editors", "`search and replace` in editors", ["`search and replace` in editors"]),
        ("What is Milvus?", "What is Milvus?", ["What is Milvus"]),
        ("!!!", "!!!", []),
    ],
)  # fmt: skip
def test_a_task_is_taken_apart(task: str, title: str, points: list[str]) -> None:
    read = read_task(task)
    assert read.title == title
    assert [point.text for point in read.points] == points


def test_a_remark_is_taken_apart() -> None:
    assert [point.text for point in asked_points("Please add the default timeout, and how to change it.")] == [
        "the default timeout",
        "how to change it",
    ]
    assert asked_points("Use plain language. Keep it short.") == ()


@pytest.mark.parametrize(
    ("text", "words"), [("in at most 300 words", 300), ("Up to 50 words, please", 50), ("300 words", None)]
)
def test_a_limit_is_read(text: str, words: int | None) -> None:
    assert most_words(text) == words
