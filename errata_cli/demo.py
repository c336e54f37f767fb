"""`errata demo`: the suite on this repository's own documentation. Only the questions are fixed; the rest happens."""

import asyncio
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rich.console import Console

from errata_cli import ask, ingest
from errata_cli.stack import Stack, StackError, StackPlan, starting
from errata_cli.terminal import ExitCode, errors, output

_COLLECTION: Final = "docs"
# Offline whatever the surroundings say: the demo costs nothing and needs nobody.
_OFFLINE: Final[dict[str, str | None]] = {
    "ERRATA_LLM_PROVIDER": "offline",
    "RETRIEVER_EMBEDDING_PROVIDER": "local",
    "QDRANT_URL": None,
    "OPENAI_API_KEY": None,
    "OPENAI_BASE_URL": None,
}


@dataclass(frozen=True, slots=True)
class Scene:
    """A question of the demo, and what it is there to show."""

    shows: str
    question: str
    draft: str = ""


SCENES: Final = (
    Scene("A question that the documents answer.", "What happens when no passage passes?"),
    Scene(
        "A question laden with frameworks and versions, which lead the search astray until it is broadened.",
        "Using langchain-openai 1.7.4 with openai 3.57 on Python 3.11, what happens on SIGTERM?",
    ),
    Scene("A question that the documents can't answer.", "How do I bake sourdough bread with rye flour?"),
    Scene(
        "An answer from elsewhere that names an option which does not exist.",
        "Where does the embedded index keep its data?",
        "The embedded index lives in the data folder. Setting `ERRATA_AUTO_COMPACT=nightly` shrinks it by half every night.",
    ),
)


def run(docs: Path, data_dir: Path) -> int:
    """Show the demo; exit code 1 when the suite fails."""
    if not docs.is_dir():
        errors().print(f"errata: {docs} is no folder; run the demo where the documents are, or name them with --docs")
        return ExitCode.USAGE
    data_dir.mkdir(parents=True, exist_ok=True)
    try:
        return asyncio.run(_demo(output(), docs, data_dir))
    except StackError as error:
        errors().print(f"errata: {error}", markup=False)
        return ExitCode.FAILED


async def _demo(console: Console, docs: Path, data_dir: Path) -> int:
    started = time.monotonic()
    log = data_dir / "services.log"
    with log.open("w", encoding="utf-8") as lines:
        plan = StackPlan.on_free_ports(data_dir, _OFFLINE)
        async with starting(plan, lambda name, line: print(f"{name:<13}| {line}", file=lines)) as stack:
            await stack.healthy(60)
            console.print(f"Four services are up ({time.monotonic() - started:.1f} s), logging to {log}.", markup=False)
            code = await _scenes(console, stack, docs)
    console.print(f"\nThat took {time.monotonic() - started:.1f} s. To go on by hand:", style="bold")
    for command in (
        ". .venv/bin/activate",
        "errata up                                  # in a terminal of its own; Ctrl-C ends it",
        f"errata ingest {docs}",
        f"errata ask '{SCENES[0].question}'",
        "errata ask --json 'your question'          # one event a line",
        "errata runs                                # and then: errata show RUN",
        "errata compose 'What to write' --collection default",
        "echo 'An answer' | errata ask --draft - 'your question'",
        "grpcurl -plaintext 127.0.0.1:50051 list    # more in docs/grpcurl.md",
    ):
        console.print(f"  {command}", markup=False)
    return code


async def _scenes(console: Console, stack: Stack, docs: Path) -> int:
    retriever, orchestrator = stack.plan.target("retriever"), stack.plan.target("orchestrator")
    code = await asyncio.to_thread(ingest.run, (str(docs),), _COLLECTION, True, retriever)
    if code != ExitCode.OK:
        return code
    worst = int(ExitCode.OK)
    for number, scene in enumerate(SCENES, start=1):
        console.print(f"\n{number}. {scene.shows}", style="bold")
        console.print(f"   errata ask {'--draft FILE ' if scene.draft else ''}'{scene.question}'", markup=False)
        if scene.draft:
            console.print(f"   FILE: {scene.draft}", markup=False)
        with tempfile.TemporaryDirectory() as folder:
            draft = Path(folder) / "draft.txt"
            draft.write_text(scene.draft, encoding="utf-8")
            question = ask.Question(scene.question, _COLLECTION, str(draft) if scene.draft else "")
            ended = await asyncio.to_thread(ask.run, question, orchestrator, False)
        if ended == ExitCode.FAILED:
            worst = ended
    return worst
