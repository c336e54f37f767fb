"""Puts quotes together to a text in which each of them is cited."""

from collections.abc import Sequence

from errata_kit.passages import Citation, Passage, Span
from errata_kit.text.sentences import ByteOffsets
from services.generator.drafting.drafts import CitedText
from services.generator.drafting.quotable import Quote


class Assembly:
    """A Markdown text that grows by quotes, headings and words of no passage's."""

    def __init__(self) -> None:
        self._text = ""
        self._spans: list[tuple[int, int, int]] = []
        self._after_block = False

    def heading(self, level: int, words: str) -> None:
        """Add a heading of a level from 1."""
        self._text += f"{self._gap()}{'#' * level} {words}"
        self._after_block = True

    def paragraph(self, words: str) -> None:
        """Add words that rest on no passage."""
        self._text += f"{self._gap()}{words}"
        self._after_block = True

    def quote(self, number: int, quote: Quote, new_paragraph: bool = False) -> None:
        """Add a quote of the passage that [number] stands for, in the paragraph that is open unless a new one is asked for."""
        if self._after_block or new_paragraph or quote.kind != "sentence":
            self._text += self._gap()
        else:
            self._text += " " if self._text else ""
        self._after_block = quote.kind != "sentence"
        if quote.kind == "code":
            if quote.lead:
                self._put(quote.lead, number)
                self._text += "\n\n"
            self._put(quote.lines[0], number, marker=False)
        elif quote.kind == "list":
            self._text += f"{quote.lead}\n"
            for item in quote.lines:
                head, body = item.split(maxsplit=1)
                self._text += f"\n{head} "
                self._put(body, number)
        else:
            self._put(quote.lines[0], number)

    def finished(self, passages: Sequence[Passage]) -> CitedText:
        """The text and its citations."""
        offsets = ByteOffsets(self._text)
        cited = (Citation(n, passages[n - 1].passage_id, Span(*offsets.span(start, end))) for n, start, end in self._spans)
        return CitedText(self._text, tuple(cited))

    def _gap(self) -> str:
        return "\n\n" if self._text else ""

    def _put(self, words: str, number: int, marker: bool = True) -> None:
        self._spans.append((number, len(self._text), len(self._text) + len(words)))
        self._text += f"{words} [{number}]" if marker else words
