"""Corrects a draft without a language model: the failing sentences go, the others stay as they are, byte for
byte.
"""

import re
from collections.abc import Sequence
from typing import Final

from errata_kit.grades import Claim
from errata_kit.passages import Passage
from errata_kit.text.questions import read_question
from errata_kit.text.sentences import Sentence, split_sentences
from errata_kit.text.terms import content_terms
from services.generator.drafting.drafts import CitedText, find_markers, read_citations
from services.generator.drafting.extract import Extractor

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
_ITEM_MARKER: Final = re.compile(r"[ \t>]*(?:[-*+•]|\d{1,3}[.)])[ \t]+\Z")
_INTRODUCES: Final = re.compile(r":[*_]*(?:\s*\[[\d, ]+\])*\Z")
_BLANK_LINES: Final = re.compile(r"\n[ \t]*(?:\n[ \t]*){2,}")
# A claim whose span is off still names its sentence when it shares this much of the claim's terms.
_SAME_CLAIM: Final = 0.6

Span = tuple[int, int]


def refine(
    question: str,
    draft: str,
    failed: Sequence[Claim],
    passages: Sequence[Passage],
    extractor: Extractor,
) -> CitedText:
    """Return the draft without its failing claims.

    Removed: each sentence, list item, table row or code block that a failing claim touches, with its
    citations; list markers, headings and lead-ins that this leaves with nothing under them; and an opening
    "However," whose predecessor is gone. Citations that stay keep their numbers; a marker that names no
    passage given is removed. When what is left names nothing the question asks about, extracts from the
    passages take its place or follow it. All else stays byte-identical.
    """
    units = split_sentences(draft)
    gone = {place for claim in failed for place in touched_units(draft, units, claim)}
    text = without_units(draft, units, gone)
    text = without_stray_markers(text, len(passages))
    if gone and not _answers(question, text):
        return _replaced(question, text, passages, extractor)
    return CitedText(text, read_citations(text, tuple(passage.passage_id for passage in passages)))


def without_units(draft: str, units: Sequence[Sentence], gone: set[int]) -> str:
    """Return the draft without the units at some places, and without what they leave behind: list markers, lead-ins of a
    vanished block, headings with nothing under them, an opening "However,". All else stays byte-identical.
    """
    return _without(draft, units, gone | _orphans(draft, units, gone)) if gone else draft


def touched_units(draft: str, units: Sequence[Sentence], claim: Claim) -> set[int]:
    """Return the units that a claim is about: by its span, or by its words where the span fits nothing."""
    raw = draft.encode("utf-8", "surrogatepass")
    if 0 <= claim.span.start < claim.span.end <= len(raw):
        start = len(raw[: claim.span.start].decode("utf-8", "ignore"))
        end = len(raw[: claim.span.end].decode("utf-8", "ignore"))
        found = {place for place, unit in enumerate(units) if draft[max(unit.start, start) : min(unit.end, end)].strip()}
        if found:
            return found
    place = draft.find(claim.text) if claim.text.strip() else -1
    if place >= 0:
        end = place + len(claim.text)
        return {index for index, unit in enumerate(units) if draft[max(unit.start, place) : min(unit.end, end)].strip()}
    terms = set(content_terms(claim.text))
    shares = [len(terms & set(content_terms(unit.text))) / max(len(terms), 1) for unit in units]
    best = max(range(len(units)), key=shares.__getitem__, default=None)
    return {best} if best is not None and shares[best] >= _SAME_CLAIM else set()


def _orphans(draft: str, units: Sequence[Sentence], gone: set[int]) -> set[int]:
    """Return what introduces nothing any more: lead-ins of a vanished block, headings of nothing."""
    dropped = set(gone)
    below: Sentence | None = None
    for place in range(len(units) - 1, -1, -1):
        unit = units[place]
        if place not in dropped and place + 1 in dropped:
            if unit.kind == "heading":
                bare = below is None or (below.kind == "heading" and _level(draft, below) <= _level(draft, unit))
            else:
                bare = bool(_INTRODUCES.search(unit.text)) and _block_is_gone(units, place + 1, dropped)
            if bare and unit.kind in ("heading", "prose", "list"):
                dropped.add(place)
        if place not in dropped:
            below = unit
    return dropped - gone


def _block_is_gone(units: Sequence[Sentence], first: int, dropped: set[int]) -> bool:
    """Whether nothing is left of the run of units of one kind that starts at `first`."""
    kind = units[first].kind
    for place in range(first, len(units)):
        if units[place].kind != kind:
            return True
        if place not in dropped:
            return False
        if kind != "list":
            return True
    return True


