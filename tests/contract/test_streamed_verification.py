"""Claims are checked while the answer is written, and the run comes to what it comes to without that."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from errata.grading.v1 import grading_pb2
from errata.judge.v1 import judge_service_pb2 as judge_pb2
from errata.orchestrator.v1 import orchestrator_service_pb2 as pb2

from errata_kit.errors import Draining, ErrataError, ModelOutputInvalid, ModelUnavailable, ServiceUnavailable
from errata_kit.usage import ModelCall
from tests.harness.services import CALL_SECONDS, scripted
from tests.harness.traces import Fails, Hook, ask, end, get_run, outcome, payloads, steps, trace_of, until, watch
from tests.harness.verdicts import below_of, check_verdicts, checked, claims_of, delta_text, edit, grade_of, words_of

FOUR = "The first is so. [1] Größe und 保存 is so. [1] The third is wrong. [1] The fourth is so. [1]"
GOOD = "The first is so. [1] The second is so. [1] The third is so. [1] The fourth is so. [1]"
MENDED = "The first is so. [1] Größe und 保存 is so. [1] The fourth is so. [1]"


class AtWord:
    """Lets a text come up to a word, and then waits until it is let go."""

    def __init__(self, number: int) -> None:
        self._left = number
        self.reached = asyncio.Event()
        self.release = asyncio.Event()

    async def __call__(self) -> None:
        self._left -= 1
        if self._left == 0:
            self.reached.set()
            await self.release.wait()


async def soon(condition: Callable[[], Any]) -> None:
    async with asyncio.timeout(5):
        while not condition():  # noqa: ASYNC110 - the fakes count, they have no event
            await asyncio.sleep(0.005)


def checks_left() -> list[Any]:
    """Tasks of this process that check segments; the orchestrator under test lives in it."""
    coroutines = [task.get_coro() for task in asyncio.all_tasks()]
    return [item for item in coroutines if "StreamedVerification" in str(getattr(item, "__qualname__", ""))]


# --- while it is written ----------------------------------------------------------------------------------------------


async def test_claims_are_checked_before_the_draft_is_complete() -> None:
    below = below_of(GOOD)
    hold = AtWord(7)
    below.generator.between = hold
    async with scripted(below, segment_sentences=1) as served:
        call = ask(served)
        events = await until(call, "claim_checked")
        assert hold.reached.is_set() and "answer_drafted" not in steps(events)
        assert events[-1].claim_checked.segment == 1 and events[-1].claim_checked.passed
        hold.release.set()
        events += await until(call, "run_finished")
    assert outcome(events) == "ANSWERED"
    assert steps(events).index("claim_checked") < steps(events).index("answer_drafted")
    check_verdicts(events)


@pytest.mark.parametrize(("size", "segments"), [(1, 4), (2, 2), (3, 2)])
async def test_when_the_last_word_comes_only_the_last_segment_is_unchecked(size: int, segments: int) -> None:
    below = below_of(GOOD)
    hold = below.generator.between = AtWord(len(GOOD.split(" ")))
    async with scripted(below, segment_sentences=size) as served:
        call = ask(served)
        await asyncio.wait_for(hold.reached.wait(), 5)
        before = await until(call, "claim_checked")
        while len(payloads(before, "claim_checked")) < size * (segments - 1):
            before += await until(call, "claim_checked")
        assert len(below.judge.segment_requests) == segments - 1
        hold.release.set()
        events = before + await until(call, "run_finished")
    asked = [request.segment for request in below.judge.segment_requests]
    assert len(asked) == segments and "".join(asked).rstrip() == GOOD
    [request] = below.judge.answer_requests
    assert sorted(words_of(request.known_claims)) == sorted(words_of(claims_of(GOOD)))
    # Ids are unique in their segment only; spans are those of the text.
    raw = delta_text(events).encode()
    assert all(raw[claim.span.start : claim.span.end].decode() == claim.text for claim in request.known_claims)
    assert outcome(events) == "ANSWERED"


@pytest.mark.parametrize("size", [0, 1, 2, 4, 100])
async def test_every_claim_is_told_once_with_its_verdict_and_its_place(size: int) -> None:
    below = below_of(FOUR, MENDED)
    below.generator.edits = [edit(FOUR, "The third is wrong. [1] ", "")]
    async with scripted(below, segment_sentences=size) as served:
        events = await trace_of(ask(served))
    assert outcome(events) == "ANSWERED_AFTER_REFINEMENT"
    check_verdicts(events)
    told = [item for item in payloads(events, "claim_checked") if item.refinement == 0]
    assert len(told) == 4 and [item.passed for item in sorted(told, key=lambda item: item.claim.span.start)] == [
        True,
        True,
        False,
        True,
    ]
    text = delta_text(events).encode()
    for item in told:
        assert text[item.claim.span.start : item.claim.span.end].decode() == item.claim.text
        assert (item.segment > 0) is (size > 0)
    shown = {delta.segment for delta in payloads(events, "answer_delta") if delta.refinement == 0}
    assert shown == ({item.segment for item in told} if size else {0})


async def test_a_sentence_that_comes_twice_is_told_twice() -> None:
    text = "It is so. [1] It is so. [1] It is wrong. [1] It is so. [1] It is wrong. [1]"
    below = below_of(text)
    async with scripted(below, segment_sentences=2) as served:
        events = await trace_of(ask(served, max_refinements=0))
    check_verdicts(events)
    assert Counter(item.claim.text for item in payloads(events, "claim_checked")) == Counter(words_of(claims_of(text)))


async def test_a_verdict_that_the_whole_changes_is_told_again() -> None:
    below = below_of(GOOD)
    changed = grade_of(GOOD)
    changed.claims[1].verdict = grading_pb2.VERDICT_UNSUPPORTED
    changed.claims[3].verdict = grading_pb2.VERDICT_UNVERIFIABLE
    changed.findings.add(kind="FINDING_KIND_NUMBER", text="third", span=changed.claims[2].span, claim_id="c3")
    below.judge.answers = [changed]
    async with scripted(below, segment_sentences=1) as served:
        events = await trace_of(ask(served, max_refinements=0))
    again = [item for item in payloads(events, "claim_checked") if not item.segment]
    assert [(item.claim.claim_id, item.passed, item.remaining) for item in again] == [
        ("c2", False, 2),
        ("c3", False, 1),
        ("c4", True, 0),
    ]
    check_verdicts(events)


async def test_a_sentence_that_the_whole_cuts_otherwise_is_told_as_the_whole_has_it() -> None:
    # With its second line alone, the first is no title.
    text = "Short title\nThe text is so.\nAnd the last line of this paragraph is by far the longest that it has. It is so."
    assert words_of(claims_of(text))[0] == "Short title"
    below = below_of(text)
    async with scripted(below, segment_sentences=1) as served:
        events = await trace_of(ask(served))
    assert below.judge.segment_requests[0].segment == "Short title\nThe text is so.\n"
    assert outcome(events) == "ANSWERED"
    check_verdicts(events)
    again = [item.claim.text for item in payloads(events, "claim_checked") if not item.segment]
    assert again == ["Short title", "The text is so."]


async def test_a_verdict_that_the_guard_lowered_is_asked_for_again() -> None:
    def lowering(segment: str) -> judge_pb2.CheckClaimsResponse:
        reply = checked(segment)
        if "second" in segment:
            reply.claims[0].verdict = grading_pb2.VERDICT_UNSUPPORTED
            reply.findings.add(kind="FINDING_KIND_NUMBER", text="second", span=reply.claims[0].span, claim_id="c1")
        return reply

    below = below_of(GOOD)
    below.judge.segments = lowering
    async with scripted(below, segment_sentences=1) as served:
        events = await trace_of(ask(served))
    [request] = below.judge.answer_requests
    assert len(request.known_claims) == 3 and "The second is so. [1]" not in words_of(request.known_claims)
    assert [item.passed for item in payloads(events, "claim_checked") if "second" in item.claim.text] == [False, True]


# --- what it costs when it fails --------------------------------------------------------------------------------------


def unavailable() -> ErrataError:
    error = ModelUnavailable("gone")
    error.model_calls = (ModelCall("scripted-1", "check_claims", "0123456789ab", 70, cost_micros=7, error=error.why),)
    return error


FAILURES: dict[str, Callable[[], ErrataError]] = {
    "the model is away": unavailable,
    "the model says nonsense": lambda: ModelOutputInvalid("nonsense"),
    "the judge is down": lambda: ServiceUnavailable("down"),
    "the judge shuts down": lambda: Draining("down"),
}


@pytest.mark.parametrize("what", FAILURES)
@pytest.mark.parametrize("nth", [1, 3])
async def test_a_check_that_fails_costs_nothing_but_time(what: str, nth: int) -> None:
    async with scripted(below_of(FOUR, MENDED), segment_sentences=0) as served:
        expected = await trace_of(ask(served, max_refinements=0))
    below = below_of(FOUR, MENDED, paid=True)
    # The channel asks a service that was away four times in all.
    fails = below.judge.before_segment = FailsFrom(FAILURES[what], nth)
    async with scripted(below, segment_sentences=1) as served:
        events = await trace_of(ask(served, max_refinements=0))
        stored = (await get_run(served, events[0].run_id)).usage
    assert outcome(events) == outcome(expected) == "REFUSED_UNFAITHFUL"
    assert payloads(events, "answer_graded") == payloads(expected, "answer_graded")
    check_verdicts(events)
    calls = [(call.operation, call.error) for call in end(events).usage.model_calls if call.operation == "check_claims"]
    # At four at once, others may be under way when the first one fails; what each of them has cost is there once.
    failed = len([call for call in calls if call[1]])
    good = len({item.segment for item in payloads(events, "claim_checked") if item.segment})
    assert (failed >= 1) is (what == "the model is away") and len(calls) == failed + good
    assert failed <= fails.failed
    assert list(stored.model_calls) == list(end(events).usage.model_calls)


class FailsFrom(Fails):
    """Fails from the n-th call on, for ever."""

    def __init__(self, make: Callable[[], Exception], nth: int) -> None:
        super().__init__(make, 1000)
        self._before = nth - 1
        self.failed = 0

    async def __call__(self) -> None:
        if self._before > 0:
            self._before -= 1
            return
        self.failed += 1
        await super().__call__()


async def test_after_a_failure_no_further_segment_is_checked() -> None:
    below = below_of(GOOD)
    fails = below.judge.before_segment = Fails(unavailable, 1000)
    hold = below.generator.between = AtWord(8)
    async with scripted(below, segment_sentences=1) as served:
        call = ask(served)
        await asyncio.wait_for(hold.reached.wait(), 5)
        await soon(lambda: fails.left < 1000)
        # The failure is on its way back.
        await asyncio.sleep(0.05)
        hold.release.set()
        events = await until(call, "run_finished")
    assert len(below.judge.segment_requests) == 1
    assert not below.judge.answer_requests[0].known_claims and outcome(events) == "ANSWERED"
    assert [call.cost_micros for call in end(events).usage.model_calls] == [7]


async def test_with_a_budget_nothing_is_checked_while_it_streams() -> None:
    below = below_of(GOOD)
    async with scripted(below, segment_sentences=1) as served:
        events = await trace_of(ask(served, max_tokens=1_000_000))
    assert outcome(events) == "ANSWERED" and not below.judge.segment_requests
    assert {delta.segment for delta in payloads(events, "answer_delta")} == {0} and delta_text(events).strip() == GOOD
    check_verdicts(events)


async def test_a_draft_from_elsewhere_is_checked_as_a_whole() -> None:
    below = below_of(GOOD)
    async with scripted(below, segment_sentences=1) as served:
        events = await trace_of(ask(served, draft_answer=GOOD))
    assert outcome(events) == "ANSWERED" and not below.judge.segment_requests
    check_verdicts(events)


SIX = " ".join(f"Number {number} is so. [1]" for number in "ABCDEF")


@pytest.mark.parametrize("how", ["the caller leaves", "CancelRun", "the deadline"])
async def test_a_run_that_ends_cancels_the_checks_under_way(how: str) -> None:
    below = below_of(SIX)
    hook = below.judge.before_segment = Hook()
    async with scripted(below, segment_sentences=1, run_timeout_seconds=2.0 if how == "the deadline" else 20.0) as served:
        call = ask(served)
        run_id = (await until(call, "answer_drafted"))[0].run_id
        await asyncio.wait_for(hook.reached.wait(), 5)
        await soon(lambda: len(below.judge.segment_requests) == 4)
        if how == "the caller leaves":
            call.cancel()
        elif how == "CancelRun":
            await served.stub.CancelRun(cancel_request(run_id), timeout=CALL_SECONDS)
        events = await watch(served, run_id)
        await soon(lambda: below.judge.cancelled == 4)
        assert not checks_left()
    # The room that the first leaves is not taken by those that waited for it.
    assert len(below.judge.segment_requests) == 4
    assert outcome(events) == ("DEADLINE_EXCEEDED" if how == "the deadline" else "CANCELLED")


def cancel_request(run_id: str) -> Any:
    return pb2.CancelRunRequest(run_id=run_id)


async def test_a_refusal_waits_for_no_check() -> None:
    below = below_of("They say nothing of it. I am sorry. That is all.")
    below.generator.refuses = True
    hook = below.judge.before_segment = Hook()
    async with scripted(below, segment_sentences=1) as served:
        events = await trace_of(ask(served))
        await soon(lambda: below.judge.cancelled == len(below.judge.segment_requests))
        assert not checks_left()
    assert outcome(events) == "REFUSED_NO_EVIDENCE" and hook.reached.is_set()


# --- a draft that breaks off ------------------------------------------------------------------------------------------


class GoesAwayAt:
    """Breaks the first text off at a word, once a segment is being checked; the check comes back a moment later."""

    def __init__(self, number: int, hook: Hook) -> None:
        self._number = number
        self._hook = hook
        self.gone = False

    async def __call__(self) -> None:
        self._number -= 1
        if self._number == 0:
            await self._hook.reached.wait()
            self.gone = True
            asyncio.get_running_loop().call_later(0.03, self._hook.release.set)
            raise ServiceUnavailable("gone")


@pytest.mark.parametrize("verified_only", [False, True])
async def test_what_an_attempt_that_broke_off_has_said_is_not_shown_as_the_next_ones(verified_only: bool) -> None:
    below = below_of(GOOD)
    hook = below.judge.before_segment = Hook()
    breaks = below.generator.between = GoesAwayAt(8, hook)
    async with scripted(below, segment_sentences=1, outage_seconds=5.0) as served:
        events = await trace_of(ask(served, verified_only=verified_only))
    assert breaks.gone and below.judge.cancelled == 1
    assert outcome(events) == "ANSWERED"
    shown = [(delta.attempt, delta.segment, delta.text) for delta in payloads(events, "answer_delta")]
    assert "".join(text for attempt, _, text in shown if attempt == 1).strip() == GOOD
    assert [segment for attempt, segment, _ in shown if attempt == 1] == sorted(
        segment for attempt, segment, _ in shown if attempt == 1
    )
    assert {item.attempt for item in payloads(events, "claim_checked")} == {1}
    check_verdicts(events)


async def test_an_outage_of_the_judge_does_not_make_verdicts_void() -> None:
    below = below_of(FOUR)
    below.judge.before_answer = Fails(lambda: Draining("away"), 5)
    changed = grade_of(FOUR)
    changed.claims[0].verdict = grading_pb2.VERDICT_UNVERIFIABLE
    below.judge.answers = [changed]
    async with scripted(below, segment_sentences=1, outage_seconds=5.0) as served:
        events = await trace_of(ask(served, max_refinements=0))
    told = payloads(events, "claim_checked")
    assert {item.attempt for item in told} == {delta.attempt for delta in payloads(events, "answer_delta")} == {0}
    assert [item.claim.claim_id for item in told if not item.segment] == ["c1"]
    check_verdicts(events)
