"""`errata up` as a process: where it listens, how it ends, and what it says when it can't start."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from errata_cli.stack import SERVICES
from tests.harness.suite import Finished, alive, children_of, end, environment, errata, eventually, free_row

pytestmark = [pytest.mark.system, pytest.mark.xdist_group("up")]


class Up:
    """A running `errata up` with its output so far."""

    def __init__(self, data_dir: Path) -> None:
        self.port = free_row(2 * len(SERVICES))
        self.metrics_port = self.port + len(SERVICES)
        self.services: dict[str, int] = {}
        self.lines: list[str] = []
        self.errors: list[str] = []
        self.process = subprocess.Popen(
            [sys.executable, "-m", "errata_cli", *up_options(data_dir, self.port, self.metrics_port)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment({}),
            start_new_session=True,
        )
        self._readers = [
            threading.Thread(target=self._read, args=pair, daemon=True)
            for pair in ((self.process.stdout, self.lines), (self.process.stderr, self.errors))
        ]
        for reader in self._readers:
            reader.start()

    @staticmethod
    def _read(stream: Iterator[str], lines: list[str]) -> None:
        lines.extend(iter(stream))

    def until_up(self) -> dict[str, int]:
        """Wait until it says that it is up; the services' process ids."""
        eventually(lambda: "Errata is up.\n" in self.lines or self.process.poll() is not None, 45, "errata up")
        assert self.process.poll() is None, self.errors
        self.services = children_of(self.process.pid)
        return self.services

    def ended(self, seconds: float) -> Finished:
        """Wait for the end."""
        code = self.process.wait(seconds)
        for reader in self._readers:
            reader.join(5)
        return Finished(code, "".join(self.lines), "".join(self.errors))


def up_options(data_dir: Path, port: int, metrics_port: int) -> list[str]:
    return ["up", "--data-dir", str(data_dir), "--port", str(port), "--metrics-port", str(metrics_port)]


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Up]:
    started = Up(tmp_path / "data")
    try:
        yield started
    finally:
        end(started.process)
        for pid in started.services.values():
            # A test that found an orphan does not leave it behind.
            if alive(pid):
                os.kill(pid, signal.SIGKILL)
        for stream in (started.process.stdout, started.process.stderr):
            assert stream is not None
            stream.close()


def refused(tmp_path: Path, variables: dict[str, str | None]) -> Finished:
    """`errata up` that is expected to end by itself."""
    port = free_row(2 * len(SERVICES))
    return errata(*up_options(tmp_path / "data", port, port + len(SERVICES)), variables=variables)


def test_it_says_where_it_listens_and_ctrl_c_ends_all_four(up: Up) -> None:
    started = time.monotonic()
    services = up.until_up()
    took = time.monotonic() - started
    assert sorted(services) == sorted(SERVICES)
    assert took < 30
    eventually(lambda: "Ctrl-C" in "".join(up.lines), 5, "the announcement is complete")
    text = "".join(up.lines)
    for number, name in enumerate(SERVICES):
        assert f"{name:<13} 127.0.0.1:{up.port + number}   metrics http://127.0.0.1:{up.metrics_port + number}/metrics" in text
    assert "errata ingest" in text
    assert "errata ask" in text
    assert "\x1b" not in text, "a pipe gets plain text"
    os.kill(up.process.pid, signal.SIGINT)
    done = up.ended(30)
    assert done.code == 0, done.err
    assert {name: alive(pid) for name, pid in services.items()} == dict.fromkeys(services, False)
    assert "Traceback" not in done.out + done.err
    for name in SERVICES:
        assert any(line.startswith(name) and '"stopped"' in line for line in up.lines), f"the {name} was ended in order"


def test_when_it_is_killed_no_service_is_left(up: Up) -> None:
    services = up.until_up()
    os.kill(up.process.pid, signal.SIGKILL)
    up.process.wait(5)
    # The services look for their parent every second, and drain for half a second.
    eventually(lambda: not any(map(alive, services.values())), 4, f"the services have ended: {services}")


def test_a_service_that_dies_ends_the_suite_with_a_sentence(up: Up) -> None:
    services = up.until_up()
    os.kill(services["judge"], signal.SIGKILL)
    done = up.ended(30)
    assert done.code == 1
    assert done.complaint == "errata: The judge ended with exit code -9; its log says why."
    assert not any(map(alive, services.values()))


@pytest.mark.parametrize(("kind", "option"), [("gRPC", "--port"), ("metrics", "--metrics-port")])
def test_a_taken_port_is_one_sentence(tmp_path: Path, kind: str, option: str) -> None:
    port = free_row(2 * len(SERVICES))
    ports = {"gRPC": port, "metrics": port + len(SERVICES)}
    with socket.socket() as other:
        other.bind(("127.0.0.1", ports[kind] + 2))
        other.listen()
        done = errata(*up_options(tmp_path, ports["gRPC"], ports["metrics"]), timeout=20)
    assert done.code == 1
    sentence = f"Port {ports[kind] + 2} is taken; the judge needs it for {kind}. Choose others with {option}."
    assert done.complaint == f"errata: {sentence}"


@pytest.mark.parametrize(
    ("variable", "value", "sentence"),
    [
        ("JUDGE_CONCURENCY", "3", "JUDGE_CONCURENCY is not a setting. Settings with this prefix: JUDGE_BATCH_SIZE, JUDGE_C"),
        ("JUDGE_CONCURRENCY", "abc", "JUDGE_CONCURRENCY (it is 'abc'): input should be a valid integer"),
        (
            "RETRIEVER_EMBEDDING_PROVIDER",
            "openai",
            "RETRIEVER_EMBEDDING_PROVIDER=openai needs OPENAI_API_KEY or OPENAI_BASE_URL",
        ),
        ("ERRATA_LLM_PROVIDER", "openai", "ERRATA_LLM_PROVIDER=openai needs OPENAI_API_KEY or OPENAI_BASE_URL"),
    ],
)
def test_an_impossible_setting_is_one_sentence_that_names_it(tmp_path: Path, variable: str, value: str, sentence: str) -> None:
    done = refused(tmp_path, {variable: value})
    assert done.code == 1
    assert done.complaint.startswith("errata: ")
    assert sentence in done.complaint
    assert len(done.complaint.splitlines()) == 1
    assert "Traceback" not in done.out


def test_a_service_alone_names_its_impossible_setting(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "services.judge"],
        env=environment({"JUDGE_PORT": "abc", "JUDGE_CONCURENCY": "3"}),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr.startswith("errata: JUDGE_PORT (it is 'abc'): input should be a valid integer")
    assert len(done.stderr.splitlines()) == 1
