"""Renders deploy/k8s, validates it offline, and runs the policy scanner; `make manifests` calls it.

What is rendered: the base, each overlay, and the base with each component alone. Each object is checked against the schemas
of two Kubernetes releases, with unknown fields refused, and the objects of cert-manager and the Prometheus operator against
deploy/schemas. The scanner (checkov) then reads the same files, and deploy/Dockerfile. No exception to its checks is made
here: each stands as an annotation or comment, with its reason, at what it is about.
"""

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

import jsonschema  # type: ignore[import-untyped]  # it has no types of its own
import kubernetes_validate.utils  # type: ignore[import-untyped]  # neither has this
import yaml

ROOT: Final = Path(__file__).resolve().parent.parent
K8S: Final = ROOT / "deploy" / "k8s"
SCHEMAS: Final = ROOT / "deploy" / "schemas"
DOCKERFILE: Final = ROOT / "deploy" / "Dockerfile"
BUILD: Final = ROOT / "build" / "manifests"
SCANNER: Final = ROOT / "build" / "policy"
SCANNER_LOCK: Final = ROOT / "locks" / "policy.txt"
# The oldest release where all that is used here is there without a feature gate, and the newest with schemas.
KUBERNETES: Final = ("1.31.0", "1.37.0")
_SECONDS: Final = 600

Manifest = dict[str, Any]


class ManifestsFailed(Exception):
    """Something can't be rendered, is not valid, or breaks a policy. The message says what."""


@dataclass(frozen=True, slots=True)
class Target:
    """Something to render: its name, and the folders that make it up. Only the base is wrapped in components."""

    name: str
    folder: Path
    components: tuple[Path, ...] = ()


@dataclass(frozen=True, slots=True)
class Scan:
    """What the scanner said of one framework: how much is good, what is not, and how often each exception was used."""

    framework: str
    passed: int
    failures: tuple[str, ...]
    skipped: Mapping[str, int]


def targets() -> list[Target]:
    """The base, the overlays, and the base with each component."""
    base = K8S / "base"
    overlays = [Target(f"overlay-{folder.name}", folder) for folder in _folders(K8S / "overlays")]
    components = [Target(f"component-{folder.name}", base, (folder,)) for folder in _folders(K8S / "components")]
    return [Target("base", base), *overlays, *components]


def render(target: Target) -> str:
    """What `kubectl kustomize` makes of a target, as YAML. Raises ManifestsFailed."""
    if not target.components:
        return _kustomize(target.folder)
    with tempfile.TemporaryDirectory() as scratch:
        # kustomize takes relative paths only.
        wrapper = {
            "apiVersion": "kustomize.config.k8s.io/v1beta1",
            "kind": "Kustomization",
            "namespace": "errata",
            "resources": [_relative(target.folder, scratch)],
            "components": [_relative(component, scratch) for component in target.components],
        }
        (Path(scratch) / "kustomization.yaml").write_text(yaml.safe_dump(wrapper), encoding="utf-8")
        return _kustomize(Path(scratch))


def objects(rendered: str) -> list[Manifest]:
    """The objects of a rendered file."""
    # The C parser is eight times as fast, and safe as well.
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return [document for document in yaml.load_all(rendered, Loader=loader) if document]


def faults(manifests: Iterable[Manifest]) -> list[str]:
    """What is wrong with objects, a sentence each: unknown and missing fields, wrong types, the same object twice."""
    listed = list(manifests)
    found = [f"{title(item)}: {fault}" for item in listed if (fault := _fault(json.dumps(item, sort_keys=True)))]
    counts = Counter(title(item) for item in listed)
    return found + [f"{name} is there {count} times" for name, count in counts.items() if count > 1]


def title(manifest: Manifest) -> str:
    """Kind and name of an object, for messages."""
    return f"{manifest.get('kind', '?')}/{manifest.get('metadata', {}).get('name', '?')}"


def parse_scan(framework: str, report: str) -> Scan:
    """Read the scanner's JSON. Raises ManifestsFailed when it checked nothing or could not read a file."""
    parsed = json.loads(report)
    part = parsed[0] if isinstance(parsed, list) else parsed
    if "results" not in part:
        raise ManifestsFailed(f"the policy scanner checked nothing with the framework {framework}")
    results = part["results"]
    if results["parsing_errors"]:
        raise ManifestsFailed(f"the policy scanner can't read {', '.join(results['parsing_errors'])}")
    failures = [f"{item['check_id']} {item['resource']}: {item['check_name']}" for item in results["failed_checks"]]
    skipped = Counter(f"{item['check_id']} {item['check_result']['suppress_comment']}" for item in results["skipped_checks"])
    # Most objects are in most files: once is enough.
    return Scan(framework, len(results["passed_checks"]), tuple(dict.fromkeys(failures)), skipped)


def _folders(parent: Path) -> list[Path]:
    return sorted(folder for folder in parent.iterdir() if (folder / "kustomization.yaml").is_file())


