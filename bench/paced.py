"""What a double of the model API answers to Errata's prompts, at which pace, and what that counts as.

Its judgement is the share of words that a claim and the nearest sentence of a passage have in common, and it depends on the
material in the prompt alone: whoever sends the same material gets the same answer, of the same length, for the same price.
"""

import json
import math
import re
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from tests.harness.model_responder import FENCE
from tests.harness.model_rules import ChatRequest, Reply, TokenCounts
from tests.harness.model_schema import instance_of

CHARACTERS_A_TOKEN: Final = 4
SENTENCES: Final = 8
BEYOND_THE_PASSAGES: Final = "and since when"
"""Asks, at the end of a question, for what no passage says; a first draft invents that, and cites a passage for it."""
_CACHE_FROM: Final = 1024
_CACHE_STEP: Final = 128
_CACHE_SECONDS: Final = 300.0
_SUPPORTED: Final = 0.6
_RELEVANT: Final = 0.5
_IN_OTHER_WORDS: Final = {
    "counts": "tallies",
    "inspects": "checks",
    "repairs": "mends",
    "carries": "brings",
    "cleans": "wipes",
    "loose": "shaky",
    "borrowed": "lent",
    "beside": "next to",
    "near": "close to",
    "during": "in",
    "because": "since",
}
_FOUND_IN_NO_PASSAGE: Final = (
    "Quarterly bulletins published abroad attribute everything to generous anonymous benefactors.",
    "Celebrated composers supposedly financed early experiments through charity concerts overseas.",
    "Parliament eventually granted permanent exemptions following lengthy diplomatic negotiations.",
)


@dataclass(frozen=True, slots=True)
class Pace:
    """How long a model takes: seconds to the first token, and tokens a second by model; others answer at once."""

    first_token_seconds: float
    tokens_a_second: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Fenced:
    """What a prompt is about, by what its fences are called, in order. Numbers are as they stand in the labels."""

    question: str
    answer: str
    passages: tuple[tuple[str, str], ...]
    claims: tuple[tuple[str, str], ...]
    sentences: tuple[tuple[str, str], ...]


@dataclass
class PacedModel:
    """Answers requests; use it as the responder of a `ModelServer`. Without a pace it answers at once and caches no prompt.

    alternating: a draft takes its sentences from one passage after the other in turn; else it is done with one passage, of
    which it takes at most two, before it goes on to the next.
    """

    pace: Pace | None = None
    alternating: bool = False
    _seen: defaultdict[str, list[tuple[float, str]]] = field(default_factory=lambda: defaultdict(list))

    def __call__(self, request: ChatRequest) -> Reply:
        """The answer, with the tokens that were really sent each way."""
        material = fenced(request)
        content = self._written(material) if request.schema is None else _structured(request, material)
        sent = _as_sent(request)
        usage = TokenCounts(tokens(sent), tokens(content), self._cached(request.model, sent))
        if self.pace is None:
            return Reply(content, usage=usage)
        first, rate = self.pace.first_token_seconds, self.pace.tokens_a_second.get(request.model)
        if rate is None:
            return Reply(content, usage=usage, first_token_delay=first)
        if not request.stream:
            return Reply(content, usage=usage, first_token_delay=first + usage.completion / rate)
        # The server streams words, and waits once more, behind the event that opens the answer.
        pieces = len(re.findall(r"\s*\S+", content)) + 1
        return Reply(content, usage=usage, first_token_delay=first, tokens_per_second=pieces * rate / usage.completion)

    def _written(self, material: Fenced) -> str:
        """A first draft; or, when one is there with what failed in it, another answer."""
        return _rewritten(material) if material.answer else _draft(material, self.alternating)

    def _cached(self, model: str, sent: str) -> int:
        """How much of a prompt the provider has read before, by OpenAI's rule (platform.openai.com, "Prompt caching"):

        the beginning that it has in common with an earlier prompt for the same model, from 1024 tokens on, in steps of 128.
        An earlier prompt counts once it has been read, which is when its first token was due.
        """
        if self.pace is None:
            return 0
        now = time.monotonic()
        earlier = [(read, text) for read, text in self._seen[model] if now - read < _CACHE_SECONDS]
        shared = max((_shared(text, sent) for read, text in earlier if read <= now), default=0) // CHARACTERS_A_TOKEN
        self._seen[model] = [*earlier, (now + self.pace.first_token_seconds, sent)]
        return shared - shared % _CACHE_STEP if shared >= _CACHE_FROM else 0


def tokens(text: str) -> int:
    """The tokens of a text, at four characters each."""
    return math.ceil(len(text) / CHARACTERS_A_TOKEN)


def fenced(request: ChatRequest) -> Fenced:
    """Read the fences of a prompt."""
    found: defaultdict[str, list[tuple[str, str]]] = defaultdict(list)
    for label, _, text in FENCE.findall(request.text):
        kind, _, number = label.strip().partition(" ")
        found[kind.lower()].append((number.strip(), text))
    single = {kind: found[kind][0][1] if found[kind] else "" for kind in ("question", "answer")}
    passages, claims, sentences = (tuple(found[kind]) for kind in ("passage", "claim", "sentence"))
    return Fenced(single["question"], single["answer"], passages, claims, sentences)


