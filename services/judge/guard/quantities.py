"""Numbers with their units, so that "30 minutes" is not taken for "30 seconds", nor "1,000" for something
else than "1k".
"""

import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from services.judge.guard.numerals import plain_digits, related_numbers, scaled, spelled_numbers

# Units by dimension and size in the dimension's smallest common measure: seconds, bytes, hundredths, hertz.
# Units of data are taken as powers of two whether or not they are written with an i: documents use them without
# the difference.
_SIZES: Final[tuple[tuple[str, float, str], ...]] = (
    ("time", 0.000001, "us µs microsecond microseconds"),
    ("time", 0.001, "ms msec millisecond milliseconds"),
    ("time", 1, "s sec secs second seconds"),
    ("time", 60, "min mins minute minutes"),
    ("time", 3600, "h hr hrs hour hours"),
    ("time", 86400, "day days"),
    ("time", 604800, "week weeks"),
    ("time", 2629800, "month months"),
    ("time", 31557600, "year years yr yrs"),
    ("data", 1, "byte bytes"),
    ("data", 2**10, "kb kib kilobyte kilobytes kibibyte kibibytes"),
    ("data", 2**20, "mb mib megabyte megabytes mebibyte mebibytes"),
    ("data", 2**30, "gb gib gigabyte gigabytes gibibyte gibibytes"),
    ("data", 2**40, "tb tib terabyte terabytes tebibyte tebibytes"),
    ("share", 1, "% percent"),
    ("frequency", 1, "hz hertz"),
    ("frequency", 10**3, "khz kilohertz"),
    ("frequency", 10**6, "mhz megahertz"),
    ("frequency", 10**9, "ghz gigahertz"),
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
_HUNDREDTHS: Final = 100
_BLANK: Final = r"(?:[ \t\u00a0\u202f-]{0,2}|\s{1,4})"
_FOLLOWING: Final = re.compile(_BLANK + r"(%|[A-Za-zµ]{1,12})(?![A-Za-z])")
_AFTER_SCALE: Final = re.compile(r"[ \t\u00a0-]{0,2}([A-Za-z]{1,12})(?![A-Za-z])")
_NUMBER: Final = r"(?<![\d])(?:\d{1,3}(?:,\d{3}){1,6}|\d{1,18})(?:\.\d{1,12})?(?!\d)"
_DIGITS: Final = re.compile(_NUMBER)
_MEASURED: Final = re.compile(
    _NUMBER + rf"(?:{_BLANK}(?:%|[A-Za-zµ]{{1,12}}(?:[ \t\u00a0-]{{0,2}}[A-Za-z]{{1,12}})?)(?![A-Za-z]))?"
)
_DECADE: Final = re.compile(r"(?:1\d|20)\d0")
_PIECES: Final = re.compile(r"\d{1,18}")
# "half an hour", and "an hour" or "every minute" for one of them.
_HALF: Final = re.compile(r"\bhalf[ -](?:an?[ -])?([a-z]{3,11})\b", re.I)
_ONE: Final = re.compile(r"\b(?:an?|per|every|each|one)[ -]([a-z]{3,11})\b", re.I)


@dataclass(frozen=True, slots=True)
class Measure:
    """A number as it is meant. `number` are the plain digits as written, `unit` what follows in lower case, "" when none
    is known; `value` has the scale applied ("2 million" is 2000000), and `size` is (dimension, amount) with a unit. `end`
    is the character offset after the unit.
    """

    number: str
    unit: str
    value: str
    size: tuple[str, float] | None
    end: int


def measure_at(text: str, number: str, end: int) -> Measure:
    """Return what `number`, in digits, whose writing ends at `end` of `text`, measures."""
    number = plain_digits(number)
    following = _FOLLOWING.match(text, end)
    unit = following[1].lower() if following else ""
    decade = unit == "s" and text[end : end + 1] == "s" and _DECADE.fullmatch(number)
    if following is None or decade or (unit not in _UNITS and unit not in _SCALES):
        return Measure(number, "", number, None, end)
    if unit in _UNITS:
        return Measure(number, unit, number, _size(number, unit), following.end())
    value = scaled(number, _SCALES[unit])
    further = _AFTER_SCALE.match(text, following.end())
    size = _size(value, further[1].lower()) if further else None
    return Measure(number, unit, value, size, further.end() if further and size else following.end())


def halves(text: str) -> Iterator[tuple[int, int, Measure]]:
    """Yield "half an hour" and the like as (start, end, measure)."""
    for match in _HALF.finditer(text):
        unit = match[1].lower()
        if unit in _UNITS:
            yield match.start(), match.end(), Measure("0.5", unit, "0.5", _size("0.5", unit), match.end())


class Quantities:
    """The numbers of the passages, and the units each was seen with."""

    def __init__(self, text: str) -> None:
        self._units: dict[str, set[str]] = defaultdict(set)
        self._sizes: set[tuple[str, float]] = set()
        # Each writing once: a text of hundreds of thousands of numbers has few different ones.
        for written in {match[0] for match in _MEASURED.finditer(text)}:
            digits = _DIGITS.match(written)
            if digits is not None:
                self._add(measure_at(written, digits[0], digits.end()))
        for spelled in spelled_numbers(text):
            self._add(measure_at(text, spelled.value, spelled.end))
        for related in related_numbers(text):
            self._units[related.value].add(unit_after(text, related.end))
        for _, _, half in halves(text):
            self._add(half)
        for match in _ONE.finditer(text):
            if (size := _size("1", match[1].lower())) is not None:
                self._sizes.add(size)
        # Inside identifiers, versions and tokenised decimals ("2 . 5") the digits count too, but say nothing
        # of a unit.
        for piece in set(_PIECES.findall(text)):
            self._units.setdefault(plain_digits(piece), {""})

    def _add(self, measure: Measure) -> None:
        self._units[measure.number].add(measure.unit)
        if measure.unit in _SCALES:
            self._units[measure.value].add("")
        if measure.size is not None:
            self._sizes.add(measure.size)
        if measure.unit == "m" and (minutes := _size(measure.number, "min")) is not None:
            self._sizes.add(minutes)

    def explain_missing(self, text: str, number: str, start: int, end: int) -> str | None:
        """Return why the number at `text[start:end]`, `number` in digits, is not in the passages, or None when it is."""
        measure = measure_at(text, number, end)
        if measure.size in self._sizes or self._other_share(measure):
            return None
        written, unit = text[start:end], measure.unit
        seen = self._units.get(measure.value)
        if unit in _SCALES and seen is None:
            # "17 million" may stand in a table of millions, but not where all that is said is "17 billion".
            bare = self._units.get(measure.number, set())
            seen = bare if bare - _SCALES.keys() or unit in bare else None
        if seen is None:
            return f"No passage has the number {written}{f' {unit}' if unit in _SCALES else ''}."
        others = {other for other in seen if other in _UNITS}
        dimension = _UNITS[unit][0] if unit in _UNITS else None
        clash = dimension is not None and len(others) == len(seen) and all(_UNITS[o][0] == dimension for o in others)
        return f"The passages say {written} {min(others)}, not {unit}." if clash and others else None

    def _other_share(self, measure: Measure) -> bool:
        """Whether the passages write the share the other way: 0.5 for 50 %, or 50 % for 0.5."""
        if measure.size is None:
            return "." in measure.value and ("share", round(float(measure.value) * _HUNDREDTHS, 9)) in self._sizes
        return measure.size[0] == "share" and f"{measure.size[1] / _HUNDREDTHS:.9g}" in self._units


def unit_after(text: str, position: int) -> str:
    """Return the unit or scale word right after `position`, lower-cased; "" when none is known."""
    match = _FOLLOWING.match(text, position)
    word = match[1].lower() if match else ""
    return word if word in _UNITS or word in _SCALES else ""


def _size(number: str, unit: str) -> tuple[str, float] | None:
    if unit not in _UNITS:
        return None
    dimension, size = _UNITS[unit]
    return dimension, round(float(number) * size, 9)
