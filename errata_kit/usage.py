"""What model calls cost."""

from typing import Annotated

from pydantic import Field
from pydantic.dataclasses import dataclass

from errata_kit.errors import Reason

Count = Annotated[int, Field(ge=0)]


@dataclass(frozen=True, slots=True)
class ModelCall:
    """One call of a model.

    Input tokens include the cached ones. estimated: the API sent no usage, so the tokens are characters / 4.3. cost_micros is
    in millionths of a dollar at list price, None when the price is unknown. attempts are the HTTP requests sent; 0 when
    the time ran out in the queue. error is None when the call succeeded. served_model is the name in the endpoint's answer.

    saved: this call was not made, because a cache or an equal call under way had the answer: tokens and cost are what that
    saved, and nobody pays them.
    """

    model: str
    operation: str
    prompt_version: str = ""
    input_tokens: Count = 0
    cached_input_tokens: Count = 0
    output_tokens: Count = 0
    estimated: bool = False
    cost_micros: int | None = None
    latency_seconds: Annotated[float, Field(ge=0)] = 0.0
    attempts: Count = 1
    error: Reason | None = None
    served_model: str = ""
    saved: bool = False
