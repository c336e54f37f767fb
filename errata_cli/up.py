"""`errata up`."""

import asyncio
import json
import signal
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.text import Text

from errata_cli.stack import SERVICES, Stack, StackError, StackPlan, starting
from errata_cli.terminal import ExitCode, errors, output

_COLOURS: Final = dict(zip(SERVICES, ("cyan", "green", "yellow", "magenta"), strict=True))
_LEVELS: Final = {"warning": "yellow", "error": "red", "critical": "red"}


def run(data_dir: Path, port: int, metrics_port: int, timeout: float) -> int:
    """Run the suite until Ctrl-C."""
    try:
        return asyncio.run(_up(StackPlan.in_a_row(data_dir, port, metrics_port), timeout))
    except StackError as error:
        errors().print(f"errata: {error}", markup=False)
        return ExitCode.FAILED


async def _up(plan: StackPlan, seconds: float) -> int:
    console = output()
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    async with starting(plan, lambda name, line: _show(console, name, line)) as stack:
        stopping = asyncio.create_task(stop.wait())
        healthy = asyncio.create_task(stack.healthy(seconds))
        await asyncio.wait({stopping, healthy}, return_when=asyncio.FIRST_COMPLETED)
        if not healthy.done():
            healthy.cancel()
            return ExitCode.OK
        healthy.result()
        _announce(console, stack)
        ended = asyncio.create_task(stack.ended())
        await asyncio.wait({stopping, ended}, return_when=asyncio.FIRST_COMPLETED)
        if ended.done():
            raise StackError(ended.result())
        ended.cancel()
        console.print("Stopping ...", style="bold")
    return ExitCode.OK


def _announce(console: Console, stack: Stack) -> None:
    plan = stack.plan
    console.print("Errata is up.", style="bold green")
    for name in SERVICES:
        metrics = f"metrics http://127.0.0.1:{plan.metrics_ports[name]}/metrics"
        console.print(f"  {name:<13} {plan.target(name)}   {metrics}", markup=False)
    console.print(f"  data in {plan.data_dir}", markup=False)
    console.print("Next:  errata ingest docs    then    errata ask 'your question'.  Ctrl-C ends all.", markup=False)


def _show(console: Console, name: str, line: str) -> None:
    """One line of a child's log: as it is in a pipe, for people on a terminal."""
    prefix = f"{name:<13}│ "
    if not console.is_terminal:
        console.print(prefix + line, markup=False, soft_wrap=True)
        return
    text = Text(prefix, style=_COLOURS[name])
    try:
        entry = json.loads(line)
        level = str(entry.pop("level", "info"))
        moment = str(entry.pop("time", ""))[11:19]
        event = str(entry.pop("event", ""))
    except (ValueError, AttributeError):
        console.print(text.append(line, style="red"), soft_wrap=True)
        return
    for noise in ("service", "trace_id"):
        entry.pop(noise, None)
    text.append(f"{moment} ", style="dim").append(event, style=_LEVELS.get(level, "default"))
    text.append("".join(f" {key}={value}" for key, value in entry.items()), style="dim")
    console.print(text, soft_wrap=True)
