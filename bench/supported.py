"""Sentences that their sources support, for measuring the guard: real ones, and the same things said in another writing.

A sentence comes from a Markdown page (Milvus' documentation), from a document of mtrag's corpus, or from an answer that all
three raters gave the best faithfulness. Beside it stand the texts that a judge would be given: the piece that the sentence
is from and two to four more pieces of the same document, or the passages that the rated answer was made from.

Which half a sentence belongs to follows from a hash of its document, so that nothing of a held-out document is ever tuned on.
The patterns here are on purpose not the guard's own: what the guard overlooks must not be overlooked here too.
"""

import hashlib
import random
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from bench.figures import read_rows
from errata_kit.passages import Passage
from errata_kit.text.sentences import split_sentences
from services.retriever.chunking import Chunker
from services.retriever.documents import SourceDocument, read_document
from services.retriever.tenancy import CollectionRef

BEST_RATING: Final = 4
_TURNS: Final = ("page", "corpus", "page", "answer", "page", "corpus")
_WORDS: Final = range(6, 46)
_OTHERS: Final = (2, 4)
_FEWEST_PIECES: Final = 3
# A unit with these is a picture, a template's variable or HTML, which no answer repeats.
_NOT_PROSE: Final = re.compile(r"!\[|\{\{|<[a-z/!]|^\W*\||::|^#")
# "…: 2." has run into the marker of the next list item.
_CUT_OFF: Final = re.compile(r"(?:^|\W)\d{1,2}\.$|\\n")
_PIECE_OF: Final = re.compile(r"(?P<document>.+?)[-_]\d+-\d+(?:-\d+-\d+)?")
_SAYS_NOTHING: Final = re.compile(
    r"^(?:I |Sorry|Yes[.!]|No[.!]|Unfortunately)|\b(?:documents?|passages?|context|information)\b[^.]{0,40}"
    r"\b(?:not|no|n't)\b|\bno (?:information|mention)\b|\?$",
    re.I,
)


@dataclass(frozen=True, slots=True)
class Supported:
    """A sentence that the passages beside it support. `origin` is "page", "corpus" or "answer"."""

    text: str
    passages: tuple[Passage, ...]
    document: str
    origin: str

    @property
    def held_out(self) -> bool:
        """Whether the document belongs to the half that the guard was never tuned on."""
        return hashlib.sha256(self.document.encode()).digest()[0] % 2 == 1

    def chance(self, purpose: str) -> random.Random:
        """Return a generator of random choices that depends on nothing but the sentence and what they are for."""
        return random.Random(f"{purpose}\0{self.document}\0{self.text}")


def supported_sentences(pages: Path, mtrag: Path) -> list[Supported]:
    """Return the sentences of all three origins, in an order that only depends on their words."""
    found = [*_of_pages(pages), *_of_corpus(mtrag / "corpus.jsonl"), *_of_answers(mtrag / "faithfulness.jsonl")]
    unique = {(sentence.document, sentence.text): sentence for sentence in found}
    shuffled = sorted(unique.values(), key=lambda s: hashlib.sha256(f"{s.document}\0{s.text}".encode()).digest())
    return _interleaved(shuffled)


def _interleaved(sentences: Sequence[Supported]) -> list[Supported]:
    """Return the sentences so that the origins take turns, since there are many more of pages than of answers."""
    waiting = {origin: iter([s for s in sentences if s.origin == origin]) for origin in _TURNS}
    order: list[Supported] = []
    while len(order) < len(sentences):
        order.extend(s for origin in _TURNS if (s := next(waiting[origin], None)) is not None)
    return order


def _of_pages(folder: Path) -> Iterator[Supported]:
    collection = CollectionRef("default", "pages")
    chunker = Chunker()
    for path in sorted(folder.rglob("*.md")):
        name = str(path.relative_to(folder))
        page = read_document(SourceDocument(name, path.read_bytes()))
        chunks = chunker.chunk(collection, page)
        yield from _of_pieces(name, [Passage(c.chunk_id, c.text, page.title, c.heading_path) for c in chunks], "page")


def _of_corpus(path: Path) -> Iterator[Supported]:
    documents: defaultdict[str, list[Passage]] = defaultdict(list)
    for row in read_rows(path):
        documents[_document(str(row["id"]))].append(Passage(str(row["id"]), str(row["text"])))
    for name, pieces in documents.items():
        yield from _of_pieces(name, pieces, "corpus")


def _document(piece: str) -> str:
    match = _PIECE_OF.fullmatch(piece)
    return match["document"] if match else piece


def _of_pieces(document: str, pieces: Sequence[Passage], origin: str) -> Iterator[Supported]:
    if len(pieces) < _FEWEST_PIECES:
        return
    for place, piece in enumerate(pieces):
        for text in _sentences(piece.text):
            count = random.Random(f"{document}\0{text}").randint(*_OTHERS)
            others = sorted((i for i in range(len(pieces)) if i != place), key=lambda i: abs(i - place))[:count]
            yield Supported(text, tuple(pieces[i] for i in sorted((place, *others))), document, origin)


