"""From verdicts to one score, a risk and a suggestion: computed in code, whoever gave the verdicts."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from errata_kit.grades import HallucinationRisk, Verdict
from errata_kit.text.terms import content_terms
from services.judge.claims.verdicts import CheckedClaim, Finding

# Support from which a claim counts as SUPPORTED. Sentences taken from other answers reach 0.07 to 0.20 with
# nine in ten below 0.25, those of faithful answers stay above 0.35 in 93 of 100 (mtrag): what lies between is
# given to neither.
SUPPORTED_FROM: Final = 0.35
# Mean support that is worth a score of 0.80, the default faithfulness_threshold: plain paraphrase shares a
# good half of its words and meaning with its source. Verbatim is 1 on both scales.
_RELEASE_SUPPORT: Final = 0.55
_RELEASE_SCORE: Final = 0.80
# What the weakest claim lacks to SUPPORTED_FROM is taken off the mean this many times. 1.3 times 0.35 is just
# more than 1 - 0.55, so that one claim without support holds an answer below 0.80, however many good ones
# surround it.
_WEAKEST_COST: Final = 1.3
# A claim weighs by its content words up to this many: a fragment says less than a sentence, a run-on not ever
# more.
_FULL_WEIGHT_WORDS: Final = 12
_HIGH_RISK_BELOW: Final = 0.5
_QUOTED_CLAIM: Final = 160
_BOUNDS: Final = {
    Verdict.SUPPORTED: (SUPPORTED_FROM, 1.0),
    Verdict.UNSUPPORTED: (0.0, SUPPORTED_FROM),
    Verdict.CONTRADICTED: (0.0, 0.0),
    Verdict.UNVERIFIABLE: (0.0, 0.5),
}
_WITHOUT_SUPPORT: Final = {
    Verdict.SUPPORTED: 1.0,
    Verdict.UNSUPPORTED: 0.0,
    Verdict.CONTRADICTED: 0.0,
    Verdict.UNVERIFIABLE: 0.5,
}


@dataclass(frozen=True, slots=True)
class Assessment:
    """The grade of a whole answer. `faithfulness_score` is 0 to 1."""

    claims: tuple[CheckedClaim, ...]
    findings: tuple[Finding, ...]
    faithfulness_score: float
    hallucination_risk: HallucinationRisk
    problematic_claims: tuple[CheckedClaim, ...]
    refinement_suggestion: str

    def releasable(self, threshold: float = _RELEASE_SCORE) -> bool:
        """Whether the score reaches `threshold`, nothing is contradicted, and the guard found nothing."""
        contradicted = any(claim.verdict is Verdict.CONTRADICTED for claim in self.claims)
        return self.faithfulness_score >= threshold and not contradicted and not self.findings


def assess(claims: Sequence[CheckedClaim], findings: Sequence[Finding]) -> Assessment:
    """Put the grade of an answer together. `claims` are final: what the guard lowers is lowered."""
    score = faithfulness_score(claims)
    problematic = problematic_claims(claims, score)
    return Assessment(
        claims=tuple(claims),
        findings=tuple(findings),
        faithfulness_score=score,
        hallucination_risk=hallucination_risk(claims, findings, score),
        problematic_claims=problematic,
        refinement_suggestion=refinement_suggestion(problematic, findings),
    )


def faithfulness_score(claims: Sequence[CheckedClaim]) -> float:
    """Return 0 to 1 from the claims' support.

    Its mean, less what the weakest claim lacks, on the product's scale.

    The mean weighs claims by their content words. Support is kept within its verdict's range (SUPPORTED from
    0.35, UNSUPPORTED up to it, CONTRADICTED 0); without one, SUPPORTED counts 1, UNVERIFIABLE 0.5 and the
    others 0. All verbatim is 1, and any claim without support means below 0.80. An answer without claims
    states nothing that could be false: 1.
    """
    if not claims:
        return 1.0
    values = [support_of(claim) for claim in claims]
    weights = [1 + min(len(content_terms(claim.text)), _FULL_WEIGHT_WORDS) for claim in claims]
    mean = sum(value * weight for value, weight in zip(values, weights, strict=True)) / sum(weights)
    return _on_product_scale(mean - _WEAKEST_COST * max(0.0, SUPPORTED_FROM - min(values)))


def _on_product_scale(support: float) -> float:
    """Stretch in two straight lines: 0 stays 0, `_RELEASE_SUPPORT` becomes `_RELEASE_SCORE`, 1 stays 1."""
    if support < _RELEASE_SUPPORT:
        return round(max(0.0, support) * _RELEASE_SCORE / _RELEASE_SUPPORT, 6)
    above = (support - _RELEASE_SUPPORT) / (1 - _RELEASE_SUPPORT)
    return round(min(1.0, _RELEASE_SCORE + (1 - _RELEASE_SCORE) * above), 6)


def hallucination_risk(claims: Sequence[CheckedClaim], findings: Sequence[Finding], score: float) -> HallucinationRisk:
    """HIGH when something is contradicted or the score is below 0.5.

    LOW when nothing at all is wrong; else MEDIUM.
    """
    if score < _HIGH_RISK_BELOW or any(claim.verdict is Verdict.CONTRADICTED for claim in claims):
        return HallucinationRisk.HIGH
    return (
        HallucinationRisk.MEDIUM
        if findings or score < _RELEASE_SCORE or problematic_claims(claims, score)
        else HallucinationRisk.LOW
    )


def problematic_claims(claims: Sequence[CheckedClaim], score: float) -> tuple[CheckedClaim, ...]:
    """Return what has to change, in the answer's order: the UNSUPPORTED and CONTRADICTED claims.

    When there are none and the score still fails, it is the claims whose support is below what the mean
    needs.
    """
    failing = tuple(c for c in claims if c.verdict in (Verdict.UNSUPPORTED, Verdict.CONTRADICTED))
    if failing or score >= _RELEASE_SCORE:
        return failing
    return tuple(claim for claim in claims if support_of(claim) < _RELEASE_SUPPORT)


def refinement_suggestion(problematic: Sequence[CheckedClaim], findings: Sequence[Finding]) -> str:
    """Return what to change, one line per point; empty when nothing has to change."""
    lines = [_advice(claim) for claim in problematic]
    for finding in findings:
        if not any(claim.start <= finding.start < claim.end for claim in problematic):
            lines.append(f'Remove or correct "{finding.text}": {finding.explanation}')
    return "\n".join(lines)


def _advice(claim: CheckedClaim) -> str:
    text = " ".join(claim.text.split())
    shown = text if len(text) <= _QUOTED_CLAIM else text[: _QUOTED_CLAIM - 1].rstrip() + "…"
    if claim.verdict is Verdict.CONTRADICTED and claim.evidence:
        return f'Correct "{shown}" to agree with the passage: "{claim.evidence[0].quote}"'
    todo = "Correct" if claim.verdict is Verdict.CONTRADICTED else "Remove, or restate from the passages,"
    return f'{todo} "{shown}". {claim.explanation}'.rstrip()


def support_of(claim: CheckedClaim) -> float:
    """Return the support of a claim, 0 to 1, kept within its verdict's range; a verdict alone counts as said above."""
    if claim.support is None:
        return _WITHOUT_SUPPORT[claim.verdict]
    low, high = _BOUNDS[claim.verdict]
    return min(high, max(low, claim.support))
