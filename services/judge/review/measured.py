"""What an offline measure says about one criterion."""

from dataclasses import dataclass

from errata_kit.drafts import DraftIssue, IssueSeverity


@dataclass(frozen=True, slots=True)
class Remark:
    """Something seen that is worth an issue: what, a quote or "", and what to do about it."""

    description: str
    remedy: str
    quote: str = ""
    severity: IssueSeverity = IssueSeverity.MINOR

    def issue(self, criterion: str) -> DraftIssue:
        """The remark as an issue of a criterion."""
        return DraftIssue(criterion, self.severity, self.description, self.quote[:500])


@dataclass(frozen=True, slots=True)
class Measured:
    """A score, 0–1, and in words what it comes from."""

    score: float
    explanation: str
    remarks: tuple[Remark, ...] = ()


def measured(best: float, seen: str, costs: list[tuple[float, Remark]]) -> Measured:
    """The best score less every cost. seen: what was looked at, for the explanation."""
    score = min(1.0, max(0.0, best - sum(cost for cost, _ in costs)))
    faults = " ".join(remark.description for _, remark in costs)
    return Measured(round(score, 4), f"{seen} {faults}".strip(), tuple(remark for _, remark in costs))
