"""Every RPC of every service has its role."""

import importlib
from pathlib import Path

import errata
import pytest
from google.protobuf.descriptor import FileDescriptor

from errata_kit.access.principals import Role
from errata_kit.access.roles import REQUIRED, required_role


def all_methods() -> set[str]:
    """The full names of all RPCs in all generated modules."""
    found = set[str]()
    for root in map(Path, errata.__path__):
        for path in root.rglob("*_pb2.py"):
            module = ".".join(("errata", *path.relative_to(root).with_suffix("").parts))
            file: FileDescriptor = importlib.import_module(module).DESCRIPTOR
            for service in file.services_by_name.values():
                found |= {f"/{service.full_name}/{method.name}" for method in service.methods}
    return found


def test_the_table_names_exactly_the_rpcs_that_there_are() -> None:
    methods = all_methods()
    assert len({method.split("/")[1] for method in methods}) == 4
    assert set(REQUIRED) == methods


@pytest.mark.parametrize(
    ("method", "role"),
    [
        ("/errata.orchestrator.v1.OrchestratorService/Ask", Role.ASK),
        ("/errata.retriever.v1.RetrieverService/IngestDocuments", Role.INGEST),
        ("/errata.retriever.v1.RetrieverService/DeleteCollection", Role.ADMIN),
        ("/errata.judge.v1.JudgeService/NotThoughtOf", Role.ADMIN),
        ("", Role.ADMIN),
    ],
)
def test_what_nobody_thought_of_needs_an_administrator(method: str, role: Role) -> None:
    assert required_role(method) is role


def test_whatever_changes_or_deletes_documents_needs_more_than_ask() -> None:
    changing = {method for method in REQUIRED if method.rpartition("/")[2].startswith(("Delete", "Ingest"))}
    assert len(changing) == 3
    assert Role.ASK not in {REQUIRED[method] for method in changing}
