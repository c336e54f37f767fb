"""Sentences that are nearly a source's and say something else, although every word of theirs may stand somewhere."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from errata_kit.passages import Passage
from services.judge.guard import find_ungrounded
from services.judge.guard.alignment import MOST_TOKENS, align
from services.judge.guard.tokens import Token, tokens

SENTENCES = (
    "The retriever splits each document into chunks of about 800 characters.",
    "Idle connections are closed after 30 seconds without traffic.",
    "Sessions are kept for 60 seconds, and backups for 14 days.",
    "Administrators can enable audit logs in the settings page.",
    "The scheduler never starts two jobs with the same name.",
    "Version 2.4.1 does not read the old index format.",
    "When the queue is full, new tasks are rejected by the server.",
    "The first release came out in June 2021 and the second in May 2023.",
    "Rows are sorted in ascending order unless `sort_order` is set.",
    "Set `max_retries` before `retry_delay` in the client's options.",
)
PASSAGES = (Passage("a", " ".join(SENTENCES[:5])), Passage("b", "\n\n".join(SENTENCES[5:])))


def found(answer: str) -> list[tuple[str, str]]:
    findings = find_ungrounded(answer, "What should I know?", PASSAGES)
    assert all(answer[f.start : f.end] == f.text and f.explanation for f in findings)
    return [(finding.kind, finding.text) for finding in findings]


@pytest.mark.parametrize(
    ("answer", "finding"),
    [
        # A value that stands in another sentence, about something else.
        ("Idle connections are closed after 60 seconds without traffic.", ("number", "60")),
        ("Idle connections are closed after sixty seconds without traffic.", ("number", "sixty")),
        ("Sessions are kept for 30 seconds, and backups for 14 days.", ("number", "30")),
        ("The retriever splits each document into chunks of about 30 characters.", ("number", "30")),
        ("The first release came out in May 2021.", ("date", "May 2021")),
        ("Set `sort_order` before `retry_delay` in the client's options.", ("identifier", "sort_order")),
        # A negation put in.
        ("Idle connections are not closed after 30 seconds without traffic.", ("negation", "not")),
        ("Idle connections aren't closed after 30 seconds without traffic.", ("negation", "aren't")),
        ("Idle connections are never closed after 30 seconds without traffic.", ("negation", "never")),
        ("Administrators cannot enable audit logs in the settings page.", ("negation", "cannot")),
        ("According to the documents, the retriever does not split each document into chunks.", ("negation", "not")),
        ("When the queue is not full, new tasks are rejected by the server.", ("negation", "not")),
        # A negation taken out.
        ("The scheduler starts two jobs with the same name.", ("negation", "starts")),
        ("The scheduler always starts two jobs with the same name.", ("negation", "always")),
        ("Version 2.4.1 reads the old index format.", ("negation", "reads")),
        ("Version 2.4.1 does read the old index format.", ("negation", "read")),
        # The opposite.
        ("Administrators can disable audit logs in the settings page.", ("negation", "disable")),
        ("Rows are sorted in descending order unless `sort_order` is set.", ("negation", "descending")),
        ("Set `max_retries` after `retry_delay` in the client's options.", ("negation", "after")),
        ("When the queue is full, new tasks are accepted by the server.", ("negation", "accepted")),
        ("Idle connections are closed after 30 seconds with traffic.", ("negation", "with")),
    ],
)
def test_what_the_nearest_sentence_says_otherwise_is_found(answer: str, finding: tuple[str, str]) -> None:
    assert finding in found(answer)
    assert len(found(answer)) == 1


@pytest.mark.parametrize(
    "answer",
    [
        *SENTENCES,
        *(f"According to the documentation, {sentence[0].lower()}{sentence[1:]} [1]" for sentence in SENTENCES[:5]),
        "New tasks are rejected by the server when the queue is full.",
        "Backups are kept for 14 days, and sessions for 60 seconds.",
        "Version 2.4.1 doesn't read the old index format.",
        "The old index format can't be read.",
        "After 30 s without traffic, idle connections are closed.",
        "Idle connections are closed after half a minute without traffic.",
        "Two jobs with the same name are never started by the scheduler.",
        "Administrators enable audit logs, and the scheduler never starts two jobs with the same name.",
        "Set `maxRetries` before `retry-delay` in the client's options.",
        "The first release came out in June 2021.",
        "Audit logs are not the only thing that administrators can enable in the settings page.",
        "The documents do not say whether idle connections are closed.",
        "Are idle connections not closed after 30 seconds without traffic?",
        "Penguins do not migrate across frozen oceans.",
    ],
)
def test_what_a_source_says_in_other_words_is_no_finding(answer: str) -> None:
    assert found(answer) == []


def test_a_sentence_that_another_one_agrees_with_is_no_finding() -> None:
    both = [Passage("a", "The flag is enabled in version 3."), Passage("b", "The flag is not enabled in version 2.")]
    assert find_ungrounded("The flag is not enabled in version 2.", "", both) == ()
    assert find_ungrounded("The flag isn't enabled in version 2 yet.", "", both) == ()


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("It doesn't start.", "It does not start."),
        ("It can't start.", "It cannot start."),
        ("It won't start.", "It will not start."),
        ("60 s", "one minute"),
        ("5GB of `maxRetries`", "five gigabytes of max_retries"),
        ("--redis-url", "REDIS_URL"),
        ("v2.4.1", "2.4.1"),
        ("On Sept 5", "on September 5"),
        ("See the guide [1].", "see the guide"),
        ("See [the guide](https://example.org/x).", "see the guide"),
    ],
)
def test_other_writings_give_the_same_tokens(one: str, other: str) -> None:
    assert [token.key for token in tokens(one)] == [token.key for token in tokens(other)]


letters = st.text("abcd", max_size=24)


@given(letters, letters)
def test_an_alignment_is_a_longest_common_subsequence(ours: str, theirs: str) -> None:
    alignment = align(as_tokens(ours), as_tokens(theirs))
    assert all(ours[i] == theirs[j] for i, j in alignment.pairs)
    assert list(alignment.pairs) == sorted(set(alignment.pairs))
    assert all(a[0] < b[0] and a[1] < b[1] for a, b in zip(alignment.pairs, alignment.pairs[1:], strict=False))
    assert len(alignment.pairs) == longest_common(ours, theirs)


def as_tokens(text: str) -> list[Token]:
    return [Token(letter, "word", letter, place, place + 1) for place, letter in enumerate(text)]


def longest_common(ours: str, theirs: str) -> int:
    """The textbook's table, which the bit-parallel one must agree with."""
    row = [0] * (len(theirs) + 1)
    for one in ours:
        above = row
        row = [0]
        for place, other in enumerate(theirs):
            row.append(above[place] + 1 if one == other else max(above[place + 1], row[-1]))
    return row[-1]


@given(st.lists(st.sampled_from(SENTENCES), min_size=1, max_size=6))
def test_no_extract_of_the_passages_has_a_finding(extract: list[str]) -> None:
    assert found(" ".join(extract)) == []


@pytest.mark.parametrize(
    "piece",
    ["not ", "the disk is full. ", "one hundred and ", "30 s ", "aren't ", "`a-b", "](x", "half an ", "No 1.5k. ", "1 \n"],
)
def test_hostile_answers_and_passages_take_little_time(piece: str) -> None:
    passages = [Passage(str(number), (piece * 16_384)[:16_384]) for number in range(4)]
    started = time.process_time()
    find_ungrounded((f"x{piece}" * 65_536)[:65_536], "", passages)
    assert time.process_time() - started < 3


def test_the_tail_of_an_endless_sentence_is_not_compared() -> None:
    endless = "word " * (2 * MOST_TOKENS) + "is closed"
    assert len(align(tokens(endless), tokens(endless)).pairs) == MOST_TOKENS
