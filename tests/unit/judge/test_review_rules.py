"""The rules over drafts: what each sees, what it leaves alone, and what it costs."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from errata_kit.drafts import DEFAULT_CRITERIA, IssueSeverity
from errata_kit.passages import Passage
from services.judge.review.findings import KNOWN, RuleFinding
from services.judge.review.reading import read_draft
from services.judge.review.rules import findings_of
from services.judge.review.task import read_task

TASK = "Say how files are kept and how the daily check works."
GOOD = "Files are kept for 30 days. A check runs every day, and it deletes the files that are older."
PASSAGES = (Passage("p", "Files are kept for 30 days. A daily check deletes older files. Set RETENTION_DAYS to change it."),)


def findings(draft: str, task: str = TASK, passages: tuple[Passage, ...] = ()) -> tuple[RuleFinding, ...]:
    return findings_of(read_draft(draft, task), read_task(task), passages)


def said(draft: str, task: str = TASK, passages: tuple[Passage, ...] = ()) -> str:
    return " ".join(finding.description for finding in findings(draft, task, passages))


def test_a_good_draft_has_no_finding() -> None:
    assert findings(GOOD) == ()
    assert findings(GOOD, passages=PASSAGES) == ()


@pytest.mark.parametrize(
    "placeholder",
    [
        "TODO: say who runs it.",
        "- TBD",
        "## FIXME",
        "**TODO**",
        "Lorem ipsum dolor sit amet.",
        "[insert the number of days]",
        "[your company] keeps them.",
        "<insert name here>",
        "(to be written)",
        "The rest is (insert example here).",
        "An example goes here.",
        "Coming soon",
        "...",
        "- …",
        "[...]",
        "???",
        "To be continued.",
        "```\nerrata up  # TODO: port\n```",
        "```\nerrata up --port <insert port>\n```",
    ],
)
def test_placeholders_are_found_and_spoil_every_criterion(placeholder: str) -> None:
    [finding] = [found for found in findings(f"{GOOD}\n\n{placeholder}\n") if "placeholder" in found.description]
    assert finding.severity is IssueSeverity.CRITICAL
    assert all(finding.cost(name) > 0 for name in (*KNOWN, "tone_of_voice"))
    assert 1 - finding.cost("completeness") < 0.8


@pytest.mark.parametrize(
    "text",
    [
        "Search for `TODO` in the log.",
        "The list of todos is short.",
        "See [the page](insert.md) and [1].",
        "Click [Add user](users.md).",
        "```python\ndef check() -> None:\n    ...\n```",
        "Wait for it ... then go on.",
        "Documents to be added are listed.",
        "(insert count: 0, delete count: 1)",
        "Pass `<insert-name>` there.",
        "---",
    ],
)
def test_what_only_looks_like_a_placeholder_is_none(text: str) -> None:
    assert "placeholder" not in said(f"{GOOD}\n\n{text}\n\nThat is all.\n")


def test_a_task_about_a_marker_may_use_it() -> None:
    draft = "A TODO comment says what is missing. Errata finds TODO comments in code."
    assert "placeholder" not in said(draft, "Explain how Errata finds TODO comments.")
    assert "placeholder" in said(draft)


@pytest.mark.parametrize(
    "end",
    [
        "It also",
        "It checks the following:",
        "The check looks at names, sizes,",
        "The check starts every night at the time that",
        "After this the check deletes every old file it can find",
        "And then the check goes on to...",
        "- Old files are deleted.\n- New files are kept.\n- Files that somebody reads every day are also",
        "- Old files are deleted.\n- New files are kept.\n- Files that somebody marked stay for good even when",
        "The check is described in the",
    ],
)
def test_text_that_stops_is_unfinished(end: str) -> None:
    assert "in the middle" in said(f"{GOOD}\n\n{end}") or "no end" in said(f"{GOOD}\n\n{end}")


@pytest.mark.parametrize(
    "end",
    [
        "That is all.",
        "That is all! [1][2]",
        "He said “that is all.”",
        "Is that all?",
        "- files\n- checks",
        "- Old files are deleted\n- New files are kept for good",
        "```\nerrata up\n```",
        "| a | b |\n|---|---|\n| 1 | 2 |",
        "Write to our team at support@example.org",
        "Read more on this at https://example.org/files",
        "これで全部です。",
        "Run it with `errata up --data-dir here`",
    ],
)
def test_text_that_ends_is_finished(end: str) -> None:
    assert findings(f"{GOOD}\n\n{end}\n") == ()


def test_a_code_block_left_open_is_found() -> None:
    [finding] = findings(f"{GOOD}\n\n```sh\nerrata up\n")
    assert finding.quote == "```sh" and finding.cost("technical_quality") > 0.2
    assert findings(f"{GOOD}\n\n````\n```\n````\n") == ()


def test_headings_and_items_without_text_are_found() -> None:
    assert "“## Limits”" in said(f"# Files\n\n{GOOD}\n\n## Limits\n\n## Checks\n\nA check runs.\n")
    assert "“# Limits”" in said(f"{GOOD}\n\n# Limits\n")
    assert "Nothing stands" not in said(f"# Files\n\n## Kept\n\n{GOOD}\n")
    assert "2 empty items" in said(f"{GOOD}\n\n- one\n-\n- \n")


def test_repeated_sentences_are_found_and_cost_clarity_by_their_share() -> None:
    [once] = findings(
        f"{GOOD} It runs at night on every machine. It runs at night, on every machine. It runs at night on every machine."
    )
    [often] = findings(" ".join([GOOD] * 4))
    assert once.costs.keys() == often.costs.keys() == {"clarity"}
    assert 0 < once.cost("clarity") < often.cost("clarity")
    assert findings(f"{GOOD} Run this:\n\n```\na\n```\n\nThen once more run all of this:\n\n```\nb\n```\n\nThat is all.") == ()


def test_points_that_occur_nowhere_are_found() -> None:
    task = "Write about files: how they are kept, how to encrypt them, and troubleshooting."
    assert [finding.remedy for finding in findings(GOOD, task) if "asks for" in finding.description] == [
        "Cover “how to encrypt them”.",
        "Cover “troubleshooting”.",
    ]
    # Other words for the same do.
    assert "troubleshooting" not in said(f"{GOOD} When it fails, look at the log. Encryption is on.", task)


def test_limits_of_the_task_are_counted() -> None:
    assert "“at most 10 words”, and the draft has 19 words" in said(GOOD, "Say in at most 10 words how files are kept.")
    assert "“in one sentence”, and the draft has 2 sentences" in said(GOOD, "Say in one sentence how files are kept.")
    assert "“at least 40 words”" in said(GOOD, "Say in at least 40 words how files are kept.")
    assert findings(GOOD, "Say in two sentences how files are kept.") == ()
    over = [findings(GOOD, f"Say in at most {most} words how files are kept.")[0].cost("relevance") for most in (18, 9, 2)]
    assert over == sorted(over) and over[0] > 0.1 and over[-1] <= 0.4


def test_much_too_short_costs_more_the_shorter_it_is() -> None:
    task = "Write a guide on files: how they are kept, and how the check works."
    costs = [
        findings(draft, task)[-1].cost("completeness") for draft in ("Files are kept, and a check works.", "Kept files, check.")
    ]
    assert "much too little" in said("Files are kept, and a check works.", task)
    assert 0.3 < costs[0] < costs[1] <= 0.6


def test_details_that_no_passage_has_cost_technical_quality() -> None:
    draft = f"{GOOD} Set `KEEP_DAYS` or pass --keep 45."
    found = findings(draft, passages=PASSAGES)
    assert [finding.quote for finding in found] == ["KEEP_DAYS", "--keep", "45"]
    assert all(set(finding.costs) == {"technical_quality"} for finding in found)
    assert sum(finding.cost("technical_quality") for finding in found) > 0.3
    assert findings(draft) == ()


def test_a_users_own_criterion_suffers_only_from_what_spoils_any_draft() -> None:
    draft = f"{GOOD} {GOOD} Pass --keep 45.\n\nTODO\n\nIt also"
    costly = [finding.description for finding in findings(draft, passages=PASSAGES) if finding.cost("tone")]
    assert len(costly) == 2 and "placeholder" in costly[0] and "middle" in costly[1]


@given(st.text(max_size=400), st.text(min_size=1, max_size=200))
def test_any_text_can_be_read_and_costs_stay_bounded(draft: str, task: str) -> None:
    for finding in findings(draft, task, PASSAGES):
        assert finding.description.endswith(".") and finding.remedy.endswith(".")
        assert all(0 < cost <= 1 for cost in finding.costs.values()) and 0 <= finding.own_cost <= 1
        assert set(finding.costs) <= {criterion.name for criterion in DEFAULT_CRITERIA}


@pytest.mark.parametrize(
    "text",
    [
        "[insert " * 8000,
        "- " * 32000,
        "`" * 65000,
        "# \n" * 20000,
        "(" * 65000,
        "TODO " * 13000,
        "a " * 32000,
        "...\n" * 16000,
        "=" * 65000,
    ],
    ids=lambda text: text[:8],
)
def test_hostile_drafts_cost_no_more_than_others(text: str) -> None:
    started = time.perf_counter()
    findings(text)
    assert time.perf_counter() - started < 2
