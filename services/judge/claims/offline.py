"""The offline checker: claims against passages without a model's opinion.

It measures how much of a claim the passages contain: the meaning of its nearest sentences (cosine), its words
anywhere, its words in two sentences, and its pairs of neighbouring words. It does not reason, so that a true
conclusion that no passage spells out counts as unsupported.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np

from errata_kit.encoding import Encoder, RememberingEncoder, Vectors
from errata_kit.grades import Verdict
from errata_kit.passages import Passage
from errata_kit.text.matching import fold, occurs
from errata_kit.text.terms import content_terms
from services.judge.claims.contradiction import Statement, alike, contradiction, statement
from services.judge.claims.names import unknown_names
from services.judge.claims.scoring import SUPPORTED_FROM
from services.judge.claims.source import Counts, Source, cosines
from services.judge.claims.splitting import ClaimText, bare_statement, split_claims
from services.judge.claims.verdicts import CheckedClaim, Quote

# Source sentences that are read closely for contradictions: those that share most words with the claim.
_CLOSE_READINGS: Final = 3
# Agreement of a claim that is not word for word in a passage stays below 1.
_NOT_VERBATIM: Final = 0.99
# A second sentence is quoted when it adds at least this share of the claim's words.
_WORTH_QUOTING: Final = 0.15
_NAMED_MISSING: Final = 4
# The encoder reads some 256 word pieces; what comes after them has no say in the vector.
_ENCODED_CHARACTERS: Final = 2000


@dataclass(frozen=True, slots=True)
class _Match:
    """A claim's agreement with the source, 0 to 1, and where it was found."""

    agreement: float
    quoted: tuple[int, ...]
    close: tuple[int, ...]
    missing: tuple[str, ...] = ()
    unknown_names: tuple[str, ...] = ()


class OfflineChecker:
    """Gives each claim of an answer a verdict. Deterministic; CPU work, so call it from a thread."""

    def __init__(self, encoder: Encoder | None = None, cached_texts: int = 8192) -> None:
        """Without an encoder the words alone decide, a little less accurately.

        `cached_texts` bounds the vector cache.
        """
        self._encoder = RememberingEncoder(encoder, cached_texts) if encoder is not None else None

    def check(self, answer: str, passages: Sequence[Passage]) -> tuple[CheckedClaim, ...]:
        """Return the claims of `answer` in order, each with verdict, support and evidence.

        No passage supports nothing.
        """
        return self.check_claims(split_claims(answer), passages)

    def check_claims(self, texts: Sequence[ClaimText], passages: Sequence[Passage]) -> tuple[CheckedClaim, ...]:
        """Return a verdict for each claim, in their order."""
        source = Source(passages)
        if not texts:
            return ()
        if not source.sentences:
            return tuple(_plain(text, Verdict.UNSUPPORTED, "No passage was given.") for text in texts)
        bare = [bare_statement(text.text) for text in texts]
        each, best = self._cosines(bare, source)
        readings: dict[int, Statement] = {}
        claims = []
        for index, text in enumerate(texts):
            words = tuple(dict.fromkeys(content_terms(bare[index])))
            if not words:
                claims.append(_plain(text, Verdict.UNVERIFIABLE, "It has no words to look up in the passages."))
                continue
            cosine = None if best is None else float(best[index])
            row = None if each is None else each[index]
            match = _match(bare[index], words, source, cosine, row)
            claims.append(_judged(text, bare[index], match, source, readings))
        return tuple(claims)

    def _cosines(self, claims: Sequence[str], source: Source) -> tuple[Vectors | None, Vectors | None]:
        if self._encoder is None:
            return None, None
        vectors = self._encoder.encode(
            [text[:_ENCODED_CHARACTERS] for text in (*claims, *(sentence.text for sentence in source.sentences))]
        )
        return cosines(vectors[: len(claims)], vectors[len(claims) :], source.neighbours)


