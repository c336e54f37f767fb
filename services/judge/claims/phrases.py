"""Phrases of answers that state nothing about the subject: not knowing, courtesy, a bare yes or no."""

import re
from typing import Final

_SOURCES: Final = (
    r"(?:(?:the|these|those|this|your|any|my|our) )?"
    r"(?:(?:given|provided|available|retrieved|supplied|following) )?"
    r"(?:documents?|passages?|texts?|context|sources?|documentation|information|excerpts?|materials?|articles?)"
    r"(?: provided| given| available)?"
)
_LACKS: Final = "|".join(
    (
        r"(?:do|does|did|is|are)(?: not|n['’]t)",
        r"cannot|can['’]t|lacks?|(?:is|are) silent",
        r"(?:contains?|has|have|gives?|provides?|makes?|offers?|includes?|mentions?) no(?:thing)?",
        r"says? nothing",
    )
)
_THERE_IS: Final = r"there(?: is| are|['’]s| isn['’]t| aren['’]t)"
_LEAD: Final = rf"(?:unfortunately|however|but|sorry|while|although|(?:based on|according to) {_SOURCES})[,\s]+"
_NOT_STATED: Final = (
    r"(?:is|are|was|were) not (?:explicitly |specifically |directly )?"
    r"(?:mentioned|described|documented|covered|specified|stated|discussed|listed|addressed)\b"
)
# What says that nothing is known. It asserts nothing about the subject, so there is nothing to support. Each
# gap is bounded, and it is only tried at a sentence's beginning.
ABSTENTION: Final = re.compile(
    rf"(?:{_LEAD}){{0,3}}(?:"
    + "|".join(
        (
            rf"{_SOURCES}\s+(?:{_LACKS})\b",
            r"(?:i(?: am|['’]m) )?(?:sorry|afraid)\b.{0,40}?\b(?:do(?: not|n['’]t)|cannot|can['’]t|no)\b",
            r"i (?:do(?: not|n['’]t)|cannot|can['’]t|could(?: not|n['’]t)|am (?:not|unable)|have no)\b",
            rf"{_THERE_IS}(?: no| not| n['’]t)? ?(?:(?:any|explicit|specific|enough|sufficient) ){{0,3}}"
            r"(?:information|mention|details?|data|answer|evidence)\b",
            r"it is (?:not (?:clear|specified|stated|mentioned)|unclear)",
            r"no (?:specific |explicit |relevant )?(?:information|details?|answer|mention|passages?)\b",
            rf"[^.;:]{{1,80}}? {_NOT_STATED}",
        )
    )
    + ")",
    re.IGNORECASE,
)
# "but", "however" after an abstention start a statement of their own.
TURN: Final = re.compile(r"[,;]?\s+(?:but|however|though|although|that said)\b[,]?\s+", re.IGNORECASE)
# Courtesy around an answer: addressed to the reader, not about the subject.
COURTESY: Final = re.compile(
    "(?:"
    + "|".join(
        (
            r"(?:hello|hi|hey|thanks|thank you|no problem|sure|certainly)\b",
            r"of course|(?:great|good) question",
            r"you(?:['’]re| are) welcome",
            r"(?:i )?hope (?:this|that)",
            r"(?:please )?let me know|feel free to|happy to help|glad to|is there anything",
            r"if you (?:have|need) (?:any )?(?:more|other|further)",
            r"(?:please )?(?:provide|share|clarify|specify) (?:more|the|your)",
            r"(?:could|can|would) you",
            r"here(?:['’]s| is| are) (?:a|an|the|some|how)\b",
            r"sorry for|i apologi[sz]e",
            r"[^.]{0,80}\byour question\b",
        )
    )
    + ")",
    re.IGNORECASE,
)
# Courtesy of more words than this has a statement in it.
COURTESY_WORDS: Final = 12
ANSWER_WORD: Final = re.compile(
    r"(?:yes|no|indeed|sure|certainly|of course|correct|exactly|right"
    r"|that(?:['’]s| is) (?:not |in)?(?:correct|accurate|true|right))\b[,.!:;—–-]*\s*",
    re.IGNORECASE,
)
_CONNECTIVES: Final = (
    r"however|additionally|furthermore|moreover|also|therefore|thus|generally|typically|overall|finally|"
    r"unfortunately|in addition|in general|in summary|in short|in conclusion|in contrast|on the other hand|"
    r"for example|for instance|"
    r"as a result|besides|similarly|instead|otherwise|specifically|in other words|in fact|actually"
)
# What leads into a statement and is no part of it: the thread of the text, and the naming of the source.
LEAD_IN: Final = re.compile(
    rf"(?:(?:{_CONNECTIVES}),?\s+"
    rf"|(?:according to|based on|as (?:stated|mentioned|noted|described) in) {_SOURCES}"
    r"(?: (?:provided|given|above|earlier)){0,2},?\s+"
    rf"|{_SOURCES} (?:mention|state|say|note|indicate|suggest|explain|show)s?(?: that)?\s+)",
    re.IGNORECASE,
)
