"""A model server, the suite in front of it, and a grader of clients: what `make test-llm` starts."""

from __future__ import annotations

import json
import os
import subprocess
import threading
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import pytest

from tests.harness.suite import Background, Suite, running_suite, write_files
from tests.llm.relay import Relay, relaying

ROOT: Final = Path(__file__).resolve().parent.parent.parent
# The environment that locks/llm.txt describes; the Makefile makes it.
BIN: Final = Path(os.environ.get("ERRATA_TEST_LLM_VENV", ROOT / ".venv-llm")) / "bin"
MODEL: Final = "smollm2-135m-instruct"
# Longest answer of the model: some seconds on one core.
MOST_TOKENS: Final = 250
_START_SECONDS: Final = 60.0

# Left alone, a model of this size writes numbers of sixteen digits and lists without end, and no run gets past its first step.
# So ends are made likelier: of strings, of lists, of numbers, of the text; and so is a "yes". What it says stays chance.
_END_OF_TURN: Final = 2
STEERED: Final[dict[str, Any]] = {
    "logit_bias": [
        [_END_OF_TURN, 6],
        *([text, 3] for text in ('"', '",', '."', '.",', '"}', "true", " true")),
        *([text, -8] for text in ("},", " },", "0", "1")),
        *([text, -20] for text in "23456789-"),
        [",", -4],
    ]
}


_ENDING: Final[dict[str, Any]] = {"logit_bias": [[_END_OF_TURN, 9], *STEERED["logit_bias"][1:]]}


def steered(request: Mapping[str, Any]) -> Mapping[str, Any]:
    """Sampling for every request. A text has no grammar that ends it: only its own end does."""
    return _ENDING if request.get("stream") else STEERED


def endless(request: Mapping[str, Any]) -> Mapping[str, Any]:
    """Sampling with which a text ends at the longest answer, and no sooner."""
    return {**STEERED, "ignore_eos": True} if request.get("stream") else STEERED


DOCUMENTS: Final = {
    "backup.md": "# Backups\n\nA backup is made every night at 02:00 and is kept for 30 days.\n",
    "limits.md": "# Upload limits\n\nAn upload may have at most 64 MiB.\n",
}


@dataclass(frozen=True, slots=True)
class ModelSuite:
    """A suite whose language model is a real one, behind a relay, with DOCUMENTS in `collection`."""

    suite: Suite
    relay: Relay
    model_url: str
    collection: str

    @property
    def background(self) -> Background:
        """The loop that the relay runs in."""
        return self.suite.background

    def writing(self) -> int:
        """How many answers the model server is writing right now."""
        with urllib.request.urlopen(f"http://{urlsplit(self.model_url).netloc}/slots", timeout=10) as reply:
            return sum(bool(slot["is_processing"]) for slot in json.load(reply))


class Server:
    """A process of the other environment that says its address in its output. Use it as a context manager."""

    def __init__(self, command: list[str], mark: str, log: Path) -> None:
        """mark: what ends before the host of the address. log: gets everything that the process writes."""
        self._command = command
        self._mark = mark
        self._log = log
        self._found = threading.Event()
        self.address = ""

    def __enter__(self) -> Server:
        if not BIN.is_dir():
            pytest.fail("The environment with the model is missing: run `make test-llm`.")
        self._process = subprocess.Popen(
            self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=ROOT
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        if not self._found.wait(_START_SECONDS) or not self.address:
            self.__exit__()
            pytest.fail(f"{self._command[1]} did not start: {self._log.read_text()[-2000:]}")
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        try:
            self._process.wait(15)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join(5)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    def _read(self) -> None:
        with self._log.open("w") as log:
            for line in self._process.stdout or ():
                log.write(line)
                log.flush()
                _, mark, rest = line.partition(self._mark)
                if mark and not self._found.is_set():
                    self.address = "http://" + rest.split()[0]
                    self._found.set()
        self._found.set()


@pytest.fixture(scope="session")
def background() -> Iterator[Background]:
    """A loop for child processes and servers."""
    with Background() as loop:
        yield loop


@pytest.fixture(scope="session")
def model_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The API of a small model, on this machine."""
    command = [str(BIN / "python"), "scripts/local_model.py", "--name", MODEL, "--max-tokens", str(MOST_TOKENS)]
    with Server(command, "http://", tmp_path_factory.mktemp("model") / "log") as server:
        yield server.address


@pytest.fixture(scope="session")
def model_suite(background: Background, model_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModelSuite]:
    """The four services with the model behind the openai provider."""
    block = relaying(model_url, steered)
    relay = background.run(block.__aenter__())
    try:
        variables = {
            "ERRATA_LLM_PROVIDER": "openai",
            "OPENAI_BASE_URL": relay.base_url,
            "JUDGE_MODEL": MODEL,
            "GENERATOR_MODEL": MODEL,
            "ERRATA_LLM_TIMEOUT_SECONDS": "300",
            "ERRATA_LLM_MAX_OUTPUT_TOKENS": str(MOST_TOKENS),
            "ORCHESTRATOR_RUN_TIMEOUT_SECONDS": "500",
        }
        with running_suite(background, tmp_path_factory.mktemp("suite"), variables) as running:
            folder = tmp_path_factory.mktemp("documents")
            write_files(folder, DOCUMENTS)
            done = running.errata("ingest", str(folder), "--collection", "small")
            assert done.code == 0, done.err
            yield ModelSuite(running, relay, model_url, "small")
    finally:
        background.run(block.__aexit__(None, None, None))


@pytest.fixture(scope="session")
def llmock_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """llmock, which fails on demand and grades what its clients make of it."""
    options = ["--port", "0", "--stream-chunk-delay-ms", "20"]
    with Server(
        [str(BIN / "llmock"), "serve", *options], "running on http://", tmp_path_factory.mktemp("llmock") / "log"
    ) as server:
        yield server.address
