"""What a finding does to the claim that it stands in."""

from collections.abc import Sequence
from dataclasses import replace

from errata_kit.grades import Verdict
from services.judge.claims.verdicts import CheckedClaim, Finding


def lower(claims: Sequence[CheckedClaim], findings: Sequence[Finding]) -> tuple[CheckedClaim, ...]:
    """Return the claims with SUPPORTED and UNVERIFIABLE lowered to UNSUPPORTED where a finding stands in
    them.

    Support of such a claim becomes 0: a made-up detail is not made half true by the words around it. Other
    verdicts stay as they are; none is ever raised.
    """
    return tuple(_lowered(claim, findings) for claim in claims)


def _lowered(claim: CheckedClaim, findings: Sequence[Finding]) -> CheckedClaim:
    inside = [finding for finding in findings if claim.start <= finding.start < claim.end]
    if not inside or claim.verdict is Verdict.CONTRADICTED:
        return claim
    support = None if claim.support is None else 0.0
    return replace(claim, verdict=Verdict.UNSUPPORTED, support=support, explanation=inside[0].explanation)
