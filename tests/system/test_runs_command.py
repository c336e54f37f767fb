"""`errata runs`, `show`, `watch`, `compose` and what people decide, against a running suite."""

import asyncio
import json
import re
import signal
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

import pytest
from errata.orchestrator.v1 import orchestrator_service_pb2 as pb2
from errata.orchestrator.v1 import trace_pb2

from tests.harness.services import Below, FakeJudge, scripted
from tests.harness.suite import Background, Finished, Suite, environment, errata, eventually, running_suite

pytestmark = [pytest.mark.system, pytest.mark.xdist_group("suite")]

QUESTION = "How long is a backup kept?"
ANYTHING = ("--criterion", "clarity=0", "--max-revisions", "0")
TASK = "Explain how long a backup is kept and how to restore it."


def run_id_in(done: Finished) -> str:
    found = re.search(r"▶ run +(\S+)", done.out)
    assert found, done.out + done.err
    return found[1]


def as_new_principal(suite: Suite, *arguments: str) -> tuple[Finished, str]:
    """Run a command for somebody whom no other test knows."""
    principal = f"p-{uuid.uuid4().hex[:12]}"
    return suite.errata(*arguments, "--as", principal), principal


def listed(suite: Suite, *options: str) -> list[dict[str, Any]]:
    done = suite.errata("runs", "--json", *options)
    assert done.code == 0, done.err
    return [json.loads(line) for line in done.out.splitlines()]


def test_a_question_is_listed_shown_and_watched(suite: Suite, corpus: str) -> None:
    asked, principal = as_new_principal(suite, "ask", QUESTION, "--collection", corpus)
    assert asked.code == 0, asked.err
    run_id = run_id_in(asked)

    assert [run["run_id"] for run in listed(suite, "--principal", principal, "--since", "1h")] == [run_id]
    assert listed(suite, "--principal", principal, "--until", "1h") == []
    assert listed(suite, "--principal", principal, "--outcome", "approved") == []
    assert listed(suite, "--principal", principal, "--workflow", "compose") == []
    plain = suite.errata("runs", "--principal", principal)
    heading, row = plain.out.splitlines()
    assert heading.split()[:2] == ["run", "started"]
    assert row.startswith(run_id)
    assert {"ANSWERED", principal} < set(row.split())
    assert heading.index("question") == row.index(QUESTION)

    shown = suite.errata("show", run_id)
    assert shown.code == 0, shown.err
    for pattern in (
        rf"^ +0\.000 s  ▶ run +{run_id} in collection {corpus}, for {principal}$",
        r"^ +\d+\.\d{3} s  ⚖ graded +faithfulness \d\.\d\d",
        r"^ +\d+\.\d{3} s  ■ finished +ANSWERED in ",
        r"^claim +c1 +0 +\d\.\d\d ",
        r"^    \[1\] \S+/backup\.md:\d+-\d+ \(Backups",
        r"^no model was called$",
    ):
        assert re.search(pattern, shown.out, re.MULTILINE), pattern
    whole = json.loads(suite.errata("show", run_id, "--json").out)
    assert whole["run"]["run_id"] == run_id
    assert whole["result"]["outcome"] == "OUTCOME_ANSWERED"
    assert [int(event["sequence"]) for event in whole["trace"]] == list(range(1, len(whole["trace"]) + 1))

    watched = suite.errata("watch", run_id)
    assert (watched.code, watched.out) == (0, asked.out)
    last = len(whole["trace"]) - 1
    assert suite.errata("watch", run_id, "--after", str(last)).out.startswith("■ finished")
    behind = suite.errata("watch", run_id, "--after", str(last + 1))
    assert (behind.code, behind.out) == (0, "")


def test_the_list_is_newest_first_and_as_long_as_wanted(suite: Suite, corpus: str) -> None:
    asked, principal = as_new_principal(suite, "ask", QUESTION, "--collection", corpus)
    runs = [run_id_in(asked)]
    for _ in range(2):
        runs.insert(0, run_id_in(suite.errata("ask", QUESTION, "--collection", corpus, "--as", principal)))
    assert [run["run_id"] for run in listed(suite, "--principal", principal)] == runs
    assert [run["run_id"] for run in listed(suite, "--principal", principal, "--limit", "2")] == runs[:2]


