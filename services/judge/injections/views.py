"""Texts as a model may read them: without what people don't see, and with look-alike letters as the ones they stand for."""

import re
import unicodedata
from dataclasses import dataclass
from functools import cache
from html import unescape
from typing import Final

from errata_kit.bounds import KIB

MOST_TEXT: Final = 24 * KIB
"""Characters that are read of a text: a passage of 16 KiB with its title and headings is shorter."""

# Blanks without width, joiners, soft hyphens, fillers and marks of direction. U+FE00–FE0F and the supplement choose how the
# character before them is drawn.
_WITHOUT_WIDTH: Final = (
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180e\u200b-\u200f\u2060-\u2064\u206a-\u206f\u3164\ufeff\uffa0"
)
_DIRECTIONS: Final = "\u202a-\u202e\u2066-\u2069"
_SELECTORS: Final = "\ufe00-\ufe0f\U000e0100-\U000e01ef"
_TAGS: Final = "\U000e0000-\U000e007f"
WITHOUT_WIDTH: Final = f"[{_WITHOUT_WIDTH}]"
"""A character class: what takes no room."""
INVISIBLE: Final = re.compile(f"[{_WITHOUT_WIDTH}{_DIRECTIONS}{_SELECTORS}{_TAGS}]")
"""Every character that nobody sees."""
# Subdivision flags are a black flag, tags and a closing tag.
_FLAG: Final = re.compile("\U0001f3f4[\U000e0020-\U000e007e]{1,8}\U000e007f")
_TAG_RUN: Final = re.compile("[\U000e0020-\U000e007e]+")
_SELECTOR_RUN: Final = re.compile(f"[{_SELECTORS}]{{4,}}")
_COMMENT_OR_TAG: Final = re.compile(r"<!--|-->|</?[a-zA-Z][^<>]{0,400}>")
_CODE_LINE: Final = re.compile(r"[ \t>]{0,8}(?:`{3,}|~{3,})")
_SPAN: Final = re.compile(r"`[^`\n]{1,400}`")
_SPELLED: Final = re.compile(r"(?<!\w)(?:\w[ .\-*·]{1,2}){5,}\w(?!\w)")
_TOKEN: Final = re.compile(r"[a-z0-9@$!]{3,40}+")
_LEET: Final = str.maketrans("013457@$!", "oieastasi")


@dataclass(frozen=True, slots=True)
class View:
    """One way to read a text, in lower case: with its own letters, and with all that look Latin as Latin without accents."""

    plain: str
    folded: str


@cache
def _latin() -> dict[int, str]:
    """What looks like a Latin letter or an angle bracket, and isn't made one by compatibility decomposition."""
    cyrillic = dict(zip("аеорсухіјѕһԁԛԝѵткмнв", "aeopcyxijshdqwvtkmhb", strict=True))
    greek = dict(zip("αονικρτυχηγωε", "aovikptuxnywe", strict=True))
    small = dict(zip("ᴀʙᴄᴅᴇꜰɢʜɪᴊᴋʟᴍɴᴏᴘʀꜱᴛᴜᴠᴡʏᴢıɡɑłøđօոսհ", "abcdefghijklmnoprstuvwyzigalodonuh", strict=True))
    boxed = {chr(start + n): chr(97 + n) for start in (0x1F150, 0x1F170, 0x1F1E6) for n in range(26)}
    double = {**dict.fromkeys("«≪《⪡", "<<"), **dict.fromkeys("»≫》⪢", ">>"), "⋘": "<<<", "⋙": ">>>"}
    single = {**dict.fromkeys("‹〈⟨〈❮❰˂ᐸ", "<"), **dict.fromkeys("›〉⟩〉❯❱˃ᐳ", ">"), **dict.fromkeys("ǀ∣❘│┃¦丨", "|")}
    quotes = {**dict.fromkeys("“”„‟″", '"'), **dict.fromkeys("‘’‚‛′", "'")}
    return {
        ord(key): value
        for key, value in {**cyrillic, **greek, **small, **boxed, **double, **single, **quotes, "ß": "ss"}.items()
    }


def view_of(text: str) -> View:
    """Read a text in lower case, with entities as what they stand for, and one sort of line end. Invisible ones stay."""
    # What several characters make together (ﷺ is eighteen) is cut, lest a hostile text grow.
    plain = unicodedata.normalize("NFKC", unescape(text) if "&" in text else text)[: 2 * MOST_TEXT].lower()
    plain = "\n".join(plain.splitlines())
    if plain.isascii():
        return View(plain, plain)
    parts = unicodedata.normalize("NFKD", plain.translate(_latin()))
    return View(plain, "".join(char for char in parts if not unicodedata.combining(char)))


def without_invisible(text: str) -> str:
    """The text without every character that nobody sees."""
    return INVISIBLE.sub("", text)


def without_markup(text: str) -> str:
    """The text without HTML tags and without the marks of comments; what comments say stays."""
    return _COMMENT_OR_TAG.sub(" ", text)


def without_code(folded: str) -> str:
    """The text without fenced blocks and code spans; a block that is not closed goes on to the end."""
    kept: list[str] = []
    inside = False
    for line in folded.split("\n"):
        if _CODE_LINE.match(line):
            inside = not inside
        elif not inside:
            kept.append(line)
    return _SPAN.sub(" ", "\n".join(kept))


def spelled_out(folded: str) -> str:
    """Words that were written letter by letter (i g n o r e), each run joined to one; empty without any."""
    return " ".join(re.sub(r"[ .\-*·]+", "", run) for run in _SPELLED.findall(folded))


def without_digits_for_letters(folded: str) -> str:
    """The text with digits and signs inside words as the letters that they resemble (1gn0re)."""
    return _TOKEN.sub(_lettered, folded)


def smuggled(text: str) -> str:
    """What is written in tag characters, and in runs of variation selectors that stand for bytes; flags are none."""
    tags = "\n".join("".join(chr(ord(char) - 0xE0000) for char in run) for run in _TAG_RUN.findall(_FLAG.sub("", text)))
    bytes_ = "\n".join(bytes(map(_byte, run)).decode("utf-8", "replace") for run in _SELECTOR_RUN.findall(text))
    return f"{tags}\n{bytes_}".strip()


def _lettered(token: re.Match[str]) -> str:
    word = token[0]
    return word if word.isalpha() or word.isdecimal() else word.translate(_LEET)


def _byte(selector: str) -> int:
    code = ord(selector)
    return code - 0xFE00 if code < 0xFFFF else code - 0xE0100 + 16
