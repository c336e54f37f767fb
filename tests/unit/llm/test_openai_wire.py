"""What is read from an endpoint's answers, and what of them may be wrong."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from errata_kit.errors import EmbeddingFailed
from errata_kit.llm.openai_embeddings import _in_order, _numbers
from errata_kit.llm.openai_wire import ChatReply, Vector
from errata_kit.llm.usage import TokenCount


@pytest.mark.parametrize(
    ("usage", "tokens"),
    [
        (None, None),
        ({"prompt_tokens": "many"}, None),
        ({"prompt_tokens": -1}, None),
        ({"prompt_tokens": 9, "total_tokens": 9}, TokenCount(9)),
        ({"prompt_tokens": 9, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": None}}, TokenCount(9, 0, 2)),
        ({"prompt_tokens": 9, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 4}}, TokenCount(9, 4, 2)),
    ],
)
def test_an_answer_is_not_lost_for_its_usage(usage: Any, tokens: TokenCount | None) -> None:
    assert ChatReply.model_validate({"choices": [{"message": {"content": "yes"}}], "usage": usage}).tokens == tokens


@pytest.mark.parametrize("choices", [[{}], [{"message": None}], [{"message": {"content": 7}}], "none"])
def test_a_choice_without_a_message_is_malformed(choices: Any) -> None:
    with pytest.raises(ValidationError):
        ChatReply.model_validate({"choices": choices})


def vectors(*places: int | None) -> list[Vector]:
    return [Vector(embedding=[float(number)], index=place) for number, place in enumerate(places)]


def test_vectors_go_where_they_belong() -> None:
    assert [vector.embedding for vector in _in_order(vectors(2, 0, 1))] == [[1.0], [2.0], [0.0]]
    assert _in_order(vectors(None, None)) == vectors(None, None)


@pytest.mark.parametrize("places", [(0, 0), (1, 2), (0, None)])
def test_vectors_that_belong_nowhere_are_an_error(places: tuple[int | None, ...]) -> None:
    with pytest.raises(EmbeddingFailed) as caught:
        _in_order(vectors(*places))
    assert caught.value.metadata == {"cause": "index"}


def test_numbers_come_plain_or_as_bytes() -> None:
    assert _numbers([0.5, 1.0]) == _numbers("AAAAPwAAgD8=") == [0.5, 1.0]
