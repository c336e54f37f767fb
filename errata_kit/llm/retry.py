"""When a failed model request is tried again, and after how long."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Exponential backoff with full jitter (the AWS builders' library, "Timeouts, retries and backoff").

    Attributes:
        max_attempts: requests for one call, the first included.
        base_seconds: upper bound of the pause after the first failure; it doubles with each further one.
        cap_seconds: upper bound of every pause that the endpoint did not ask for.
        draw: a random number in [0, 1).
    """

    max_attempts: int = 4
    base_seconds: float = 0.5
    cap_seconds: float = 8.0
    draw: Callable[[], float] = random.random

    def pause(self, attempts: int, retry_after: float | None) -> float:
        """Seconds to wait after `attempts` failures; never less than the endpoint asked for.

        Up to a tenth is added to what it asked for, so that clients it turned away together do not
        come back together.
        """
        if retry_after is not None:
            return retry_after * (1.0 + 0.1 * self.draw())
        ceiling = min(self.cap_seconds, self.base_seconds * math.ldexp(1.0, attempts - 1))
        return ceiling * self.draw()


def retry_after_seconds(headers: Mapping[str, str]) -> float | None:
    """What `retry-after-ms` or `Retry-After` (RFC 9110, 10.2.3: seconds or a date) asks for, from 0 up."""
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        text = headers.get(name, "").strip()
        try:
            seconds = float(text) * unit
        except ValueError:
            continue
        return max(0.0, seconds) if math.isfinite(seconds) else None
    try:
        moment = parsedate_to_datetime(headers.get("retry-after", ""))
    except ValueError:
        return None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return max(0.0, (moment - datetime.now(UTC)).total_seconds())
