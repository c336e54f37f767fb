"""Asks a question and prints every step, also when the orchestrator is restarted, or killed and started again, meanwhile.

    python examples/ask_through_a_restart.py "How long is a backup kept?" --collection docs

The client takes the run up behind the last event that it has seen; the orchestrator goes on from its last checkpoint. So every
stored event is printed once and in order, and the answer comes last. An API key is read from ERRATA_API_KEY, if there is one.
"""

import argparse
import asyncio
import os
import sys
from pathlib import Path

from errata_client import Answer, ApiKey, ErrataClient, ErrataError, Tls


def parsed() -> argparse.Namespace:
    """What stands on the command line."""
    parser = argparse.ArgumentParser(description="Ask through a restart of the orchestrator.")
    parser.add_argument("question")
    parser.add_argument(
        "--target", default="127.0.0.1:50051", help="the orchestrator, such as dns:///errata-orchestrator:50051"
    )
    parser.add_argument("--collection", default="")
    parser.add_argument("--ca", type=Path, help="a PEM file: use TLS, and trust these authorities")
    parser.add_argument("--timeout", type=float, default=120.0, help="seconds for all of it, outages included")
    return parser.parse_args()


async def ask(wanted: argparse.Namespace) -> Answer:
    """Follow one run to its end. Raises ErrataError."""
    key = os.environ.get("ERRATA_API_KEY")
    client = ErrataClient(
        wanted.target,
        credentials=ApiKey(key) if key else None,
        tls=Tls(ca=wanted.ca) if wanted.ca else None,
    )
    # `async with` around the events: leaving the block early, such as by Ctrl-C, cancels the run at once.
    async with client as errata, errata.ask(wanted.question, collection=wanted.collection, timeout=wanted.timeout) as events:
        reattached = 0
        async for event in events:
            if events.reattached > reattached:
                reattached = events.reattached
                print("the connection was lost, and is back", file=sys.stderr, flush=True)
            # Pieces of text while they are written have the sequence 0; the whole text comes later.
            if event.sequence:
                print(event.sequence, event.WhichOneof("payload"), flush=True)
        if events.finished is None:
            raise ErrataError("The run has no end")
        return Answer.of(events.run_id, events.finished)


def main() -> int:
    """Exit code 0 for an answer, 3 for a refusal, 1 for a failure."""
    try:
        answer = asyncio.run(ask(parsed()))
    except ErrataError as error:
        print(f"{error.why}: {error.message}", file=sys.stderr)
        return 1
    print(answer.text)
    return 0 if answer.answered else 3


if __name__ == "__main__":
    raise SystemExit(main())
