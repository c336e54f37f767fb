"""What the benchmarks have in common: their arguments, where their data is, and how figures are printed."""

import argparse
import json
import math
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

REPOSITORY: Final = Path(__file__).resolve().parents[1]
MTRAG: Final = REPOSITORY.parent / "shared" / "data" / "mtrag"
DATA_MISSING: Final = 2
"""Exit code of a benchmark whose data is not there."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured value, under its name in the JSON object. A bound is inclusive; None means that there is none."""

    name: str
    value: float
    at_least: float | None = None
    at_most: float | None = None

    @property
    def target(self) -> str:
        """The bound in words and whether it is met; empty without one. A value that is not a number meets none."""
        bounds = []
        if self.at_least is not None:
            bounds.append(("at least", self.at_least, self.value >= self.at_least))
        if self.at_most is not None:
            bounds.append(("at most", self.at_most, self.value <= self.at_most))
        return ", ".join(f"{words} {bound:g}: {'met' if met else 'MISSED'}" for words, bound, met in bounds)


def arguments(description: str | None, data: Path | None = None) -> argparse.ArgumentParser:
    """The parser that every benchmark starts from: --json, and --data when it measures on data."""
    parser = argparse.ArgumentParser(description=description)
    if data is not None:
        kind = "FILE" if data.suffix else "DIR"
        parser.add_argument("--data", type=Path, default=data, metavar=kind, help="default: %(default)s")
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    return parser


def require(paths: Sequence[Path]) -> None:
    """End the process with exit code 2 and a sentence on standard error when one of the files is not there."""
    for path in paths:
        if not path.is_file():
            print(f"There is no data at {path}: name it with --data.", file=sys.stderr)
            raise SystemExit(DATA_MISSING)


def read_rows(path: Path) -> list[dict[str, Any]]:
    """The objects of a file with one JSON object a line; empty lines are passed over."""
    with path.open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines if line.strip()]


def print_figures(figures: Iterable[Figure], as_json: bool) -> None:
    """Print the table, and with as_json one JSON object behind it, where a value that is not a number is null."""
    shown = list(figures)
    width = max(len(figure.name) for figure in shown)
    for figure in shown:
        print(f"{figure.name:{width}}  {_number(figure.value):>9}  {figure.target}".rstrip())
    if as_json:
        print(json.dumps({figure.name: _json_value(figure.value) for figure in shown}), flush=True)


class Progress:
    """One line on standard error that counts up, when that is a terminal; nothing otherwise."""

    def __init__(self, what: str, total: int) -> None:
        self._what = what
        self._total = total
        self._done = 0
        self._visible = sys.stderr.isatty()

    def advance(self) -> None:
        """One more is done."""
        self._done += 1
        if self._visible:
            end = "\n" if self._done == self._total else ""
            print(f"\r{self._what}: {self._done} of {self._total}", end=end, file=sys.stderr, flush=True)


def _number(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:.4g}" if abs(value) >= 1000 else f"{value:.4f}"


def _json_value(value: float) -> float | None:
    if isinstance(value, int):
        return value
    return round(value, 4) if math.isfinite(value) else None
