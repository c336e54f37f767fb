"""Signs that text of a passage is meant for a model and not for a reader.

They are found by rules, without a model: the same text always has the same signs, and no text makes the search long. A sign
is no proof. It changes no score; it tells whoever looks after a collection where to look.
"""

from collections.abc import Iterator

from errata_kit.grades import InjectionKind
from services.judge.injections import hidden
from services.judge.injections.framing import imitates_a_fence, poses_as_a_role
from services.judge.injections.signs import english_signs, signs_in, spelled_signs
from services.judge.injections.views import (
    INVISIBLE,
    MOST_TEXT,
    smuggled,
    spelled_out,
    view_of,
    without_digits_for_letters,
    without_invisible,
    without_markup,
)

__all__ = ["find_injections"]


def find_injections(text: str) -> tuple[InjectionKind, ...]:
    """Which kinds of text for a model a passage carries, each once, in the order of `InjectionKind`.

    Only the first 24 Ki characters are read: a passage with its title and headings is shorter.
    """
    text = text[:MOST_TEXT]
    seen = without_invisible(text) if not text.isascii() else text
    found = set(_kinds(seen))
    if any(_kinds(piece) for piece in hidden.unseen(text)):
        found.add(InjectionKind.HIDDEN)
    for piece in _disguised(text):
        kinds = _kinds(piece)
        found |= kinds
        if kinds:
            found.add(InjectionKind.HIDDEN)
    if seen is not text and INVISIBLE.search(text) and _is_hidden(text, found):
        found.add(InjectionKind.HIDDEN)
    return tuple(kind for kind in InjectionKind if kind in found)


def _kinds(text: str) -> frozenset[InjectionKind]:
    """The kinds that a text shows once it is read as a model reads it."""
    if not text.strip():
        return frozenset()
    view = view_of(text)
    found = signs_in(view) | spelled_signs(spelled_out(view.folded))
    for other in {without_markup(view.folded), without_digits_for_letters(view.folded)} - {view.folded}:
        found |= english_signs(other)
    instructs = bool(found)
    if poses_as_a_role(view.folded, instructs):
        found |= {InjectionKind.ROLE}
    return found | {InjectionKind.FENCE} if imitates_a_fence(view.folded, instructs) else found


def _disguised(text: str) -> Iterator[str]:
    """What stands in a text in another form: in invisible characters, backwards, in Base64."""
    if not text.isascii():
        yield smuggled(text)
        yield hidden.turned_round(text)
    yield hidden.decoded(text)


def _is_hidden(text: str, found: set[InjectionKind]) -> bool:
    """Whether invisible characters hide something: text of their own, or words that only show without them."""
    return bool(smuggled(text)) or hidden.is_typed_invisibly(text) or bool(found - _kinds(text))
