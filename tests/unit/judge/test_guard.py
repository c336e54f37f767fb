import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from errata_kit.grades import Verdict
from errata_kit.passages import Passage
from services.judge.claims.verdicts import CheckedClaim
from services.judge.guard import find_ungrounded, lower

PASSAGES = (
    Passage(
        "p",
        "Set `REDIS_URL` or pass --redis-url. The cache keeps 1,000 entries for 60 seconds; "
        "max_retries is three. "
        "Version 2.4.1 was released on January 5, 2024 and reads /etc/errata/config.yaml, see "
        "https://docs.example.org/cache. The option cache.ttl_seconds takes an integer. "
        "It serves 2.5 million users. "
        'The log says "cache is cold". Run `errata up --port 8080` to start.',
    ),
)


def found(answer: str, question: str = "How is it set?") -> list[tuple[str, str]]:
    return [(finding.kind, finding.text) for finding in find_ungrounded(answer, question, PASSAGES)]


@pytest.mark.parametrize(
    "answer",
    [
        "Set redis_url, RedisUrl or REDIS_URL.",
        "It keeps 1000 entries for 1 minute.",
        "It keeps 1,000 entries for 60 s.",
        "There are 3 retries.",
        "It serves 2,500,000 users.",
        "Released on 2024-01-05 as v2.4.1.",
        "Released in January 2024.",
        "Pass `--redis-url` and read /etc/errata/config.yaml.",
        "See https://docs.example.org/cache.",
        "`errata up` takes `--port`.",
        "It logs “Cache is cold.”",
        "cache.ttl_seconds is an option.",
        "1. Set it [1].\n2. Run it [1, 2].\n3. Done [4].\n\nStep 7 is last (9) here.",
        "First: 1. set it 2. run it 3. stop 4. done.",
        "The documents do not mention MEMCACHED_URL or port 9999.",
        "MEMCACHED_URL is not described in the passages.",
        "See e.g. the U.S. docs, i.e. this and/or that.Then stop.",
    ],
)
def test_what_the_passages_have_is_no_finding(answer: str) -> None:
    assert found(answer) == []


@pytest.mark.parametrize(
    ("answer", "kind", "text"),
    [
        ("Set MEMCACHED_URL.", "environment", "MEMCACHED_URL"),
        ("Set memcachedUrl.", "identifier", "memcachedUrl"),
        ("Set memcached_url.", "identifier", "memcached_url"),
        ("Pass --force-sync now.", "flag", "--force-sync"),
        ("Pass --redis now.", "flag", "--redis"),
        ("It keeps 2,000 entries.", "number", "2,000"),
        ("It waits 60 minutes.", "number", "60"),
        ("Since v2.4.2 it works.", "version", "v2.4.2"),
        ("Released on January 6, 2024.", "date", "January 6, 2024"),
        ("Released in March 2024.", "date", "March 2024"),
        ("Edit /etc/errata/cache.yaml.", "path", "/etc/errata/cache.yaml"),
        ("See https://docs.example.org/other.", "url", "https://docs.example.org/other"),
        ("Set cache.max_size first.", "option", "cache.max_size"),
        ('It logs "cache is warm".', "quote", "cache is warm"),
        ("Run `errata purge`.", "code", "errata purge"),
        ("Mail ops@example.org.", "email", "ops@example.org"),
    ],
)
def test_what_no_passage_has_is_found_where_it_stands(answer: str, kind: str, text: str) -> None:
    (finding,) = find_ungrounded(answer, "How is it set?", PASSAGES)
    assert (finding.kind, finding.text) == (kind, text)
    assert answer[finding.start : finding.end] == text
    assert finding.explanation


def test_a_name_from_the_question_is_found_once_something_is_said_of_it() -> None:
    question = "What does MEMCACHED_URL set?"
    assert found("MEMCACHED_URL sets the cache's address and port.", question) == [("environment", "MEMCACHED_URL")]
    assert found("You asked about MEMCACHED_URL.", question) == []
    assert found("About MEMCACHED_URL, the documents say:", question) == []


def test_what_follows_the_turn_of_an_abstention_is_looked_at() -> None:
    assert found("The documents do not mention it, but MEMCACHED_URL works.") == [("environment", "MEMCACHED_URL")]


@given(
    st.lists(st.sampled_from(list(Verdict)), min_size=1, max_size=6),
    st.lists(st.sampled_from([*list('aB. 123-_`"/'), "--x-y", "A_B", "v1.2.3 "]), max_size=60).map("".join),
)
def test_the_guard_never_raises_a_verdict(verdicts: list[Verdict], answer: str) -> None:
    claims = [CheckedClaim("text", i * 10, i * 10 + 10, verdict, 0.9) for i, verdict in enumerate(verdicts)]
    for before, after in zip(claims, lower(claims, find_ungrounded(answer, "", PASSAGES)), strict=True):
        assert after.verdict in (before.verdict, Verdict.UNSUPPORTED)
        assert after.verdict is not Verdict.SUPPORTED or before.verdict is Verdict.SUPPORTED
        assert (after.support or 0) <= (before.support or 0)


@given(
    st.lists(
        st.sampled_from([*list('aB. \n123-_`"/[]@:'), "--x-y", "A_B", "v1.2.3 ", "January 2024"]),
        min_size=1,
        max_size=100,
    ).map("".join)
)
def test_an_answer_is_grounded_in_itself(answer: str) -> None:
    assert find_ungrounded(answer, "", [Passage("self", answer)]) == ()


@pytest.mark.parametrize(
    "piece", ["`", '"', "a_", "a.", "/a", "--a-", "1,000", "a@a.", "aB", "1. ", "[1]", "~/", "x" * 50 + "/"]
)
def test_hostile_answers_take_little_time(piece: str) -> None:
    started = time.perf_counter()
    find_ungrounded((piece * 65_536)[:65_536], "", PASSAGES)
    assert time.perf_counter() - started < 3


def test_a_digit_within_a_hyphenated_name_is_no_number() -> None:
    assert found("It is written as utf-8 text.") == []


def test_variables_and_flags_in_code_are_named_as_such() -> None:
    assert found("Set `MEMCACHED_URL` and pass `--force`.") == [
        ("environment", "MEMCACHED_URL"),
        ("flag", "--force"),
    ]
