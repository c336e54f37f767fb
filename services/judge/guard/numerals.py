"""Numbers that are written in words: "twenty-five", "two hundred and six", "1.5 million", "half an hour"."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

_ONES_TEXT: Final = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen "
    "nineteen"
)
_ONES: Final = _ONES_TEXT.split()
_TENS_TEXT: Final = "twenty thirty forty fifty sixty seventy eighty ninety"
_TENS: Final = _TENS_TEXT.split()
_BELOW_HUNDRED: Final = {
    **{word: value for value, word in enumerate(_ONES)},
    **{word: 10 * value for value, word in enumerate(_TENS, 2)},
}
_SCALES: Final = {"thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}
_ANY: Final = "|".join((*_BELOW_HUNDRED, "hundred", *_SCALES))
# "one hundred and six" is one number, "one and six" two: only a hundred or a scale is followed by "and".
_SPELLED: Final = re.compile(
    rf"(?<![\w\-])(?:(?:{_ANY})(?:[ \t]?-[ \t]?|[ \t]{{1,2}})(?:(?<=d )and )?){{0,15}}(?:{_ANY})"
    r"(?![\w]|-[A-Za-z]{1,12}[ \t]?-)",
    re.I,
)
_MULTIPLIERS: Final = frozenset(("hundred", *_SCALES))
_SINGLE: Final = re.compile(r"(?<![\w.])an?\s\Z", re.I)
_LONGEST_SINGLE: Final = 4
_WORD: Final = re.compile(rf"\b(?:{_ANY})\b", re.I)
# Ordinals and other words that name a number without being one; they are known, and never looked up.
_RELATED: Final = {
    word: str(value)
    for value, words in (
        (0.5, "half"),
        (1, "first once single sole"),
        (2, "second twice both double pair couple"),
        (3, "third thrice triple"),
        (4, "fourth"),
        (5, "fifth"),
        (6, "sixth"),
        (7, "seventh"),
        (8, "eighth"),
        (9, "ninth"),
        (10, "tenth decade"),
        (11, "eleventh"),
        (12, "twelfth dozen"),
        (13, "thirteenth"),
        (14, "fourteenth"),
        (15, "fifteenth"),
        (16, "sixteenth"),
        (17, "seventeenth"),
        (18, "eighteenth"),
        (19, "nineteenth"),
        (20, "twentieth twenties"),
        (30, "thirtieth thirties"),
        (40, "fortieth forties"),
        (50, "fiftieth fifties half"),
        (60, "sixtieth sixties"),
        (70, "seventieth seventies"),
        (80, "eightieth eighties"),
        (90, "ninetieth nineties"),
        (100, "hundredth century"),
        (1000, "thousandth"),
    )
    for word in words.split()
}
_RELATED_WORD: Final = re.compile(rf"\b(?:{'|'.join(_RELATED)})\b", re.I)


@dataclass(frozen=True, slots=True)
class Spelled:
    """A number in words: its half-open character offsets, and its value in digits."""

    start: int
    end: int
    value: str


def spelled_numbers(text: str) -> Iterator[Spelled]:
    """Yield the numbers that `text` writes in words, in order. Words that make no number together are single numbers.

    Linear in the text's length. "one" is yielded too; whether it counts something is for the caller to say. Not yielded: a
    scale after digits ("17 million"), and one that stands alone ("several hundred"), unless it is "a million".
    """
    for match in _SPELLED.finditer(text):
        if match[0].lower() in _MULTIPLIERS and not _SINGLE.search(
            text, max(0, match.start() - _LONGEST_SINGLE), match.start()
        ):
            continue
        words = [(w.start() + match.start(), w.end() + match.start(), w[0].lower()) for w in _WORD.finditer(match[0])]
        value = _value([word for _, _, word in words])
        if value is not None:
            yield Spelled(match.start(), match.end(), str(value))
        else:
            singles = ((start, end, _value([word])) for start, end, word in words)
            yield from (Spelled(start, end, str(value)) for start, end, value in singles if value is not None)


def related_numbers(text: str) -> Iterator[Spelled]:
    """Yield what names a number in passing: ordinals, "twice", "dozen", "half"."""
    for match in _RELATED_WORD.finditer(text):
        yield Spelled(match.start(), match.end(), _RELATED[match[0].lower()])


def scaled(number: str, scale: int) -> str:
    """Return `number` (digits, maybe with a fraction) times `scale` in digits, without idle zeros: ("1.5", 1000) is "1500"."""
    return plain_digits(str(Decimal(number) * scale))


def plain_digits(number: str) -> str:
    """Return the number without grouping and idle zeros: "1,000.50" is "1000.5"."""
    plain = number.replace(",", "")
    if "." in plain:
        plain = plain.rstrip("0").rstrip(".")
    plain = plain.lstrip("0")
    return f"0{plain}" if plain.startswith(".") else plain or "0"


def _value(words: list[str]) -> int | None:
    """Return the value of number words, None when they do not follow each other as in one number."""
    if words[0] == "zero" and len(words) > 1:
        return None
    total, group, last = 0, 0, 0
    for place, word in enumerate(words):
        if word in _SCALES:
            # A scale follows what it multiplies and is smaller than the one before it: "two million three thousand".
            if (not group and place) or (total and _SCALES[word] >= last):
                return None
            total, group, last = total + (group or 1) * _SCALES[word], 0, _SCALES[word]
        elif word == "hundred":
            if group >= len(_ONES) or (not group and place):
                return None
            group = (group or 1) * 100
        else:
            value = _BELOW_HUNDRED[word]
            room = group % 100
            fits = not room or (room >= 20 and room % 10 == 0 and 0 < value < 10)
            if place and (not fits or not value):
                return None
            group += value
    return total + group
