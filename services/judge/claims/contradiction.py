"""Claims that say the opposite of a source sentence: a negation, an opposite word, or another number."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from errata_kit.text.terms import content_terms
from services.judge.claims.names import names

# Both must share this much of their words for a difference to be a contradiction rather than another
# statement.
_NEAR_IDENTICAL: Final = 0.7
# A negation turns a statement round only when both sides say little else: this share of the longer one's
# words.
_SAME_SUBJECT: Final = 0.5
# Characters after a negation within which the word it denies must stand.
_REACH: Final = 120
_NEGATION: Final = re.compile(
    r"\b(?:not(?! only\b)|never|cannot|neither|nor|no longer(?! than\b)|no|unable to)\b|n['’]t\b", re.I
)
# Words that deny without a negation; which of the words around them they turn is not decided here.
_DENYING_WORD: Final = re.compile(
    r"\b(?:fail\w*|unable|inabilit\w+|lack\w*|absen\w+|prevent\w*|avoid\w*|refus\w+|den(?:y|ies|ied)|missing|hardly|rarely|"
    r"instead of|rather than|impossible|except)\b",
    re.I,
)
_CLAUSE_END: Final = re.compile(r"[.;:,()]\s|\b(?:but|and|or|because|which|when|if|unless)\b")
_NUMBER: Final = re.compile(r"(?<![\w.,\-])\d+(?:[.,]\d+)*(?![\w])")
_WORD: Final = re.compile(r"[^\W\d_]+")
_PAIRS: Final = (
    "enable/disable enabled/disabled enables/disables true/false minimum/maximum increase/decrease "
    "increases/decreases increased/decreased before/after always/never allow/forbid allowed/forbidden "
    "required/optional above/below higher/lower more/less first/last first/second add/remove start/stop "
    "supported/unsupported synchronous/asynchronous mutable/immutable internal/external include/exclude "
    "includes/excludes ascending/descending oldest/newest largest/smallest longest/shortest "
    "possible/impossible public/private accept/reject accepts/rejects male/female all/none "
)
_OPPOSITES: Final = tuple(tuple(pair.split("/")) for pair in _PAIRS.split())


@dataclass(frozen=True, slots=True)
class Statement:
    """What a contradiction is looked for in.

    `numbers` maps each number to the words beside it, `denied` are the words right after negations,
    `affirmed` counts how often each word stands without one, and `affirms` tells that nothing is denied at
    all.
    """

    text: str
    terms: frozenset[str]
    numbers: Mapping[str, frozenset[str]]
    denied: frozenset[str]
    affirmed: Counter[str]
    affirms: bool


def statement(text: str) -> Statement:
    """Read a claim or a source sentence."""
    words = content_terms(text)
    numbers = [match[0].replace(",", "") for match in _NUMBER.finditer(text)]
    beside = {number: frozenset(_beside(words, number)) - frozenset(numbers) for number in numbers}
    affirms = not _NEGATION.search(text) and not _DENYING_WORD.search(text)
    denied = _denied(text)
    return Statement(text, frozenset(words), beside, frozenset(denied), Counter(words) - denied, affirms)


def alike(claim: Statement, source: Statement) -> float:
    """Return the share, 0 to 1, of the words of the smaller statement, numbers aside, that both have.

    The claim has to be covered wholly and the source by half, so that part of a longer sentence still counts.
    """
    ours, theirs = claim.terms - claim.numbers.keys(), source.terms - source.numbers.keys()
    if not ours or not theirs:
        return 0.0
    common = len(ours & theirs)
    return min(common / len(ours), 2 * common / len(theirs), 1.0)


def _overlap(claim: Statement, source: Statement) -> float:
    """Return the share of words that the larger of the two has in common with the other."""
    common = len(claim.terms & source.terms)
    return common / max(len(claim.terms), len(source.terms), 1)


def contradiction(claim: Statement, source: Statement, unknown_names: Sequence[str] = ()) -> str | None:
    """Return a sentence on how `claim` contradicts the near-identical `source`, or None when it does not.

    `unknown_names` are the claim's names that no passage has: beside another name of the source, they replace
    it.
    """
    if alike(claim, source) < _NEAR_IDENTICAL:
        return None
    for first, second in ((claim, source), (source, claim)):
        # Where both deny something, which word each denies is grammar that counting words cannot follow.
        comparable = second.affirms and _overlap(claim, source) >= _SAME_SUBJECT
        turned = sorted(w for w in first.denied if second.affirmed[w] > first.affirmed[w]) if comparable else []
        if turned:
            who, other = ("claim", "passage") if first is claim else ("passage", "claim")
            return f'The {who} denies what the {other} says ("{turned[0]}").'
    if opposite := _opposite(claim.text, source.text):
        return f'The claim says "{opposite[0]}" where the passage says "{opposite[1]}".'
    return _other_name(claim, source, unknown_names) or _other_number(claim, source)


def _other_name(claim: Statement, source: Statement, unknown_names: Sequence[str]) -> str | None:
    unused = [name for name in names(source.text) if claim.terms.isdisjoint(content_terms(name))]
    if unknown_names and unused:
        return f"The claim says {unknown_names[0]} where the passage says {unused[0]}."
    return None


def _other_number(claim: Statement, source: Statement) -> str | None:
    """Compare numbers that stand beside the same word: others may count different things."""
    for said, ours in claim.numbers.items():
        for meant, theirs in source.numbers.items():
            if said not in source.numbers and meant not in claim.numbers and ours & theirs:
                return f"The claim says {said} where the passage says {meant}."
    return None


def _beside(words: Sequence[str], number: str) -> Iterator[str]:
    for index, word in enumerate(words):
        if word == number:
            yield from words[max(0, index - 1) : index]
            yield from words[index + 1 : index + 2]


def _denied(text: str) -> Counter[str]:
    """Count the content words that stand right after negations."""
    heads: Counter[str] = Counter()
    for match in _NEGATION.finditer(text):
        rest = text[match.end() : match.end() + _REACH]
        end = _CLAUSE_END.search(rest)
        heads.update(content_terms(rest[: end.start()] if end else rest)[:1])
    return heads


def _opposite(claim: str, source: str) -> tuple[str, str] | None:
    ours = {word.lower() for word in _WORD.findall(claim)}
    theirs = {word.lower() for word in _WORD.findall(source)}
    for one, other in _OPPOSITES:
        for said, meant in ((one, other), (other, one)):
            if said in ours and meant in theirs and meant not in ours and said not in theirs:
                return said, meant
    return None
