"""How a trace looks: a line a step, indented details below it, scores beside what they had to reach."""

from typing import Any, Final

from errata.corpus.v1 import passage_pb2
from errata.grading.v1 import grading_pb2
from rich.console import Console
from rich.panel import Panel
from rich.text import Text

from errata_cli.terminal import flat, printable

SHOWN_TEXT: Final = 160


class Lines:
    """Prints steps and details. moment: what stands before a step, such as the time since the start."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.moment = ""

    def step(self, mark: str, style: str, word: str, rest: str) -> None:
        """One step."""
        text = Text().append(self.moment, style="dim").append(f"{mark} ", style=style).append(f"{word:<10} ", style=style)
        self.console.print(text.append(_one_line(rest), style="default"), soft_wrap=True)

    def detail(self, mark: str, style: str, rest: str) -> None:
        """Something about the step above."""
        text = Text(" " * (len(self.moment) + 4)).append(f"{mark} ", style=style).append(_one_line(rest), style="default")
        self.console.print(text, soft_wrap=True)

    def whole(self, text: str, title: Text, style: str) -> None:
        """A whole text: in a frame on a terminal, else between empty lines with the title below it."""
        if self.console.is_terminal:
            self.console.print(Panel(Text(printable(text)), title=title, title_align="left", border_style=style))
            return
        self.console.print()
        self.console.print(printable(text), markup=False, soft_wrap=True)
        self.console.print()
        if title.plain:
            self.console.print(title)


def _one_line(text: str) -> str:
    # A title with a newline must not look like a step of its own.
    return printable(text).replace("\n", " ")


def shortened(text: str, limit: int = SHOWN_TEXT) -> str:
    """The beginning of a text, as one line."""
    line = flat(text)
    return line if len(line) <= limit else line[: limit - 1] + "…"


def scored(name: str, score: float, threshold: float | None) -> str:
    """A score beside its threshold: "clarity 0.72, 0.08 below 0.80"."""
    if threshold is None:
        return f"{name} {score:.2f}"
    if score >= threshold:
        return f"{name} {score:.2f} of {threshold:.2f}"
    # As many digits as it takes to see the difference.
    digits = next((count for count in (2, 3, 4, 6) if round(score, count) < round(threshold, count)), 9)
    return f"{name} {score:.{digits}f}, {threshold - score:.{digits}f} below {threshold:.2f}"


def source_of(passage: passage_pb2.Passage) -> str:
    """Where a passage stands, such as docs/quickstart.md:10-22 (Quickstart › Install)."""
    lines = f":{passage.start_line}-{passage.end_line}" if passage.start_line else ""
    headings = [heading for heading in passage.heading_path if heading != passage.title]
    path = " › ".join(filter(None, [passage.title, *headings]))
    return f"{passage.document_id or passage.passage_id}{lines}" + (f" ({path})" if path else "")


def dollars(cost_micros: int) -> str:
    """Millionths of a dollar for people."""
    return f"${cost_micros / 1e6:.4f}"


def counted(number: int, what: str) -> str:
    """A number with its noun."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def name_of(enum: Any, value: int, prefix: str) -> str:
    """An enum value's name without its prefix; the number of one that a newer server has sent."""
    return str(enum.Name(value)).removeprefix(prefix) if value in enum.values() else str(value)


def verdict_of(claim: grading_pb2.Claim) -> str:
    """A claim's verdict, such as SUPPORTED."""
    return name_of(grading_pb2.Verdict, claim.verdict, "VERDICT_")
