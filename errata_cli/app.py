"""The commands and their options. What they do is in a module each."""

from pathlib import Path
from typing import Annotated

import typer

from errata_cli import run_commands
from errata_cli.keys import keys
from errata_cli.options import (
    DEFAULT_ORCHESTRATOR,
    DEFAULT_RETRIEVER,
    Collection,
    JsonLines,
    KeepGoing,
    MaxCost,
    MaxTokens,
    Orchestrator,
    Principal,
    RequestId,
    Retriever,
    Timeout,
    Where,
)
from errata_kit.bounds import DEFAULT_COLLECTION
from errata_kit.search import SearchMode

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Answers questions from your documents, and checks itself before it answers.",
)


@app.command()
def up(
    data_dir: Annotated[Path, typer.Option(envvar="ERRATA_DATA_DIR", help="Where the embedded index lives.")] = Path(".errata"),
    port: Annotated[int, typer.Option(min=1, max=65532, help="First of four gRPC ports in a row.")] = 50051,
    metrics_port: Annotated[int, typer.Option(min=1, max=65532, help="First of four metrics ports in a row.")] = 9091,
    timeout: Annotated[float, typer.Option(min=1, help="Seconds to wait until all four are healthy.")] = 60.0,
) -> None:
    """Start the four services on this machine. Ctrl-C ends them all.

    Ports come from the options here, whatever JUDGE_PORT and the like say. All other settings are read from the environment.
    """
    from errata_cli import up as command

    raise typer.Exit(command.run(data_dir, port, metrics_port, timeout))


@app.command()
def ingest(
    paths: Annotated[list[str], typer.Argument(help="Folders, files, or quoted globs such as 'docs/**/*.md'.")],
    collection: Collection = DEFAULT_COLLECTION,
    sync: Annotated[bool, typer.Option("--sync", help="Also delete documents whose files are gone from the folders.")] = False,
    retriever: Retriever = DEFAULT_RETRIEVER,
) -> None:
    """Put documents into a collection. What did not change is not embedded again."""
    from errata_cli import ingest as command

    raise typer.Exit(command.run(tuple(paths), collection, sync, retriever))


@app.command()
def ask(
    question: Annotated[str, typer.Argument(help="The question.")],
    collection: Collection = DEFAULT_COLLECTION,
    draft: Annotated[str, typer.Option(help="A file with an answer to check and correct; - reads standard input.")] = "",
    json_lines: JsonLines = False,
    verified_only: Annotated[bool, typer.Option("--verified-only", help="Show no text before its claims have passed.")] = False,
    top_k: Annotated[int | None, typer.Option(help="Passages a retrieval, 1-100.")] = None,
    relevance_threshold: Annotated[float | None, typer.Option(help="Score that a passage must reach, 0-1.")] = None,
    min_relevant: Annotated[int | None, typer.Option(help="Passages needed to answer without broadening.")] = None,
    max_retrievals: Annotated[int | None, typer.Option(help="Retrievals, 1-10.")] = None,
    faithfulness_threshold: Annotated[float | None, typer.Option(help="Score that an answer must reach, 0-1.")] = None,
    max_refinements: Annotated[int | None, typer.Option(help="Refinements, 0-5.")] = None,
    mode: Annotated[SearchMode, typer.Option(case_sensitive=False, help="Which vectors to search.")] = SearchMode.DEFAULT,
    where: Where = None,
    request_id: RequestId = "",
    keep_going: KeepGoing = False,
    max_cost: MaxCost = "",
    max_tokens: MaxTokens = None,
    principal: Principal = "",
    timeout: Timeout = 120.0,
    orchestrator: Orchestrator = DEFAULT_ORCHESTRATOR,
) -> None:
    """Ask a question and watch it being answered. Exit code: 0 answered, 3 refused, 1 failed, 2 wrong usage."""
    from errata_cli import ask as command
    from errata_cli.inputs import Start

    limits = command.Limits(
        top_k, relevance_threshold, min_relevant, max_retrievals, faithfulness_threshold, max_refinements, mode
    )
    start = Start(request_id, keep_going, max_cost, max_tokens, principal, timeout)
    call = command.Question(question, collection, draft, limits, tuple(where or ()), start, verified_only)
    raise typer.Exit(command.run(call, orchestrator, json_lines))


