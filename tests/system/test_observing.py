"""What an operator sees of the suite: metrics, logs, and a data folder that is taken."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from errata_cli.stack import SERVICES
from tests.harness.suite import Suite, errata, eventually, free_row, write_files

pytestmark = [pytest.mark.system, pytest.mark.xdist_group("suite")]

# Words that occur nowhere else: in a log they could only come from a document, a question or a draft.
IN_DOCUMENT, IN_QUESTION, IN_DRAFT = "zyxomatic", "qwervulent", "plumbogast"
USED = {"orchestrator": "Ask", "retriever": "Search", "judge": "GradeAnswer", "generator": "GenerateAnswer"}
PRODUCT = {
    "orchestrator": 'errata_runs_total{outcome="ANSWERED",workflow="answer"}',
    "retriever": "errata_chunks_embedded_total",
    "judge": 'errata_passage_grades_total{result="relevant"}',
    "generator": "errata_calls_in_flight",
}


def sample(page: str, name: str) -> float:
    """A sample's value; 0 when the page does not have it yet."""
    found = re.search(rf"^{re.escape(name)} (\S+)$", page, re.MULTILINE)
    return float(found[1]) if found else 0.0


def handled(page: str, method: str) -> float:
    """Calls of a method that ended with OK."""
    found = re.search(rf'^grpc_server_handled_total{{grpc_code="OK",grpc_method="{method}",.*}} (\S+)$', page, re.MULTILINE)
    return float(found[1]) if found else 0.0


def run_id_of(out: str) -> str:
    return str(json.loads(out.splitlines()[0])["run_id"])


def test_metrics_of_each_service_count_an_ask(suite: Suite, corpus: str) -> None:
    before = {name: suite.metrics(name) for name in SERVICES}
    assert suite.errata("ask", "How long is a backup kept?", "--collection", corpus).code == 0
    for name in SERVICES:
        page = suite.metrics(name)
        assert handled(page, USED[name]) == handled(before[name], USED[name]) + 1, name
        assert f"\n{PRODUCT[name]} " in page
        assert sample(page, "errata_calls_in_flight") == 0, name
    runs = PRODUCT["orchestrator"]
    assert sample(suite.metrics("orchestrator"), runs) == sample(before["orchestrator"], runs) + 1
    grades = PRODUCT["judge"]
    assert sample(suite.metrics("judge"), grades) > sample(before["judge"], grades)


def test_logs_are_json_with_the_run_and_without_what_people_wrote(suite: Suite, tmp_path: Path) -> None:
    text = f"# The {IN_DOCUMENT} guide\n\nA {IN_DOCUMENT} backup is kept for 30 days in the vault.\n"
    write_files(tmp_path, {"d/page.md": text, "d/broken.md": f"{IN_DOCUMENT}\0"})
    assert suite.errata("ingest", "d", "--collection", "logged", cwd=tmp_path).code == 1
    question = f"How long is a {IN_DOCUMENT} {IN_QUESTION} backup kept?"
    draft = f"A {IN_DOCUMENT} backup is kept for 30 days. Set `{IN_DRAFT}=9` to burn it."
    asked = [
        suite.errata("ask", question, "--collection", "logged", "--json"),
        suite.errata("ask", question, "--collection", "logged", "--json", "--draft", "-", stdin=draft),
        suite.errata("ask", f"{IN_QUESTION}?", "--collection", "logged", "--json"),
        suite.errata("ask", question, "--collection", "nowhere", "--json"),
    ]
    assert [done.code for done in asked] == [0, 0, 3, 1], [done.err for done in asked]
    run_ids = [run_id_of(done.out) for done in asked]

    def ended() -> list[dict[str, Any]]:
        return [entry for entry in suite.entries("orchestrator") if entry["event"] == "run_finished"]

    eventually(lambda: set(run_ids) <= {entry.get("run_id") for entry in ended()}, 5, "each run's end is in the log")
    for entry in suite.entries():
        assert {"time", "level", "event", "service"} <= set(entry), entry
    for name in ("retriever", "judge", "generator"):
        calls = [entry for entry in suite.entries(name) if entry["event"] == "call" and entry.get("run_id") == run_ids[0]]
        assert calls, name
        assert all(entry["code"] == "OK" for entry in calls)
    outcomes = {entry["run_id"]: entry["outcome"] for entry in ended()}
    assert [outcomes[run_id] for run_id in run_ids] == [
        "ANSWERED",
        "ANSWERED_AFTER_REFINEMENT",
        "REFUSED_NO_EVIDENCE",
        "FAILED",
    ]
    told = [line for _, line in suite.log if any(word in line for word in (IN_DOCUMENT, IN_QUESTION, IN_DRAFT))]
    assert told == []


def test_a_data_folder_that_another_suite_holds_is_one_sentence(suite: Suite) -> None:
    port = free_row(2 * len(SERVICES))
    ports = ("--port", str(port), "--metrics-port", str(port + len(SERVICES)))
    done = errata("up", "--data-dir", str(suite.plan.data_dir), *ports, timeout=60)
    assert done.code == 1
    assert done.complaint.startswith("errata: ")
    assert len(done.complaint.splitlines()) == 1
    assert str(suite.plan.data_dir) in done.complaint
    assert "another process" in done.complaint
    assert "Errata is up" not in done.out
    assert {suite.health(name) for name in SERVICES} == {"SERVING"}
