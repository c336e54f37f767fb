"""docs/grpcurl.md: its commands are run as they stand there, and print what it says."""

import os
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from grpc_reflection.v1alpha import reflection_pb2

from errata_cli.stack import SERVICES
from tests.harness.suite import BIN, Suite, environment

pytestmark = [pytest.mark.system, pytest.mark.xdist_group("suite")]

PAGE = Path(__file__).parents[2] / "docs" / "grpcurl.md"
_FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_REFLECTION = {version: f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo" for version in ("v1", "v1alpha")}


@dataclass(frozen=True, slots=True)
class Step:
    """A block of commands, and the output that the page shows for it."""

    commands: str
    shown: str


def steps_of(page: str) -> list[Step]:
    """The page's blocks of commands, each with the block of output behind it."""
    blocks = _FENCE.findall(page)
    steps = []
    for position, (kind, text) in enumerate(blocks):
        if kind == "text":
            continue
        assert kind in {"bash", "console"}, f"a block of {kind} on the page is neither run nor compared"
        following = blocks[position + 1] if position + 1 < len(blocks) else ("", "")
        assert following[0] == "text", f"the page shows no output for:\n{text}"
        steps.append(Step(text, following[1]))
    return steps


def first_missing(shown: str, printed: str) -> str:
    """The first line that the page shows and that was not printed, in order; … stands for anything."""
    rest = printed.splitlines()
    for line in shown.splitlines():
        if line.strip() == "…":
            continue
        pattern = re.compile(".*".join(re.escape(part) for part in line.rstrip().split("…")))
        place = next((number for number, candidate in enumerate(rest) if pattern.fullmatch(candidate.rstrip())), None)
        if place is None:
            return line
        rest = rest[place + 1 :]
    return ""


def on_ports_of(suite: Suite, commands: str) -> str:
    """The commands with the page's default ports mapped to the suite's; nothing else changes."""
    mapped = {50051 + number: suite.plan.ports[name] for number, name in enumerate(SERVICES)}
    mapped |= {9091 + number: suite.plan.metrics_ports[name] for number, name in enumerate(SERVICES)}
    return re.sub(r"127\.0\.0\.1:(\d+)", lambda found: f"127.0.0.1:{mapped[int(found[1])]}", commands)


def run_page(suite: Suite, steps: list[Step], folder: Path) -> list[tuple[int, str]]:
    """Run all blocks in one shell, so that variables stay; exit code and output of each."""
    script = ["set -o pipefail"]
    for number, step in enumerate(steps):
        script += [
            "{ set -e",
            on_ports_of(suite, step.commands),
            f"}} > {number}.out 2>&1",
            "set +e",
            f"echo 0 > {number}.code",
        ]
    path = {"PATH": f"{BIN}:{os.environ.get('PATH', '')}"}
    subprocess.run(
        ["bash", "-c", "\n".join(script)],
        cwd=folder,
        env=environment(path),
        timeout=90,
        check=False,
        capture_output=True,
        stdin=subprocess.DEVNULL,
    )
    results = []
    for number in range(len(steps)):
        out = folder / f"{number}.out"
        code = 0 if (folder / f"{number}.code").exists() else 1
        results.append((code, out.read_text(encoding="utf-8") if out.exists() else "it was not reached"))
    return results


def reflect(suite: Suite, service: str, version: str, request: Any) -> Any:
    """One reflection request, sent by hand: grpcurl speaks v1alpha only."""
    with suite.channel(service) as channel:
        call = channel.stream_stream(
            _REFLECTION[version],
            request_serializer=reflection_pb2.ServerReflectionRequest.SerializeToString,
            response_deserializer=reflection_pb2.ServerReflectionResponse.FromString,
        )
        return next(iter(call(iter([request]), timeout=5)))


def rpcs_of(suite: Suite, service: str, version: str) -> Iterator[str]:
    """package.Service/Method of every RPC that reflection knows, health and reflection left out."""
    from google.protobuf import descriptor_pb2

    listed = reflect(suite, service, version, reflection_pb2.ServerReflectionRequest(list_services=""))
    for entry in listed.list_services_response.service:
        if entry.name.startswith("grpc."):
            continue
        request = reflection_pb2.ServerReflectionRequest(file_containing_symbol=entry.name)
        answer = reflect(suite, service, version, request)
        for packed in answer.file_descriptor_response.file_descriptor_proto:
            file = descriptor_pb2.FileDescriptorProto.FromString(packed)
            for found in file.service:
                yield from (f"{file.package}.{found.name}/{method.name}" for method in found.method)


def test_the_commands_run_and_print_what_the_page_shows(suite: Suite, tmp_path: Path) -> None:
    steps = steps_of(PAGE.read_text(encoding="utf-8"))
    problems = []
    for step, (code, printed) in zip(steps, run_page(suite, steps, tmp_path), strict=True):
        missing = first_missing(step.shown, printed)
        if code or missing:
            problems.append(f"exit code {code}, not printed: {missing!r}\n{step.commands}\nprinted:\n{printed}")
    assert not problems, "\n\n".join(problems)


def test_the_page_calls_every_rpc(suite: Suite) -> None:
    commands = "\n".join(step.commands for step in steps_of(PAGE.read_text(encoding="utf-8")))
    rpcs = [rpc for service in SERVICES for rpc in rpcs_of(suite, service, "v1")]
    assert len(rpcs) >= 21
    assert [rpc for rpc in rpcs if not re.search(rf"{re.escape(rpc)}(?!\w)", commands)] == []


@pytest.mark.parametrize("service", SERVICES)
def test_both_versions_of_reflection_say_the_same(suite: Suite, service: str) -> None:
    request = reflection_pb2.ServerReflectionRequest(list_services="")
    listed = {
        version: sorted(entry.name for entry in reflect(suite, service, version, request).list_services_response.service)
        for version in _REFLECTION
    }
    assert listed["v1"] == listed["v1alpha"]
    assert f"errata.{service}.v1.{service.capitalize()}Service" in listed["v1"]
    assert list(rpcs_of(suite, service, "v1")) == list(rpcs_of(suite, service, "v1alpha")) != []


def test_an_output_that_the_page_does_not_show_is_noticed() -> None:
    assert first_missing("a\n…\nb: …", "a\nx\nb: 1") == ""
    assert first_missing("a\nb", "b\na") == "b"
    assert first_missing('"score": 0.9…', '"score": 0.1') == '"score": 0.9…'
