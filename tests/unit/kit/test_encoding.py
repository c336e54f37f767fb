"""The memory for sentence vectors."""

from collections.abc import Sequence

import numpy as np

from errata_kit.encoding import RememberingEncoder, Vectors


class LetterEncoder:
    """Counts letters, and keeps what it was asked."""

    def __init__(self) -> None:
        self.calls: list[list[str]] = []

    def encode(self, texts: Sequence[str]) -> Vectors:
        self.calls.append(list(texts))
        counts = np.array([[1 + text.lower().count(letter) for letter in "abcdefghijklmnop"] for text in texts])
        return np.asarray(counts / np.linalg.norm(counts, axis=1, keepdims=True), dtype=np.float32)


def test_a_text_is_encoded_once_and_the_memory_stays_within_its_bound() -> None:
    inner = LetterEncoder()
    cache = RememberingEncoder(inner, size=2)
    first = cache.encode(["a", "b", "a"])
    assert inner.calls == [["a", "b"]]
    again = cache.encode(["b", "a"])
    assert len(inner.calls) == 1
    assert np.array_equal(first[:2], again[::-1])
    cache.encode(["c", "d", "e"])
    assert cache.encode(["e"]).shape == (1, 16)
    assert len(inner.calls) == 2
    cache.encode(["a"])
    assert inner.calls[-1] == ["a"]
