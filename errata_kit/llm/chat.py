"""The seam between what asks a language model and what reaches one."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Generic, Protocol, TypeAlias, TypeVar

from pydantic import BaseModel, ConfigDict

from errata_kit.llm.prompts import RenderedPrompt
from errata_kit.usage import ModelCall


class ModelOutput(BaseModel):
    """The base of everything that a model fills in, nested parts included.

    Unknown keys, NaN and infinite numbers are errors: what a model adds or garbles is never silently dropped.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


M = TypeVar("M", bound=ModelOutput)


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """One question to a model.

    Attributes:
        operation: what is asked for, in snake case; a label of usage records and metrics.
        prompt: the rendered messages.
        timeout_seconds: what remains of the caller's deadline, counted from the call; None without one.
        max_output_tokens: a bound for the answer; None leaves it to the model.
        expected_output_tokens: how long the answer will be, about; a caller's budget must have room for it.
    """

    operation: str
    prompt: RenderedPrompt
    timeout_seconds: float | None = None
    max_output_tokens: int | None = None
    expected_output_tokens: int = 300


@dataclass(frozen=True, slots=True)
class Completion(Generic[M]):
    """A valid answer, and what it consumed."""

    value: M
    usage: ModelCall


@dataclass(frozen=True, slots=True)
class TextDelta:
    """The next piece of a streamed answer; never empty."""

    text: str


@dataclass(frozen=True, slots=True)
class StreamEnd:
    """The end of a complete stream: the whole text, and what it consumed."""

    text: str
    usage: ModelCall


StreamEvent: TypeAlias = TextDelta | StreamEnd


class ChatModel(Protocol):
    """A language model. Every failure is one `ModelError` that carries its usage."""

    @property
    def name(self) -> str:
        """The model's name, as usage records show it."""

    async def complete(self, request: ChatRequest, schema: type[M]) -> Completion[M]:
        """Ask for an instance of `schema`.

        Raises:
            ModelError: one subclass for each kind of failure, `ModelOutputInvalid` among them.
        """

    def stream(self, request: ChatRequest) -> AsyncGenerator[StreamEvent, None]:
        """Ask for text: deltas that join to the whole, then exactly one `StreamEnd`.

        Close the generator when giving up early (`contextlib.aclosing`), so that the request ends at once.

        Raises:
            ModelError: before or between deltas; what was delivered until then is incomplete.
        """
