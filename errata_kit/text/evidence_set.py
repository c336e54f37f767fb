"""Which passages a model must see to judge or correct some statements.

Each passage that is sent is paid for with every call. A statement can be supported only where its words are, so those passages
suffice that together have every word of it which any passage has.
"""

from collections.abc import Collection, Sequence

from errata_kit.text.terms import content_terms


def evidence_set(statements: Sequence[str], passages: Sequence[str], cited: Collection[int] = ()) -> tuple[int, ...]:
    """The places of the passages that some statements must be held against, in ascending order; at least one if there are any.

    For each statement: the passage that shares most of its content words, and then, greedily, those that add most of the words
    which the ones before lack, until no passage adds any. cited: places that are in it anyhow.
    """
    if not passages:
        return ()
    words = [frozenset(content_terms(passage)) for passage in passages]
    chosen = {place for place in cited if 0 <= place < len(passages)}
    for statement in statements:
        chosen |= _covering(frozenset(content_terms(statement)), words)
    return tuple(sorted(chosen or {0}))


def _covering(wanted: frozenset[str], passages: Sequence[frozenset[str]]) -> set[int]:
    chosen: set[int] = set()
    while wanted:
        best = max(range(len(passages)), key=lambda place: len(wanted & passages[place]))
        if wanted.isdisjoint(passages[best]):
            break
        chosen.add(best)
        wanted -= passages[best]
    return chosen
