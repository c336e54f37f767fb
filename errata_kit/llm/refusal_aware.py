"""langchain-openai, with refusals in streams kept. Imports the library: import this module lazily."""

from __future__ import annotations

from typing import Any

from langchain_core.messages import AIMessageChunk
from langchain_core.outputs import ChatGenerationChunk
from langchain_openai import ChatOpenAI

REFUSAL = "refusal"


class RefusalAwareChatOpenAI(ChatOpenAI):
    """Keeps `delta.refusal`, which the library drops, so that a refused stream looks merely empty.

    The hook is not public; if it is ever renamed, refused streams are reported as empty answers, and the
    test of streamed refusals fails.
    """

    def _convert_chunk_to_generation_chunk(
        self, chunk: dict[str, Any], default_chunk_class: type, base_generation_info: dict[str, Any] | None
    ) -> ChatGenerationChunk | None:
        converted = super()._convert_chunk_to_generation_chunk(chunk, default_chunk_class, base_generation_info)
        choices = chunk.get("choices") or [{}]
        refusal = (choices[0].get("delta") or {}).get(REFUSAL)
        if refusal and converted is not None and isinstance(converted.message, AIMessageChunk):
            converted.message.additional_kwargs[REFUSAL] = refusal
        return converted
