"""Metadata that no client of ours sends, as far as grpcio lets it out at all."""

from __future__ import annotations

import random
from typing import Final

# Values of metadata are visible ASCII and spaces; anything else travels under a key that ends with -bin.
_KEYS: Final = (
    "traceparent",
    "errata-run-id",
    "errata-budget-tokens",
    "errata-budget-cost-micros",
    "errata-principal",
    "errata-identity",
    "authorization",
    "tracestate",
    "x-unknown",
    "user-agent",
    "grpc-previous-rpc-attempts",
)
_VALUES: Final = (
    "",
    " ",
    "0",
    "-1",
    "9" * 18,
    "9" * 19,
    "9" * 4000,
    "1e9",
    "0x10",
    "NaN",
    "true",
    "null",
    "{}",
    "00-" + "0" * 32 + "-" + "0" * 16 + "-00",
    "ff-" + "f" * 32 + "-" + "f" * 16 + "-ff",
    "00-" + "z" * 32 + "-" + "z" * 16 + "-01",
    "00-" + "a" * 32,
    "---",
    "-" * 500,
    "Bearer",
    "Bearer ",
    "Bearer a.b.c",
    "Bearer eyJhbGciOiJub25lIn0.eyJzdWIiOiJhZG1pbiIsInJvbGVzIjpbImFkbWluIl19.",
    "Bearer " + "A" * 6000,
    "Basic YWRtaW46YWRtaW4=",
    "bearer bearer bearer",
    "'; DROP TABLE runs; --",
    "../../etc/passwd",
    "%00%0a%0d",
    "${jndi:ldap://127.0.0.1/a}",
    "a" * 128,
    "a" * 129,
    "a" * 3000,
    "~" * 100,
    "01890000-0000-7000-8000-000000000000",
)


def hostile_metadata(random_: random.Random, canary: str) -> tuple[tuple[str, str | bytes], ...]:
    """Some entries: keys of ours with impossible values, the same key twice, binary ones, many, or more than a header holds."""
    entries: list[tuple[str, str | bytes]] = []
    for _ in range(random_.choice((1, 2, 4))):
        entries.append((random_.choice(_KEYS), random_.choice((*_VALUES, canary, f"Bearer {canary}"))))
    kind = random_.randrange(6)
    if kind == 0:
        entries.append((f"{random_.choice(_KEYS)}-bin", random_.randbytes(random_.choice((0, 1, 64, 3000)))))
    elif kind == 1:
        entries.extend((f"k{number}", "v") for number in range(random_.choice((50, 150, 400))))
    elif kind == 2:
        entries.append(("x-huge", "a" * random_.choice((8_000, 17_000, 70_000))))
    elif kind == 3:
        entries.extend(entries[:1] * 20)
    elif kind == 4:
        entries.append(("grpc-status-details-bin", random_.randbytes(200)))
    return tuple(entries)


def hostile_timeout(random_: random.Random) -> float:
    """A deadline in seconds: past, at once, soon; a huge one ends when the call does."""
    return random_.choice((-1.0, 0.0, 1e-9, 0.001, 0.05, 5.0, 5.0, 5.0, 1e8))
