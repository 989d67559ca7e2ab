"""Tables: whole and greppable for programs, folded but whole on a terminal."""

from __future__ import annotations

import io

import pytest

from jaxbench.table import plain_table, print_table

HEADER = ["strategy", "step"]
ROWS = [["dp", "1.5 ms"], ["x" * 300, "12 ms"], ["[bold]", "-"]]


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def test_plain_text_is_aligned() -> None:
    assert plain_table(["name", "n"], [["a", "5"], ["bcdef", "1,000"], ["g", "-"]]) == (
        "name       n\n-----  -----\na          5\nbcdef  1,000\ng          -"
    )


def test_nothing_is_cut_where_no_person_watches() -> None:
    stream = io.StringIO()
    print_table(HEADER, ROWS, title="title", stream=stream)
    lines = stream.getvalue().splitlines()
    assert lines[0] == "title" and len(lines) == 3 + len(ROWS)
    assert "x" * 300 in lines[4]
    assert all(line == line.rstrip() for line in lines)


def test_a_table_without_rows() -> None:
    stream = io.StringIO()
    print_table(HEADER, [], stream=stream)
    assert stream.getvalue() == "strategy  step\n--------  ----\n"


def test_a_terminal_gets_every_character_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.delenv("NO_COLOR", raising=False)
    stream = Terminal()
    print_table(HEADER, ROWS, title="title", stream=stream)
    assert stream.getvalue().count("x") == 300
    assert "[bold]" in stream.getvalue()  # not read as markup
    assert "─" in stream.getvalue() or "━" in stream.getvalue()


def test_a_dumb_terminal_gets_plain_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    stream = Terminal()
    print_table(HEADER, ROWS, stream=stream)
    assert stream.getvalue() == plain_table(HEADER, ROWS) + "\n"
