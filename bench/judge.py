"""How well the offline judge tells faithful answers from unfaithful ones.

`auroc` ranks by faithfulness_score. `balanced_accuracy` is at the product's release decision: score at or
above 0.80, no contradicted claim, no guard finding. A row is faithful when the mean of its ratings is 3 or
more; rows without passages are left out.
"""

import argparse
import hashlib
import json
import statistics
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

REPOSITORY: Final = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(REPOSITORY))

from errata_kit.encoding import Encoder  # noqa: E402
from errata_kit.passages import Passage  # noqa: E402
from services.judge.claims.offline import OfflineChecker  # noqa: E402
from services.judge.claims.scoring import Assessment, assess  # noqa: E402
from services.judge.guard import find_ungrounded, lower  # noqa: E402

DEFAULT_DATA: Final = REPOSITORY.parent / "shared" / "data" / "mtrag" / "faithfulness.jsonl"
FAITHFUL_FROM: Final = 3.0
RELEASE_SCORE: Final = 0.80


@dataclass(frozen=True, slots=True)
class Row:
    """A rated answer. `part` is 0 or 1: which half of the conversations it belongs to."""

    question: str
    answer: str
    passages: tuple[Passage, ...]
    faithful: bool
    part: int


def main() -> int:
    """Print the figures; exit with 2 and a sentence when the data is not there."""
    parser = argparse.ArgumentParser(description="Measure the offline faithfulness judge.")
    parser.add_argument("--data", type=Path, default=DEFAULT_DATA)
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    parser.add_argument("--no-encoder", action="store_true", help="words only, without sentence vectors")
    arguments = parser.parse_args()
    if not arguments.data.is_file():
        print(f"No data at {arguments.data}: give --data FILE.", file=sys.stderr)
        return 2
    rows = load(arguments.data)
    checker = OfflineChecker(None if arguments.no_encoder else _encoder())
    started = time.perf_counter()
    grades = [grade(checker, row) for row in rows]
    seconds = time.perf_counter() - started
    figures = measure(rows, grades) | {"seconds": round(seconds, 2), "rows": len(rows)}
    for name, value in figures.items():
        print(f"{name:34} {value}")
    if arguments.json:
        print(json.dumps(figures))
    return 0


def load(path: Path) -> list[Row]:
    """Read the rows that have passages and ratings."""
    lines = (json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip())
    return [_row(line) for line in lines if line["passages"] and line["ratings"]]


def _row(line: dict[str, object]) -> Row:
    passages = tuple(Passage(str(p["id"]), str(p["text"])) for p in line["passages"])  # type: ignore[attr-defined]  # JSON
    ratings = [float(rating) for rating in line["ratings"]]  # type: ignore[attr-defined]  # JSON
    conversation = str(line.get("id", line["question"])).partition("<")[0]
    part = hashlib.sha256(conversation.encode()).digest()[0] % 2
    faithful = statistics.mean(ratings) >= FAITHFUL_FROM
    return Row(str(line["question"]), str(line["answer"]), passages, faithful, part)


def grade(checker: OfflineChecker, row: Row) -> Assessment:
    """Grade as the judge does: check the claims, then let the guard lower them."""
    findings = find_ungrounded(row.answer, row.question, row.passages)
    return assess(lower(checker.check(row.answer, row.passages), findings), findings)


def measure(rows: Sequence[Row], grades: Sequence[Assessment]) -> dict[str, float]:
    """Return the figures by name, shares and areas between 0 and 1."""
    faithful = [row.faithful for row in rows]
    scores = [assessment.faithfulness_score for assessment in grades]
    passes = [score >= RELEASE_SCORE for score in scores]
    released = [assessment.releasable(RELEASE_SCORE) for assessment in grades]
    figures = {
        "auroc": auroc(scores, faithful),
        "balanced_accuracy": balanced_accuracy(released, faithful),
        "balanced_accuracy_score_alone": balanced_accuracy(passes, faithful),
        "faithful_released": _share(released, faithful, True),
        "unfaithful_released": _share(released, faithful, False),
        "faithful_at_or_above_080": _share(passes, faithful, True),
        "unfaithful_at_or_above_080": _share(passes, faithful, False),
        "faithful_with_findings": _share([bool(a.findings) for a in grades], faithful, True),
        "unfaithful_with_findings": _share([bool(a.findings) for a in grades], faithful, False),
    }
    for part in (0, 1):
        chosen = [index for index, row in enumerate(rows) if row.part == part]
        figures[f"auroc_half_{part}"] = auroc([scores[i] for i in chosen], [faithful[i] for i in chosen])
    return {name: round(value, 4) for name, value in figures.items()}


def auroc(scores: Sequence[float], positive: Sequence[bool]) -> float:
    """Return the chance that a positive scores above a negative, ties counting half.

    NaN when one side is missing.
    """
    good = [score for score, is_good in zip(scores, positive, strict=True) if is_good]
    bad = [score for score, is_good in zip(scores, positive, strict=True) if not is_good]
    if not good or not bad:
        return float("nan")
    wins = sum((g > b) + 0.5 * (g == b) for g in good for b in bad)
    return wins / (len(good) * len(bad))


def balanced_accuracy(decided: Sequence[bool], positive: Sequence[bool]) -> float:
    """Return the mean of the shares decided rightly among positives and among negatives."""
    return (_share(decided, positive, True) + 1 - _share(decided, positive, False)) / 2


def _share(decided: Iterable[bool], positive: Iterable[bool], among: bool) -> float:
    chosen = [yes for yes, is_good in zip(decided, positive, strict=True) if is_good is among]
    return sum(chosen) / len(chosen) if chosen else float("nan")


def _encoder() -> Encoder:
    from errata_kit.minilm import MiniLM

    encoder = MiniLM()
    encoder.encode(["warm up"])
    return encoder


if __name__ == "__main__":
    raise SystemExit(main())
