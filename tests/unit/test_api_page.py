"""The API guide has an example for every RPC, in Python and with grpcurl, and its Python examples do what it shows."""

import ast
import contextlib
import inspect
import io
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from errata.generator.v1 import generator_service_pb2
from errata.judge.v1 import judge_service_pb2
from errata.orchestrator.v1 import orchestrator_service_pb2
from errata.retriever.v1 import retriever_service_pb2

from errata_client import ErrataClient, Targets
from errata_client.generator import Generator
from errata_client.judge import Judge
from errata_client.retriever import Retriever
from tests.harness import services
from tests.system.test_grpcurl_page import first_missing

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = (DOCS / "api.md").read_text(encoding="utf-8")
_FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_OF_SERVICE: list[tuple[Any, str, type]] = [
    (orchestrator_service_pb2, "errata.", ErrataClient),
    (retriever_service_pb2, "errata.retriever.", Retriever),
    (judge_service_pb2, "errata.judge.", Judge),
    (generator_service_pb2, "errata.generator.", Generator),
]


@dataclass(frozen=True, slots=True)
class Rpc:
    """An RPC, and the method of the client that calls it. prefix: what stands before the method in an example."""

    service: str
    name: str
    prefix: str
    owner: type

    @property
    def method(self) -> str:
        return re.sub(r"(?<!^)(?=[A-Z])", "_", self.name).lower()


def rpcs() -> list[Rpc]:
    return [
        Rpc(service.name, method.name, prefix, owner)
        for module, prefix, owner in _OF_SERVICE
        for service in module.DESCRIPTOR.services_by_name.values()
        for method in service.methods
    ]


def sections(page: str) -> dict[str, str]:
    """The page's sections of the third level by their heading."""
    parts = re.split(r"^#{2,3} (.+)$", page, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


@pytest.mark.parametrize("rpc", rpcs(), ids=lambda rpc: str(rpc.name))
def test_every_rpc_has_an_example_in_both_languages(rpc: Rpc) -> None:
    assert inspect.isfunction(getattr(rpc.owner, rpc.method, None)), f"the client lacks {rpc.method}"
    section = sections(PAGE)[rpc.name]
    python = "".join(text for kind, text in _FENCE.findall(section) if kind == "python")
    assert f"{rpc.prefix}{rpc.method}(" in python
    assert f"(grpcurl.md#{rpc.name.lower()})" in section
    there = sections((DOCS / "grpcurl.md").read_text(encoding="utf-8"))[rpc.name]
    assert f"{rpc.service}/{rpc.name}" in there


def test_it_is_about_every_rpc() -> None:
    assert len(rpcs()) >= 21


@contextlib.asynccontextmanager
async def suite(folder: Path) -> AsyncIterator[Targets]:
    """The four services, offline, in this process."""
    async with (
        services.retriever(folder) as retriever,
        services.judge() as judge,
        services.generator() as generator,
        services.orchestrator(retriever.target, judge.target, generator.target) as orchestrator,
    ):
        yield Targets(orchestrator.target, retriever.target, judge.target, generator.target)


async def run(code: str, names: dict[str, Any]) -> str:
    """Run an example, with await outside of functions, and return what it prints."""
    compiled = compile(code, "docs/api.md", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        # The page is ours.
        result = eval(compiled, names)  # noqa: S307
        if inspect.isawaitable(result):
            await result
    return printed.getvalue()


async def test_the_python_examples_do_what_the_page_shows(tmp_path: Path) -> None:
    blocks = _FENCE.findall(PAGE)
    problems = []
    async with suite(tmp_path) as targets, ErrataClient(targets) as errata:
        names: dict[str, Any] = {"errata": errata}
        for position, (kind, code) in enumerate(blocks):
            if kind == "text":
                continue
            assert kind == "python", f"a block of {kind} on the page is neither run nor compared"
            opening = "asyncio.run(main())"
            printed = await run(code.replace(opening, "await main()"), names)
            following = blocks[position + 1] if position + 1 < len(blocks) else ("", "")
            missing = first_missing(following[1], printed) if following[0] == "text" else ""
            if missing:
                problems.append(f"not printed: {missing!r}\n{code}\nprinted:\n{printed}")
    assert not problems, "\n\n".join(problems)
