"""Revision by rule: what was found goes or is mended, what is missing is looked for, all else stays byte for byte."""

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from errata_kit.drafts import DraftIssue, IssueSeverity
from errata_kit.grades import Claim, Verdict
from errata_kit.passages import Passage, Span
from errata_kit.text.sentences import byte_span
from services.generator.drafting.drafts import CitedText
from services.generator.drafting.revise import DraftReviser
from services.generator.drafting.write import OUTLINE, DraftWriter
from services.generator.provider import MAX_TEXT_BYTES, Revision

PASSAGES = (
    Passage("keep", "Files are kept in the archive for 30 days. The archive then deletes them.", title="Retention"),
    Passage("size", "The archive holds 900 files at most. An upload to the archive may have 64 MiB.", title="Upload limits"),
)
TASK = "Write a page on the archive, covering retention of files and upload limits."
DRAFT = "# The archive\n\n## Retention\n\nFiles are kept in the archive for 30 days. [1] Größe  zählt. [2]"


def issue(description: str, quote: str = "", criterion: str = "clarity") -> DraftIssue:
    return DraftIssue(criterion, IssueSeverity.MAJOR, description, quote)


def revised(draft: str, **values: object) -> CitedText:
    given_values: dict[str, object] = {"task": TASK, "passages": PASSAGES, **values}
    return DraftReviser(DraftWriter(None)).revise(Revision(draft=draft, **given_values))  # type: ignore[arg-type]


def failing(draft: str, words: str) -> tuple[Claim, ...]:
    place = draft.index(words)
    return (Claim("c1", words, Span(*byte_span(draft, place, place + len(words))), Verdict.UNSUPPORTED, 0.0),)


def test_what_no_rule_understands_changes_nothing() -> None:
    assert revised(DRAFT).text == DRAFT
    assert revised(DRAFT, issues=(issue("A sentence of 60 words is hard to follow."),), suggestions=("Be bold.",)).text == DRAFT


def test_a_failing_claim_goes_and_does_not_come_back() -> None:
    invented = "Set `archive.maxAge` to change that."
    draft = f"{DRAFT} {invented} [1]"
    assert revised(draft, failing_claims=failing(draft, invented)).text == DRAFT


@pytest.mark.parametrize(
    ("added", "found"),
    [
        ("\n\nTODO: write about costs.", issue("It has a placeholder.", "TODO: write about costs.")),
        ("\n\n[insert example here]", issue("Placeholder left in the text.")),
        (" Files are kept in the archive for 30 days. [1]", issue("One sentence stands in it more than once.")),
        ("\n\nIt rains in Bergen. [1]", issue("Off the point.", "It rains in Bergen.", "relevance")),
        (
            "\n\nThe archive holds 7 files. [2]",
            issue("No passage says this.", "The archive holds 7 files.", "technical_quality"),
        ),
        ("\n\n## Costs", issue("Nothing stands below the heading “Costs”.")),
        ("\n\nThe archive also has a", issue("It ends in the middle of a sentence.")),
    ],
)
def test_what_an_issue_shows_goes_and_all_else_stays(added: str, found: DraftIssue) -> None:
    draft = DRAFT + added
    assert revised(draft).text == draft
    assert revised(draft, issues=(found,)).text == DRAFT


def test_an_open_fence_is_closed() -> None:
    draft = f"{DRAFT}\n\n```bash\narchivectl stop"
    assert revised(draft, issues=(issue("A code block is opened and never closed."),)).text == f"{draft}\n```"


def test_a_missing_point_is_looked_for_in_the_passages_and_cited() -> None:
    found = issue("The task asks for “upload limits”, and no word of it occurs in the draft.", criterion="completeness")
    text = revised(DRAFT, issues=(found,))
    assert text.text.startswith(DRAFT)
    assert "## Upload limits\n\n" in text.text and "An upload to the archive may have 64 MiB. [2]" in text.text
    raw = text.text.encode()
    cited = {(item.passage_id, raw[item.span.start : item.span.end].decode()) for item in text.citations}
    assert ("size", "An upload to the archive may have 64 MiB.") in cited


def test_a_point_about_which_no_passage_speaks_stays_missing() -> None:
    found = issue("The task asks for “pricing”, and no word of it occurs in the draft.", criterion="completeness")
    assert (
        "ricing"
        not in revised(DRAFT, task="Write a page on the archive, covering retention and pricing.", issues=(found,)).text
    )


def test_what_a_person_asks_for_is_added_to_the_section_that_names_it() -> None:
    text = revised(DRAFT, feedback="Please mention what the archive deletes in retention.").text
    assert text == f"{DRAFT}\n\nThe archive then deletes them. [1]"


