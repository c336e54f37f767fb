"""How well the offline judge tells faithful answers from unfaithful ones, and what its guard finds.

Run: `.venv/bin/python bench/judge.py [--data FILE] [--pages DIR] [--no-guard] [--json]`.

`perturbations_found` is the share of supported sentences with one detail changed in which the guard finds something, and
`false_findings` the share of supported sentences, as they stand or in another writing, in which it finds something too. Both
are of documents that the guard was never tuned on; `bench/perturbations.py` and `bench/supported.py` say how they are made.

`auroc` ranks by faithfulness_score. `balanced_accuracy` is at the product's release decision: score at or
above 0.80, no contradicted claim, no guard finding. A row is faithful when the mean of its ratings is 3 or
more; rows without passages are left out.
"""

import hashlib
import statistics
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from bench.figures import MTRAG, Figure, Progress, arguments, print_figures, read_rows, require
from bench.guard import measure_guard
from errata_kit.encoding import Encoder
from errata_kit.passages import Passage
from services.judge.claims.offline import OfflineChecker
from services.judge.claims.scoring import Assessment, assess
from services.judge.guard import find_ungrounded, lower

FAITHFUL_FROM: Final = 3.0
RELEASE_SCORE: Final = 0.80
AUROC_AT_LEAST: Final = 0.92
PAGES: Final = MTRAG.parent / "docs_milvus"


@dataclass(frozen=True, slots=True)
class Row:
    """A rated answer. `part` is 0 or 1: which half of the conversations it belongs to."""

    question: str
    answer: str
    passages: tuple[Passage, ...]
    faithful: bool
    part: int


def main() -> int:
    """Print the figures."""
    parser = arguments("Measure the offline faithfulness judge.", MTRAG / "faithfulness.jsonl")
    parser.add_argument("--pages", type=Path, default=PAGES, metavar="DIR", help="Markdown pages; default: %(default)s")
    parser.add_argument("--no-guard", action="store_true", help="leave out the figures of the guard alone")
    parser.add_argument("--no-encoder", action="store_true", help="words only, without sentence vectors")
    options = parser.parse_args()
    guard_data = () if options.no_guard else (options.pages / "LICENSE", options.data.parent / "corpus.jsonl")
    require((options.data, *guard_data))
    rows = load(options.data)
    checker = OfflineChecker(None if options.no_encoder else _encoder())
    progress = Progress("answers graded", len(rows))
    started = time.perf_counter()
    grades = []
    for row in rows:
        grades.append(grade(checker, row))
        progress.advance()
    seconds = time.perf_counter() - started
    figures = measure(rows, grades)
    guard = [] if options.no_guard else measure_guard(options.pages, options.data.parent)
    print_figures([*guard, *figures, Figure("seconds", seconds), Figure("rows", len(rows))], options.json)
    return 0


def load(path: Path) -> list[Row]:
    """Read the rows that have passages and ratings."""
    return [_row(row) for row in read_rows(path) if row["passages"] and row["ratings"]]


def _row(line: Mapping[str, Any]) -> Row:
    passages = tuple(Passage(str(p["id"]), str(p["text"])) for p in line["passages"])
    ratings = [float(rating) for rating in line["ratings"]]
    conversation = str(line.get("id", line["question"])).partition("<")[0]
    part = hashlib.sha256(conversation.encode()).digest()[0] % 2
    faithful = statistics.mean(ratings) >= FAITHFUL_FROM
    return Row(str(line["question"]), str(line["answer"]), passages, faithful, part)


def grade(checker: OfflineChecker, row: Row) -> Assessment:
    """Grade as the judge does: check the claims, then let the guard lower them."""
    findings = find_ungrounded(row.answer, row.question, row.passages)
    return assess(lower(checker.check(row.answer, row.passages), findings), findings)


def measure(rows: Sequence[Row], grades: Sequence[Assessment]) -> list[Figure]:
    """Return the figures, shares and areas between 0 and 1."""
    faithful = [row.faithful for row in rows]
    scores = [assessment.faithfulness_score for assessment in grades]
    passes = [score >= RELEASE_SCORE for score in scores]
    released = [assessment.releasable(RELEASE_SCORE) for assessment in grades]
    figures = [Figure("auroc", auroc(scores, faithful), at_least=AUROC_AT_LEAST)]
    others = {
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
        others[f"auroc_half_{part}"] = auroc([scores[i] for i in chosen], [faithful[i] for i in chosen])
    return [*figures, *(Figure(name, value) for name, value in others.items())]


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
