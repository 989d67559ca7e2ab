"""The operations of a few ranks, one by one: what a timeline shows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from jaxbench.costs.interface import Cost
from jaxbench.readings.simulate.sites import PricedSite
from jaxbench.readings.simulate.times import Grid, Times
from jaxbench.readings.walker import Path


@dataclass(frozen=True)
class Event:
    """One operation of one rank: `kind` is compute or a collective's.

    `ready_s` is when the rank's own operands are there, `start_s` when its group (or its end of a
    message) starts, so that start - ready is spent in a queue or waiting for peers.
    """

    rank: int
    kind: str
    label: str
    axes: tuple[str, ...]
    ready_s: float
    start_s: float
    end_s: float
    nbytes: int
    cost: Cost | None
    path: Path

    def shifted(self, seconds: float) -> Event:
        """Return the same event later on."""
        return replace(
            self,
            ready_s=self.ready_s + seconds,
            start_s=self.start_s + seconds,
            end_s=self.end_s + seconds,
        )


Span = tuple[Times, Times, Times]  # ready, start, end


class Recorder:
    """Keeps the events of some ranks, in program order."""

    def __init__(self, grid: Grid, ranks: Sequence[int]):
        self.grid = grid
        self.ranks = tuple(ranks)
        self.events: list[Event] = []

    def compute(self, path: Path, label: str, span: Span, mask: np.ndarray | None) -> None:
        """Note a compute of the ranks in `mask` (None: all)."""
        for rank in self._concerned(mask):
            ready, start, end = (self.grid.at(at, rank) for at in span)
            self.events.append(Event(rank, "compute", label, (), ready, start, end, 0, None, path))

    def collective(self, path: Path, site: PricedSite, span: Span, mask: np.ndarray | None) -> None:
        """Note a collective; of a permute `span` has start and end of what a rank receives."""
        for rank in self._concerned(mask):
            cost = site.cost_of(rank)
            if cost is None:  # it neither sends nor receives
                continue
            ready, start, end = (self.grid.at(at, rank) for at in span)
            if site.hop is not None:
                sent = [self.grid.at(site.hop.from_receiver(at), rank) for at in span[1:]]
                if not self.grid.at(site.hop.receives, rank):
                    start, end = sent
                elif self.grid.at(site.hop.sends, rank):
                    start, end = min(start, sent[0]), max(end, sent[1])
            self.events.append(
                Event(
                    rank,
                    site.kind,
                    site.label,
                    site.axes,
                    ready,
                    start,
                    end,
                    site.nbytes,
                    cost,
                    path,
                )
            )

    def repeat(self, first: int, shift: Times, times: int) -> None:
        """Note the events from number `first` on again, `times` times, each time `shift` later."""
        block = self.events[first:]
        for turn in range(1, times + 1):
            for event in block:
                later = turn * self.grid.at(shift, event.rank)
                self.events.append(event.shifted(later))

    def _concerned(self, mask: np.ndarray | None) -> list[int]:
        return [rank for rank in self.ranks if mask is None or self.grid.at(mask, rank)]
