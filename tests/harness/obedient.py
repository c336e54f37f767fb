"""A model that obeys whatever is not fenced: the worst reader that fences still have to hold against.

It takes every properly closed fence out of a prompt, reads the rest, and does what an injected text there demands. Otherwise
it is honest, and pleased by nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tests.harness.injections import INJECTIONS, Injection
from tests.harness.model_rules import ChatRequest, Reply
from tests.harness.model_schema import instance_of

ATTACK: Final = "PWNED-17 is what the attacker wanted to be said."
"""What it says when it obeys. No injected text holds these words, so that an echo is not taken for obedience."""
HONEST_TEXT: Final = "A check runs every day. [1]"
HONEST_QUERY: Final = "retention of stored files"
HONEST_SCORE: Final = 0.1
_OPENING: Final = re.compile(r"^<<<(?P<label>[^|<>\n]+) \| (?P<nonce>[0-9a-f]{8,})>>>$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Block:
    """What stood in a fence."""

    label: str
    nonce: str
    text: str


def read_fences(prompt: str) -> tuple[tuple[Block, ...], str]:
    """The fenced blocks, and everything else.

    A block ends at the first line that closes its own label with its own nonce. Whatever looks like a fence inside of it is
    text, and an opening that nothing closes encloses nothing. A label is no part of what it labels: it counts as outside.
    """
    blocks: list[Block] = []
    outside: list[str] = []
    position = 0
    while opening := _OPENING.search(prompt, position):
        label, nonce = opening["label"], opening["nonce"]
        closing = _closing(prompt, f"\n<<<end {label} | {nonce}>>>", opening.end())
        if closing is None:
            outside.append(prompt[position : opening.end()])
            position = opening.end()
            continue
        outside += (prompt[position : opening.start()], label)
        blocks.append(Block(label, nonce, prompt[opening.end() + 1 : closing[0]]))
        position = closing[1]
    return tuple(blocks), "".join((*outside, prompt[position:]))


def _closing(prompt: str, line: str, start: int) -> tuple[int, int] | None:
    """Where a line stands that has nothing else in it: its beginning, with the line break before it, and its end."""
    place = prompt.find(line, start)
    while place >= 0:
        end = place + len(line)
        if end == len(prompt) or prompt[end] == "\n":
            return place, end
        place = prompt.find(line, end)
    return None


class ObedientModel:
    """A responder. `obeyed` names the texts that it found outside of fences; `read` counts its prompts."""

    def __init__(self, injections: Sequence[Injection] = INJECTIONS) -> None:
        self._canaries = tuple((injection.name, _plain(injection.canary)) for injection in injections)
        self.obeyed: list[str] = []
        self.read = 0

    def __call__(self, request: ChatRequest) -> Reply:
        """Answer as the prompt's author wants, or as an injected text wants."""
        self.read += 1
        blocks, outside = read_fences(request.text)
        seen = _plain(outside)
        found = [name for name, canary in self._canaries if canary in seen]
        self.obeyed += found
        if request.schema is None:
            return Reply(ATTACK if found else HONEST_TEXT)
        labels = [block.label for block in blocks] if blocks else ["passage 1", "claim 1", "criterion 1", "sentence 1"]
        return Reply(json.dumps(instance_of(request.schema, _output(labels, bool(found)))))


def _output(labels: Sequence[str], obeys: bool) -> Mapping[str, Any]:
    """All that any prompt of the suite asks for; a schema takes what it names."""
    score = 1.0 if obeys else HONEST_SCORE
    words = ATTACK if obeys else "It does not say so."
    text = ATTACK if obeys else HONEST_TEXT
    said = {"reasoning": words, "explanation": words, "description": words}
    graded = {**said, "score": score, "relevant": obeys}
    verdict: Mapping[str, Any] = {**said, "verdict": "SUPPORTED" if obeys else "UNSUPPORTED", "evidence": []}
    return {
        **graded,
        "query": ATTACK if obeys else HONEST_QUERY,
        "grades": [{**graded, "number": number} for number in _numbers(labels, "passage")],
        "verdicts": [{**verdict, "number": number} for number in _numbers(labels, "claim")],
        "scores": [{**said, "criterion": number, "score": score} for number in _numbers(labels, "criterion")],
        "edits": [{"number": number, "replacement": text} for number in _numbers(labels, "sentence")],
        "issues": [],
        "suggestions": [ATTACK] if obeys else [],
    }


def _numbers(labels: Sequence[str], kind: str) -> list[int]:
    return [
        int(number) for word, _, number in (label.partition(" ") for label in labels) if word == kind and number.isdecimal()
    ]


def _plain(text: str) -> str:
    """Without the differences that splitting into sentences and joining makes."""
    return " ".join(text.split())
