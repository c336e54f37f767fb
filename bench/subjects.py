"""Made-up subjects to ask about: for each number other texts, so that no cache has met them before."""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from bench.paced import BEYOND_THE_PASSAGES

PASSAGES: Final = 5
_SENTENCES: Final = 8
# Eight sentences of these lengths, and the blanks between them, stay below the retriever's 800 characters a passage.
_SHORTEST: Final = 90
_LONGEST: Final = 100
_PLACES: Final = ("Ambleforth", "Brackwell", "Corrandale", "Dunmoor", "Eskerby", "Fallowmere", "Garlick Hythe", "Hollin Tarn")
_TRADES: Final = ("ferry", "tannery", "orchard", "quarry", "bakery", "sawmill", "pottery", "brewery", "smithy", "dairy")
_MATTERS: Final = ("fuel", "storms", "visitors", "repairs", "records", "frost", "tools", "payments")
_WHO: Final = (
    "The warden", "A clerk", "The foreman", "An apprentice", "The carter", "Either partner", "The night watch", "A surveyor",
    "The bookkeeper", "Whoever has the keys", "The oldest hand", "A neighbour", "The steward", "One of the twins",
)  # fmt: skip
_DOES: Final = (
    "counts", "weighs", "inspects", "locks away", "writes down", "carries in", "sorts", "covers", "repairs", "marks in red",
    "hands out", "measures", "cleans", "numbers",
)  # fmt: skip
_WHAT: Final = (
    "the lamps", "all barrels", "both ladders", "every rope", "the spare wheels", "the copper pans", "loose planks",
    "the ledgers", "the iron hooks", "borrowed sacks", "the glass jars", "wet blankets", "the brass scales", "cracked tiles",
)  # fmt: skip
_WHERE: Final = (
    "behind the chapel", "in the lower shed", "beside the weir", "under the stairs", "at the toll gate", "in the attic",
    "near the boundary stone", "on the jetty", "across the yard", "in the vaulted cellar", "by the western wall", "at the well",
)  # fmt: skip
_WHEN: Final = (
    "before sunrise", "after market day", "when the tide turns", "during Lent", "once the bell has rung", "at the new moon",
    "while the kiln cools", "between two deliveries", "until the harvest ends", "as soon as it thaws", "every other Tuesday",
)  # fmt: skip
_WHY: Final = (
    "because thieves came once", "so nothing spoils", "as the charter demands", "to spare the horses", "lest damp gets in",
    "for the insurer asks", "since a fire in the loft", "so that guests feel safe", "as a visitor suggested",
    "to please the abbot",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Subject:
    """A question, and passages of about 750 characters that hold its answer."""

    number: int
    question: str
    passages: tuple[str, ...]


def subject(number: int, *, beyond: bool) -> Subject:
    """The subject with this number. beyond: the question asks for something else, too, that no passage says."""
    drawn = random.Random(number)
    place, trade, matter = drawn.choice(_PLACES), drawn.choice(_TRADES), drawn.choice(_MATTERS)
    name = f"{place} {trade} number {number}"
    question = f"How does the {name} handle {matter}{f', {BEYOND_THE_PASSAGES}' if beyond else ''}?"
    sentences = _sentences(drawn)
    texts = []
    for aspect in drawn.sample(_WHEN, PASSAGES):
        head = f"This is how the {name} handles {matter} {aspect}."
        texts.append(" ".join([head, *(next(sentences) for _ in range(_SENTENCES - 1))]))
    return Subject(number, question, tuple(texts))


def _sentences(drawn: random.Random) -> Iterator[str]:
    """Sentences without end, no two of which say the same."""
    told: set[tuple[str, str]] = set()
    while True:
        does, what = drawn.choice(_DOES), drawn.choice(_WHAT)
        around = (drawn.choice(_WHERE), f"{drawn.choice(_WHEN)},", drawn.choice(_WHY))
        text = f"{drawn.choice(_WHO)} {does} {what} {' '.join(around)}."
        if _SHORTEST <= len(text) <= _LONGEST and (does, what) not in told:
            told.add((does, what))
            yield text
