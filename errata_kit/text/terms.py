"""Content words: what a text is about, in a form in which two texts can be compared."""

import re
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from py_rust_stemmers import SnowballStemmer

# Runs of letters and digits, held together by the joints that identifiers, versions and grouped numbers have
# inside.
_TOKEN: Final = re.compile(r"[^\W_]+(?:(?:[_.'’\-/:]|::|__)[^\W_]+|,(?=\d{3}(?!\d))\d{3})*")
_JOINTS: Final = re.compile(r"[_.\-/:'’]+")
_CAMEL: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_POSSESSIVE: Final = re.compile(r"['’](?:s|S)\Z")
_VERSION: Final = re.compile(r"[vV]?\d+(?:\.\d+)+")
_GROUPED: Final = re.compile(r"\d{1,3}(?:,\d{3})+(?:\.\d+)?")
# Longer runs are data (base64, minified code), not words; splitting them would only cost time.
_LONGEST_TOKEN: Final = 128

_STOP_WORDS_TEXT: Final = (
    "a about above after again against all also am an and any are as at be because been before being "
    "below between both but by can could did do does doing down during each either else etc ever few for "
    "from further had has have having he her here hers herself him himself his how however i if in into "
    "is it its itself just let like may me might more most must my myself neither no nor not now of off "
    "on once only onto or other our ours ourselves out over own per please rather same shall she should "
    "since so some such than that the their theirs them themselves then there thereby therefore these "
    "they this those though through thus to too under until up upon us very via was we were what when "
    "where whether which while who whom whose why will with within without would yes yet you your yours "
    "yourself don doesn didn isn aren wasn weren won couldn shouldn wouldn hasn haven hadn cannot ll ve "
    "re"
)
STOP_WORDS: Final = frozenset(_STOP_WORDS_TEXT.split())


def content_terms(text: str) -> tuple[str, ...]:
    """Return the content words of `text` in order, repeats included: lower case, stemmed (Snowball English).

    Stop words are left out. snake_case, camelCase and dotted names give their parts and, besides, the whole
    in lower case. Hyphenated words give their parts only, since tokenised text writes "air - to - air" for
    "air-to-air". Versions stay whole ("v1.2.3" is "1.2.3"), and grouped numbers lose their commas. Linear in
    the text's length.
    """
    terms: list[str] = []
    for match in _TOKEN.finditer(text):
        terms.extend(_token_terms(match[0]) if len(match[0]) <= _LONGEST_TOKEN else ())
    return tuple(terms)


@lru_cache(maxsize=1 << 15)
def _token_terms(token: str) -> tuple[str, ...]:
    token = _POSSESSIVE.sub("", token)
    if _VERSION.fullmatch(token):
        return (token.lower().lstrip("v"),)
    if _GROUPED.fullmatch(token):
        return (token.replace(",", ""),)
    pieces = [piece for piece in _JOINTS.split(token) if piece]
    parts = [part for piece in pieces for part in _camel_parts(piece)]
    whole = len(parts) > 1 and ("_" in token or "." in token or len(parts) > len(pieces))
    lowered = (part.lower() for part in parts)
    words = [_stem(part) for part in lowered if part not in STOP_WORDS and _weighs(part)]
    return (*words, token.lower()) if whole else tuple(words)


def _camel_parts(piece: str) -> list[str]:
    """Cut camelCase into its words; an ordinary word, and a short mix such as "H2O" or "3rd", stays whole."""
    if piece.islower() or piece.isupper() or piece[1:].islower() or not piece.isascii():
        return [piece]
    parts = _CAMEL.findall(piece)
    return parts if len(parts) > 1 and max(map(len, parts)) > 2 else [piece]


def _weighs(part: str) -> bool:
    return len(part) > 1 or part.isdigit()


def _stem(word: str) -> str:
    return str(_stemmer().stem_word(word)) if word.isalpha() else word


@cache
def _stemmer() -> "SnowballStemmer":
    from py_rust_stemmers import SnowballStemmer

    return SnowballStemmer("english")
