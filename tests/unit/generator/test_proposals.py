"""What a model may put in the place of a failing sentence, and what of an answer it is shown."""

import pytest

from errata_kit.grades import Claim, Evidence, Verdict
from errata_kit.passages import Passage, Span
from errata_kit.text.sentences import byte_span
from services.generator.drafting.asking import needed_passages, shown_answer, told_sentence
from services.generator.drafting.proposals import Ledger, Proposal
from services.generator.drafting.surgery import Surgery, answers

ANSWER = """# Files and BAD heads

Files are kept for 30 days. [1] BAD prose. [2] The end.

- BAD item
- good item

| size | BAD row |
|---|---|
| 12 | good row |

```bash
errata BAD
```
"""
GOOD = "It holds 900 files. [1]"


def claims(text: str, *words: str) -> tuple[Claim, ...]:
    found = []
    for number, word in enumerate(words, start=1):
        start = text.index(word)
        span = Span(*byte_span(text, start, start + len(word)))
        found.append(Claim(f"c{number}", word, span, Verdict.UNSUPPORTED, 0.0, explanation=f"Nobody says {word}."))
    return tuple(found)


def ledger(*words: str, text: str = ANSWER) -> Ledger:
    return Ledger(Surgery(text, claims(text, *words)), 2)


@pytest.mark.parametrize(
    ("failing", "wanted", "stands"),
    [
        ("BAD prose", GOOD, GOOD),
        ("BAD prose", f"  {GOOD}\n", GOOD),
        ("BAD prose", "One. [1]\nTwo. [2]", "One. [1] Two. [2]"),
        ("BAD prose", "It holds 900. [1][9]", "It holds 900. [1]"),
        ("BAD item", GOOD, GOOD),
        ("BAD item", f"- {GOOD}", GOOD),
        ("BAD heads", "Files and sizes", "Files and sizes"),
        ("BAD heads", "## Files and sizes", "Files and sizes"),
        ("BAD row", "| size | weight |", "| size | weight |"),
        ("errata BAD", "```\nerrata up\n```", "```\nerrata up\n```"),
        ("errata BAD", "~~~sh\nerrata up [9]\n~~~", "~~~sh\nerrata up [9]\n~~~"),
    ],
)
def test_a_replacement_stands_where_the_failing_unit_stood(failing: str, wanted: str, stands: str) -> None:
    book = ledger(failing)
    book.take([Proposal(1, wanted)])
    assert not book.outstanding and not book.rejected
    done = book.finished()
    [edit] = done.edits
    assert edit.after == stands and done.text == ANSWER.replace(edit.before, stands)
    assert edit.claim_ids == ("c1",) and edit.reason == f"Nobody says {failing}."


@pytest.mark.parametrize(
    ("failing", "wanted", "why"),
    [
        ("BAD prose", "BAD prose. [1]", "again what failed"),
        ("BAD prose", "*bad*  prose!", "again what failed"),
        ("BAD prose", "It is new. BAD item", "again what failed"),
        ("BAD prose", "Files are kept for 30 days. [2]", "repeats"),
        ("BAD prose", "New words. The end.", "repeats"),
        ("BAD prose", "One.\n\nTwo.", "plain sentences"),
        ("BAD prose", "# A heading", "plain sentences"),
        ("BAD prose", "- one\n- two", "plain sentences"),
        ("BAD prose", "```\nopen", "plain sentences"),
        ("BAD prose", "Words\n====", "plain sentences"),
        ("BAD prose", "| a | b |", "plain sentences"),
        ("BAD item", "- one\n- two", "one list item"),
        ("BAD heads", "One\ntwo", "one heading"),
        ("BAD row", "no row", "one row"),
        ("BAD row", "| a |\n| b |", "one row"),
        ("errata BAD", "errata up", "code block"),
        ("errata BAD", "```\nerrata up", "code block"),
        ("errata BAD", "```\na\n```\n\nMore. [1]", "code block"),
        ("BAD prose", "[9]", "nothing is left"),
        ("BAD prose", "x" * 5000, "longer"),
        ("BAD prose", "\ud800", "no text"),
        ("BAD prose", ANSWER, "plain sentences"),
    ],
)
def test_what_is_more_or_less_than_a_correction_is_rejected(failing: str, wanted: str, why: str) -> None:
    words = ("BAD item", failing) if failing == "BAD prose" else (failing,)
    book = ledger(*words)
    number = 1 + [item.unit.text for item in book._surgery.failing.values()].index(
        next(item.unit.text for item in book._surgery.failing.values() if failing in item.unit.text)
    )
    book.take([Proposal(number, wanted)])
    [rejected] = book.rejected
    assert why in rejected.reason.lower() and number in book.outstanding
    [told] = book.told()
    assert told.reason == rejected.reason and len(told.after) <= 2000
    assert wanted not in book.finished().text or wanted in ANSWER


