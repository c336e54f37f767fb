"""Checks a draft while it is written, segment by segment, so that little is left to check when its last word arrives.

This saves time and decides nothing: it lives beside the state of a run, never in it. grade_answer grades the whole answer and
takes over the verdicts that are known from here; a run that is taken up there by another replica knows none, asks for all of
them, and comes to the same result.
"""

import asyncio
from collections import Counter
from dataclasses import replace
from typing import Any, Final

from errata_kit.calls import stop_task
from errata_kit.errors import ErrataError
from errata_kit.grades import Claim
from errata_kit.logs import get_logger
from errata_kit.passages import Passage, Span
from services.orchestrator.runs.events import ClaimChecked
from services.orchestrator.runs.trace import RunTrace
from services.orchestrator.workflows import faithfulness
from services.orchestrator.workflows.answer.segments import Piece, Segment, Segmenter
from services.orchestrator.workflows.ports import CheckedSegment, Judge

# Checks of one draft under way at a time.
_AT_ONCE: Final = 4
# Bound of the judge's request.
_MOST_KNOWN: Final = 1000

_log = get_logger("errata.runs")


class StreamedVerification:
    """The checks of one attempt at one draft. Close it, whatever becomes of the draft."""

    def __init__(
        self, trace: RunTrace, judge: Judge, question: str, passages: tuple[Passage, ...], size: int, verified_only: bool
    ) -> None:
        """size: sentences of a segment. verified_only: a segment is shown once its claims have passed, and else never."""
        self._trace = trace
        self.attempt = trace.attempt
        """Which attempt at the draft it is, as in its deltas."""
        self._judge = judge
        self._question = question
        self._passages = passages
        self._segmenter = Segmenter(size)
        self._verified_only = verified_only
        self._room = asyncio.Semaphore(_AT_ONCE)
        self._tasks: list[asyncio.Task[None]] = []
        self._known: list[Claim] = []
        self._told: Counter[tuple[str, str, bool]] = Counter()
        self._bytes = 0
        self._gave_up = False
        self._waiting: dict[int, str] = {}
        self._passed: dict[int, bool] = {}
        self._next = 1

    def take(self, piece: str) -> None:
        """Take a piece of the draft, show it, and have checked what is complete."""
        self._go_on(*self._segmenter.take(piece))

    def end(self) -> None:
        """The draft is complete: show the rest, and have it checked."""
        self._go_on(*self._segmenter.end())

    def _go_on(self, pieces: list[Piece], complete: list[Segment]) -> None:
        if not self._verified_only:
            for shown in pieces:
                self._trace.say(shown.text, 0, shown.segment)
        for segment in complete:
            self._check_soon(segment)

    async def known_claims(self) -> tuple[Claim, ...]:
        """The claims that were checked, once every check is over. Those that the guard lowered are not among them.

        The guard looks at the whole answer again, and the model's own verdict on these is not known here any more.
        Raises LeaseLost, or what storing the verdicts has raised.
        """
        await asyncio.gather(*self._tasks)
        return tuple(self._known[:_MOST_KNOWN])

    def told(self, claim: Claim, passed: bool) -> bool:
        """Whether the trace has this verdict already; each that it has counts once."""
        key = (claim.text, claim.verdict.value, passed)
        self._told[key] -= 1
        return self._told[key] >= 0

    async def aclose(self) -> None:
        """Stop what is under way. Nothing is shown or begun from now on."""
        for task in self._tasks:
            # All of them before the first is waited for: the room that it leaves is for none of the others.
            task.cancel()
        for task in self._tasks:
            await stop_task(task)

    def _check_soon(self, segment: Segment) -> None:
        start, self._bytes = self._bytes, self._bytes + len(segment.text.encode())
        if self._verified_only:
            self._waiting[segment.number] = segment.text
        self._tasks.append(asyncio.create_task(self._check(segment, start)))

    async def _check(self, segment: Segment, start: int) -> None:
        async with self._room:
            checked = None if self._gave_up else await self._checked(segment)
        # What goes wrong in here is no failure of the check: the trace would have a hole.
        passed = checked is not None and await self._record(segment, start, checked)
        self._release(segment.number, passed)

    async def _checked(self, segment: Segment) -> CheckedSegment | None:
        try:
            return await self._judge.check_claims(self._question, segment.text, self._passages, segment.preceding)
        except ErrataError as error:
            # No harm done: these claims will be checked with the whole answer, and so will all that come later.
            self._gave_up = True
            _log.info("segment_not_checked", segment=segment.number, reason=error.why.value)
            if error.model_calls:
                await self._trace.note_calls(error)
            return None

    async def _record(self, segment: Segment, start: int, checked: CheckedSegment) -> bool:
        """Put the verdicts into the trace; whether all of them let the segment stay."""
        recording: list[asyncio.Future[Any]] = []
        verdicts = [faithfulness.passes(claim, checked.findings) for claim in checked.claims]
        calls = checked.model_calls
        for place, (claim, passed) in enumerate(zip(checked.claims, verdicts, strict=True), start=1):
            shown = replace(claim, span=Span(claim.span.start + start, claim.span.end + start))
            left = len(verdicts) - place
            event = ClaimChecked(0, shown, passed, segment.number, self.attempt, left)
            recording.append(self._trace.record(event, calls))
            calls = ()
            self._told[claim.text, claim.verdict.value, passed] += 1
            if all(finding.claim_id != claim.claim_id for finding in checked.findings):
                self._known.append(shown)
        await asyncio.gather(*recording)
        return all(verdicts) and not checked.findings

    def _release(self, number: int, passed: bool) -> None:
        """Show what has passed, in the order of the text."""
        self._passed[number] = passed
        while self._next in self._passed:
            text = self._waiting.pop(self._next, "")
            if text and self._passed[self._next]:
                self._trace.say(text, 0, self._next)
            self._next += 1
