"""Answers without a language model: the sentences, lists and code of the passages that answer best, each
cited.
"""

from collections.abc import Collection, Sequence
from typing import Final

from errata_kit.encoding import Encoder, RememberingEncoder
from errata_kit.passages import Passage
from errata_kit.text.questions import read_question
from errata_kit.text.sentences import split_sentences
from services.generator.drafting.assembly import Assembly
from services.generator.drafting.drafts import CitedText, said
from services.generator.drafting.quotable import Quote
from services.generator.drafting.ranking import QuoteTable, found_quotes
from services.generator.drafting.selection import Limits, chosen_quotes, in_reading_order, with_predecessors

# A further quote must be nearly as good as the best: judged by eye on documentation pages.
_LIMITS: Final = Limits(quotes=4, characters=1400, near_best=0.12)


class Extractor:
    """Answers questions with extracts. Deterministic; one instance may serve many threads. Blocking."""

    def __init__(self, encoder: Encoder | None, cache_size: int = 4096) -> None:
        self._encoder = None if encoder is None else RememberingEncoder(encoder, cache_size)

    def answer(self, question: str, passages: Sequence[Passage], without: Collection[str] = ()) -> CitedText:
        """Return one to four extracts that answer best, cited `[n]`, n being the passage's 1-based place in
        `passages`.

        Every sentence is a passage's own, whole; only line breaks inside it became blanks. The text is empty
        when nothing in the passages can be quoted.

        without: what must not be quoted, as `said` gives it.
        """
        read = read_question(question)
        found = [item for item in found_quotes(passages) if not without or _says_none_of(item[1], without)]
        if not found:
            return CitedText("")
        table = QuoteTable(self._encoder, [read], passages, found)
        candidates = table.candidates(0)
        chosen = with_predecessors(chosen_quotes(read, candidates, table.rows, _LIMITS), candidates, _LIMITS)
        text = Assembly()
        for candidate in in_reading_order(chosen):
            text.quote(candidate.passage + 1, candidate.quote)
        return text.finished(passages)


def _says_none_of(quote: Quote, known: Collection[str]) -> bool:
    return all(said(unit.text) not in known for unit in split_sentences(quote.text))
