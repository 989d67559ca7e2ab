"""A timeline as text: every column shows what fills most of it."""

from __future__ import annotations

from jaxbench.readings.ranks import Ranks
from jaxbench.readings.simulate import Event
from jaxbench.report.advise_gantt import MOST_RANKS, gantt, mark_of, shown_ranks


def event(rank: int, kind: str, label: str, start: float, end: float) -> Event:
    return Event(rank, kind, label, ("data",), start, start, end, 0, None, ())


def test_the_lines_of_a_timeline() -> None:
    events = [
        event(3, "compute", "attention forward", 0.0, 3.0),
        event(3, "compute", "attention backward", 3.0, 5.4),
        event(3, "all_reduce", "gradient", 5.4, 8.0),
        event(3, "permute", "forward hop", 2.6, 3.6),
        event(12, "compute", "backward 3", 4.0, 10.0),
    ]
    assert gantt(events, 10.0, width=10).splitlines()[1:] == [
        "rank 3   FFFBB.....",
        "         ...p.rrr..",
        "rank 12  ....BBBBBB",
    ]


def test_a_column_shared_by_both_directions() -> None:
    events = [
        event(0, "compute", "forward", 0.0, 0.4),
        event(0, "compute", "backward", 0.4, 1.0),
        event(0, "compute", "forward", 1.0, 1.1),
        event(0, "compute", "backward", 1.1, 2.0),
        event(0, "compute", "ends forward", 2.0, 2.4),
    ]
    assert gantt(events, 3.0, width=3).splitlines()[1] == "rank 0  XB."


def test_a_letter_for_every_kind() -> None:
    kinds = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "permute")
    assert [mark_of(event(0, kind, "x", 0, 1)) for kind in kinds] == list("rgsap")
    labels = ("forward 1", "mlp backward", "mlp weight gradient", "injected delay")
    assert [mark_of(event(0, "compute", label, 0, 1)) for label in labels] == list("FBBF")


def test_few_ranks_stand_for_many() -> None:
    shown = shown_ranks(Ranks((("data", 16), ("pipeline", 32), ("tensor", 4))))
    assert len(shown) == MOST_RANKS == len(set(shown)) and shown[0] == 0
    assert shown_ranks(Ranks((("data", 1),))) == (0,)
