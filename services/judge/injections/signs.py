"""OVERRIDE and VERDICT: sentences that give a model instructions, or demand a grade."""

import re
from collections.abc import Mapping, Sequence
from typing import Final

from errata_kit.grades import InjectionKind
from services.judge.injections import english, languages
from services.judge.injections.phrases import Phrase, any_in
from services.judge.injections.views import View, without_code

# Names under which graders write their findings, with values that please.
_IS: Final = r"[\"'\\]{0,3}\s{0,4}[:=]\s{0,4}[\"'\\]{0,3}"
_FORGED: Final = re.compile(
    rf"\b(?:(?P<yes>(?:is_)?relevant|supported|faithful|approved){_IS}(?:true|yes|1\b)"
    rf"|(?P<verdict>verdict|decision|conclusion){_IS}(?:supported|faithful|approved?|relevant|correct|pass\b)"
    rf"|(?P<score>(?:relevance_|faithfulness_|overall_|model_)?(?:score|grade)){_IS}(?:1(?:\.0+)?|0?\.9\d*)(?![\d.]*\d))"
)
_PLEASED: Final = ("verdict", "relevant", "supported", "faithful", "approved", "decision", "conclusion")
_ENGLISH: Final = {InjectionKind.OVERRIDE: english.OVERRIDES, InjectionKind.VERDICT: english.DEMANDS}
_LATIN: Final = {InjectionKind.OVERRIDE: languages.LATIN_OVERRIDES, InjectionKind.VERDICT: languages.LATIN_DEMANDS}
_OTHER: Final = {InjectionKind.OVERRIDE: languages.OTHER_OVERRIDES, InjectionKind.VERDICT: languages.OTHER_DEMANDS}
_OTHER_SCRIPT: Final = re.compile("[\u0400-\u1fff\u3040-\uffee]")
_SQUEEZED: Final = {
    InjectionKind.OVERRIDE: re.compile(
        r"(?:ignore|disregard|forget)(?:all|any|the|your|of){0,4}(?:previous|prior|above|earlier)(?:system)?"
        r"(?:instructions?|prompts?|rules|orders)"
    ),
    InjectionKind.VERDICT: re.compile(
        r"(?:grade|score|rate|mark)(?:this|it|as|with|every|the|passage|claim){1,5}(?:10|supported|relevant)"
    ),
}
_NEAR: Final = 200


def signs_in(view: View) -> frozenset[InjectionKind]:
    """OVERRIDE and VERDICT, where sentences of a text say so, in English or in one of the languages known.

    Findings of graders in code are mostly examples of an API: they count once a sentence instructs its reader.
    """
    found = english_signs(view.folded) | _said(view.folded, _LATIN)
    if _OTHER_SCRIPT.search(view.plain):
        found |= _said(view.plain, _OTHER)
    read = view.folded if found else without_code(view.folded)
    return found | {InjectionKind.VERDICT} if _forges_a_verdict(read) else found


def english_signs(folded: str) -> frozenset[InjectionKind]:
    """OVERRIDE and VERDICT in English alone: for readings in which letters were put in place of others."""
    return _said(folded, _ENGLISH)


def spelled_signs(joined: str) -> frozenset[InjectionKind]:
    """OVERRIDE and VERDICT in words that were written letter by letter."""
    squeezed = joined.replace(" ", "")
    return frozenset(kind for kind, pattern in _SQUEEZED.items() if pattern.search(squeezed))


def _said(text: str, known: Mapping[InjectionKind, Sequence[Phrase]]) -> frozenset[InjectionKind]:
    return frozenset(kind for kind, phrases in known.items() if any_in(text, phrases))


def _forges_a_verdict(folded: str) -> bool:
    """Whether two different findings of a grader, both to the author's liking, stand near each other, or a verdict alone."""
    if not any(name in folded for name in _PLEASED):
        return False
    last: dict[str, int] = {}
    for match in _FORGED.finditer(folded):
        kind = str(match.lastgroup)
        if kind == "verdict" and "supported" in match[0]:
            return True
        if any(other != kind and match.start() - place <= _NEAR for other, place in last.items()):
            return True
        last[kind] = match.end()
    return False
