"""The judge's cache: what is the same question, what a hit saves, and what is never remembered."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from errata_kit.access.principals import Principal
from errata_kit.caching.local import LocalBounds, LocalCache
from errata_kit.calls import enter_call
from errata_kit.drafts import Criterion
from errata_kit.errors import ErrataError, JudgementIncomplete, ModelOutputInvalid, ModelUnavailable
from errata_kit.grades import PassageGrade, Verdict
from errata_kit.passages import Passage
from errata_kit.usage import ModelCall
from services.judge.caching import CachingProvider
from services.judge.claims.splitting import ClaimText, split_claims, stands_alone
from services.judge.claims.verdicts import CheckedClaim, Quote
from services.judge.provider import CheckedClaims, GradedPassage, ReviewedDraft

QUESTION = "How long are files kept?"
FILES = Passage("files", "Files are kept for 30 days.", title="Retention")
LOGS = Passage("logs", "Logs are rotated every Monday at noon.")
PASSAGES = (FILES, LOGS)
CALL = ModelCall(
    "m", "check_claims", "v1", input_tokens=100, cached_input_tokens=11, output_tokens=50, cost_micros=7, latency_seconds=0.5
)


@dataclass
class Judge:
    """Keeps what it is asked; quotes the first passage of a claim's set, or the one at `quotes`."""

    model: str = "m"
    versions: Mapping[str, str] = field(default_factory=lambda: {"grade_passage": "v1", "check_claims": "v1"})
    asked: list[tuple[str, ...]] = field(default_factory=list)
    failures: list[ErrataError] = field(default_factory=list)
    calls: tuple[ModelCall, ...] = (CALL,)
    quotes: int | None = None
    gate: asyncio.Event | None = None

    async def grade_passages(self, question: str, passages: tuple[Passage, ...]) -> tuple[GradedPassage, ...]:
        await self._ask(tuple(passage.passage_id for passage in passages))
        return tuple(
            GradedPassage(PassageGrade(len(passage.text) / 100, True, passage.passage_id), () if place else self.calls)
            for place, passage in enumerate(passages)
        )

    async def check_claims(self, question: str, claims: tuple[ClaimText, ...], passages: tuple[Passage, ...]) -> CheckedClaims:
        await self._ask(tuple(claim.text for claim in claims))
        checked = []
        for claim, places in zip(claims, self.evidence_sets(claims, passages), strict=True):
            passage = passages[places[0] if self.quotes is None else self.quotes]
            quotes = (Quote(passage.passage_id, passage.text[:10]),)
            checked.append(CheckedClaim(claim.text, claim.start, claim.end, Verdict.SUPPORTED, None, quotes, "So it is."))
        return CheckedClaims(tuple(checked), self.calls)

    def evidence_sets(self, claims: tuple[ClaimText, ...], passages: tuple[Passage, ...]) -> tuple[tuple[int, ...], ...]:
        of = [i for i, passage in enumerate(passages) if passage.text.startswith("Files")]
        return tuple(tuple(of) if "iles" in claim.text else tuple(range(len(passages))) for claim in claims)

    async def review_draft(
        self, task: str, draft: str, criteria: tuple[Criterion, ...], passages: tuple[Passage, ...]
    ) -> ReviewedDraft:
        await self._ask((task,))
        return ReviewedDraft(())

    async def _ask(self, what: tuple[str, ...]) -> None:
        self.asked.append(what)
        if self.gate is not None:
            await self.gate.wait()
        if self.failures:
            raise self.failures.pop(0)


def cached(judge: Judge) -> CachingProvider:
    return CachingProvider(judge, LocalCache(LocalBounds(1000, 1 << 20, 60.0)))


def claims(*texts: str) -> tuple[ClaimText, ...]:
    return tuple(claim for text in texts for claim in split_claims(text))


CLAIMS = claims("Files are kept for 30 days.", "Logs are rotated every Monday.")


def tokens(calls: Sequence[ModelCall], *, saved: bool) -> tuple[int, int, int, int]:
    of = [call for call in calls if call.saved is saved]
    return (
        sum(call.input_tokens for call in of),
        sum(call.cached_input_tokens for call in of),
        sum(call.output_tokens for call in of),
        sum(call.cost_micros or 0 for call in of),
    )


# --- grades -----------------------------------------------------------------------------------------------------------


async def test_a_passage_that_was_graded_is_not_graded_again() -> None:
    judge = Judge()
    provider = cached(judge)
    first = await provider.grade_passages(QUESTION, PASSAGES)
    second = await provider.grade_passages(QUESTION, (LOGS, Passage("new", "Something else."), FILES))
    assert judge.asked == [("files", "logs"), ("new",)]
    assert [item.grade for item in first] == [second[2].grade, second[0].grade]
    assert first[0].model_calls == (CALL,) and first[1].model_calls == ()
    assert second[0].model_calls[0] == CALL and second[1].model_calls == ()


