"""What a grade of claims means: whether a text may be released, and what must be corrected. Pure functions."""

from collections.abc import Iterable
from typing import Final

from errata_kit.grades import AnswerGrade, Claim, GuardFinding, Verdict

# Bound of the generator's requests: the first failing claims.
MOST_FAILING: Final = 200


def failures(grade: AnswerGrade, threshold: float) -> tuple[str, ...]:
    """Why a text is not released, a reason an entry; empty when it is."""
    reasons: list[str] = []
    contradicted = [claim.claim_id for claim in grade.claims if claim.verdict is Verdict.CONTRADICTED]
    if contradicted:
        reasons.append(f"contradicted: {', '.join(contradicted)}")
    if grade.findings:
        reasons.append(f"found by the guard: {', '.join(finding.text for finding in grade.findings[:8])}")
    if grade.faithfulness_score < threshold:
        reasons.append(f"faithfulness {grade.faithfulness_score:.2f} is below {threshold:.2f}")
    if not any(claim.verdict is Verdict.SUPPORTED for claim in grade.claims):
        # A text that says nothing which could be checked is faithful to anything.
        reasons.append("no claim is supported")
    return tuple(reasons)


def failing_claims(grade: AnswerGrade, threshold: float) -> tuple[Claim, ...]:
    """The claims that must be corrected, in order of appearance.

    Those that the judge calls problematic, and as claims "f1", "f2" and so on what the guard found outside of all claims, such
    as in a heading. When there are none, those whose support keeps the score below the threshold.
    """
    problematic = frozenset(grade.problematic_claim_ids)
    named = tuple(claim for claim in grade.claims if claim.claim_id in problematic)
    weak = (claim for claim in grade.claims if claim.verdict is not Verdict.UNVERIFIABLE and claim.support < threshold)
    outside = (finding for finding in grade.findings if not finding.claim_id)
    found = tuple(
        Claim(f"f{number}", finding.text, finding.span, Verdict.UNSUPPORTED, 0.0, explanation=finding.explanation)
        for number, finding in enumerate(outside, start=1)
    )
    return ((*named, *found) or tuple(weak))[:MOST_FAILING]


def passes(claim: Claim, findings: Iterable[GuardFinding]) -> bool:
    """Whether a claim may stay: supported, or nothing that could be checked, and without a finding in it."""
    kept = claim.verdict in {Verdict.SUPPORTED, Verdict.UNVERIFIABLE}
    return kept and all(finding.claim_id != claim.claim_id for finding in findings)


def kept_claims(grade: AnswerGrade, threshold: float) -> tuple[Claim, ...]:
    """The claims that a refinement must leave alone. Their verdicts and evidence stay, too."""
    failing = {claim.claim_id for claim in failing_claims(grade, threshold)}
    return tuple(claim for claim in grade.claims if claim.claim_id not in failing)
