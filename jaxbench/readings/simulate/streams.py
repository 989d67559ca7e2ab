"""What a rank can do at once: one stream for compute, and those for communication.

Each works through its operations in the order of the program; an operation starts when its
operands are there and its stream is free. A collective needs that of all members of its group.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from jaxbench.readings.simulate.sites import Hop, PricedSite
from jaxbench.readings.simulate.times import Grid, Times

Mask = np.ndarray | None  # the ranks concerned, shaped as the mesh's arrays; None: all

COMPUTE = "compute"
COMMUNICATION = "communication"

# Orders what is ready at one time, and is far below what is told apart otherwise.
INSTANT = 1e-9
SAME = (-3.5 * INSTANT, 0.5 * INSTANT)  # a collective's entry less a compute's start


@dataclass(frozen=True)
class Semantics:
    """How a device communicates.

    `streams`: 'axis', a communication stream for every mesh axis; 'one', a single first-in
    first-out stream, as XLA's GPU runtime has it by default; 'unlimited', nothing queues, so that
    a step is as long as its longest chain of dependencies.

    `permute`: 'pair', a message needs its sender and its receiver; 'clique', all ranks of the
    mesh wait for each other, as XLA's CPU runtime has it whatever the axis and the pairs.

    `inline`: a device's own thread carries a collective out, as in XLA's CPU runtime: of what can
    start at the same instant it does first what is first in the program, and if that is a
    collective, compute waits until it is over. What can start later finds another thread. A tie is
    an operation of its own there and takes an `INSTANT`, so that compute which needs none is ahead
    of a collective that does.

    `shared`: devices are virtual ones that share the processors of a host, so that a collective
    takes as long as the groups that are at it at once make it, not those of all ranks.
    """

    streams: Literal["axis", "one", "unlimited"]
    permute: Literal["pair", "clique"] = "pair"
    inline: bool = False
    shared: bool = False


def semantics_of(hardware: str, streams: str = "") -> Semantics:
    """Return how a device of this hardware row communicates; `streams` overrides its own."""
    if streams in ("axis", "one", "unlimited"):
        default = streams
    else:
        default = "axis" if hardware.startswith("tpu") else "one"
    cpu = hardware.startswith("cpu")
    return Semantics(default, "clique" if cpu else "pair", inline=cpu, shared=cpu)


class Streams:
    """When each stream of each rank is free: `free`, by name, of those that were used."""

    def __init__(self, grid: Grid, semantics: Semantics):
        self.grid = grid
        self.semantics = semantics
        self.free: dict[str, Times] = {}
        self._entered: list[tuple[Times, Times]] = []  # entry and end, since the last compute

    def end(self) -> Times:
        """Return when all streams of a rank are done."""
        return self.grid.latest(list(self.free.values()))

    def compute(self, ready: Times, seconds: float, mask: Mask) -> tuple[Times, Times]:
        """Work for `seconds`; return start and end."""
        start = self.grid.later(ready, self.free.get(COMPUTE, self.grid.zero))
        for entry, end in self._entered:
            ahead = entry - start
            start = np.where((ahead >= SAME[0]) & (ahead <= SAME[1]), end, start)
        self._entered.clear()
        end = start + seconds
        self._occupy(COMPUTE, end, mask)
        return start, end

    def meet(self, site: PricedSite, ready: Times, mask: Mask) -> tuple[Times, Times]:
        """Let the groups of a collective communicate; return start and end."""
        entry = self._ready(site, ready)
        start = np.maximum.reduce(entry, axis=site.dims, keepdims=True)
        end = start + site.seconds
        self._hold(site, end, mask)
        self._enter(entry, end)
        return start, end

    def hop(self, site: PricedSite, hop: Hop, ready: Times, mask: Mask) -> tuple[Times, Times]:
        """Send the messages of a permute; return, at each receiver, start and arrival.

        What receives nothing is there from the start with 'pair' and when all have met with
        'clique'. Sender and receiver are occupied until the message has arrived; both
        directions of a rank's link work at once.
        """
        senders = self._ready(site, ready)
        receivers = self._ready(site, self.grid.zero)
        if self.semantics.permute == "clique":
            start = np.maximum.reduce(senders, axis=self.grid.every, keepdims=True)
            arrival = start + site.seconds
            self._enter(senders, arrival)
        else:
            start = self.grid.later(hop.from_sender(senders), receivers)
            arrival = np.where(hop.receives, start + site.seconds, 0.0)
        sent = np.where(hop.sends, hop.from_receiver(arrival), 0.0)
        busy = self.grid.later(np.maximum(arrival, sent), receivers)
        self._hold(site, busy, mask)
        return start, arrival

    def _enter(self, entry: Times, end: Times) -> None:
        if self.semantics.inline:
            self._entered.append((entry, end))

    def _names(self, site: PricedSite) -> tuple[str, ...]:
        if self.semantics.streams == "axis":
            return tuple(f"axis {axis}" for axis in site.axes)
        return (COMMUNICATION,)

    def _ready(self, site: PricedSite, ready: Times) -> Times:
        if self.semantics.streams == "unlimited":
            return ready
        for name in self._names(site):
            ready = self.grid.later(ready, self.free.get(name, self.grid.zero))
        return ready

    def _hold(self, site: PricedSite, until: Times, mask: Mask) -> None:
        if self.semantics.streams == "unlimited":
            until = self.grid.later(until, self.free.get(COMMUNICATION, self.grid.zero))
        for name in self._names(site):
            self._occupy(name, until, mask)

    def _occupy(self, name: str, until: Times, mask: Mask) -> None:
        if mask is not None:
            until = np.where(mask, until, self.free.get(name, self.grid.zero))
        self.free[name] = until
