"""Words that say the opposite of each other, and words that deny."""

import re
from functools import cache
from typing import Final

from services.judge.guard.tokens import tokens

_PAIRS: Final = (
    "always/never enable/disable enabled/disabled true/false minimum/maximum min/max increase/decrease before/after "
    "allow/forbid allow/prevent allowed/forbidden allowed/prohibited permitted/prohibited required/optional "
    "mandatory/optional above/below higher/lower high/low highest/lowest more/less more/fewer most/least most/fewest "
    "first/last add/remove start/stop synchronous/asynchronous mutable/immutable internal/external include/exclude "
    "ascending/descending oldest/newest older/newer largest/smallest larger/smaller large/small longest/shortest "
    "longer/shorter long/short faster/slower fastest/slowest fast/slow possible/impossible public/private accept/reject "
    "male/female all/none with/without open/closed open/close upper/lower top/bottom left/right early/late "
    "earlier/later earliest/latest success/failure succeed/fail valid/invalid legal/illegal safe/unsafe "
    "positive/negative manually/automatically manual/automatic temporary/permanent direct/indirect directly/indirectly "
    "inside/outside horizontal/vertical import/export read/write lock/unlock install/uninstall on/off up/down over/under "
    "greater/less greater/smaller deprecated/recommended explicit/implicit static/dynamic active/inactive online/offline "
    "present/absent equal/unequal visible/hidden increase/reduce improve/worsen rise/fall gain/lose buy/sell win/lose "
    "past/future north/south east/west northern/southern eastern/western common/rare often/rarely always/sometimes "
    "always/rarely usually/rarely parent/child"
)
_PREFIXES: Final = ("un", "non", "in", "im", "dis", "il", "ir")
_SHORTEST_STEM: Final = 5
_DENYING: Final = re.compile(
    r"fail\w*|unable|inabilit\w+|lack\w*|absen\w+|prevent\w*|avoid\w*|refus\w+|den(?:y|ies|ied|ying)|missing|misses|missed|hardly"
    r"|barely|rarely|seldom|except\w*|instead|rather|impossible|forb[ai]d\w*|prohibit\w*|stop\w*|exclu\w+|omit\w*|ignor\w+"
    r"|reject\w*|only|unless|until|few|fewer|little|less|zero|un[a-z]{5,}"
)


@cache
def _opposites() -> frozenset[tuple[str, str]]:
    found = set()
    for pair in _PAIRS.split():
        one, other = (tokens(word)[0].key for word in pair.split("/"))
        found |= {(one, other), (other, one)}
    return frozenset(found)


def opposite(one: str, other: str) -> bool:
    """Whether the two words (keys of tokens) say the opposite of each other."""
    if (one, other) in _opposites():
        return True
    longer, shorter = (one, other) if len(one) > len(other) else (other, one)
    return len(shorter) >= _SHORTEST_STEM and any(longer == prefix + shorter for prefix in _PREFIXES)


def denies(word: str) -> bool:
    """Whether a word in lower case can stand for a negation, as "fails" does, or limits one, as "only" does."""
    return _DENYING.fullmatch(word) is not None
