"""A judge that is asked once: grades and verdicts from the cache, or from an equal call under way, and the rest from a model.

A grade depends on the question, the passage as a model reads it, the model and the prompt; in which batch it was made does not
count. A verdict depends on the words of the claim, the passages of its evidence set, the model and the prompt. Where they
stood, with which other claims it was asked, and what question the answer is to do not count, with one exception: a claim that
says too little by itself (`stands_alone`) has the question and the sentence before it in its key.

Reviews are not remembered: each is of a draft that was not there before.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import TypeVar

from pydantic import TypeAdapter
from pydantic.dataclasses import dataclass as checked_dataclass

from errata_kit.bounds import UnitScore
from errata_kit.caching.base import Cache
from errata_kit.caching.keys import cache_key
from errata_kit.caching.memo import Make, Memo, Record, Remembered, ignore
from errata_kit.drafts import Criterion
from errata_kit.errors import ErrataError, JudgementIncomplete
from errata_kit.grades import PassageGrade, Verdict
from errata_kit.passages import Passage
from errata_kit.usage import ModelCall
from services.judge.claims.splitting import ClaimText, stands_alone
from services.judge.claims.verdicts import CheckedClaim, Quote
from services.judge.off_loop import off_loop
from services.judge.provider import CheckedClaims, GradedPassage, Provider, ReviewedDraft

V = TypeVar("V")


@checked_dataclass(frozen=True, slots=True)
class StoredGrade:
    """A grade, and the part of the call that made it: what it costs to ask again."""

    grade: PassageGrade
    saves: tuple[ModelCall, ...]


@checked_dataclass(frozen=True, slots=True)
class StoredQuote:
    """Words of the passage with this hash. Its id may be another one tomorrow."""

    passage: str
    quote: str


@checked_dataclass(frozen=True, slots=True)
class StoredVerdict:
    """A verdict, and the part of the call that made it."""

    verdict: Verdict
    support: UnitScore | None
    evidence: tuple[StoredQuote, ...]
    explanation: str
    saves: tuple[ModelCall, ...]

    def rests_on(self, passages: frozenset[str]) -> bool:
        """Whether every quote is from one of the passages with these hashes."""
        return passages.issuperset(quote.passage for quote in self.evidence)


@dataclass(frozen=True, slots=True)
class _Asked:
    """A claim, the hashes of the passages in its evidence set, and the key of its verdict."""

    claim: ClaimText
    evidence_set: frozenset[str]
    key: str


@dataclass(slots=True)
class _Paid:
    """What the calls that were made have cost, also where a later one failed."""

    calls: list[ModelCall] = field(default_factory=list)


class CachingProvider:
    """Asks another provider for what is not known. A failure is never remembered.

    grade_lookups, verdict_lookups: get the hits and misses; must not block or raise.
    """

    def __init__(
        self, provider: Provider, cache: Cache, grade_lookups: Record = ignore, verdict_lookups: Record = ignore
    ) -> None:
        self._provider = provider
        self._grades = Memo(cache, TypeAdapter(StoredGrade), grade_lookups)
        self._verdicts = Memo(cache, TypeAdapter(StoredVerdict), verdict_lookups)

    @property
    def model(self) -> str:
        """See `Provider`."""
        return self._provider.model

    @property
    def versions(self) -> Mapping[str, str]:
        """See `Provider`."""
        return self._provider.versions

    async def grade_passages(self, question: str, passages: tuple[Passage, ...]) -> tuple[GradedPassage, ...]:
        """See `Provider`. What is known costs nothing, and says what it has saved."""
        made_by = (self.model, self.versions["grade_passage"])
        keys = [cache_key("grade", question, _hash(passage), *made_by) for passage in passages]
        first = dict(zip(reversed(keys), reversed(passages), strict=True))
        paid = _Paid()

        async def make(missing: tuple[str, ...]) -> Mapping[str, StoredGrade]:
            graded = await self._provider.grade_passages(question, tuple(first[key] for key in missing))
            calls = [call for item in graded for call in item.model_calls]
            paid.calls += calls
            saves = _share(calls, len(missing))
            return {key: StoredGrade(item.grade, saves) for key, item in zip(missing, graded, strict=True)}

        found = await _telling(self._grades, keys, make, paid)
        told = [() if not found[key].known else found[key].value.saves for key in keys]
        told[0] = (*paid.calls, *told[0])
        return tuple(GradedPassage(found[key].value.grade, calls) for key, calls in zip(keys, told, strict=True))

    async def check_claims(self, question: str, claims: tuple[ClaimText, ...], passages: tuple[Passage, ...]) -> CheckedClaims:
        """See `Provider`. What all known verdicts together have saved is told as one call for each prompt."""
        asked = await self._asked(question, claims, passages)
        first = {item.key: item for item in reversed(asked)}
        hashes = {passage.passage_id: _hash(passage) for passage in passages}
        ids = {hashed: passage_id for passage_id, hashed in reversed(hashes.items())}
        paid = _Paid()
        unshared: dict[str, StoredVerdict] = {}

        async def make(missing: tuple[str, ...]) -> Mapping[str, StoredVerdict]:
            checked = await self._provider.check_claims(question, tuple(first[key].claim for key in missing), passages)
            paid.calls += checked.model_calls
            if len(checked.claims) != len(missing):
                raise JudgementIncomplete("The judge has no verdict for some of the claims")
            saves = _share(checked.model_calls, len(missing))
            made = {key: _stored(claim, hashes, saves) for key, claim in zip(missing, checked.claims, strict=True)}
            # Quoted from a passage that was shown for the sake of another claim: it holds among these passages only.
            unshared.update({key: verdict for key, verdict in made.items() if not verdict.rests_on(first[key].evidence_set)})
            return {key: verdict for key, verdict in made.items() if key not in unshared}

        found = await _telling(self._verdicts, [item.key for item in asked], make, paid)
        verdicts = {**unshared, **{key: item.value for key, item in found.items()}}
        saved = _together(call for item in found.values() if item.known for call in item.value.saves)
        checked = tuple(_claim(item.claim, verdicts[item.key], ids) for item in asked)
        return CheckedClaims(checked, (*paid.calls, *saved))

    def evidence_sets(self, claims: tuple[ClaimText, ...], passages: tuple[Passage, ...]) -> tuple[tuple[int, ...], ...]:
        """See `Provider`."""
        return self._provider.evidence_sets(claims, passages)

    async def review_draft(
        self, task: str, draft: str, criteria: tuple[Criterion, ...], passages: tuple[Passage, ...]
    ) -> ReviewedDraft:
        """See `Provider`. Always asked anew."""
        return await self._provider.review_draft(task, draft, criteria, passages)

    async def _asked(self, question: str, claims: tuple[ClaimText, ...], passages: tuple[Passage, ...]) -> tuple[_Asked, ...]:
        size = sum(len(passage.text) for passage in passages) + sum(len(claim.text) for claim in claims)
        sets = await off_loop(size, self.evidence_sets, claims, passages)
        hashes = [_hash(passage) for passage in passages]
        asked = []
        for claim, places in zip(claims, sets, strict=True):
            evidence_set = frozenset(hashes[place] for place in places)
            context = ("", "") if stands_alone(claim.text) else (question, claim.before)
            made_by = (self.model, self.versions["check_claims"])
            key = cache_key("verdict", claim.text, *context, *made_by, *sorted(evidence_set))
            asked.append(_Asked(claim, evidence_set, key))
        return tuple(asked)


async def _telling(memo: Memo[V], keys: Sequence[str], make: Make[V], paid: _Paid) -> Mapping[str, Remembered[V]]:
    """Look up or make; an error says what was paid before it, too."""
    try:
        return await memo.get(keys, make)
    except ErrataError as error:
        error.model_calls = (*paid.calls, *error.model_calls)
        raise


def _hash(passage: Passage) -> str:
    return sha256(passage.under_headings().encode("utf-8", "surrogatepass")).hexdigest()


def _share(calls: Iterable[ModelCall], items: int) -> tuple[ModelCall, ...]:
    """What one of several items has cost, rounded down, so that all of them together never saved more than was paid."""
    return tuple(
        replace(
            call,
            input_tokens=call.input_tokens // items,
            cached_input_tokens=call.cached_input_tokens // items,
            output_tokens=call.output_tokens // items,
            cost_micros=None if call.cost_micros is None else call.cost_micros // items,
            latency_seconds=0.0,
            attempts=0,
            saved=True,
        )
        for call in calls
    )


def _together(calls: Iterable[ModelCall]) -> tuple[ModelCall, ...]:
    """The sum of the saved calls of each kind, so that a long answer does not come with a list as long."""
    sums: dict[ModelCall, ModelCall] = {}
    for call in calls:
        kind = replace(
            call,
            input_tokens=0,
            cached_input_tokens=0,
            output_tokens=0,
            cost_micros=None if call.cost_micros is None else 0,
        )
        so_far = sums.get(kind, kind)
        sums[kind] = replace(
            so_far,
            input_tokens=so_far.input_tokens + call.input_tokens,
            cached_input_tokens=so_far.cached_input_tokens + call.cached_input_tokens,
            output_tokens=so_far.output_tokens + call.output_tokens,
            cost_micros=None if so_far.cost_micros is None else so_far.cost_micros + (call.cost_micros or 0),
        )
    return tuple(sums.values())


def _stored(claim: CheckedClaim, hashes: Mapping[str, str], saves: tuple[ModelCall, ...]) -> StoredVerdict:
    quotes = tuple(StoredQuote(hashes[quote.passage_id], quote.quote) for quote in claim.evidence if quote.passage_id in hashes)
    return StoredVerdict(claim.verdict, claim.support, quotes, claim.explanation, saves)


def _claim(asked: ClaimText, stored: StoredVerdict, ids: Mapping[str, str]) -> CheckedClaim:
    quotes = tuple(Quote(ids[quote.passage], quote.quote) for quote in stored.evidence)
    return CheckedClaim(asked.text, asked.start, asked.end, stored.verdict, stored.support, quotes, stored.explanation)