def _of_answers(path: Path) -> Iterator[Supported]:
    for row in read_rows(path):
        if row["passages"] and row["ratings"] and min(row["ratings"]) == BEST_RATING:
            yield from _of_answer(row)


def _of_answer(row: Mapping[str, Any]) -> Iterator[Supported]:
    passages = tuple(Passage(str(p["id"]), str(p["text"])) for p in row["passages"])
    for text in _sentences(str(row["answer"])):
        if not _SAYS_NOTHING.search(text):
            yield Supported(text, passages, _document(passages[0].passage_id), "answer")


def _sentences(text: str) -> Iterator[str]:
    for unit in split_sentences(text):
        whole = unit.text.endswith((".", ".)", '."')) and (unit.text[0].isupper() or unit.text[0] in "`*\"'")
        prose = unit.kind in ("prose", "list") and not _NOT_PROSE.search(unit.text)
        if prose and whole and not _CUT_OFF.search(unit.text) and len(unit.text.split()) in _WORDS:
            yield " ".join(unit.text.split())


# --- the same thing in another writing --------------------------------------------------------------------------------

_SMALL_TEXT: Final = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen "
    "nineteen"
)
_SMALL: Final = _SMALL_TEXT.split()
_TENS_TEXT: Final = "zero ten twenty thirty forty fifty sixty seventy eighty ninety"
_TENS: Final = _TENS_TEXT.split()
_SCALES: Final = ((10**9, "billion"), (10**6, "million"), (1000, "thousand"), (100, "hundred"))
_IN_CODE: Final = re.compile(r"`[^`]*`|\]\([^)]*\)|https?://\S+|\S*[/_=@]\S*|\[[^\]]*\]")
_ADDRESS: Final = re.compile(r"\]\([^)]*\)|https?://\S+")
_NUMBER: Final = re.compile(r"(?<![\w.,:/#$€£+\-–])(?:\d{1,3}(?:,\d{3})+|\d{1,12})(?![\w/:°\-–]|[.,]\d|%)")
_NUMBER_WORD: Final = re.compile(rf"\b(?:{'|'.join(_SMALL[2:])})\b(?![\-–])", re.I)
_UNIT_NAMES: Final = (
    ("ms", "milliseconds"),
    ("s", "seconds"),
    ("min", "minutes"),
    ("h", "hours"),
    ("%", "percent"),
    ("KB", "kilobytes"),
    ("MB", "megabytes"),
    ("GB", "gigabytes"),
)
_MONTHS_TEXT: Final = "January February March April May June July August September October November December"
_MONTHS: Final = _MONTHS_TEXT.split()
_LONG_DATE: Final = re.compile(rf"\b({'|'.join(_MONTHS)}) (\d{{1,2}}), (\d{{4}})\b")
_SNAKE: Final = re.compile(r"(?<![\w./`\-])(`?)([a-z]{2,}[a-z0-9]*(?:_[a-z][a-z0-9]+)+)(`?)(?![\w./=(\-])")
_CAMEL: Final = re.compile(r"(?<![\w./\-])(`?)((?:[A-Z]?[a-z]{2,})(?:[A-Z][a-z]{2,})+)(`?)(?![\w./=(\-])")
_SUBORDINATE: Final = re.compile(
    r"((?:When|If|After|Before|Once|While|Although|To)\b[^,.;:`()]{8,120}), ([a-z][^;:]{12,300}\w)\."
)
_ADVERB: Final = re.compile(
    r" (?:also|just|then|quite|easily|usually|typically|generally|automatically|simply|quickly|directly|currently|often"
    r"|efficiently|properly|seamlessly|mainly|primarily|originally|widely|significantly|successfully|effectively)\b"
    r"(?! the same| as)"
)
_CONTRACTIONS: Final = (
    ("do not", "don't"),
    ("does not", "doesn't"),
    ("is not", "isn't"),
    ("are not", "aren't"),
    ("cannot", "can't"),
)
_LEADS: Final = (
    "According to the documentation, ",
    "As the documents say, ",
    "In short, ",
    "Based on the passages, ",
    "Note that ",
)


