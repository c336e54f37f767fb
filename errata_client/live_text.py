"""The text of a run while it is made: which parts are a draft, which are verified, and which were taken back."""

from dataclasses import dataclass, replace
from enum import Enum

from errata.orchestrator.v1 import trace_pb2

_ANSWERED = frozenset({trace_pb2.OUTCOME_ANSWERED, trace_pb2.OUTCOME_ANSWERED_AFTER_REFINEMENT, trace_pb2.OUTCOME_APPROVED})


class TextState(Enum):
    """What is known about a part of the text."""

    DRAFT = "draft"
    """Nobody has checked it yet."""
    VERIFIED = "verified"
    """Each of its claims has passed."""
    RETRACTED = "retracted"
    """One of its claims has failed. It will be corrected, or the answer is refused."""


@dataclass(frozen=True, slots=True)
class TextPart:
    """A segment of the text; number 0 for a text that is checked as a whole."""

    number: int
    text: str
    state: TextState = TextState.DRAFT


class LiveText:
    """Follows the events of one answer run.

        live = LiveText()
        async for event in events:
            live.take(event)
            show(live.parts)

    Behind a lost connection deltas may be missing; the whole text comes with AnswerDrafted and the events behind it.
    """

    def __init__(self) -> None:
        self._parts: list[TextPart] = []
        self._attempt = (0, 0)

    @property
    def parts(self) -> tuple[TextPart, ...]:
        """The text so far, in order."""
        return tuple(self._parts)

    def take(self, event: trace_pb2.TraceEvent) -> None:
        """Take the next event of the run."""
        match event.WhichOneof("payload"):
            case "answer_delta":
                self._write(event.answer_delta)
            case "claim_checked":
                self._checked(event.claim_checked)
            case "answer_drafted":
                self._whole(event.answer_drafted.answer.text)
            case "answer_graded":
                self._graded(event.answer_graded)
            case "answer_refined":
                self._parts = [TextPart(0, event.answer_refined.answer.text)] if event.answer_refined.answer.text else []
            case "run_finished":
                finished = event.run_finished
                state = TextState.VERIFIED if finished.outcome in _ANSWERED else TextState.RETRACTED
                text = "".join(part.text for part in self._parts)
                if finished.answer.text and state is TextState.VERIFIED:
                    text = finished.answer.text
                self._parts = [TextPart(0, text, state)] if text else []
            case _:
                pass

    def _write(self, delta: trace_pb2.AnswerDelta) -> None:
        attempt = (delta.refinement, delta.attempt)
        if attempt != self._attempt:
            self._attempt, self._parts = attempt, []
        last = self._parts[-1] if self._parts else None
        if last is not None and last.number == delta.segment:
            self._parts[-1] = replace(last, text=last.text + delta.text)
        else:
            self._parts.append(TextPart(delta.segment, delta.text))

    def _checked(self, checked: trace_pb2.ClaimChecked) -> None:
        # Checks of an attempt that broke off are void; those of the whole come with its grade.
        if not checked.segment or (checked.refinement, checked.attempt) != self._attempt:
            return
        for place, part in enumerate(self._parts):
            if part.number == checked.segment and part.state is TextState.DRAFT:
                if not checked.passed:
                    self._parts[place] = replace(part, state=TextState.RETRACTED)
                elif not checked.remaining:
                    self._parts[place] = replace(part, state=TextState.VERIFIED)

    def _whole(self, text: str) -> None:
        # What is there in segments has states already; the whole differs by stray citation marks at most.
        if text and not any(part.number for part in self._parts):
            self._parts = [TextPart(0, text)]

    def _graded(self, graded: trace_pb2.AnswerGraded) -> None:
        if graded.passed:
            self._parts = [replace(part, state=TextState.VERIFIED) for part in self._parts]
        elif not any(part.state is TextState.RETRACTED for part in self._parts):
            self._parts = [replace(part, state=TextState.RETRACTED) for part in self._parts]
