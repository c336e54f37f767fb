"""`errata ask` against a running suite: what it prints, and what its exit code tells."""

import json
import re
import time
from pathlib import Path
from typing import Any

import pytest

from tests.harness.suite import Finished, Suite, errata

pytestmark = [pytest.mark.system, pytest.mark.xdist_group("suite")]

ANSWERABLE = "How long is a backup kept?"
UNANSWERABLE = "Who won the chess tournament in Reykjavik?"
INVENTED = "A backup is kept for 30 days. Set `backup.tape_mode=weekly` to copy it to tape."


def ask(suite: Suite, collection: str, question: str, *options: str, stdin: str = "") -> Finished:
    return suite.errata("ask", question, "--collection", collection, *options, stdin=stdin)


def events_of(done: Finished) -> list[dict[str, Any]]:
    """The trace that --json printed: one object a line."""
    return [json.loads(line) for line in done.out.splitlines()]


def checked(events: list[dict[str, Any]]) -> dict[str, Any]:
    """The run's end, after a look at what holds for every trace."""
    stored = [int(event["sequence"]) for event in events if "answer_delta" not in event]
    assert stored == list(range(1, len(stored) + 1)), "sequence numbers have no gaps"
    assert "run_started" in events[0]
    assert ["run_finished" in event for event in events] == [False] * (len(events) - 1) + [True]
    assert len({event["run_id"] for event in events}) == 1
    finished: dict[str, Any] = events[-1]["run_finished"]
    return finished


def test_an_answer_has_its_sources_and_a_badge(suite: Suite, corpus: str) -> None:
    done = ask(suite, corpus, ANSWERABLE)
    assert done.code == 0, done.err
    assert "kept for 30 days" in done.out
    assert "[1]" in done.out
    assert re.search(r"\[1\] \S+/backup\.md:\d+-\d+ \(Backups", done.out)
    assert re.search(r"faithfulness \d\.\d\d, hallucination risk LOW", done.out)
    assert "ANSWERED in " in done.out
    assert "\x1b" not in done.out + done.err, "a pipe gets plain text"


def test_json_is_one_event_a_line(suite: Suite, corpus: str) -> None:
    done = ask(suite, corpus, ANSWERABLE, "--json")
    assert done.code == 0, done.err
    events = events_of(done)
    finished = checked(events)
    assert finished["outcome"] == "OUTCOME_ANSWERED"
    assert {citation["number"] for citation in finished["answer"]["citations"]} == {1}
    assert events[0]["run_started"]["question"] == ANSWERABLE
    assert any("answer_delta" in event for event in events)


def test_a_refusal_says_what_was_tried(suite: Suite, corpus: str) -> None:
    done = ask(suite, corpus, UNANSWERABLE)
    assert done.code == 3, done.err
    assert "REFUSED_NO_EVIDENCE" in done.out
    assert re.search(r"tried “.*Reykjavik", done.out)
    assert "near " in done.out
    finished = checked(events_of(ask(suite, corpus, UNANSWERABLE, "--json")))
    assert finished["outcome"] == "OUTCOME_REFUSED_NO_EVIDENCE"
    assert finished["refusal"]["nearest_misses"]


@pytest.mark.parametrize("source", ["file", "standard input"])
def test_a_draft_with_an_invented_option_is_corrected(suite: Suite, corpus: str, tmp_path: Path, source: str) -> None:
    draft = tmp_path / "draft.txt"
    draft.write_text(INVENTED, encoding="utf-8")
    name, stdin = (str(draft), "") if source == "file" else ("-", INVENTED)
    done = ask(suite, corpus, ANSWERABLE, "--json", "--draft", name, stdin=stdin)
    assert done.code == 0, done.err
    events = events_of(done)
    finished = checked(events)
    assert finished["outcome"] == "OUTCOME_ANSWERED_AFTER_REFINEMENT"
    assert "tape_mode" not in finished["answer"]["text"]
    assert "30 days" in finished["answer"]["text"]
    grades = [event["answer_graded"] for event in events if "answer_graded" in event]
    assert [grade.get("passed", False) for grade in grades] == [False, True]
    assert any("tape_mode" in finding["text"] for finding in grades[0]["grade"]["findings"])


