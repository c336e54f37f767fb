"""Generates the Python stubs of protos/ into a folder; with --check, fails when that folder differs from a fresh run."""

import argparse
import filecmp
import shutil
import sys
import tempfile
from importlib import resources
from pathlib import Path

from grpc_tools import protoc

ROOT = Path(__file__).resolve().parent.parent


def generate(target: Path) -> None:
    """Fill target with the messages, their type stubs and the service stubs of every proto."""
    target.mkdir(parents=True, exist_ok=True)
    protos = sorted(path.relative_to(ROOT / "protos").as_posix() for path in (ROOT / "protos").rglob("*.proto"))
    well_known = resources.files("grpc_tools") / "_proto"
    arguments = [f"--proto_path={ROOT / 'protos'}", f"--proto_path={well_known}"]
    arguments += [f"--python_out={target}", f"--pyi_out={target}", f"--grpc_python_out={target}"]
    if protoc.main(["protoc", *arguments, *protos]) != 0:
        raise SystemExit("protoc failed")
    for path in target.rglob("*_pb2_grpc.py"):
        # A proto without a service gets an empty stub file, which nobody imports.
        if "Servicer" not in path.read_text():
            path.unlink()


def files_of(folder: Path) -> set[str]:
    """Relative paths of all generated files below folder."""
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*_pb2*") if "__pycache__" not in path.parts}


def main() -> int:
    """Generate or check."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    if not options.check:
        shutil.rmtree(options.folder, ignore_errors=True)
        generate(options.folder)
        return 0
    with tempfile.TemporaryDirectory() as scratch:
        fresh = Path(scratch)
        generate(fresh)
        names = files_of(fresh) | files_of(options.folder)
        _, different, missing = filecmp.cmpfiles(fresh, options.folder, sorted(names), shallow=False)
    if different or missing:
        sys.stderr.write(f"Generated code is not up to date, run `make gen`: {', '.join([*different, *missing])}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