def test_a_number_that_was_not_asked_about_or_comes_twice_is_rejected() -> None:
    book = ledger("BAD prose", "BAD item")
    book.take([Proposal(1, GOOD), Proposal(1, "Other. [1]"), Proposal(3, GOOD), Proposal(0, ""), Proposal(2, "")])
    assert list(book.outstanding) == [1] and [item.proposal.number for item in book.rejected] == [1, 1, 3, 0]
    book.take([Proposal(2, "Again. [1]"), Proposal(1, GOOD)])
    assert not book.outstanding and len(book.rejected) == 5
    assert "BAD item" not in book.finished().text and "Again" not in book.finished().text


def test_of_two_equal_replacements_one_is_let_through() -> None:
    book = ledger("BAD prose", "BAD item")
    book.take([Proposal(1, GOOD), Proposal(2, "It holds 900 files.")])
    assert book.outstanding == (2,) and "said twice" in book.rejected[0].reason


def test_a_replacement_that_runs_together_with_a_sentence_that_stays_is_rejected() -> None:
    text = "Files are kept. BAD prose. Jan is a month."
    book = ledger("BAD prose", text=text)
    book.take([Proposal(1, "It holds logs, dumps etc.")])
    assert book.outstanding == (1,)
    done = book.finished()
    assert done.text == "Files are kept. Jan is a month."


def test_two_sentences_between_which_one_goes_are_kept_apart() -> None:
    text = "It holds logs, dumps etc. The BAD one. Jan is a month."
    done = Surgery(text, claims(text, "BAD")).without_failing()
    assert done.text == "It holds logs, dumps etc. \n\nJan is a month."


def test_a_short_answer_is_shown_whole_with_numbers_for_what_fails() -> None:
    shown = shown_answer(Surgery(ANSWER, claims(ANSWER, "BAD prose", "BAD item", "errata BAD")))
    assert shown.startswith(
        "# Files and BAD heads\n\nFiles are kept for 30 days. [1] (sentence 1) The end.\n\n- (sentence 2)\n"
    )
    assert shown.endswith("| 12 | good row |\n\n(sentence 3)")


def test_of_a_long_answer_only_the_neighbours_are_shown() -> None:
    text = " ".join(f"Sentence {number} stands here." for number in range(100)) + "\n\n- first item\n- BAD item\n- last item"
    text = text.replace("Sentence 50 stands", "BAD words stand")
    shown = shown_answer(Surgery(text, claims(text, "BAD words", "BAD item")))
    assert shown == (
        "…\nSentence 49 stands here. (sentence 1) Sentence 51 stands here.\n…\n- first item\n- (sentence 2)\n- last item"
    )


def test_a_sentence_is_told_with_all_that_is_wrong_with_it() -> None:
    text = "It holds 12 files and 3 dogs. [1]"
    found = Evidence("b", "900 files", Span(0, 1))
    wrong = [
        Claim("c1", "It holds 12 files", Span(0, 17), Verdict.CONTRADICTED, 0.0, (found,), "It holds 900."),
        Claim("c2", "it holds three dogs", Span(18, 29), Verdict.UNSUPPORTED, 0.0),
    ]
    [item] = Surgery(text, wrong).failing.values()
    told = told_sentence(item, [Passage("a", "x"), Passage("b", "y")], "Leave the dogs out.")
    assert told == (
        f"{text}\n\nWhy it fails: It holds 900. See passage 2. “it holds three dogs”: unsupported. Leave the dogs out."
    )


def test_the_passages_that_matter_are_cited_quoted_or_say_something_of_it() -> None:
    passages = [Passage(f"p{number}", f"Nothing but stuff {number}") for number in range(6)]
    passages[4] = Passage("p4", "The archive holds 900 files.")
    text = "The archive holds 12 files. [2]"
    claim = Claim("c", text[:27], Span(0, 27), Verdict.CONTRADICTED, 0.0, (Evidence("p5", "Nothing", Span(0, 1)),))
    assert needed_passages(Surgery(text, [claim]), passages) == (1, 4, 5)


@pytest.mark.parametrize(
    ("text", "does"), [("", False), ("# Files", False), ("Files stay.", True), ("Glad to help!", False), ("[1]", False)]
)
def test_what_answers_has_a_word_of_the_question_outside_of_headings(text: str, does: bool) -> None:
    assert answers("How long are files kept?", text) is does