def _match(text: str, words: tuple[str, ...], source: Source, cosine: float | None, row: Vectors | None) -> _Match:
    """Measure the agreement of one claim: the mean of what is measured, each counting the same."""
    wanted = frozenset(words)
    shared = source.overlaps(wanted)
    near = row if row is not None else np.zeros(len(shared), dtype=np.float32)
    first = _best(shared, near)
    added = source.overlaps(wanted - source.sentences[first].terms)
    second = _best(added, near)
    quoted = (first, second) if added[second] / len(wanted) >= _WORTH_QUOTING else (first,)
    close = tuple(int(index) for index in np.argsort(-shared, kind="stable")[:_CLOSE_READINGS])
    needle = fold(text.rstrip(".!;"))
    if any(occurs(needle, folded) for folded in source.folded):
        return _Match(1.0, quoted, close)
    missing = tuple(word for word in words if word not in source.terms)
    pairs = set(pairwise(content_terms(text)))
    anywhere = 1 - len(missing) / len(words)
    parts = [
        anywhere,
        float(shared[first] + added[second]) / len(wanted),
        len(pairs & source.pairs) / len(pairs) if pairs else anywhere,
    ]
    if cosine is not None:
        parts.append(min(1.0, max(0.0, cosine)))
        # Where words name no sentence, meaning does.
        quoted = quoted if shared[first] else (int(near.argmax()),)
    names = unknown_names(text, source.terms, source.capitals)
    agreement = min(_NOT_VERBATIM, sum(parts) / len(parts))
    # A name from nowhere leaves a claim short of support, however well the rest of it agrees.
    return _Match(agreement * SUPPORTED_FROM if names else agreement, quoted, close, missing, names)


def _best(counts: Counts, near: Vectors) -> int:
    """Return the sentence with the highest count, the nearest in meaning among equals."""
    among = np.flatnonzero(counts == counts.max())
    return int(among[near[among].argmax()])


def _judged(text: ClaimText, bare: str, match: _Match, source: Source, readings: dict[int, Statement]) -> CheckedClaim:
    against = _contradicted(bare, match, source, readings) if match.agreement < 1.0 else None
    if against is not None:
        evidence = _evidence(source, (against[0],))
        return CheckedClaim(text.text, text.start, text.end, Verdict.CONTRADICTED, 0.0, evidence, against[1])
    support = round(match.agreement, 6)
    evidence = _evidence(source, match.quoted)
    supported = support >= SUPPORTED_FROM
    verdict = Verdict.SUPPORTED if supported else Verdict.UNSUPPORTED
    return CheckedClaim(text.text, text.start, text.end, verdict, support, evidence, _explanation(match, supported, bare))


def _contradicted(bare: str, match: _Match, source: Source, readings: dict[int, Statement]) -> tuple[int, str] | None:
    """Return the nearest source sentence that the claim contradicts, unless one as near agrees with it."""
    claim = statement(bare)
    for index in match.close:
        if index not in readings:
            readings[index] = statement(source.sentences[index].text)
    ranked = sorted(match.close, key=lambda i: -alike(claim, readings[i]))
    reasons = [(index, contradiction(claim, readings[index], match.unknown_names)) for index in ranked]
    nearest = alike(claim, readings[ranked[0]])
    agreeing = any(why is None and alike(claim, readings[i]) >= nearest for i, why in reasons)
    return next(((index, why) for index, why in reasons if why is not None and not agreeing), None)


def _evidence(source: Source, indices: tuple[int, ...]) -> tuple[Quote, ...]:
    chosen = (source.sentences[index] for index in indices)
    return tuple(dict.fromkeys(Quote(sentence.passage_id, sentence.text) for sentence in chosen))


def _explanation(match: _Match, supported: bool, bare: str) -> str:
    if match.agreement >= 1.0:
        return "The passage says it in the same words."
    if supported and not match.missing:
        return "The passages say it in other words."
    if not match.missing:
        return "Its words are in the passages, but no sentence or two say them together."
    shown = ", ".join(f'"{word}"' for word in _as_written(match.missing, bare)[:_NAMED_MISSING])
    more = len(match.missing) - _NAMED_MISSING
    tail = f" and {more} more" if more > 0 else ""
    return f"The passages say it but for {shown}{tail}." if supported else f"No passage mentions {shown}{tail}."


def _as_written(stems: Sequence[str], bare: str) -> list[str]:
    """Return the claim's own words behind the stems, which people could not read."""
    written: dict[str, str] = {}
    for word in bare.split():
        clean = word.strip(".,;:!?()[]{}\"'“”‘’`*")
        for stem in content_terms(clean):
            written.setdefault(stem, clean)
    return list(dict.fromkeys(written.get(stem, stem) for stem in stems))


def _plain(text: ClaimText, verdict: Verdict, why: str) -> CheckedClaim:
    return CheckedClaim(text.text, text.start, text.end, verdict, 0.0 if verdict is Verdict.UNSUPPORTED else 0.5, (), why)