def _as_sent(request: ChatRequest) -> str:
    """What the provider reads. A schema stands before the messages there, and is cached with them."""
    schema = "" if request.schema is None else json.dumps(request.schema, separators=(",", ":")) + "\n"
    return schema + request.text


def _shared(one: str, other: str) -> int:
    return next((place for place, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def _structured(request: ChatRequest, material: Fenced) -> str:
    name = re.sub(r"[^a-z]", "", (request.schema_name or "").lower())
    hints = next((answer(material) for part, answer in _ANSWERS if part in name), {})
    return json.dumps(instance_of(request.schema or {}, hints))


def _grades(material: Fenced) -> Mapping[str, Any]:
    grades = [_grade(material.question, number, text) for number, text in material.passages]
    # One schema has a list, another the grade of the only passage.
    return {"grades": grades, "passages": grades, **(grades[0] if grades else {})}


def _grade(question: str, number: str, text: str) -> dict[str, Any]:
    asked = _words(question)
    found = asked & _words(text)
    share = len(found) / len(asked) if asked else 0.0
    relevant = share >= _RELEVANT
    names = ", ".join(sorted(found)[:4]) or "none of them"
    reason = (
        f"It has {len(found)} of the {len(asked)} words that the question turns on ({names}), and says what is done about them."
    )
    score = round(0.5 + 0.5 * share if relevant else 0.6 * share, 2)
    return {"number": _numbered(number), "reasoning": reason, "score": score, "relevant": relevant}


def _verdicts(material: Fenced) -> Mapping[str, Any]:
    return {"verdicts": [_verdict(number, text, material.passages) for number, text in material.claims]}


def _verdict(number: str, claim: str, passages: Sequence[tuple[str, str]]) -> dict[str, Any]:
    said = _words(claim)
    options = [
        (len(said & _words(sentence)) / len(said) if said else 0.0, passage, sentence)
        for passage, text in passages
        for sentence in _sentences(text)
    ]
    share, passage, sentence = max(options, default=(0.0, "", ""), key=lambda option: option[0])
    supported = share >= _SUPPORTED
    return {
        "number": _numbered(number),
        "explanation": f"The nearest sentence has {share:.0%} of the claim's words.",
        "evidence": [{"passage": _numbered(passage), "quote": sentence}] if supported else [],
        "verdict": "SUPPORTED" if supported else "UNSUPPORTED",
    }


def _edits(material: Fenced) -> Mapping[str, Any]:
    unused = _unused(material)
    return {"edits": [{"number": _numbered(number), "replacement": next(unused, "")} for number, _ in material.sentences]}


def _query(material: Fenced) -> Mapping[str, Any]:
    return {"query": " ".join(sorted(_words(material.question)))}


_ANSWERS: Final[Sequence[tuple[str, Callable[[Fenced], Mapping[str, Any]]]]] = (
    ("grade", _grades),
    ("verdict", _verdicts),
    ("edit", _edits),
    ("refine", _edits),
    ("correct", _edits),
    ("query", _query),
)


def _rewritten(material: Fenced) -> str:
    """The whole of an answer, without what failed in it."""
    unused = _unused(material)
    text = material.answer
    for _, claim in material.claims:
        stated = claim.partition("\n")[0].strip()
        text = re.sub(rf"{re.escape(stated)}(?: ?\[\d+\])*", lambda _: next(unused, ""), text)
    return text.strip()


def _draft(material: Fenced, alternating: bool) -> str:
    """Some sentences of each passage, the first left out, which only says what the passage is about."""
    placed = [
        (place, position, number, _in_other_words(sentence))
        for place, (number, text) in enumerate(material.passages)
        for position, sentence in enumerate(_sentences(text)[1:])
    ]
    # The first of each passage, then the second of each, until there are enough.
    chosen = sorted(placed, key=lambda item: item[1])[:SENTENCES]
    stated = [(number, sentence) for *_, number, sentence in (chosen if alternating else sorted(chosen))]
    if stated and BEYOND_THE_PASSAGES in material.question:
        # Any of them, and the same one for the same question. What is invented is cited like the rest.
        drawn = sum(material.question.encode())
        place = drawn % len(stated)
        stated[place] = (stated[place][0], _FOUND_IN_NO_PASSAGE[drawn % len(_FOUND_IN_NO_PASSAGE)])
    return " ".join(f"{sentence} [{number}]" for number, sentence in stated)


def _unused(material: Fenced) -> Iterator[str]:
    for number, text in material.passages:
        for sentence in map(_in_other_words, _sentences(text)[1:]):
            if sentence not in material.answer:
                yield f"{sentence} [{number}]"


def _in_other_words(sentence: str) -> str:
    # A model does not copy. What it says has words that the passage lacks, and that another passage may have.
    for found, instead in _IN_OTHER_WORDS.items():
        sentence = sentence.replace(found, instead)
    return sentence


def _sentences(text: str) -> list[str]:
    return [part.strip() for part in re.split(r"(?<=[.!?])\s+|\n+", text) if part.strip()]


def _words(text: str) -> set[str]:
    return {word[:6] for word in re.findall(r"[a-z]{4,}", text.lower())}


def _numbered(label: str) -> int:
    return int(label) if label.isdecimal() else 0
