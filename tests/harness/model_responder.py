"""The model double's own judgement: plausible, deterministic answers to the prompts that Errata sends.

It reads question, passages and answer from the fences in the prompt and compares words. That is enough for a
whole stack to run through the double; it says nothing about how good a model would be.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from tests.harness.model_rules import ChatRequest, Reply
from tests.harness.model_schema import instance_of

Candidate: TypeAlias = Callable[["Material"], Mapping[str, Any]]

FENCE = re.compile(r"<<<([^|<>\n]+?) \| ([0-9a-f]+)>>>\n(.*?)\n<<<end \1 \| \2>>>", re.DOTALL)
"""A fence of the prompts: its label, its nonce, and the text inside."""
_STOP = re.compile(
    "what|which|when|where|does|with|from|that|this|have|will|would|should|about|into|your|there|their|how|"
    "the|and|for|are|can|you|not|was|why|who|its|use|using|used"
)
_SUPPORTED = 0.6
_RELEVANT = 0.5


@dataclass(frozen=True, slots=True)
class Material:
    """What a prompt is about. Passages and claims keep their order; an id is what follows the first word of the label."""

    question: str
    passages: tuple[tuple[str, str], ...]
    answer: str
    claims: tuple[tuple[str, str], ...] = ()
    criteria: tuple[tuple[str, str], ...] = ()
    feedback: str = ""
    revises: bool = False
    sentences: tuple[tuple[str, str], ...] = ()


def material_of(request: ChatRequest) -> Material:
    """Read the fences; without a question fence the last message is the question."""
    question = answer = feedback = ""
    revises = False
    numbered: dict[str, list[tuple[str, str]]] = {"passage": [], "claim": [], "criterion": [], "sentence": []}
    for label, _, text in FENCE.findall(request.text):
        kind, _, rest = label.strip().partition(" ")
        kind = kind.lower()
        if kind in ("question", "task"):
            question = text
        elif kind in numbered:
            numbered[kind].append((rest.strip() or str(len(numbered[kind]) + 1), text))
        elif kind in ("answer", "draft"):
            answer = text
        elif kind == "feedback":
            # Only the prompt that revises a draft has it.
            feedback, revises = text.removeprefix("none"), True
    if not question and request.messages:
        question = request.messages[-1].content
    numbers = {kind: tuple(found) for kind, found in numbered.items()}
    return Material(
        question,
        numbers["passage"],
        answer,
        numbers["claim"],
        numbers["criterion"],
        feedback=feedback,
        revises=revises,
        sentences=numbers["sentence"],
    )


def respond(request: ChatRequest) -> Reply:
    """The default responder: a valid instance for a schema, cited text otherwise."""
    material = material_of(request)
    if request.schema is None:
        return Reply(_text_for(material))
    candidate = _candidate_for(request.schema_name or "")
    return Reply(json.dumps(instance_of(request.schema, candidate(material))))


def _candidate_for(name: str) -> Candidate:
    plain = re.sub(r"[^a-z]", "", name.lower())
    for fragments, candidate in _CANDIDATES:
        if any(fragment in plain for fragment in fragments):
            return candidate
    return lambda _: {}


def _words(text: str) -> set[str]:
    found = re.findall(r"[a-z][a-z0-9_]+", text.lower())
    return {word[:6] for word in found if len(word) > 2 and not _STOP.fullmatch(word)}


def _sentences(text: str) -> list[str]:
    bare = re.sub(r"\s*\[\d+\]", "", text)
    return [part.strip() for part in re.split(r"(?<=[.!?])\s+|\n+", bare) if part.strip()]


def _share(of: str, within: str) -> float:
    wanted = _words(of)
    return len(wanted & _words(within)) / len(wanted) if wanted else 0.0


def _passage_grade(material: Material) -> Mapping[str, Any]:
    # A prompt with several passages wants one grade each, by number; what asks about a single one finds the grade at the top.
    whole = " ".join(text for _, text in material.passages)
    return {
        **_grade_of(material.question, whole),
        "grades": [{"number": _as_number(label), **_grade_of(material.question, text)} for label, text in material.passages],
    }


def _grade_of(question: str, text: str) -> dict[str, Any]:
    share = _share(question, text)
    relevant = share >= _RELEVANT
    score = round(0.5 + 0.5 * share if relevant else 0.6 * share, 3)
    reason = f"The passage covers {share:.0%} of the question's words."
    return {
        "score": score,
        "relevance": score,
        "relevance_score": score,
        "relevant": relevant,
        "is_relevant": relevant,
        "reasoning": reason,
        "reason": reason,
        "explanation": reason,
    }


def _best_source(claim: str, passages: Sequence[tuple[str, str]]) -> tuple[float, str, str]:
    options = [
        (_share(claim, sentence), passage_id, sentence) for passage_id, text in passages for sentence in _sentences(text)
    ]
    return max(options, default=(0.0, "", ""), key=lambda option: option[0])


def _as_number(label: str) -> int | str:
    # A schema that names passages or claims by number asks for an integer.
    return int(label) if label.isdecimal() else label


def _claim(claim_id: str, claim: str, material: Material) -> dict[str, Any]:
    share, passage_id, sentence = _best_source(claim, material.passages)
    supported = share >= _SUPPORTED
    verdict = "SUPPORTED" if supported else "UNSUPPORTED"
    evidence = [{"passage_id": passage_id, "passage": _as_number(passage_id), "id": passage_id, "quote": sentence}]
    return {
        "number": _as_number(claim_id),
        "claim_id": claim_id,
        "claim": claim,
        "text": claim,
        "statement": claim,
        "verdict": verdict,
        "supported": supported,
        "evidence": evidence if supported else [],
        "passage_id": passage_id if supported else None,
        "quote": sentence if supported else "",
        "explanation": f"The best source sentence covers {share:.0%} of the claim's words.",
    }


def _answer_grade(material: Material) -> Mapping[str, Any]:
    # A prompt that has split the answer wants one verdict a claim; another leaves the splitting to the model.
    split = enumerate(_sentences(material.answer), start=1)
    stated = material.claims or [(str(number), sentence) for number, sentence in split]
    claims = [_claim(claim_id, text, material) for claim_id, text in stated]
    failing = [claim["claim"] for claim in claims if not claim["supported"]]
    score = 1.0 - len(failing) / len(claims) if claims else 0.0
    suggestion = "Remove what no passage supports: " + "; ".join(failing) if failing else ""
    return {
        "claims": claims,
        "verdicts": claims,
        "score": score,
        "faithfulness_score": score,
        "problematic_claims": failing,
        "suggestion": suggestion,
        "refinement_suggestion": suggestion,
    }


def _edits(material: Material) -> Mapping[str, Any]:
    """For each failing sentence the passages' nearest one that the answer lacks, when they share enough; else none."""
    edits, used = [], set[str]()
    for number, told in material.sentences:
        failing = told.partition("\n")[0]
        share, passage_id, sentence = _best_source(failing, material.passages)
        fits = share >= _RELEVANT and sentence not in material.answer and sentence not in used and sentence not in failing
        used.add(sentence)
        edits.append({"number": _as_number(number), "replacement": f"{sentence} [{passage_id}]" if fits else ""})
    return {"edits": edits}