def test_a_draft_is_refused_when_it_may_not_be_corrected(suite: Suite, corpus: str) -> None:
    done = ask(suite, corpus, ANSWERABLE, "--json", "--draft", "-", "--max-refinements", "0", stdin=INVENTED)
    assert done.code == 3, done.err
    finished = checked(events_of(done))
    assert finished["outcome"] == "OUTCOME_REFUSED_UNFAITHFUL"
    assert any("tape_mode" in claim["text"] for claim in finished["refusal"]["failing_claims"])


def test_overrides_reach_the_run(suite: Suite, corpus: str) -> None:
    options = ("--top-k", "1", "--relevance-threshold", "1.0", "--max-retrievals", "2", "--mode", "sparse")
    done = ask(suite, corpus, ANSWERABLE, "--json", *options)
    assert done.code == 3, done.err
    events = events_of(done)
    assert checked(events)["outcome"] == "OUTCOME_REFUSED_NO_EVIDENCE"
    settings = events[0]["run_started"]["settings"]
    assert (settings["top_k"], settings["relevance_threshold"], settings["max_retrievals"]) == (1, 1.0, 2)
    retrieved = [event["passages_retrieved"] for event in events if "passages_retrieved" in event]
    assert 1 <= len(retrieved) <= 2
    assert all(len(retrieval["passages"]) == 1 for retrieval in retrieved)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (("--top-k", "1000"), "settings.top_k"),
        (("--relevance-threshold", "1.5"), "settings.relevance_threshold"),
        (("--collection", "Not a name"), "collection"),
        (("--where", "nonsense"), "--where nonsense"),
        (("--draft", "no-such-file"), "--draft no-such-file"),
        (("--mode", "psychic"), "--mode"),
    ],
)
def test_wrong_usage_is_two_and_names_the_field(suite: Suite, corpus: str, options: tuple[str, ...], named: str) -> None:
    done = ask(suite, corpus, ANSWERABLE, *options)
    assert done.code == 2
    assert named in done.err
    assert "Traceback" not in done.err
    assert done.out == ""


def test_a_collection_that_does_not_exist_is_a_failure_that_says_how_to_make_it(suite: Suite) -> None:
    done = ask(suite, "nowhere", ANSWERABLE)
    assert done.code == 1
    assert "FAILED" in done.out
    assert "There is no collection 'nowhere'" in done.out + done.err
    done = ask(suite, "nowhere", ANSWERABLE, "--json")
    assert done.code == 1
    finished = checked(events_of(done))
    assert (finished["outcome"], finished["error"]["reason"]) == ("OUTCOME_FAILED", "ERROR_REASON_COLLECTION_NOT_FOUND")


def test_where_narrows_the_documents(suite: Suite, corpus: str) -> None:
    done = ask(suite, corpus, ANSWERABLE, "--json", "--where", "title=Upload limits")
    assert done.code == 3, done.err
    retrieved = [event["passages_retrieved"] for event in events_of(done) if "passages_retrieved" in event]
    assert {passage["title"] for retrieval in retrieved for passage in retrieval.get("passages", [])} == {"Upload limits"}


def test_without_a_suite_it_is_one_sentence() -> None:
    started = time.monotonic()
    done = errata("ask", ANSWERABLE, variables={"ERRATA_ORCHESTRATOR_TARGET": "127.0.0.1:1"}, timeout=30)
    assert done.code == 1
    sentence = "The orchestrator can't be reached at 127.0.0.1:1. Is the suite up? Start it with: errata up"
    assert done.complaint == f"errata: {sentence}"
    assert done.out == ""
    assert time.monotonic() - started < 20
