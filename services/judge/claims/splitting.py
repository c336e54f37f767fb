"""Which parts of an answer say something that can be checked against the passages."""

import re
from dataclasses import dataclass
from typing import Final

from errata_kit.text.sentences import Kind, split_sentences
from errata_kit.text.terms import content_terms
from services.judge.claims.phrases import ABSTENTION, ANSWER_WORD, COURTESY, COURTESY_WORDS, LEAD_IN, TURN

_CITATION: Final = re.compile(r"[ \t]?\[\d{1,3}(?:[ ]?[,–-][ ]?\d{1,3}){0,9}\]")
_CITED: Final = re.compile(r"(\d{1,3})(?:[ ]?[–-][ ]?(\d{1,3}))?")
_FEWEST_WORDS: Final = 4
_POINTS_BACK: Final = re.compile(
    r"(?:it|its|they|them|their|theirs|this|that|these|those|he|him|his|she|her|hers|such|both|each|either|neither|one|ones"
    r"|the (?:former|latter|same|other)|here|there|then)\b",
    re.IGNORECASE,
)
# Characters of what stands before a text that are read for its last sentence, and of that sentence that are shown.
_READ_BACK: Final = 4000
_SHOWN_BEFORE: Final = 500
_MARKUP: Final = re.compile(r"\*{1,3}|(?<!\w)_{1,2}(?=\w)|(?<=\w)_{1,2}(?!\w)|~~|^>[ \t]?", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class ClaimText:
    """One checkable statement.

    `answer[start:end]` is where it stands (half-open *character* offsets); `text` is the same words without
    citations and emphasis marks. `cited` are the numbers of those citations, in ascending order. `before` is the
    end of what is said before it, where it needs that to be understood.
    """

    text: str
    start: int
    end: int
    kind: Kind
    cited: tuple[int, ...] = ()
    before: str = ""


def split_claims(answer: str, preceding: str = "") -> tuple[ClaimText, ...]:
    """Return the statements of `answer` in order. `preceding`: what is said before it.

    Empty when it states nothing, such as a plain "I don't know".

    Left out: headings, questions, courtesies, list introductions without content, and statements that the
    documents say nothing. A statement that turns ("... no figure, but it is large") keeps what follows the
    turn.
    """
    claims: list[ClaimText] = []
    earlier = split_sentences(preceding[-_READ_BACK:])
    before = plain_text(earlier[-1].text) if earlier else ""
    for unit in split_sentences(answer):
        start = unit.start
        start += abstention_end(unit.text)
        text = plain_text(answer[start : unit.end])
        if unit.kind != "heading" and _states_something(text, unit.kind):
            told = "" if stands_alone(text) else before[-_SHOWN_BEFORE:]
            claims.append(ClaimText(text, start, unit.end, unit.kind, cited_in(answer[start : unit.end]), told))
        before = plain_text(unit.text)
    return _without_bare_answer_words(claims)


def stands_alone(claim: str) -> bool:
    """Whether a claim says the same whatever stands before it and whatever question it answers, as far as its words tell.

    It does not when it starts with an answer word ("Yes", "No") or with a word that points back (a pronoun, "the latter"),
    also after "However," and the like, or when it has fewer than four content words.
    """
    bare = bare_statement(claim)
    points_back = ANSWER_WORD.match(claim) or _POINTS_BACK.match(bare.lstrip("\"'“‘(*_`"))
    return not points_back and len(content_terms(claim)) >= _FEWEST_WORDS


def _without_bare_answer_words(claims: list[ClaimText]) -> tuple[ClaimText, ...]:
    """Drop a "Yes." beside statements that say why; alone it is the statement."""
    kept = tuple(claim for claim in claims if not ANSWER_WORD.fullmatch(claim.text))
    return kept or tuple(claims)


def plain_text(text: str) -> str:
    """Return `text` without inline citations and Markdown emphasis."""
    return _MARKUP.sub("", _CITATION.sub("", text)).strip()


def cited_in(text: str) -> tuple[int, ...]:
    """Return the numbers that the citations of `text` name, in ascending order: 1, 3, 4 and 5 for "[1] [3-5]"."""
    numbers: set[int] = set()
    for mark in _CITATION.findall(text):
        for first, last in _CITED.findall(mark):
            numbers.update(range(int(first), int(last or first) + 1))
    return tuple(sorted(numbers))


def bare_statement(text: str) -> str:
    """Return `text` without what leads into it: "Yes,", "However,", "According to the documents,"."""
    for pattern in (ANSWER_WORD, LEAD_IN, LEAD_IN):
        match = pattern.match(text)
        text = text[match.end() :] if match and match.end() < len(text) else text
    return text


def abstention_end(sentence: str) -> int:
    """Return how many first characters of `sentence` only say that something is not known."""
    match = ABSTENTION.match(sentence)
    if match is None:
        return 0
    turn = TURN.search(sentence, match.end() // 2)
    return turn.end() if turn is not None and turn.start() > 0 else len(sentence)


def _states_something(text: str, kind: Kind) -> bool:
    if kind == "code":
        return True
    if not any(character.isalnum() for character in text) or text.rstrip("\"'”’)").endswith(("?", ":")):
        return False
    return not (COURTESY.match(text) and len(text.split()) <= COURTESY_WORDS)