def _broader_query(material: Material) -> Mapping[str, Any]:
    plain = re.sub(r"\bv?\d+(\.\d+)*\b", " ", material.question)
    words = plain.rstrip("?").split()
    kept = [word for place, word in enumerate(words) if place == 0 or not word[:1].isupper()]
    query = " ".join(kept) or material.question
    return {"query": query, "broadened_query": query, "search_query": query, "removed": []}


def _review(material: Material) -> Mapping[str, Any]:
    # One criterion is as good as another to a double; a draft that names little of its task is poor by all of them.
    share = _share(material.question, material.answer)
    score = 0.93 if share >= _RELEVANT else round(0.9 * share, 3)
    reason = f"The draft covers {share:.0%} of the task's words."
    scores = [{"criterion": _as_number(number), "score": score, "explanation": reason} for number, _ in material.criteria]
    issues = (
        [] if share >= _RELEVANT or not scores else [{**scores[0], "severity": "MAJOR", "quote": "", "description": reason}]
    )
    names = ("overall", "overall_score", "score", "clarity", "relevance", "completeness")
    return {
        **dict.fromkeys((*names, "technical_quality"), score),
        "approved": share >= _RELEVANT,
        "scores": scores,
        "issues": issues,
        "suggestions": [f"Say more about: {material.question}"] if issues else [],
        "reasoning": reason,
    }


_CANDIDATES: Sequence[tuple[tuple[str, ...], Candidate]] = (
    (("edit",), _edits),
    (("passage", "relevance"), _passage_grade),
    (("broad", "query"), _broader_query),
    (("review", "criteria"), _review),
    (("answer", "claim", "faith", "verdict"), _answer_grade),
)


def _revised(material: Material) -> str:
    """The draft without its failing claims, and with the passages' nearest sentence that it lacks."""
    failing = {text.partition("\n")[0].strip() for _, text in material.claims}
    text = material.answer
    for claim in failing:
        text = re.sub(rf"[ ]?{re.escape(claim)}(?: ?\[\d+\])*", "", text)
    wanted = f"{material.question} {material.feedback}"
    ranked = sorted(
        (-_share(wanted, sentence), place, position, sentence)
        for place, (_, passage) in enumerate(material.passages, start=1)
        for position, sentence in enumerate(_sentences(passage))
        if sentence not in text and sentence not in failing
    )
    added = f"{ranked[0][3]} [{ranked[0][1]}]" if ranked else "" if material.passages else f"It covers this: {wanted}"
    return f"{text.strip()}\n\n{added}".strip()


def _text_for(material: Material) -> str:
    if material.revises:
        return _revised(material)
    if not material.passages:
        return f"Here is what was asked for. {material.answer or material.question}".strip()
    ranked = sorted(
        (
            (-_share(material.question, sentence), place, position, sentence)
            for place, (_, text) in enumerate(material.passages, start=1)
            for position, sentence in enumerate(_sentences(text))
        ),
    )
    return " ".join(f"{sentence} [{place}]" for _, place, _, sentence in ranked[:3])
