"""deploy/Dockerfile and the locks that its images install. No image is built here: what can be read is read."""

import re
import runpy
import shlex
import subprocess
import tomllib
from pathlib import Path

import pytest

from tests.unit.deploy.pods import SETTINGS, Rendered

ROOT = Path(__file__).resolve().parents[3]
_PIN = re.compile(r"^([a-z0-9][a-z0-9._-]*)==(\S+)", re.MULTILINE)
_REQUIREMENT = re.compile(r"^([A-Za-z0-9._-]+)(?:\[([a-z,]+)\])?")


@pytest.fixture(scope="module")
def stages() -> list[list[tuple[str, str]]]:
    """The instructions of each stage; those before the first FROM come as a stage of their own."""
    text = re.sub(r"^#.*\n", "", (ROOT / "deploy/Dockerfile").read_text(encoding="utf-8"), flags=re.MULTILINE)
    lines = text.replace("\\\n", " ").splitlines()
    found: list[list[tuple[str, str]]] = [[]]
    for line in filter(str.strip, lines):
        name, _, rest = line.partition(" ")
        if name == "FROM":
            found.append([])
        found[-1].append((name, rest.strip()))
    return found


def pins(name: str) -> dict[tuple[str, str], str]:
    """A lock's entries: package and version to the whole entry, with marker and hashes."""
    entries = re.split(r"\n(?=[a-z0-9])", (ROOT / "locks" / f"{name}.txt").read_text(encoding="utf-8").strip())
    return {(match[1], match[2]): entry for entry in entries if (match := _PIN.match(entry))}


def wanted(extra: str) -> set[str]:
    """The packages that a service asks for itself: those of all, of its extra, and of the extras in it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    names: set[str] = set()
    for requirement in [*project["dependencies"], *project["optional-dependencies"][extra]]:
        match = _REQUIREMENT.match(requirement)
        assert match is not None
        if match[1] == "errata":
            names |= {name for inner in match[2].split(",") for name in wanted(inner)}
        else:
            names.add(match[1].lower().replace("_", "-"))
    return names


def test_stages_are_pinned_and_no_digest_is_invented(stages: list[list[tuple[str, str]]]) -> None:
    before, builder, final = stages
    assert before == [("ARG", 'PYTHON_DIGEST=""')]
    bases = [stage[0][1].split()[0] for stage in (builder, final)]
    assert bases[0] == bases[1]
    assert re.fullmatch(r"python:3\.11\.\d+-slim-bookworm\$\{PYTHON_DIGEST\}", bases[0])


def test_it_runs_as_the_user_of_the_manifests_without_a_shell(
    stages: list[list[tuple[str, str]]], rendered: dict[str, Rendered]
) -> None:
    final = dict(stages[-1])
    user, _, group = final["USER"].partition(":")
    for name in SETTINGS:
        context = rendered["base"].workloads[name].pod["securityContext"]
        assert (str(context["runAsUser"]), str(context["runAsGroup"])) == (user, group)
    assert final["CMD"] == '["python", "-m", "services"]'
    assert not {"RUN", "ENTRYPOINT", "ADD"} & {name for name, _ in stages[-1]}
    assert "PYTHONDONTWRITEBYTECODE=1" in final["ENV"]


def test_it_holds_one_service_only(stages: list[list[tuple[str, str]]]) -> None:
    copied = {source for name, rest in stages[1] if name == "COPY" for source in rest.split()[:-1]}
    assert copied == {
        "locks/${SERVICE}.txt",
        "errata_kit/",
        "gen/errata/",
        "services/__init__.py",
        "services/${SERVICE}/",
    }
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    assert ignored[1] == "*"
    for source in copied:
        assert any(source.startswith(line.removeprefix("!")) for line in ignored if line.startswith("!")), source


@pytest.mark.parametrize("name", SETTINGS)
def test_what_the_image_starts_is_the_service(
    name: str, stages: list[list[tuple[str, str]]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (command,) = [rest for kind, rest in stages[1] if kind == "RUN" and "printf" in rest]
    printf = command.split(" > ")[0].replace('"${SERVICE}"', name)
    written = subprocess.run(shlex.split(printf), capture_output=True, text=True, timeout=10, check=True).stdout
    launcher = tmp_path / "launcher.py"
    launcher.write_text(written, encoding="utf-8")
    started: list[tuple[str, str]] = []
    monkeypatch.setattr(runpy, "run_module", lambda module, run_name, alter_sys: started.append((module, run_name)))
    exec(compile(written, str(launcher), "exec"), {})  # noqa: S102 - the file that the image would run
    assert started == [(f"services.{name}", "__main__")]


def test_packages_are_installed_by_hash(stages: list[list[tuple[str, str]]]) -> None:
    (install,) = [rest for name, rest in stages[1] if name == "RUN" and "pip install" in rest]
    (step,) = [step for step in install.split("&&") if "pip install" in step]
    assert {"--require-hashes", "--no-deps", "--only-binary"} <= set(step.split())


@pytest.mark.parametrize("name", SETTINGS)
def test_a_services_lock_is_part_of_the_whole(name: str) -> None:
    own, whole = pins(name), pins("requirements")
    assert own
    for pin, entry in own.items():
        # The marker may be simpler where fewer packages ask for it; version and hashes are the same.
        assert pin in whole, pin
        assert set(re.findall(r"sha256:\w+", entry)) == set(re.findall(r"sha256:\w+", whole[pin])), pin
    assert wanted(name) <= {package for package, _ in own}


@pytest.mark.parametrize("name", SETTINGS)
def test_a_services_lock_has_nothing_of_others(name: str) -> None:
    installed = {package for package, _ in pins(name)}
    # What makes images large or talks to something that this service doesn't.
    heavy = {"langgraph", "alembic", "psycopg", "sqlalchemy", "qdrant-client", "qdrant-edge-py", "openai", "onnxruntime"}
    assert not (installed & heavy) - wanted(name)
    assert not {"typer", "rich", "pytest", "ruff", "mypy", "grpcio-tools", "kubernetes-validate"} & installed


def test_the_scanner_is_locked_by_hash() -> None:
    asked = (ROOT / "locks/policy.in").read_text(encoding="utf-8").split()
    scanner = pins("policy")
    assert asked
    for requirement in asked:
        package, _, version = requirement.partition("==")
        assert (package, version) in scanner
    assert all("--hash=sha256:" in entry for entry in scanner.values())


def test_the_locks_name_no_index() -> None:
    for name in (*SETTINGS, "policy"):
        assert "://" not in (ROOT / "locks" / f"{name}.txt").read_text(encoding="utf-8"), name