async def test_a_hit_says_which_part_of_the_call_it_saved() -> None:
    provider = cached(Judge())
    await provider.grade_passages(QUESTION, (*PASSAGES, Passage("new", "Something else.")))
    hits = [item.model_calls for item in await provider.grade_passages(QUESTION, PASSAGES)]
    share = replace(
        CALL, input_tokens=33, cached_input_tokens=3, output_tokens=16, cost_micros=2, latency_seconds=0, attempts=0, saved=True
    )
    assert hits == [(share,), (share,)]


@given(st.integers(1, 20), st.integers(0, 10_000), st.integers(0, 1000), st.one_of(st.none(), st.integers(0, 100_000)))
async def test_all_hits_together_never_saved_more_than_was_paid(items: int, read: int, written: int, cost: int | None) -> None:
    call = ModelCall("m", "grade_passage", "v1", input_tokens=read, output_tokens=written, cost_micros=cost)
    provider = cached(Judge(calls=(call,)))
    passages = tuple(Passage(str(number), f"Text {number}.") for number in range(items))
    await provider.grade_passages(QUESTION, passages)
    saved = [call for item in await provider.grade_passages(QUESTION, passages) for call in item.model_calls]
    assert len(saved) == items and all((call.cost_micros is None) == (cost is None) for call in saved)
    total = tokens(saved, saved=True)
    assert all(part <= paid < part + items for part, paid in zip(total, (read, 0, written, cost or 0), strict=True))


@pytest.mark.parametrize(
    ("question", "passage", "model", "version", "asked_again"),
    [
        (QUESTION, replace(FILES, passage_id="other", document_id="d", start_line=4), "m", "v1", False),
        ("Another question?", FILES, "m", "v1", True),
        (QUESTION, replace(FILES, text="Files are kept for 31 days."), "m", "v1", True),
        (QUESTION, replace(FILES, title="Backups"), "m", "v1", True),
        (QUESTION, FILES, "m2", "v1", True),
        (QUESTION, FILES, "m", "v2", True),
    ],
    ids=["another id", "question", "text", "title", "model", "prompt"],
)
async def test_a_grade_is_of_a_question_a_text_a_model_and_a_prompt(
    question: str, passage: Passage, model: str, version: str, asked_again: bool
) -> None:
    judge = Judge()
    provider = cached(judge)
    await provider.grade_passages(QUESTION, (FILES,))
    judge.model, judge.versions = model, {"grade_passage": version, "check_claims": "v1"}
    await provider.grade_passages(question, (passage,))
    assert len(judge.asked) == (2 if asked_again else 1)


async def test_tenants_share_no_grade() -> None:
    judge = Judge()
    provider = cached(judge)

    async def ask(tenant: str) -> None:
        enter_call("", "", None, principal=Principal("p", tenant=tenant))
        await provider.grade_passages(QUESTION, (FILES,))

    for tenant in ("a", "b", "a"):
        await asyncio.create_task(ask(tenant))
    assert len(judge.asked) == 2


async def test_a_failure_is_not_remembered_and_says_what_it_cost() -> None:
    failed = ModelOutputInvalid()
    failed.model_calls = (CALL,)
    judge = Judge(failures=[failed])
    provider = cached(judge)
    with pytest.raises(ModelOutputInvalid) as caught:
        await provider.grade_passages(QUESTION, PASSAGES)
    assert caught.value.model_calls == (CALL,)
    assert [item.grade.relevant for item in await provider.grade_passages(QUESTION, PASSAGES)] == [True, True]
    assert len(judge.asked) == 2


async def test_equal_calls_at_the_same_moment_are_made_once() -> None:
    judge = Judge(gate=asyncio.Event())
    provider = cached(judge)
    calls = [asyncio.create_task(provider.grade_passages(QUESTION, PASSAGES)) for _ in range(4)]
    await asyncio.sleep(0.01)
    assert judge.gate is not None
    judge.gate.set()
    results = await asyncio.gather(*calls)
    assert judge.asked == [("files", "logs")]
    told = [call for result in results for item in result for call in item.model_calls]
    assert tokens(told, saved=False) == (100, 11, 50, 7)
    assert sum(call.saved for call in told) == 6


async def test_a_failure_in_flight_is_paid_by_one() -> None:
    failed = ModelUnavailable()
    failed.model_calls = (CALL,)
    judge = Judge(gate=asyncio.Event(), failures=[failed])
    provider = cached(judge)
    calls = [asyncio.create_task(provider.grade_passages(QUESTION, PASSAGES)) for _ in range(3)]
    await asyncio.sleep(0.01)
    assert judge.gate is not None
    judge.gate.set()
    errors = await asyncio.gather(*calls, return_exceptions=True)
    assert all(isinstance(error, ModelUnavailable) for error in errors) and len(judge.asked) == 1
    assert [call for error in errors if isinstance(error, ErrataError) for call in error.model_calls] == [CALL]


# --- verdicts ---------------------------------------------------------------------------------------------------------