@app.command()
def compose(
    task: Annotated[str, typer.Argument(help="What is to be written; - reads standard input.")],
    collection: Annotated[str, typer.Option("--collection", "-c", help="Write from this collection's passages.")] = "",
    draft: Annotated[str, typer.Option(help="A file with a draft to review and revise; - reads standard input.")] = "",
    criteria: Annotated[
        list[str] | None, typer.Option("--criterion", help="NAME[=THRESHOLD][:DESCRIPTION] to measure drafts by. Repeatable.")
    ] = None,
    overall: Annotated[float | None, typer.Option(help="What the mean of the scores must reach, 0-1.")] = None,
    max_revisions: Annotated[int | None, typer.Option(help="Revisions, 0-10.")] = None,
    require_approval: Annotated[bool, typer.Option("--require-approval", help="A person must agree to the draft.")] = False,
    to: Annotated[Path | None, typer.Option("--output", "-o", help="Write the final text to this file.")] = None,
    json_lines: JsonLines = False,
    top_k: Annotated[int | None, typer.Option(help="Passages that are retrieved, 1-100.")] = None,
    relevance_threshold: Annotated[float | None, typer.Option(help="Score that a passage must reach, 0-1.")] = None,
    faithfulness_threshold: Annotated[float | None, typer.Option(help="Faithfulness that a draft must reach, 0-1.")] = None,
    mode: Annotated[SearchMode, typer.Option(case_sensitive=False, help="Which vectors to search.")] = SearchMode.DEFAULT,
    where: Where = None,
    request_id: RequestId = "",
    keep_going: KeepGoing = False,
    max_cost: MaxCost = "",
    max_tokens: MaxTokens = None,
    principal: Principal = "",
    timeout: Timeout = 120.0,
    orchestrator: Orchestrator = DEFAULT_ORCHESTRATOR,
) -> None:
    """Have a text written, reviewed and revised until it passes.

    Exit code: 0 approved, 3 not approved or refused, 4 waits for a person, 1 failed, 2 wrong usage.
    """
    from errata_cli import compose as command
    from errata_cli.inputs import Start

    limits = command.Limits(overall, max_revisions, top_k, relevance_threshold, faithfulness_threshold, mode)
    start = Start(request_id, keep_going, max_cost, max_tokens, principal, timeout)
    wanted = tuple(criteria or ())
    call = command.Task(task, collection, draft, wanted, limits, tuple(where or ()), require_approval, start)
    raise typer.Exit(command.run(call, orchestrator, json_lines, to))


for _command in (
    run_commands.runs,
    run_commands.show,
    run_commands.watch,
    run_commands.approve,
    run_commands.reject,
    run_commands.revise,
    run_commands.cancel,
):
    app.command()(_command)


@app.command()
def documents(
    collection: Collection = DEFAULT_COLLECTION,
    prefix: Annotated[str, typer.Option(help="Only documents whose id starts with this.")] = "",
    delete: Annotated[list[str] | None, typer.Option(help="Delete the document with this id. Repeatable.")] = None,
    retriever: Retriever = DEFAULT_RETRIEVER,
) -> None:
    """List the documents of a collection, or delete some."""
    from errata_cli import listing

    raise typer.Exit(listing.documents(collection, prefix, tuple(delete or ()), retriever))


@app.command()
def collections(
    delete: Annotated[str, typer.Option(help="Delete the collection with this name.")] = "",
    retriever: Retriever = DEFAULT_RETRIEVER,
) -> None:
    """List the collections, or delete one."""
    from errata_cli import listing

    raise typer.Exit(listing.collections(delete, retriever))


@app.command()
def demo(
    docs: Annotated[Path, typer.Option(help="The documents to ask about.")] = Path("docs"),
    data_dir: Annotated[Path, typer.Option(help="Where the demo keeps its index and logs.")] = Path(".errata/demo"),
) -> None:
    """Start the suite, ingest docs/ and show four questions. No key and no network needed."""
    from errata_cli import demo as command

    raise typer.Exit(command.run(docs, data_dir))


app.command()(run_commands.migrate)
app.add_typer(keys, name="keys")
