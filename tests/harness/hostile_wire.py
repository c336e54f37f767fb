"""Messages on the wire, written by hand from a descriptor: sound ones, extreme ones, and what is no message."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from tests.harness.hostile_texts import hostile_document, hostile_text

KIB: Final = 1024
VARINT, FIXED64, BYTES, GROUP, GROUP_END, FIXED32 = range(6)
INTEGERS: Final = (
    0,
    1,
    -1,
    2,
    100,
    101,
    500,
    501,
    2**31 - 1,
    2**31,
    -(2**31),
    2**32,
    2**53 + 1,
    2**63 - 1,
    -(2**63),
    2**64 - 1,
)
FLOATS: Final = (0.0, -0.0, 1.0, 1.0000001, -1.0, 5e-324, 1.8e308, float("inf"), float("-inf"), float("nan"), 1e-308, 2.0**63)
# Not UTF-8: lone bytes, an overlong slash, a surrogate, a code point beyond the last, a character cut short.
NOT_UTF8: Final = (b"\xff", b"\xc0\xaf", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xe2\x82", b"a\x80b", b"\xfe\xff\x00a")
# Until here a field's text is taken; a byte more is refused.
LIMITS: Final = (16, 64, 128, 512, KIB, 2 * KIB, 8 * KIB)
_FIXED: Final = {
    FieldDescriptor.TYPE_DOUBLE: "<d",
    FieldDescriptor.TYPE_FLOAT: "<f",
    FieldDescriptor.TYPE_FIXED64: "<Q",
    FieldDescriptor.TYPE_SFIXED64: "<q",
    FieldDescriptor.TYPE_FIXED32: "<I",
    FieldDescriptor.TYPE_SFIXED32: "<i",
}
_TEXTUAL: Final = (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES)


def varint(value: int) -> bytes:
    """A number in base 128; a negative one in two's complement of 64 bits."""
    value &= 2**64 - 1
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def tagged(number: int, kind: int, payload: bytes) -> bytes:
    """A field: its tag, the length where its kind has one, and the payload."""
    tag = varint(number << 3 | kind)
    return tag + varint(len(payload)) + payload if kind == BYTES else tag + payload


@dataclass(slots=True)
class Writer:
    """Writes messages of any descriptor. `sane` is the share of fields that get a value which the contract takes.

    `values` holds such values by the name of the field, as functions of the random numbers; `left` is what is left of the
    message's size in bytes.
    """

    dice: random.Random
    sane: float
    values: dict[str, Callable[[random.Random], Any]] = field(default_factory=dict)
    left: int = 256 * KIB
    all_fields: bool = False

    def message(self, kind: Descriptor, depth: int = 0) -> bytes:
        """A message, its fields in any order."""
        fields = list(kind.fields)
        if self.sane < 1:
            self.dice.shuffle(fields)
        return b"".join(self._field(item, depth) for item in fields if self._wanted(item, depth))

    def _wanted(self, item: FieldDescriptor, depth: int) -> bool:
        if self.left <= 0 or depth > 12:
            return False
        if item.name in self.values or self.all_fields:
            return True
        # A oneof whose members all come is a conflict, which the last one wins.
        return self.dice.random() < (0.35 if item.message_type is None else 0.5 / (1 + depth))

    def _field(self, item: FieldDescriptor, depth: int) -> bytes:
        sane = self.dice.random() < self.sane
        count = self._count(sane) if item.is_repeated else 1
        written = []
        for place in range(count):
            one = self._value(item, depth, sane, place)
            written.append(one)
            self.left -= len(one)
            if self.left <= 0:
                break
        return b"".join(written)

    def _count(self, sane: bool) -> int:
        return self.dice.randrange(1, 4) if sane else self.dice.choice((0, 1, 2, 17, 65, 101, 501, 3000))

    def _value(self, item: FieldDescriptor, depth: int, sane: bool, place: int) -> bytes:
        if item.message_type is not None:
            return tagged(item.number, BYTES, self._inner(item, depth, place))
        if item.type in _TEXTUAL:
            return tagged(item.number, BYTES, self._text(item, sane, place))
        given = self.values[item.name](self.dice) if sane and item.name in self.values else None
        if (form := _FIXED.get(item.type)) is not None:
            return tagged(item.number, FIXED64 if form in ("<d", "<Q", "<q") else FIXED32, self._fixed(form, sane, given))
        if given is None:
            given = self.dice.choice((0, 1)) if sane else self.dice.choice(INTEGERS)
        return tagged(item.number, VARINT, varint(int(given)))

    def _inner(self, item: FieldDescriptor, depth: int, place: int) -> bytes:
        kind = item.message_type
        assert kind is not None
        if kind.full_name in ("google.protobuf.Timestamp", "google.protobuf.Duration"):
            seconds, nanos = (self.dice.choice(INTEGERS) for _ in range(2))
            return tagged(1, VARINT, varint(seconds)) + tagged(2, VARINT, varint(nanos))
        inner = self.message(kind, depth + 1)
        if item.name == "passages" and self.dice.random() < self.sane:
            # Otherwise all passages have one id, and nothing behind that check would ever be reached.
            inner += tagged(1, BYTES, f"p{place}".encode())
        return inner

    def _fixed(self, form: str, sane: bool, given: Any) -> bytes:
        if form in ("<d", "<f"):
            value = given if given is not None else self.dice.random() if sane else self.dice.choice(FLOATS)
            try:
                return struct.pack(form, value)
            except OverflowError:
                return struct.pack(form, float("inf"))
        return struct.pack(form.upper() if form in ("<Q", "<I") else form, int(given or 0))

    def _text(self, item: FieldDescriptor, sane: bool, place: int) -> bytes:
        if sane:
            given = self.values.get(item.name)
            text = str(given(self.dice)) if given is not None else f"text {place}"
            return text.encode()
        if self.dice.random() < 0.15:
            return self.dice.choice(NOT_UTF8)
        size = self.dice.choice(LIMITS) + self.dice.choice((-1, 0, 0, 1))
        if item.name in ("text", "answer", "draft", "draft_answer", "content"):
            size = self.dice.choice((size, size, 16 * KIB, 16 * KIB + 1, 64 * KIB, 64 * KIB + 1))
            return hostile_document(self.dice, min(size, self.left)).encode()[:size]
        return hostile_text(self.dice, min(size, max(self.left, 1))).encode()


