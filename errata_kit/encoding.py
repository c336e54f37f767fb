"""What the offline judge and generator need of a sentence encoder, and a memory for its vectors."""

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

Vectors = npt.NDArray[np.float32]


class Encoder(Protocol):
    """Turns texts into unit vectors, one row per text, so that a dot product is the cosine. Blocking; thread-
    safe.
    """

    def encode(self, texts: Sequence[str]) -> Vectors:
        """Return an array of shape (len(texts), dimensions)."""
        ...


class CountedEncoder:
    """An encoder whose memories tell how often they knew a text. lookups: takes hits and misses; must not block or raise."""

    def __init__(self, encoder: Encoder, lookups: Callable[[int, int], None]) -> None:
        self._encoder = encoder
        self.lookups = lookups

    def encode(self, texts: Sequence[str]) -> Vectors:
        """See `Encoder`."""
        return self._encoder.encode(texts)


class RememberingEncoder:
    """An encoder that keeps the vectors of the `size` texts used last (384 dimensions: 1.5 KiB each)."""

    def __init__(self, encoder: Encoder, size: int = 4096) -> None:
        self._encoder = encoder
        self._lookups = encoder.lookups if isinstance(encoder, CountedEncoder) else None
        self._size = size
        self._lock = threading.Lock()
        self._kept: OrderedDict[bytes, Vectors] = OrderedDict()

    def encode(self, texts: Sequence[str]) -> Vectors:
        """Return one row per text; errors of the encoder pass through and leave nothing behind.

        The lock is not held while encoding: two threads may encode one new text twice, and both get the same
        vector.
        """
        if not texts:
            return self._encoder.encode(texts)
        keys = [hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest() for text in texts]
        with self._lock:
            found = {key: self._kept[key] for key in keys if key in self._kept}
            for key in found:
                self._kept.move_to_end(key)
        wanted = {key: text for key, text in zip(keys, texts, strict=True) if key not in found}
        if self._lookups is not None:
            self._lookups(len(found), len(wanted))
        if wanted:
            found.update(zip(wanted, self._encoder.encode(list(wanted.values())), strict=True))
            with self._lock:
                # Copies, so that one kept row does not keep its whole batch alive.
                self._kept.update((key, found[key].copy()) for key in wanted)
                while len(self._kept) > self._size:
                    self._kept.popitem(last=False)
        return np.stack([found[key] for key in keys])
