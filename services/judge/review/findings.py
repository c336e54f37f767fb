"""What a rule found in a draft, and what it costs."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from errata_kit.bounds import KIB
from errata_kit.drafts import DEFAULT_CRITERIA, IssueSeverity

CLARITY: Final = "clarity"
RELEVANCE: Final = "relevance"
COMPLETENESS: Final = "completeness"
TECHNICAL_QUALITY: Final = "technical_quality"
KNOWN: Final = frozenset(criterion.name for criterion in DEFAULT_CRITERIA)


@dataclass(frozen=True, slots=True)
class RuleFinding:
    """One finding. costs: what it takes off each known criterion's score, 0–1, the criterion it belongs to first.

    own_cost is taken off a criterion of the user's own: above 0 only where the fault spoils a draft by any measure.
    remedy: what to do, one sentence. quote stands in the draft, or is empty.
    """

    description: str
    remedy: str
    severity: IssueSeverity
    costs: Mapping[str, float] = field(default_factory=dict)
    own_cost: float = 0.0
    quote: str = ""

    def cost(self, criterion: str) -> float:
        """What is taken off the score of a criterion."""
        return self.costs.get(criterion, 0.0) if criterion in KNOWN else self.own_cost


def shortened(text: str, most: int = 120) -> str:
    """A text on one line, cut with an ellipsis behind so many characters, for use inside a sentence."""
    line = " ".join(text.split())
    return line if len(line) <= most else line[: most - 1].rstrip() + "…"


def listed(words: list[str], most: int = 5) -> str:
    """“a”, “b” and 3 more."""
    shown = [f"“{shortened(word, 60)}”" for word in words[:most]]
    if len(words) > most:
        return f"{', '.join(shown)} and {len(words) - most} more"
    return " and ".join((", ".join(shown[:-1]), shown[-1])) if len(shown) > 1 else "".join(shown)


def clipped(text: str, most: int = 2 * KIB) -> str:
    """At most so many bytes of UTF-8, cut between characters; 2 KiB is the bound of descriptions, quotes and suggestions."""
    if len(text) * 4 <= most:
        return text
    return text.encode("utf-8", "replace")[:most].decode("utf-8", "ignore")