def _level(draft: str, heading: Sentence) -> int:
    line_start = draft.rfind("\n", 0, heading.start) + 1
    return draft[line_start : heading.start].count("#")


def _without(draft: str, units: Sequence[Sentence], gone: set[int]) -> str:
    """Cut the units out, with markers and line breaks that were theirs alone; mend what follows them."""
    kept: list[str] = []
    position = 0
    for place in sorted(gone):
        start, end = _cut(draft, units, place, gone)
        kept.append(draft[position : max(start, position)])
        position = max(end, position)
        following = place + 1
        if following < len(units) and following not in gone and units[following].kind in ("prose", "list"):
            gap = draft[position : units[following].start]
            if "\n\n" not in gap and not _ITEM_MARKER.search(gap.rsplit("\n", 1)[-1] or "x"):
                kept.append(gap)
                opening, position = _mended(draft, units[following])
                kept.append(opening)
    kept.append(draft[position:])
    text = _BLANK_LINES.sub("\n\n", "".join(kept))
    return text.strip()


def _cut(draft: str, units: Sequence[Sentence], place: int, gone: set[int]) -> Span:
    """Return the span to cut for one unit: the whole line when nothing else stands in it, else the unit and
    one gap.
    """
    unit = units[place]
    line_start = draft.rfind("\n", 0, unit.start) + 1
    line_end = draft.find("\n", unit.end)
    line_end = len(draft) if line_end < 0 else line_end + 1
    alone_before = not _kept_within(units, range(place - 1, -1, -1), gone, (line_start, line_end))
    alone_after = not _kept_within(units, range(place + 1, len(units)), gone, (line_start, line_end))
    if alone_before and alone_after:
        return line_start, line_end
    end = unit.end
    while end < len(draft) and draft[end] in " \t":
        end += 1
    start = unit.start
    if alone_after and not alone_before:
        while start > line_start and draft[start - 1] in " \t":
            start -= 1
        return start, unit.end
    return start, end


def _kept_within(units: Sequence[Sentence], places: range, gone: set[int], line: Span) -> bool:
    """Whether one of the units at `places`, nearest first, stands in the line and stays."""
    for place in places:
        if units[place].end <= line[0] or units[place].start >= line[1]:
            return False
        if place not in gone:
            return True
    return False


def _mended(draft: str, unit: Sentence) -> tuple[str, int]:
    """Return the opening of a sentence that lost its predecessor, and where its own bytes go on."""
    match = _CONNECTIVE.match(unit.text)
    if match is None:
        return "", unit.start
    words = match[0].strip("*_ \t").lower()
    if not words.endswith(",") and words not in _NEEDS_NO_COMMA:
        return "", unit.start
    first = unit.text[match.end()]
    return match["mark"] + first.upper(), unit.start + match.end() + 1


def without_stray_markers(text: str, passages: int) -> str:
    """Remove citations of passages that were not given, outside code."""
    pieces: list[str] = []
    position = 0
    for unit in split_sentences(text):
        if unit.kind == "code":
            continue
        for marker in find_markers(text, unit.start, unit.end):
            numbers = [number.strip() for number in marker[1].split(",")]
            valid = [number for number in numbers if 1 <= int(number) <= passages]
            if len(valid) == len(numbers):
                continue
            blank = marker.start() - 1 if not valid and text[marker.start() - 1 : marker.start()] == " " else marker.start()
            pieces.append(text[position:blank] + (f"[{', '.join(valid)}]" if valid else ""))
            position = marker.end()
    return "".join((*pieces, text[position:]))


def _answers(question: str, text: str) -> bool:
    """Whether what is left still names something that the question asks about."""
    read = read_question(question)
    left = {term for unit in split_sentences(text) if unit.kind != "heading" for term in content_terms(unit.text)}
    asked = set(read.key_terms or read.terms)
    return bool(left) and (not asked or not asked.isdisjoint(left))


def _replaced(question: str, text: str, passages: Sequence[Passage], extractor: Extractor) -> CitedText:
    extract = extractor.answer(question, passages)
    words = [unit for unit in split_sentences(text) if unit.kind != "heading"]
    if not words:
        return extract
    whole = f"{text}\n\n{extract.text}" if extract.text else text
    return CitedText(whole, read_citations(whole, tuple(passage.passage_id for passage in passages)))
