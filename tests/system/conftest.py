"""Running suites for the system tests. One per xdist group, so that each worker starts it once."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.suite import Background, Suite, running_suite


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
    folder = tmp_path_factory.mktemp("corpus")
    write_corpus(folder)
    done = suite.errata("ingest", str(folder), "--collection", "tidepool")
    assert done.code == 0, done.err
    return "tidepool"


def write_corpus(folder: Path) -> None:
    """Write CORPUS as files."""
    for name, text in CORPUS.items():
        (folder / name).write_text(text, encoding="utf-8")