def _relative(folder: Path, start: str) -> str:
    return os.path.relpath(folder, Path(start).resolve())


def _kustomize(folder: Path) -> str:
    # Beside the interpreter: the wheel of the lock, and no other kubectl that the machine may have.
    kubectl = Path(sys.executable).parent / "kubectl"
    if not kubectl.is_file():
        raise ManifestsFailed("kubectl is not beside this Python; run `make setup`")
    return _run([str(kubectl), "kustomize", str(folder)], f"{folder.name} can't be rendered")


@cache
def _fault(manifest: str) -> str:
    # By content: most objects are the same in most targets.
    item = json.loads(manifest)
    schema = SCHEMAS / f"{item.get('kind', '').lower()}.json"
    try:
        if schema.is_file():
            jsonschema.validate(item, json.loads(schema.read_text(encoding="utf-8")))
        else:
            for release in KUBERNETES:
                _library().validate(item, release, strict=True)
    except jsonschema.ValidationError as error:
        return f"at {'.'.join(map(str, error.path)) or 'the top'}: {error.message[:300]}"
    except kubernetes_validate.utils.SchemaNotFoundError:
        return f"there is no schema for {item.get('apiVersion')} {item.get('kind')}"
    return ""


@cache
def _library() -> Any:
    # It reads all of a release's definitions again for each object, which is nine tenths of the time.
    library = kubernetes_validate.utils
    library.schema_contents = cache(library.schema_contents)
    return library


def _scanner() -> Path:
    """The scanner's command, in an environment of its own: its packages would fight with ours."""
    stamp = SCANNER / ".installed"
    wanted = hashlib.sha256(SCANNER_LOCK.read_bytes()).hexdigest()
    if not stamp.is_file() or stamp.read_text(encoding="utf-8") != wanted:
        sys.stdout.write(f"Installing the policy scanner into {SCANNER.relative_to(ROOT)} ...\n")
        uv = str(Path(sys.executable).parent / "uv")
        _run([uv, "venv", "--quiet", "--clear", "--python", sys.executable, str(SCANNER)], "no environment for the scanner")
        install = [uv, "pip", "sync", "--quiet", "--require-hashes", "--python", str(SCANNER / "bin" / "python")]
        _run([*install, str(SCANNER_LOCK)], "the scanner can't be installed")
        stamp.write_text(wanted, encoding="utf-8")
    return SCANNER / "bin" / "checkov"


def _scan(framework: str, where: Sequence[str]) -> Scan:
    # Without a network: no rules and no descriptions are fetched.
    arguments = ["--framework", framework, "--skip-download", "--output", "json", "--soft-fail", *where]
    environment = {**os.environ, "BC_SKIP_MAPPING": "TRUE"}
    return parse_scan(framework, _run([str(_scanner()), *arguments], "the policy scanner failed", environment))


def _run(command: Sequence[str], failure: str, environment: Mapping[str, str] | None = None) -> str:
    ran = subprocess.run(
        command,
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=_SECONDS,
        stdin=subprocess.DEVNULL,
        check=False,
    )
    if ran.returncode:
        raise ManifestsFailed(f"{failure}: {(ran.stderr or ran.stdout).strip()[-2000:]}")
    return ran.stdout


def _validate() -> None:
    BUILD.mkdir(parents=True, exist_ok=True)
    for old in BUILD.glob("*.yaml"):
        old.unlink()
    started = time.monotonic()
    wrong: list[str] = []
    listed = targets()
    for target in listed:
        rendered = render(target)
        (BUILD / f"{target.name}.yaml").write_text(rendered, encoding="utf-8")
        found = objects(rendered)
        wrong += [f"{target.name}: {fault}" for fault in faults(found)]
        sys.stdout.write(f"{target.name}: {len(found)} objects\n")
    if wrong:
        raise ManifestsFailed("\n".join(wrong))
    seconds = time.monotonic() - started
    sys.stdout.write(f"{len(listed)} rendered and valid for Kubernetes {' and '.join(KUBERNETES)} ({seconds:.1f} s)\n")


def _check_policies() -> None:
    failures: list[str] = []
    for framework, where in (("kubernetes", ["-d", str(BUILD)]), ("dockerfile", ["-f", str(DOCKERFILE)])):
        started = time.monotonic()
        scan = _scan(framework, where)
        counts = f"{scan.passed} passed, {len(scan.failures)} failed, {sum(scan.skipped.values())} skipped"
        sys.stdout.write(f"policies, {framework}: {counts} ({time.monotonic() - started:.1f} s)\n")
        for reason, count in sorted(scan.skipped.items()):
            sys.stdout.write(f"  skipped {count} times: {reason}\n")
        failures += scan.failures
    if failures:
        raise ManifestsFailed("\n".join(failures))


def main() -> int:
    """Render, validate and scan; exit code 1 when anything is wrong."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--no-policies", action="store_true", help="render and validate only")
    given = parser.parse_args()
    try:
        _validate()
        if not given.no_policies:
            _check_policies()
    except ManifestsFailed as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
