"""What `errata compose` asks for, and what it finds out before it asks."""

from pathlib import Path

import pytest
from errata.orchestrator.v1 import orchestrator_service_pb2 as pb2
from typer.testing import CliRunner

from errata_cli import compose
from errata_cli.app import app
from errata_cli.inputs import Start
from errata_cli.terminal import ExitCode

NOWHERE = ("--orchestrator", "127.0.0.1:1")


def test_all_of_it_is_sent() -> None:
    limits = compose.Limits(overall_threshold=0.9, max_revisions=0, top_k=7)
    task = compose.Task(
        "Write.",
        "docs",
        criteria=("clarity=0.9", "tone:Friendly."),
        limits=limits,
        where=("team=search",),
        require_approval=True,
        start=Start(max_cost="1", keep_going=True),
    )
    request = compose.request_for(task, "Write.", "A draft.")
    assert (request.task, request.collection, request.draft, request.require_approval) == ("Write.", "docs", "A draft.", True)
    assert [item.name for item in request.criteria] == ["clarity", "tone"]
    assert request.settings.HasField("max_revisions")
    assert not request.settings.HasField("faithfulness_threshold")
    assert request.filter.all_of.filters[0].condition.field == "metadata.team"
    assert request.max_cost_micros == 1_000_000
    assert request.on_disconnect == pb2.ON_DISCONNECT_CONTINUE


def test_defaults_are_left_to_the_service() -> None:
    request = compose.request_for(compose.Task("Write."), "Write.", "")
    assert request == pb2.ComposeRequest(task="Write.", settings=request.settings, on_disconnect=pb2.ON_DISCONNECT_CANCEL)
    assert not request.settings.ListFields()


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("-", "--draft", "-"), "can't both come from standard input"),
        (("Write.", "--output", "no-such-folder/text.md"), "in a folder that exists"),
        (("Write.", "--criterion", "clarity=high"), "--criterion clarity=high"),
        (("Write.", "--max-cost", "much"), "--max-cost much"),
        (("Write.", "--as", "zoë"), "--as"),
        (("-",), "task -: is empty"),
    ],
)
def test_wrong_usage_is_found_before_anything_is_called(arguments: tuple[str, ...], why: str) -> None:
    result = CliRunner().invoke(app, ["compose", *arguments, *NOWHERE], input="")
    assert result.exit_code == ExitCode.USAGE
    assert why in result.stderr
    assert result.stdout == ""


def test_the_output_must_not_be_a_folder(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["compose", "Write.", "--output", str(tmp_path), *NOWHERE])
    assert result.exit_code == ExitCode.USAGE


def test_feedback_must_say_something() -> None:
    result = CliRunner().invoke(app, ["revise", "0" * 8, "  ", *NOWHERE])
    assert result.exit_code == ExitCode.USAGE
    assert "what is to be changed" in result.stderr