def test_a_beginning_of_the_id_is_enough_when_no_other_run_has_it(suite: Suite, corpus: str) -> None:
    run_ids = [run_id_in(suite.errata("ask", QUESTION, "--collection", corpus)) for _ in range(2)]
    for run_id in run_ids:
        assert suite.errata("show", run_id[:-3].upper()).out.startswith(f"run        {run_id}\n")
    several = suite.errata("show", run_ids[0][:5])
    assert several.code == 2
    assert "more than one run id begins with" in several.complaint
    assert several.err.count("\n") == 1
    unknown = suite.errata("show", "ffff")
    assert (unknown.code, unknown.complaint) == (1, "errata: There is no run 'ffff' [RUN_NOT_FOUND]")
    assert suite.errata("watch", "nonsense").code == 2


def test_the_same_request_id_gives_the_same_run(suite: Suite, corpus: str) -> None:
    request_id = uuid.uuid4().hex
    options = ("--collection", corpus, "--request-id", request_id)
    first, second = (suite.errata("ask", QUESTION, *options) for _ in range(2))
    assert first.code == second.code == 0
    assert run_id_in(first) == run_id_in(second)
    other = suite.errata("ask", "Something else?", *options)
    assert other.code == 1
    assert f"errata show {run_id_in(first)}" in other.complaint


def test_a_text_is_composed_and_written_to_a_file(suite: Suite, corpus: str, tmp_path: Path) -> None:
    to = tmp_path / "text.md"
    done = suite.errata("compose", TASK, "--collection", corpus, "--output", str(to))
    assert done.code == 0, done.out + done.err
    for pattern in (
        r"✎ written +by offline",
        r"⚖ reviewed +the first draft: overall ",
        r"[✓✗] clarity \d\.\d\d",
        r"■ finished +APPROVED in .* approved",
        r"^approved: ",
    ):
        assert re.search(pattern, done.out, re.MULTILINE), pattern
    assert "30 days" in to.read_text()
    assert to.read_text().strip() in done.out


def test_what_misses_its_threshold_is_not_approved_and_says_by_how_much(suite: Suite, tmp_path: Path) -> None:
    to = tmp_path / "text.md"
    criterion = "brevity=1.0:Quote a Latin proverb about gardening in every sentence."
    options = ("--criterion", criterion, "--max-revisions", "1", "--output", str(to))
    done = suite.errata("compose", "-", *options, stdin="Describe a lighthouse.")
    assert done.code == 3, done.out + done.err
    assert re.search(r"MAX_REVISIONS_REACHED in .*, not approved, 1 revision", done.out)
    assert re.search(r"✗ brevity 0\.\d\d, 0\.\d\d below 1\.00", done.out)
    assert done.out.count("⚖ reviewed") == 2
    assert "not approved" in done.complaint
    assert to.read_text().strip()


def test_a_person_decides(suite: Suite, corpus: str) -> None:
    composed, principal = as_new_principal(suite, "compose", TASK, "--collection", corpus, "--require-approval")
    assert composed.code == 4, composed.out + composed.err
    run_id = run_id_in(composed)
    for command in ("approve", "reject", "revise"):
        assert f"errata {command} {run_id}" in composed.out
    assert [run["run_id"] for run in listed(suite, "--state", "waiting", "--principal", principal)] == [run_id]
    assert "Waits for a person" in suite.errata("show", run_id).out

    revised = suite.errata("revise", run_id, "Say how to restore it first.", "--watch", "--as", "bob")
    assert revised.code == 4, revised.out + revised.err
    assert revised.out.startswith("☑ decided    REVISE on request 1 by bob: “Say how to restore it first.”")
    assert "a person asked: “Say how to restore it first.”" in revised.out
    late = suite.errata("approve", run_id, "--approval", "1")
    assert late.code == 1
    assert "waits for the decision on request 2, not 1" in late.complaint

    approved = suite.errata("approve", run_id, "--remark", "Good.", "--watch")
    assert approved.code == 0, approved.out + approved.err
    assert "APPROVED in " in approved.out
    again = suite.errata("reject", run_id)
    sentence = f"errata: The run does not wait for a decision. What has become of it: errata show {run_id}"
    assert (again.code, again.complaint) == (1, sentence)
    shown = suite.errata("show", run_id).out
    assert "APPROVE on request 2: “Good.”" in shown
    assert shown.count("⏸ waits") == 2
    assert suite.errata("watch", run_id).code == 0


