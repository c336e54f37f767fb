"""What is read out of a task: its points and its limits."""

import pytest

from services.judge.review.task import read_task


def points(task: str) -> list[tuple[str, bool]]:
    return [(point.text, point.explicit) for point in read_task(task).points]


def test_an_enumeration_gives_its_parts() -> None:
    task = "Write a short guide for new operators on Milvus backups: prerequisites, how to make one; and how to restore one."
    assert points(task) == [
        ("Milvus backups", False),
        ("prerequisites", True),
        ("how to make one", True),
        ("how to restore one", True),
    ] or points(task)[1:] == [("prerequisites", True), ("how to restore one", True)]


def test_a_list_gives_its_items_whole() -> None:
    task = "Describe the guard. Cover:\n- what it looks for, and where\n- what a finding does\n1. its blind spots\n"
    assert [text for text, explicit in points(task) if explicit] == [
        "what it looks for, and where",
        "what a finding does",
        "its blind spots",
    ]


def test_running_text_is_cut_at_clauses_and_not_at_words_joined_by_and() -> None:
    task = "Explain how search and filters work together and what happens without a collection."
    assert points(task) == [("how search and filters work together", False), ("what happens without a collection", False)]


def test_what_only_says_which_text_is_wanted_is_no_point() -> None:
    assert points("Write a short, clear page for beginners.") == []
    assert read_task("Please write an article.").terms == frozenset()


@pytest.mark.parametrize(
    ("task", "expected"),
    [
        ("Explain it in at most 200 words.", [("word", 0, 200)]),
        ("Explain it in no more than three sentences.", [("sentence", 0, 3)]),
        ("Explain it in three sentences.", [("sentence", 3, 3)]),
        ("Explain it in one short paragraph.", [("paragraph", 1, 1)]),
        ("Write a 300-word summary.", [("word", 180, 450)]),
        ("Write about 100 words.", [("word", 60, 150)]),
        ("Write between 100 and 150 words.", [("word", 100, 150)]),
        ("Write 100-150 words.", [("word", 100, 150)]),
        ("Write at least 50 words.", [("word", 50, None)]),
        ("Write 80 words or less.", [("word", 0, 80)]),
        ("Keep two copies of 3 files for at most 30 days.", []),
        ("Explain it.", []),
    ],
)
def test_stated_lengths_are_read(task: str, expected: list[tuple[str, int, int | None]]) -> None:
    assert [(limit.unit, limit.least, limit.most) for limit in read_task(task).limits] == expected


def test_a_limit_bounds_what_is_called_too_short() -> None:
    task = "Write a page on files: how they are kept, how they are checked, and how they are deleted"
    assert read_task(f"{task}.").least_words > 50
    assert read_task(f"{task}, in at most 60 words.").least_words == 20
    assert read_task(f"{task}, in two sentences.").least_words == 10


def test_a_task_that_asks_for_code_is_known() -> None:
    assert read_task("Show the command that starts it.").wants_code
    assert not read_task("Explain when it starts.").wants_code