def in_words(value: int) -> str:
    """Return a whole number from 0 to 999,999,999,999 in English words: 25 is "twenty-five"."""
    if value < len(_SMALL):
        return _SMALL[value]
    for size, name in _SCALES:
        if value >= size:
            rest = f" {in_words(value % size)}" if value % size else ""
            return f"{in_words(value // size)} {name}{rest}"
    return _TENS[value // 10] + (f"-{_SMALL[value % 10]}" if value % 10 else "")


def prose_matches(pattern: re.Pattern[str], text: str) -> list[re.Match[str]]:
    """Return where `pattern` matches outside code, addresses, paths and citations."""
    closed = [match.span() for match in _IN_CODE.finditer(text)]
    return [m for m in pattern.finditer(text) if not any(start < m.end() and m.start() < end for start, end in closed)]


def rewritings(sentence: Supported) -> Iterator[tuple[str, str]]:
    """Yield (way of writing, sentence) for each way in which the sentence can be said without changing what it says."""
    for name, rewrite in _REWRITINGS.items():
        text = rewrite(sentence.text, sentence.chance(name))
        if text is not None and (name == "as_it_stands" or text != sentence.text):
            yield name, text


def _replaced(text: str, match: re.Match[str], new: str) -> str:
    return text[: match.start()] + new + text[match.end() :]


def _led_in(text: str, chance: random.Random) -> str | None:
    first = text.split()[0]
    if not (first.isalpha() and first[1:].islower() and first.lower() in _FIRST_WORDS):
        return None
    return chance.choice(_LEADS) + text[0].lower() + text[1:]


def _reordered(text: str, chance: random.Random) -> str | None:
    match = _SUBORDINATE.fullmatch(text)
    return f"{match[2][0].upper()}{match[2][1:]} {match[1][0].lower()}{match[1][1:]}." if match else None


def _without_adverb(text: str, chance: random.Random) -> str | None:
    matches = prose_matches(_ADVERB, text)
    return _replaced(text, chance.choice(matches), "") if matches else None


def _number_rewritten(text: str, chance: random.Random) -> str | None:
    if matches := prose_matches(_NUMBER, text):
        match = chance.choice(matches)
        value = int(match[0].replace(",", ""))
        year = "," not in match[0] and 1500 <= value <= 2100
        grouped = f"{value:,}" if "," not in match[0] and not year else str(value)
        return _replaced(text, match, chance.choice([grouped, grouped if year else in_words(value)]))
    if matches := prose_matches(_NUMBER_WORD, text):
        match = chance.choice(matches)
        return _replaced(text, match, str(_SMALL.index(match[0].lower())))
    return None


def _unit_rewritten(text: str, chance: random.Random) -> str | None:
    for short, long in _UNIT_NAMES:
        for had, new in ((short, f" {long}"), (long, short if short == "%" else f" {short}")):
            edge = "" if had == "%" else r"\b"
            # "1990s" is a decade.
            pattern = re.compile(rf"(?<![\w.,])\d[\d,.]*(?<![12]\d\d0) ?{had}{edge}(?![/\w])")
            if matches := prose_matches(pattern, text):
                digits = matches[0][0].removesuffix(had).rstrip()
                return _replaced(text, matches[0], digits + new)
    return None


def _date_rewritten(text: str, chance: random.Random) -> str | None:
    if match := _LONG_DATE.search(text):
        month, day, year = _MONTHS.index(match[1]) + 1, int(match[2]), match[3]
        ways = (f"{year}-{month:02d}-{day:02d}", f"{day} {match[1]} {year}", f"{match[1][:3]} {day}, {year}")
        return _replaced(text, match, chance.choice(ways))
    return None


def _recased(text: str, chance: random.Random) -> str | None:
    if match := _outside_addresses(_SNAKE, text):
        parts = match[2].split("_")
    elif match := _outside_addresses(_CAMEL, text):
        parts = [part.lower() for part in re.findall(r"[A-Z]?[a-z]+", match[2])]
    else:
        return None
    joined = "".join(part.capitalize() for part in parts)
    ways = ["_".join(parts), "_".join(parts).upper(), joined, joined[0].lower() + joined[1:], "-".join(parts)]
    new = chance.choice([way for way in ways if way != match[2]])
    return _replaced(text, match, f"{match[1]}{new}{match[3]}")


def _outside_addresses(pattern: re.Pattern[str], text: str) -> re.Match[str] | None:
    closed = [match.span() for match in _ADDRESS.finditer(text)]
    return next((m for m in pattern.finditer(text) if not any(a < m.end() and m.start() < b for a, b in closed)), None)


def _contracted(text: str, chance: random.Random) -> str | None:
    for long, short in _CONTRACTIONS:
        for had, new in ((long, short), (short, long)):
            if match := re.search(rf"\b{had}\b", text):
                return _replaced(text, match, new)
    return None


_FIRST_WORDS_TEXT: Final = (
    "the a an this that these those it its in on for to by with when if after before once you your we they there each all some "
    "many most as at from while although use set run make see"
)
_FIRST_WORDS: Final = frozenset(_FIRST_WORDS_TEXT.split())
_REWRITINGS: Final[Mapping[str, Callable[[str, random.Random], str | None]]] = {
    "as_it_stands": lambda text, chance: text,
    "cited": lambda text, chance: f"{text} [{chance.randint(1, 5)}]",
    "led_in": _led_in,
    "reordered": _reordered,
    "adverb_dropped": _without_adverb,
    "number_rewritten": _number_rewritten,
    "unit_rewritten": _unit_rewritten,
    "date_rewritten": _date_rewritten,
    "name_recased": _recased,
    "contracted": _contracted,
}