def mangled(random_: random.Random, encoded: bytes) -> bytes:
    """A message spoilt at the level of the wire."""
    ways: Sequence[Callable[[], bytes]] = (
        lambda: encoded[: random_.randrange(len(encoded) + 1)],
        lambda: _flipped(random_, encoded),
        lambda: encoded + tagged(random_.choice((1, 2, 15, 16, 536_870_911)), random_.randrange(6), random_.randbytes(8)),
        lambda: _retyped(random_, encoded),
        lambda: encoded * random_.randrange(2, 6),
        lambda: encoded + varint(random_.choice((0, 7, 6 << 3 | 6, 1 << 35))),
        # A length far beyond the end, and one of 64 bits.
        lambda: encoded + b"\x0a" + varint(random_.choice((2**31 - 1, 2**32, 2**63, 2**64 - 1))) + b"x",
        # Number 1 as a varint of more bytes than ten.
        lambda: encoded + b"\x08" + b"\xff" * random_.choice((9, 10, 11, 64)) + b"\x01",
        lambda: encoded + b"\x0b" * random_.choice((1, 99, 101, 5000)) + b"\x0c" * random_.choice((0, 1, 99, 5000)),
        lambda: encoded + b"\x0a\x00" * random_.choice((1, 100, 5000)),
        lambda: encoded + b"\x08\x01" * random_.choice((1, 100, 5000)),
        lambda: encoded + nested(random_.choice((1, 2, 3, 5)), random_.choice((5, 99, 101, 500)), b""),
        lambda: encoded[::-1],
    )
    return random_.choice(ways)()


def nested(number: int, depth: int, core: bytes) -> bytes:
    """A message in a message in a message, each in the field with this number."""
    for _ in range(depth):
        core = tagged(number, BYTES, core)
    return core


def nested_filter(random_: random.Random, depth: int) -> bytes:
    """A filter of lists of filters, so deep. The numbers are those of all_of, any_of and none_of, and of their filters."""
    core = b""
    for _ in range(depth):
        core = tagged(random_.choice((1, 2, 3)), BYTES, tagged(1, BYTES, core))
    return core


def _flipped(random_: random.Random, encoded: bytes) -> bytes:
    spoilt = bytearray(encoded or b"\0")
    for _ in range(random_.choice((1, 2, 8))):
        spoilt[random_.randrange(len(spoilt))] ^= 1 << random_.randrange(8)
    return bytes(spoilt)


def _retyped(random_: random.Random, encoded: bytes) -> bytes:
    if not encoded:
        return b"\x0f"
    return bytes([encoded[0] & 0xF8 | random_.randrange(8)]) + encoded[1:]
