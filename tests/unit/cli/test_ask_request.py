"""What the command line asks for, and what it makes of the end."""

import io
from pathlib import Path

import pytest
from errata.corpus.v1 import filter_pb2
from errata.orchestrator.v1 import orchestrator_service_pb2 as pb2
from typer.testing import CliRunner

from errata_cli import ask
from errata_cli.app import app
from errata_cli.inputs import Start, read_text
from errata_cli.terminal import ExitCode, UsageError
from errata_kit.search import SearchMode


def test_overrides_are_sent_and_defaults_are_left_to_the_service() -> None:
    limits = ask.Limits(top_k=3, faithfulness_threshold=0.0, mode=SearchMode.SPARSE)
    settings = ask.request_for(ask.Question("q", "c", limits=limits), "").settings
    assert settings.top_k == 3
    assert settings.HasField("faithfulness_threshold")
    assert not settings.HasField("max_retrievals")
    assert settings.search_mode == filter_pb2.SEARCH_MODE_SPARSE


def test_conditions_become_a_filter() -> None:
    request = ask.request_for(ask.Question("q", "c", where=("team=search", "document_id=a=b")), "")
    conditions = [part.condition for part in request.filter.all_of.filters]
    assert [(item.field, item.equals) for item in conditions] == [("metadata.team", "search"), ("document_id", "a=b")]
    assert not ask.request_for(ask.Question("q", "c"), "").HasField("filter")
    with pytest.raises(UsageError, match="KEY=VALUE"):
        ask.request_for(ask.Question("q", "c", where=("team",)), "")


def test_what_holds_for_every_run_is_sent() -> None:
    start = Start(request_id="r1", keep_going=True, max_cost="0.05", max_tokens=900)
    request = ask.request_for(ask.Question("q", "c", start=start), "")
    assert (request.request_id, request.max_cost_micros, request.max_tokens) == ("r1", 50_000, 900)
    assert request.on_disconnect == pb2.ON_DISCONNECT_CONTINUE
    plain = ask.request_for(ask.Question("q", "c"), "")
    assert plain.on_disconnect == pb2.ON_DISCONNECT_CANCEL
    assert not plain.HasField("max_cost_micros")
    assert not plain.HasField("max_tokens")
    assert not plain.verified_only


@pytest.mark.parametrize(("content", "why"), [(None, "no such file"), (b"\xff\xfe", "not UTF-8"), (b"  \n", "is empty")])
def test_a_draft_that_cannot_be_read_is_wrong_usage(tmp_path: Path, content: bytes | None, why: str) -> None:
    draft = tmp_path / "draft.txt"
    if content is not None:
        draft.write_bytes(content)
    # Nothing listens there: it must not get that far.
    result = CliRunner().invoke(app, ["ask", "q", "--draft", str(draft), "--orchestrator", "127.0.0.1:1"])
    assert result.exit_code == ExitCode.USAGE
    assert why in result.stderr


def test_a_draft_comes_from_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("An answer.\n"))
    assert read_text("-", "--draft") == "An answer."


def test_a_suite_that_is_down_is_one_sentence() -> None:
    result = CliRunner().invoke(app, ["ask", "q", "--orchestrator", "127.0.0.1:1", "--timeout", "5"])
    assert result.exit_code == ExitCode.FAILED
    assert result.stderr.strip().count("\n") == 0
    assert "127.0.0.1:1. Is the suite up?" in result.stderr


def test_verified_text_only_when_it_is_asked_for() -> None:
    assert ask.request_for(ask.Question("q", "docs", verified_only=True), "").verified_only