@pytest.mark.parametrize(
    ("feedback", "gone"),
    [
        ('Remove "Größe  zählt."', " Größe  zählt. [2]"),
        ("Please drop the sentence about Größe!", " Größe  zählt. [2]"),
        ("Remove the section about retention.", DRAFT.partition("\n\n")[2]),
    ],
)
def test_what_a_person_wants_gone_goes(feedback: str, gone: str) -> None:
    more = "\n\n## Upload limits\n\nThe archive holds 900 files at most. [2]"
    assert revised(DRAFT + more, feedback=feedback).text == (DRAFT.replace(gone, "") + more).replace("\n\n\n\n", "\n\n")


def test_one_sentence_may_ask_for_two_things() -> None:
    text = revised(DRAFT, feedback="Explain the upload limits, and drop the sentence about Größe.").text
    assert "Größe" not in text and "An upload to the archive may have 64 MiB. [2]" in text


def test_a_shorter_draft_keeps_its_sections() -> None:
    more = "\n\n## Upload limits\n\nThe archive holds 900 files at most. [2] " + "More of this is said here. " * 20
    text = revised(DRAFT + more, feedback="Make it shorter, at most 35 words.").text
    assert len(text.split()) <= 35
    assert "## Retention\n\nFiles" in text and "## Upload limits\n\nThe archive holds 900 files at most. [2]" in text


def test_a_person_who_wants_it_shorter_gets_it_shorter() -> None:
    draft = f"{DRAFT} " + " ".join(f"Nothing of note happens on day {day}." for day in range(30))
    text = revised(draft, feedback="Make it shorter, in at most 40 words.").text
    assert len(text.split()) <= 40 and "Files are kept in the archive for 30 days. [1]" in text


def test_a_draft_of_which_nothing_stays_is_written_anew() -> None:
    draft = "# The archive\n\nThe archive is blue."
    text = revised(draft, failing_claims=failing(draft, "The archive is blue.")).text
    assert "blue" not in text and "Files are kept in the archive for 30 days. [1]" in text


def test_marks_that_stand_for_no_passage_go() -> None:
    assert revised("Files are kept. [1] Others are not. [9]").text == "Files are kept. [1] Others are not."
    assert revised("Files are kept. [1]", passages=()).text == "Files are kept."


def test_without_passages_only_an_outline_can_grow() -> None:
    outline = DraftWriter(None).write(TASK, ()).text
    text = revised(outline, passages=(), feedback="Add pricing.").text
    assert text == f"{outline}\n- Pricing" and OUTLINE in text
    assert revised("A text of one's own.", passages=(), feedback="Add pricing.").text == "A text of one's own."


def test_a_draft_at_its_bound_stays_within_it() -> None:
    draft = ("word " * (MAX_TEXT_BYTES // 5 + 1))[: MAX_TEXT_BYTES - 8] + "\n```\nab"
    assert len(draft.encode()) == MAX_TEXT_BYTES - 1
    found = issue("A code block is opened and never closed.")
    begun = time.process_time()
    assert len(revised(draft, issues=(found,) * 50, feedback="Add upload limits.").text.encode()) <= MAX_TEXT_BYTES
    assert time.process_time() - begun < 5


_TEXT = st.text(st.sampled_from('ab Z.:\n#`*-[]()1|>"“é,\\'), max_size=300)
_QUOTES = st.sampled_from(
    ["It has a placeholder.", "It ends in the middle.", "Stands more than once.", "No passage says so.", "Missing: “files”", ""]
)


@given(
    draft=_TEXT.filter(str.strip),
    found=st.lists(st.tuples(st.sampled_from(["clarity", "relevance", "completeness"]), _QUOTES, _TEXT), max_size=4),
    spans=st.lists(st.tuples(st.integers(0, 400), st.integers(0, 400)), max_size=3),
    feedback=_TEXT | st.sampled_from(["Remove files.", "Add the limits of files and retention.", "Too long."]),
    passages=st.booleans(),
)
@settings(max_examples=80, deadline=None)
def test_any_draft_and_finding_give_a_bounded_draft_with_valid_citations(
    draft: str, found: list[tuple[str, str, str]], spans: list[tuple[int, int]], feedback: str, passages: bool
) -> None:
    issues = tuple(issue(description, quote, criterion) for criterion, description, quote in found)
    claims = tuple(Claim("c", "a", Span(*sorted(span)), Verdict.UNSUPPORTED, 0.0) for span in spans)
    chosen = PASSAGES if passages else ()
    text = revised(draft, passages=chosen, issues=issues, failing_claims=claims, feedback=feedback, suggestions=(feedback,))
    raw = text.text.encode()
    assert text.text.strip() and len(raw) <= MAX_TEXT_BYTES
    for item in text.citations:
        assert chosen[item.number - 1].passage_id == item.passage_id
        assert 0 <= item.span.start < item.span.end <= len(raw)
