"""Tables: Rich on a terminal, aligned text with a header line in a pipe."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from errata_cli.terminal import flat

_GAP: Final = 2
_LAST_AT_LEAST: Final = 16


@dataclass(frozen=True, slots=True)
class Column:
    """A column. right: numbers. drop: on a terminal that is too narrow the highest goes first; 0 stays."""

    title: str
    right: bool = False
    drop: int = 0


def show_table(console: Console, columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> None:
    """Print a table; the last column takes what is left of the line."""
    lines = [[column.title for column in columns], *([flat(cell) for cell in row] for row in rows)]
    widths = [max(cell_len(line[place]) for line in lines) for place in range(len(columns))]
    if console.is_terminal:
        _rich(console, columns, lines[1:], widths)
        return
    for line in lines:
        console.print("  ".join(map(_padded, line, columns, widths)).rstrip(), markup=False, soft_wrap=True)


def _rich(console: Console, columns: Sequence[Column], rows: Sequence[Sequence[str]], widths: Sequence[int]) -> None:
    shown = _fitting(columns, widths, console.width)
    taken = sum(widths[place] + _GAP for place in shown[:-1])
    last = max(1, min(widths[shown[-1]], console.width - taken))
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, _GAP, 0, 0))
    for place in shown:
        # Fixed widths: Rich would take from every column alike, and cut the ids first.
        width = last if place == shown[-1] else widths[place]
        table.add_column(columns[place].title, justify="right" if columns[place].right else "left", no_wrap=True, width=width)
    for row in rows:
        cells = [Text(row[place]) for place in shown]
        cells[-1].truncate(last, overflow="ellipsis")
        table.add_row(*cells)
    console.print(table)


def _fitting(columns: Sequence[Column], widths: Sequence[int], room: int) -> list[int]:
    """The places of the columns that fit."""
    shown = list(range(len(columns)))
    while True:
        needed = sum(widths[place] + _GAP for place in shown[:-1]) + min(widths[shown[-1]], _LAST_AT_LEAST)
        droppable = [place for place in shown if columns[place].drop]
        if needed <= room or not droppable:
            return shown
        shown.remove(max(droppable, key=lambda place: columns[place].drop))


def _padded(cell: str, column: Column, width: int) -> str:
    blank = " " * (width - cell_len(cell))
    return blank + cell if column.right else cell + blank
