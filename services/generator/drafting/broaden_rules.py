"""Broader search queries by rule: from the question towards the few nouns that carry it."""

import re
from collections.abc import Iterator, Sequence
from typing import Final

from errata_kit.text.questions import (
    FRAMEWORKS,
    core_question,
    generic_terms,
    strip_asking,
    strip_versions,
    tidy,
)
from errata_kit.text.terms import content_terms

_SENTENCE_END: Final = re.compile(r"(?<=[.?!])\s+")
_NOT_WORDS: Final = re.compile(r"[\W_]+")
_EDGES: Final = "\"'“”‘’.,;:?!()[]{}*…"
# How many key words the narrowing steps keep, one query each.
_NARROWER: Final = (4, 3, 2, 1)


def broaden(question: str, current_query: str, tried: Sequence[str]) -> str | None:
    """Return a search query broader than those tried, or None when the rules have none left.

    Steps, in order: without small talk and versions; without the asker's frameworks and the words that ask;
    the content words alone; then the 4, 3, 2 and 1 most telling of them. The result never equals `question`,
    `current_query` or one of `tried`, compared without case, blanks and punctuation. So calls that add each
    result to `tried` end.
    """
    seen = {normalised(query) for query in (question, current_query, *tried)}
    for candidate in _candidates(question):
        key = normalised(candidate)
        if key and key not in seen:
            return candidate
    return None


def normalised(query: str) -> str:
    """Return the form in which two queries are the same query."""
    return " ".join(_NOT_WORDS.sub(" ", query.casefold()).split())


def _candidates(question: str) -> Iterator[str]:
    core = core_question(question)
    yield strip_asking(_telling_sentence(core))
    words = _content_words(core) or _content_words(strip_versions(question))
    yield " ".join(words)
    ranked = sorted(range(len(words)), key=lambda index: (-_weight(words[index]), -index))
    for keep in _NARROWER:
        if keep < len(words):
            yield " ".join(words[index] for index in sorted(ranked[:keep]))


def _telling_sentence(core: str) -> str:
    """Of several sentences, keep the one that asks most; a lone sentence stays."""
    sentences = [sentence for sentence in _SENTENCE_END.split(core) if sentence]
    if len(sentences) < 2:
        return core
    return max(sentences, key=lambda sentence: (sum(map(_weight, _content_words(sentence))), sentence.endswith("?")))


def _content_words(text: str) -> list[str]:
    """Return the words that carry content, as written, each once; generic ones only if alone."""
    words: dict[str, str] = {}
    for raw in tidy(text).split():
        word = raw.strip(_EDGES)
        if content_terms(word):
            words.setdefault(normalised(word), word)
    telling = [word for word in words.values() if not generic_terms().issuperset(content_terms(word))]
    return telling or list(words.values())


def _weight(word: str) -> float:
    """How much a word says: identifiers and names most, then long words; generic ones nothing."""
    if generic_terms().issuperset(content_terms(word)):
        return 0.0
    if word.lower() in FRAMEWORKS:
        return min(len(word), 12) / 12
    marked = any(character in "_.-/:" or character.isdigit() for character in word) or any(map(str.isupper, word[1:]))
    return 2.0 * marked + 1.0 * word[:1].isupper() + min(len(word), 12) / 12
