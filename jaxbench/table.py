"""One table, printed for whoever reads it: rich on a terminal, aligned plain text elsewhere.

Plain text is never truncated or wrapped, so that it can be piped into grep and awk.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import TextIO


def is_terminal(stream: TextIO) -> bool:
    """Tell whether a person watches `stream`; NO_COLOR and TERM=dumb count as no terminal."""
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    return stream.isatty()


def is_number(cell: str) -> bool:
    """Tell whether a cell reads as a quantity ('12', '1,024', '3.5 ms', '-'), to align it right."""
    head = cell.split(" ")[0].replace(",", "").rstrip("%")
    if head in ("", "-"):
        return head == "-"
    try:
        float(head)
    except ValueError:
        return False
    return True


def right_columns(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[bool]:
    """Return, for each column, whether all its cells are quantities."""
    return [bool(rows) and all(is_number(row[i]) for row in rows) for i in range(len(header))]


def plain_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return the table as aligned text, two spaces between columns, without trailing blanks."""
    widths = [max(len(row[i]) for row in (header, *rows)) for i in range(len(header))]
    right = right_columns(header, rows)

    def line(cells: Sequence[str]) -> str:
        padded = (
            cell.rjust(width) if to_right else cell.ljust(width)
            for cell, width, to_right in zip(cells, widths, right, strict=True)
        )
        return "  ".join(padded).rstrip()

    rule = "  ".join("-" * width for width in widths)
    return "\n".join([line(header), rule, *(line(row) for row in rows)])


def print_table(
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    title: str = "",
    stream: TextIO | None = None,
) -> None:
    """Print a table of strings with an optional title; every row has as many cells as `header`."""
    out = stream or sys.stdout
    if not is_terminal(out):
        print(*([title] if title else []), plain_table(header, rows), sep="\n", file=out)
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(title=Text(title) if title else None, title_justify="left")
    for name, to_right in zip(header, right_columns(header, rows), strict=True):
        # A cell that doesn't fit is folded onto the next line, never cut.
        table.add_column(Text(name), justify="right" if to_right else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    Console(file=out).print(table)
