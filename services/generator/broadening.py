"""The next search query: the provider's when it is new and clean, else one by rule."""

from dataclasses import dataclass

from errata_kit.text.questions import strip_versions
from errata_kit.usage import ModelCall
from services.generator.drafting import broaden_rules
from services.generator.provider import Provider


@dataclass(frozen=True, slots=True)
class Broadened:
    """The next query, empty when nothing new is left; and the question's words that it leaves out."""

    query: str
    removed_terms: tuple[str, ...]
    model_calls: tuple[ModelCall, ...] = ()


async def broaden(provider: Provider, question: str, current: str, tried: tuple[str, ...]) -> Broadened:
    """A query that equals none of those tried, compared without case, blanks and punctuation.

    A model's proposal that repeats one, or that still names a version, gives way to the rules.
    """
    proposed = await provider.broaden(question, current, tried)
    known = {broaden_rules.normalised(query) for query in (question, current, *tried)}
    query = strip_versions(proposed.text).strip()
    if not broaden_rules.normalised(query) or broaden_rules.normalised(query) in known:
        query = broaden_rules.broaden(question, current, tried) or ""
    return Broadened(query, _removed(question, query) if query else (), proposed.model_calls)


def _removed(question: str, query: str) -> tuple[str, ...]:
    kept = set(broaden_rules.normalised(query).split())
    removed: list[str] = []
    for word in question.split():
        plain = word.strip("\"'“”‘’.,;:?!()[]{}")
        if plain and broaden_rules.normalised(plain) not in kept and plain not in removed:
            removed.append(plain)
    return tuple(removed)