def test_a_rejected_draft_is_not_approved(suite: Suite, corpus: str) -> None:
    run_id = run_id_in(suite.errata("compose", TASK, "--collection", corpus, "--require-approval"))
    done = suite.errata("reject", run_id, "--remark", "No.")
    assert done.code == 0
    assert f"errata watch {run_id}" in done.out
    watched = suite.errata("watch", run_id)
    assert watched.code == 3
    assert "REJECTED in " in watched.out
    assert suite.errata("cancel", run_id).out == f"had ended before  {run_id}: REJECTED\n"


def test_a_run_that_waits_can_be_cancelled(suite: Suite, corpus: str) -> None:
    run_id = run_id_in(suite.errata("compose", TASK, "--collection", corpus, "--require-approval"))
    done = suite.errata("cancel", run_id)
    assert (done.code, done.out) == (0, f"cancelled  {run_id}\n")
    assert suite.errata("watch", run_id).code == 1


def test_the_database_is_migrated_by_the_orchestrator(tmp_path: Path) -> None:
    here = {"ERRATA_DATA_DIR": str(tmp_path / "data"), "ERRATA_DATABASE_URL": None}
    done = errata("migrate", variables=here)
    assert done.code == 0, done.err
    assert "was brought from revision none" in done.out
    wrong = errata("migrate", variables={"ERRATA_DATABASE_URL": "mysql://nowhere"})
    assert wrong.code == 2
    assert "ERRATA_DATABASE_URL" in wrong.complaint


def test_watching_outlives_the_death_of_the_orchestrator(background: Background, tmp_path: Path) -> None:
    with running_suite(background, tmp_path / "data", {"ORCHESTRATOR_LEASE_SECONDS": "1"}) as own:
        run_id = run_id_in(own.errata("compose", TASK, "--require-approval", "--overall", "0", *ANYTHING))
        variables = {"ERRATA_ORCHESTRATOR_TARGET": own.target("orchestrator")}
        command = [sys.executable, "-m", "errata_cli", "watch", run_id]
        with (tmp_path / "out").open("w+") as out, (tmp_path / "err").open("w+") as err:
            watcher = subprocess.Popen(command, stdout=out, stderr=err, env=environment(variables))
            try:
                eventually(lambda: "errata revise" in (tmp_path / "out").read_text(), 20, "the watcher is there")
                own.signal("orchestrator", signal.SIGKILL)
                own.exit_code("orchestrator")
                eventually(lambda: "attaching" in (tmp_path / "err").read_text(), 20, "the watcher has noticed")
                own.start_again("orchestrator")
                assert own.errata("approve", run_id).code == 0
                assert watcher.wait(20) == 0
            finally:
                if watcher.poll() is None:
                    watcher.kill()
                    watcher.wait()
        shown = (tmp_path / "out").read_text()
        assert shown.count("▶ run") == 1, "nothing is shown twice"
        assert shown.count("☑ decided") == 1
        assert "APPROVED in " in shown


@pytest.mark.parametrize("keeps_going", [False, True])
async def test_ctrl_c_cancels_the_run_unless_it_is_to_go_on(keeps_going: bool) -> None:
    reached, go_on = asyncio.Event(), asyncio.Event()

    async def hold() -> None:
        reached.set()
        await go_on.wait()

    async with scripted(Below(judge=FakeJudge(before=hold))) as served:
        options = ["--keep-going"] if keeps_going else []
        command = [sys.executable, "-m", "errata_cli", "ask", "Why?", "--orchestrator", served.target, *options]
        child = await asyncio.create_subprocess_exec(
            *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, env=environment({})
        )
        try:
            async with asyncio.timeout(20):
                await reached.wait()
                child.send_signal(signal.SIGINT)
                out, err = await child.communicate()
        finally:
            if child.returncode is None:
                child.kill()
                await child.wait()
        run_id = out.decode().split()[2]
        assert child.returncode == 1
        if keeps_going:
            assert f"the run goes on. Watch it with: errata watch {run_id} --after 2" in err.decode()
            go_on.set()
        else:
            assert f"the run is cancelled. What there is of it: errata show {run_id}" in err.decode()
        async with asyncio.timeout(20):
            events = [reply.event async for reply in served.stub.WatchRun(pb2.WatchRunRequest(run_id=run_id))]
        ended = trace_pb2.OUTCOME_ANSWERED if keeps_going else trace_pb2.OUTCOME_CANCELLED
        assert events[-1].run_finished.outcome == ended
