"""Malformed and hostile requests over every RPC of a running suite, and what became of it.

    python bench/hostile.py [--requests N] [--seed S] [--seconds T] [--json]

The suite runs offline, as four processes. Kinds: random bytes, spoilt messages, extreme values, nesting, bytes that are
not UTF-8, texts that are hard on parsers and regular expressions, metadata, callers that leave or never read, messages of
megabytes, and connections that are dropped. The seed makes the requests the same ones; their timing is not.
"""

import math
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.figures import Figure, arguments, print_figures
from errata_cli.stack import SERVICES
from tests.harness.hostile import Attacker
from tests.harness.hostile_checks import FORBIDDEN, Besieged, Footprint, drop_connections
from tests.harness.suite import Background, running_suite

AT_ONCE: Final = 24
BATCH: Final = 1000
CONNECTIONS: Final = 1000
# Enough for every code path to be loaded and every pool and cache to be filled once.
WARM_UP: Final = 1000
LONGEST_BATCH_SECONDS: Final = 300.0


def main() -> int:
    """Run the benchmark; exit code 1 when something happened that must not."""
    parser = arguments(__doc__)
    parser.add_argument("--requests", type=int, default=100_000, metavar="N", help="default: %(default)s")
    parser.add_argument("--seed", type=int, default=1, metavar="S", help="default: %(default)s")
    parser.add_argument("--seconds", type=float, default=math.inf, metavar="T", help="begin nothing more after this long")
    chosen = parser.parse_args()
    background = Background()
    with (
        background,
        tempfile.TemporaryDirectory(prefix="errata-hostile-") as folder,
        running_suite(background, Path(folder)) as suite,
    ):
        besieged = Besieged(suite)
        besieged.seed()
        figures = measure(besieged, chosen.requests, chosen.seed, chosen.seconds)
    for fault in besieged.tally.faults[:20]:
        print(f"FAULT {fault}", file=sys.stderr)
    for seconds, where in besieged.tally.slowest:
        print(f"{seconds:6.2f} s  {where}", file=sys.stderr)
    print_figures(figures, chosen.json)
    return 1 if besieged.tally.faults else 0


def measure(besieged: Besieged, requests: int, seed: int, seconds: float) -> list[Figure]:
    """Attack, let it rest, and return the figures: counts, seconds, megabytes."""
    attacker = Attacker(seed)
    besieged.ordinary_seconds()
    ordinary = besieged.ordinary_seconds()
    before, started, working = besieged.footprints(), time.monotonic(), 0.0
    for first in range(0, requests, BATCH):
        if time.monotonic() - started > seconds:
            break
        attacks = [attacker.attack() for _ in range(min(BATCH, requests - first))]
        began = time.monotonic()
        besieged.attack(attacks, AT_ONCE, LONGEST_BATCH_SECONDS)
        working += time.monotonic() - began
        if crashed := besieged.crashed():
            print(f"After {first + len(attacks)} requests: {', '.join(crashed)} gone", file=sys.stderr)
            break
        if first + BATCH == WARM_UP < requests:
            before = besieged.footprints()
        if (first // BATCH) % 10 == 0:
            print(f"{first + len(attacks)} requests in {time.monotonic() - started:.0f} s", file=sys.stderr, flush=True)
    for name in SERVICES:
        drop_connections(besieged.suite.target(name), CONNECTIONS // len(SERVICES), seed)
    time.sleep(5)
    return _figures(besieged, before, ordinary, working)


def _figures(besieged: Besieged, before: dict[str, Footprint], ordinary: float, working: float) -> list[Figure]:
    tally, crashed = besieged.tally, besieged.crashed()
    sent = sum(tally.statuses.values())
    figures = [
        Figure("requests", sent),
        Figure("requests_per_second", sent / working if working else 0.0),
        *(Figure(f"status_{name.lower()}", count) for name, count in sorted(tally.statuses.items()) if name not in FORBIDDEN),
        Figure("internal", tally.statuses["INTERNAL"], at_most=0),
        Figure("unknown", tally.statuses["UNKNOWN"], at_most=0),
        Figure("crashed", len(crashed), at_most=0),
        Figure("leaks", tally.leaks, at_most=0),
        Figure("faults", len(tally.faults), at_most=0),
        *(Figure(f"longest_hold_seconds_{name}", held, at_most=1.0) for name, held in sorted(besieged.holds.items())),
    ]
    if crashed:
        return figures
    after = besieged.footprints()
    growth = {name: after[name].resident_mb - before[name].resident_mb for name in SERVICES}
    figures += [Figure(f"rss_growth_mb_{name}", growth[name], at_most=200) for name in SERVICES]
    figures += [Figure(f"peak_rss_mb_{name}", after[name].peak_mb) for name in SERVICES]
    figures.append(Figure("files_growth", max(after[name].files - before[name].files for name in SERVICES), at_most=8))
    figures.append(Figure("in_flight", sum(one.in_flight for one in after.values()), at_most=0))
    figures.append(Figure("ordinary_seconds_before", ordinary))
    figures.append(Figure("ordinary_seconds_after", besieged.ordinary_seconds()))
    besieged.read_log()
    return figures


if __name__ == "__main__":
    raise SystemExit(main())
