"""Numbers with their units, so that "30 minutes" is not taken for "30 seconds", nor "1,000" for something
else than "1k".
"""

import re
from collections import defaultdict
from typing import Final

from services.judge.guard.details import number_key

# Units by dimension and size in the dimension's smallest common measure: seconds, bytes, hundredths. Units of
# data are taken as powers of two whether or not they are written with an i: documents use them without the
# difference.
_SIZES: Final[tuple[tuple[str, float, str], ...]] = (
    ("time", 0.001, "ms millisecond milliseconds"),
    ("time", 1, "s sec secs second seconds"),
    ("time", 60, "min mins minute minutes"),
    ("time", 3600, "h hr hrs hour hours"),
    ("time", 86400, "day days"),
    ("time", 604800, "week weeks"),
    ("time", 2629800, "month months"),
    ("time", 31557600, "year years"),
    ("data", 1, "byte bytes"),
    ("data", 2**10, "kb kib"),
    ("data", 2**20, "mb mib"),
    ("data", 2**30, "gb gib"),
    ("data", 2**40, "tb tib"),
    ("share", 1, "% percent"),
)
_UNITS: Final = {unit: (dimension, size) for dimension, size, units in _SIZES for unit in units.split()}
_SCALES: Final = {
    unit: scale
    for scale, units in (
        (10**3, "k thousand"),
        (10**6, "m million"),
        (10**9, "b bn billion"),
        (10**12, "trillion"),
    )
    for unit in units.split()
}
_FOLLOWING: Final = re.compile(r"[ \t-]{0,2}(%|[A-Za-z]{1,12})(?![A-Za-z])")
_UP_TO_TWENTY: Final = (
    "zero;one first once single;two second twice both;three third;four fourth;five fifth;six sixth;"
    "seven seventh;eight eighth;nine ninth;ten tenth;eleven eleventh;twelve twelfth dozen;"
    "thirteen thirteenth;fourteen fourteenth;fifteen fifteenth;sixteen sixteenth;seventeen seventeenth;"
    "eighteen eighteenth;nineteen nineteenth;twenty twentieth twenties"
)
_TENS: Final = (
    "thirty thirties;forty forties;fifty fifties half;sixty sixties;seventy seventies;eighty eighties;ninety nineties;hundred"
)
_WORDS: Final = {
    word: str(value)
    for value, words in (
        *enumerate(_UP_TO_TWENTY.split(";")),
        *zip(range(30, 110, 10), _TENS.split(";"), strict=True),
    )
    for word in words.split()
}
_WORD: Final = re.compile(r"[A-Za-z]{3,11}")
_DIGITS: Final = re.compile(r"(?<![\d])(?:\d{1,3}(?:,\d{3}){1,6}|\d{1,18})(?:\.\d{1,12})?(?!\d)")
_PIECES: Final = re.compile(r"\d{1,18}")


class Quantities:
    """The numbers of the passages, and the units each was seen with."""

    def __init__(self, text: str) -> None:
        self._units: dict[str, set[str]] = defaultdict(set)
        self._sizes: set[tuple[str, float]] = set()
        for match in _DIGITS.finditer(text):
            key, unit = number_key(match[0]), unit_after(text, match.end())
            self._units[key].add(unit)
            if unit in _SCALES:
                self._units[_scaled(key, unit)].add("")
            if (size := _size(key, unit)) is not None:
                self._sizes.add(size)
        # Inside identifiers, versions and tokenised decimals ("2 . 5") the digits count too, but say nothing
        # of a unit.
        for match in _PIECES.finditer(text):
            self._units.setdefault(number_key(match[0]), {""})
        for match in _WORD.finditer(text):
            if (value := _WORDS.get(match[0].lower())) is not None:
                self._units[value].add(unit_after(text, match.end()))

    def explain_missing(self, text: str, start: int, end: int) -> str | None:
        """Return why the number at `text[start:end]` is not in the passages, or None when it is."""
        key, unit = number_key(text[start:end]), unit_after(text, end)
        size = _size(key, unit)
        if size in self._sizes and size is not None:
            return None
        seen = self._units.get(key) or self._units.get(_scaled(key, unit))
        if seen is None:
            return f"No passage has the number {text[start:end]}."
        dimension = _UNITS[unit][0] if unit in _UNITS else None
        others = {other for other in seen if other in _UNITS}
        clash = dimension is not None and len(others) == len(seen) and all(_UNITS[o][0] == dimension for o in others)
        return f"The passages say {text[start:end]} {min(others)}, not {unit}." if clash and others else None


def unit_after(text: str, position: int) -> str:
    """Return the unit or scale word right after `position`, lower-cased; "" when none is known."""
    match = _FOLLOWING.match(text, position)
    word = match[1].lower() if match else ""
    return word if word in _UNITS or word in _SCALES else ""


def _size(key: str, unit: str) -> tuple[str, float] | None:
    if unit not in _UNITS:
        return None
    dimension, size = _UNITS[unit]
    return dimension, round(float(key) * size, 6)


def _scaled(key: str, unit: str) -> str:
    if unit not in _SCALES:
        return key
    return number_key(f"{float(key) * _SCALES[unit]:.6f}")
