"""Running suites for the system tests. One per xdist group, so that each worker starts it once."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.harness import replicas
from tests.harness.model_server import ModelServer
from tests.harness.postgres import PostgresServer, postgres_server
from tests.harness.suite import Background, Suite, running_suite, write_files


@pytest.fixture(scope="session")
def background() -> Iterator[Background]:
    """A loop for child processes and servers."""
    with Background() as loop:
        yield loop


@pytest.fixture(scope="session")
def suite(background: Background, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Suite]:
    """An offline suite that every test of the group `suite` shares: use a collection of your own, and end no service."""
    with running_suite(background, tmp_path_factory.mktemp("suite")) as running:
        yield running


CORPUS = {
    "backup.md": """# Backups

A backup is made every night at 02:00 and is kept for 30 days. Set `backup.retention_days` to keep it longer.

## Restoring

To restore a backup, stop the service and run `tidepool restore --from NAME`.
""",
    "limits.md": """# Upload limits

An upload may have at most 64 MiB. A larger one is refused with status 413.
""",
    "users.md": """# Accounts

An administrator creates an account with `tidepool user add NAME`. A password must have at least 12 characters.
""",
}


@pytest.fixture(scope="session")
def corpus(suite: Suite, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The name of a collection that holds CORPUS; tests only read it."""
    return ingest_corpus(suite, tmp_path_factory.mktemp("corpus"))


@dataclass(frozen=True, slots=True)
class ModelSuite:
    """A suite whose language and embedding model is the double, with CORPUS in `collection`."""

    suite: Suite
    server: ModelServer
    collection: str

    @property
    def background(self) -> Background:
        """The loop that the double runs in."""
        return self.suite.background


@pytest.fixture(scope="session")
def model_suite(background: Background, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModelSuite]:
    """A suite of the group `models`. A test that ends a service starts it again; one that sets rules takes them away."""
    server = ModelServer()
    background.run(server.__aenter__())
    try:
        variables = {
            "ERRATA_LLM_PROVIDER": "openai",
            "ERRATA_CACHE_ENTRIES": "0",
            "RETRIEVER_EMBEDDING_PROVIDER": "openai",
            "OPENAI_BASE_URL": server.base_url,
            "ERRATA_DRAIN_PAUSE_SECONDS": "1.0",
        }
        with running_suite(background, tmp_path_factory.mktemp("models"), variables) as running:
            yield ModelSuite(running, server, ingest_corpus(running, tmp_path_factory.mktemp("corpus")))
    finally:
        background.run(server.__aexit__(None, None, None))


def ingest_corpus(suite: Suite, folder: Path) -> str:
    """Ingest CORPUS, and return the collection's name."""
    write_files(folder, CORPUS)
    done = suite.errata("ingest", str(folder), "--collection", "tidepool")
    assert done.code == 0, done.err
    return "tidepool"


@pytest.fixture(scope="session")
def nursery(tmp_path_factory: pytest.TempPathFactory) -> Iterator[replicas.Nursery]:
    """Starts replicas of the orchestrator."""
    with replicas.nursery(tmp_path_factory.mktemp("replicas")) as ready:
        yield ready


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A private PostgreSQL; tests that want one are skipped where there is none."""
    with postgres_server() as server:
        yield server
