"""HIDDEN: what a model reads and a person does not see."""

import base64
import binascii
import re
from collections.abc import Iterator
from itertools import islice
from typing import Final

from services.judge.injections.views import WITHOUT_WIDTH

_IN_LATIN_WORD: Final = re.compile(rf"(?<=[A-Za-z]){WITHOUT_WIDTH}{{1,64}}(?=[A-Za-z])")
_SOFT: Final = frozenset("\u00ad\u200b")
_RUN: Final = re.compile(rf"{WITHOUT_WIDTH}{{8,}}")
# Two soft hyphens or optional breaks in a word are typesetting; joiners between Latin letters are nothing that people write.
_MANY: Final = 2
_TURNED: Final = re.compile(
    "[\u202d\u202e]([^\u202c\u202a-\u202e\n]{1,600})|[\u202b\u2067](?=[A-Za-z ]{3})([^\u202c\u2069\n]{1,600})"
)
_MOST: Final = 32
_PIECE: Final = 1200

_UNSEEN_STYLE: Final = re.compile(
    r"<[a-z][a-z0-9]{0,20}\b[^<>]{0,300}?(?:display\s{0,4}:\s{0,4}none|visibility\s{0,4}:\s{0,4}hidden"
    r"|font-size\s{0,4}:\s{0,4}[01](?:px|pt|em|%)?\s{0,4}[;\"']"
    r"|opacity\s{0,4}:\s{0,4}0(?:\.0\d?)?\s{0,4}[;\"']|color\s{0,4}[:=]\s{0,4}[\"']?\s{0,4}(?:white|transparent"
    r"|#fff(?:fff)?|rgba?\(\s?255\s?,\s?255\s?,\s?255)\b"
    r"|(?:left|top|text-indent)\s{0,4}:\s{0,4}-\d{3,6}|\shidden\b|aria-hidden|type\s?=\s?[\"']hidden)",
    re.IGNORECASE,
)
_LINK_COMMENT: Final = re.compile(
    r"(?:^|\n)[ \t>]{0,8}\[(?:[^\[\]\n]{1,60})\]:[ \t]{0,8}(?:<[^<>\n]{0,200}>|#|[^\s]{1,200})[ \t]{1,8}([\"'(][^\n]{1,1200})",
    re.IGNORECASE,
)
_ALTERNATIVE: Final = re.compile(
    r"!\[([^\[\]]{1,1200})\]\(|\b(?:alt|title|aria-label|data-[a-z-]{1,30}|summary|placeholder"
    r"|content)\s{0,4}=\s{0,4}(\"[^\"<>]{1,1200}\"|'[^'<>]{1,1200}')"
    r"|\]\([^()\s]{0,400}[ \t]{1,8}(\"[^\"\n]{1,1200}\"|'[^'\n]{1,1200}')\)",
    re.IGNORECASE,
)
_BLOB: Final = re.compile(r"(?<![A-Za-z0-9+/=_-])[A-Za-z0-9+/_-]{24,8192}={0,2}")


def is_typed_invisibly(text: str) -> bool:
    """Whether invisible characters stand where nobody types them: in runs, or again and again inside Latin words."""
    if _RUN.search(text):
        return True
    inside = list(islice(_IN_LATIN_WORD.finditer(text), _MOST))
    return len(inside) > _MANY and any(not _SOFT.issuperset(match[0]) for match in inside)


def turned_round(text: str) -> str:
    """What marks of direction show backwards, read the other way; empty without any."""
    return "\n".join((match[1] or match[2])[::-1] for match in islice(_TURNED.finditer(text), _MOST))


def unseen(text: str) -> Iterator[str]:
    """Pieces that a page does not show: comments, invisible elements, link comments, alternative texts and titles."""
    yield from _comments(text)
    if "<" not in text and "](" not in text and "]:" not in text and "=" not in text:
        return
    for found in islice(_UNSEEN_STYLE.finditer(text), _MOST):
        yield (
            text[found.start() : found.end() + _PIECE].partition(">")[2].partition("</")[0]
            or text[found.end() : found.end() + _PIECE]
        )
    for pattern in (_LINK_COMMENT, _ALTERNATIVE):
        for found in islice(pattern.finditer(text), _MOST):
            yield next(part for part in found.groups() if part)


def decoded(text: str) -> str:
    """What blobs of Base64 say, where that is text; empty without any."""
    return "\n".join(said for blob in islice(_BLOB.finditer(text), _MOST) if (said := _plain(blob[0])))


def _comments(text: str) -> Iterator[str]:
    start = text.find("<!--")
    for _ in range(_MOST):
        if start < 0:
            return
        end = text.find("-->", start)
        # A comment that is not closed hides all that follows.
        yield text[start + 4 : end if end >= 0 else start + 4 + 2 * _PIECE]
        start = text.find("<!--", end) if end >= 0 else -1


def _plain(blob: str) -> str:
    body = blob.rstrip("=").replace("-", "+").replace("_", "/")
    body = body[: len(body) - (len(body) % 4 == 1)]
    try:
        said = base64.b64decode(body + "=" * (-len(body) % 4), validate=True).decode("utf-8")
    except (binascii.Error, UnicodeDecodeError):
        return ""
    return said if said.isprintable() or all(char.isprintable() or char.isspace() for char in said) else ""
