"""On which line of a TOML file each key is, which tomllib doesn't say."""

from __future__ import annotations

import re

_HEADER = re.compile(r"\s*\[([^\[\]]+)\]\s*(#.*)?$")
_KEY = re.compile(r"""\s*((?:[\w-]+|"[^"]*"|'[^']*')(?:\s*\.\s*(?:[\w-]+|"[^"]*"|'[^']*'))*)\s*=""")


def key_lines(text: str) -> dict[str, int]:
    """Return the line (from 1) of every key and table of `text`, by its dotted name.

    For files as people write them: a line of a multi-line string that looks like a key counts
    as one, unless the key was there before.
    """
    lines: dict[str, int] = {}
    table = ""
    for number, line in enumerate(text.splitlines(), start=1):
        if header := _HEADER.match(line):
            table = _plain(header[1])
            lines.setdefault(table, number)
        elif key := _KEY.match(line):
            lines.setdefault(f"{table}.{_plain(key[1])}" if table else _plain(key[1]), number)
    return lines


def _plain(key: str) -> str:
    """Return a dotted key without quotes and spaces."""
    return ".".join(part.strip().strip("\"'") for part in key.split("."))
