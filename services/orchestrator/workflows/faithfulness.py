"""What a grade of claims means: whether a text may be released, and what must be corrected. Pure functions."""

from typing import Final

from errata_kit.grades import AnswerGrade, Claim, Verdict

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

    Those that the judge calls problematic; when it names none, those whose support keeps the score below the threshold.
    """
    problematic = frozenset(grade.problematic_claim_ids)
    named = tuple(claim for claim in grade.claims if claim.claim_id in problematic)
    weak = (claim for claim in grade.claims if claim.verdict is not Verdict.UNVERIFIABLE and claim.support < threshold)
    return (named or tuple(weak))[:MOST_FAILING]
