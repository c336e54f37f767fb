"""Takes sentences out of a draft, and mends the opening of what followed them."""

import re
from collections.abc import Iterator, Sequence
from typing import Final

from errata_kit.text.sentences import Sentence
from services.generator.drafting.removal import Change, cuts, in_one_paragraph, made, orphans

# Words that tie a sentence to the one before it. When that one is gone, they go; the sentence's own words
# stay.
_CONNECTIVE: Final = re.compile(
    r"(?P<mark>[*_]*)(?:however|but|therefore|thus|hence|moreover|furthermore|additionally|in addition|"
    r"also|besides|"
    r"consequently|as a result|accordingly|similarly|likewise|instead|nevertheless|nonetheless|"
    r"on the other hand|"
    r"in contrast|by contrast|then|finally|otherwise|and|so),?[ \t]+(?=\S)",
    re.IGNORECASE,
)
# "But", "and", "so" and "then" begin many sentences that need no comma; "also" and the rest must carry one to
# be removed.
_NEEDS_NO_COMMA: Final = frozenset(["but", "and"])


def without_units(draft: str, units: Sequence[Sentence], gone: set[int]) -> str:
    """Return the draft without the units at some places, and without what they leave behind: list markers, lead-ins of a
    vanished block, headings with nothing under them, an opening "However,". All else stays byte-identical.
    """
    if not gone:
        return draft
    without = gone | orphans(draft, units, gone)
    changes = sorted((*cuts(draft, units, without), *_mended(draft, units, without)), key=lambda change: change.start)
    return made(draft, changes).strip()


def _mended(draft: str, units: Sequence[Sentence], gone: set[int]) -> Iterator[Change]:
    """The openings of sentences that lost their predecessor in the paragraph."""
    for place in sorted(gone):
        following = place + 1
        if following in gone or following == len(units) or not in_one_paragraph(draft, units[place], units[following]):
            continue
        unit = units[following]
        match = _CONNECTIVE.match(unit.text)
        if match is None:
            continue
        words = match[0].strip("*_ \t").lower()
        if words.endswith(",") or words in _NEEDS_NO_COMMA:
            opening = match["mark"] + unit.text[match.end()].upper()
            yield Change(unit.start, unit.start + match.end() + 1, opening, following)