async def test_a_claim_that_was_checked_is_not_checked_again_wherever_it_stands() -> None:
    judge = Judge()
    provider = cached(judge)
    first = await provider.check_claims(QUESTION, CLAIMS, PASSAGES)
    again = split_claims("Cats purr at night in general. Logs are rotated every Monday. Files are kept for 30 days. [1]")
    again = tuple(replace(claim, cited=()) for claim in again)
    moved = (replace(LOGS, passage_id="l2"), replace(FILES, passage_id="f2"))
    second = await provider.check_claims(QUESTION, again, moved)
    assert judge.asked == [tuple(claim.text for claim in CLAIMS), ("Cats purr at night in general.",)]
    assert [(claim.start, claim.end) for claim in second.claims] == [(claim.start, claim.end) for claim in again]
    assert second.claims[2].evidence == (Quote("f2", FILES.text[:10]),)
    assert second.claims[2].support is None and second.claims[2].explanation == first.claims[0].explanation
    assert first.model_calls == (CALL,) and second.model_calls[0] == CALL
    assert tokens(second.model_calls, saved=True) == (100, 10, 50, 6)


async def test_a_claim_that_is_asked_about_twice_is_asked_once() -> None:
    judge = Judge()
    checked = await cached(judge).check_claims(QUESTION, (*CLAIMS, *CLAIMS), PASSAGES)
    assert judge.asked == [tuple(claim.text for claim in CLAIMS)]
    assert len(checked.claims) == 4 and checked.model_calls == (CALL,)


@pytest.mark.parametrize(
    ("text", "passages", "asked_again"),
    [
        ("Files are kept for 30 days.", (Passage("x", "Nothing of that."), FILES), False),
        ("Files are kept for 30 days.", (replace(FILES, text="Files are kept for 30 days. Or so."),), True),
        ("Files are kept for 31 days.", PASSAGES, True),
        ("Logs are rotated every Monday.", (LOGS,), True),
        ("Logs are rotated every Monday.", (LOGS, FILES), False),
    ],
    ids=["another passage", "changed passage", "another claim", "smaller set", "other order"],
)
async def test_a_verdict_is_of_a_claim_and_its_evidence_set(
    text: str, passages: tuple[Passage, ...], asked_again: bool
) -> None:
    judge = Judge()
    provider = cached(judge)
    await provider.check_claims(QUESTION, CLAIMS, PASSAGES)
    await provider.check_claims("Another question?", claims(text), passages)
    assert len(judge.asked) == (2 if asked_again else 1)


@pytest.mark.parametrize("text", ["Yes, files are kept for 30 whole days.", "It keeps all files for 30 days.", "Kept files."])
async def test_a_claim_that_does_not_stand_alone_is_of_its_question(text: str) -> None:
    judge = Judge()
    provider = cached(judge)
    for question in (QUESTION, QUESTION, "Another question?"):
        await provider.check_claims(question, claims(text), PASSAGES)
    assert len(judge.asked) == 2


@pytest.mark.parametrize(
    ("claim", "alone"),
    [
        ("Files are kept for 30 days in the archive.", True),
        ("However, files are kept for 30 days in the archive.", True),
        ("Items are kept for 30 days in the archive.", True),
        ("No files are kept for 30 days in the archive.", False),
        ("Yes, files are kept for 30 days in the archive.", False),
        ("However, they are kept for 30 days in the archive.", False),
        ("**It** keeps files for 30 days in the archive.", False),
        ("The latter keeps files for 30 days in the archive.", False),
        ("Kept for long.", False),
        ("30 days.", False),
    ],
)
def test_which_claims_stand_alone(claim: str, alone: bool) -> None:
    assert stands_alone(claim) is alone


async def test_a_verdict_with_a_quote_from_elsewhere_is_not_remembered() -> None:
    judge = Judge(quotes=1)
    provider = cached(judge)
    for _ in range(2):
        checked = await provider.check_claims(QUESTION, CLAIMS, PASSAGES)
        assert {claim.evidence[0].passage_id for claim in checked.claims} == {"logs"}
    # The set of the second claim has all passages.
    assert judge.asked == [tuple(claim.text for claim in CLAIMS), (CLAIMS[0].text,)]


async def test_too_few_verdicts_are_none_and_their_call_is_told() -> None:
    class Short(Judge):
        async def check_claims(
            self, question: str, claims: tuple[ClaimText, ...], passages: tuple[Passage, ...]
        ) -> CheckedClaims:
            return CheckedClaims((), (CALL,))

    with pytest.raises(JudgementIncomplete) as caught:
        await cached(Short()).check_claims(QUESTION, CLAIMS, PASSAGES)
    assert caught.value.model_calls == (CALL,)


async def test_what_made_no_call_saves_none() -> None:
    provider = cached(Judge(calls=()))
    for _ in range(2):
        assert (await provider.check_claims(QUESTION, CLAIMS, PASSAGES)).model_calls == ()
        assert [item.model_calls for item in await provider.grade_passages(QUESTION, PASSAGES)] == [(), ()]


async def test_a_review_is_made_each_time() -> None:
    judge = Judge()
    provider = cached(judge)
    for _ in range(2):
        await provider.review_draft("task", "draft", (), ())
    assert len(judge.asked) == 2
