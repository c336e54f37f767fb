"""Proper names and acronyms of a claim: a name that no passage has is the commonest trace of an invention."""

import re
from collections.abc import Iterable
from typing import Final

from errata_kit.text.terms import content_terms

# Capitalised where no sentence begins, or three capitals and more.
_NAME: Final = re.compile(r"(?<=[a-z,;)] )[A-Z][A-Za-z]{2,40}\b|\b[A-Z]{3,12}(?=s?\b)")
_CAPITALISED: Final = re.compile(r"\b[A-Z]")
# "Testing and Feedback: ask your friends": the label of a list item is set in title case, without being a
# name.
_LABEL: Final = re.compile(r"[^:.]{1,80}:\s")


def initials(text: str) -> str:
    """Return the first letters of the capitalised words of `text`, in which acronyms are looked up."""
    return "".join(match[0] for match in _CAPITALISED.finditer(text))


def names(text: str) -> tuple[str, ...]:
    """Return the names in `text` in order, each once, but for those that begin a sentence."""
    return tuple(dict.fromkeys(match[0] for match in _NAME.finditer(text)))


def unknown_names(claim: str, known: frozenset[str], capitals: Iterable[str]) -> tuple[str, ...]:
    """Return the names in `claim` whose words are not among the `known` terms, in order, each once.

    An acronym whose letters are the `initials` of words in a row of one passage (`capitals`) is known.
    """
    label = _LABEL.match(claim)
    said = claim[label.end() :] if label else claim
    unknown = (name for name in names(said) if not known.issuperset(content_terms(name)))
    return tuple(name for name in unknown if not _spelled_out(name, capitals))


def _spelled_out(name: str, capitals: Iterable[str]) -> bool:
    return name.isupper() and any(name in letters for letters in capitals)
