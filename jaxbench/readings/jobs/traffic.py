"""The traffic profile of a program: its simulated step, cut into phases.

One rank stands for all: its timeline says when the job computes, transfers or waits, and all
groups are taken to do then what this rank's does. From two more simulations comes what one
timeline can't tell. With transfers a little slower: how much of the step is transfer that nothing
hides, on whichever rank; what the rank's own timeline lacks of it is put into its waiting. With
transfers very much slower: where the rank waits for them, which is how far a hidden transfer can
be delayed before somebody notices.

Bytes are those of all executions on all ranks, and are conserved per pair of ranks; the seconds of
all phases add up to the step.
"""

from __future__ import annotations

import numpy as np
from jax.extend.core import ClosedJaxpr
from numpy.typing import NDArray

from jaxbench.costs.interface import Costs
from jaxbench.costs.links import Floats, Ints
from jaxbench.readings.jobs.phases import Timeline, cut_phases
from jaxbench.readings.jobs.profile import Phase, TrafficProfile
from jaxbench.readings.jobs.sent import Sent, find_sent
from jaxbench.readings.jobs.slowed import Slowed
from jaxbench.readings.ranks import Ranks
from jaxbench.readings.simulate import Event, Semantics, Simulation, simulate, simulate_all
from jaxbench.topology.placement import Placement

NUDGE = 1 + 2.0**-10  # transfers so much slower: the step's slope
STRETCH = 1000.0  # so much slower that every wait for a transfer shows

# Times that differ by less than this part of a step are the same.
SAME = 1e-11


def traffic_profile(
    closed: ClosedJaxpr, ranks: Ranks, costs: Costs, semantics: Semantics, placement: Placement
) -> TrafficProfile:
    """Return the phases of a program's step with its ranks placed as `placement` says."""
    nudged = Slowed(costs, placement.domain, NUDGE)
    plain, slower = simulate_all(closed, ranks, [costs, nudged], semantics)
    sent = find_sent(closed, ranks, costs, placement, plain.uses)
    if not sent.classes:
        return TrafficProfile((Phase(plain.step_s),))
    exposed_s = (slower.step_s - plain.step_s) / (NUDGE - 1)
    rank = _representative(ranks, sent.transfer_s)
    plain = simulate(closed, ranks, costs, semantics, record=[rank])
    stretched = Slowed(costs, placement.domain, STRETCH)
    slow = simulate(closed, ranks, stretched, semantics, record=[rank])
    return cut_phases(_timeline(plain, slow, sent), exposed_s, sent.classes)


def _representative(ranks: Ranks, transfer_s: Floats) -> int:
    """Return the rank that transfers most among those amid the pipeline (or, if none does, all).

    Amid the pipeline a rank waits for both neighbours, at the ends for one.
    """
    names = [name for name, size in ranks.axes if name == "pipeline" and size > 1]
    amid = np.ones(ranks.count, bool)
    for name in names:
        amid &= ranks.coordinate(name) == ranks.sizes[name] // 2
    if not transfer_s[amid].any():
        amid[:] = True
    return int(np.argmax(np.where(amid, transfer_s, -1.0)))


def _timeline(plain: Simulation, slow: Simulation, sent: Sent) -> Timeline:
    computes = [e for e in plain.events if e.kind == "compute"]
    collectives = [e for e in plain.events if e.kind != "compute"]
    moving = [e for e in collectives if _transfer(e, sent)[0] > 0]
    cuts = _waits(plain, slow)
    end = plain.step_s
    begin = [_begin_s(e, sum(_transfer(e, sent))) for e in collectives]
    starts = [e.end_s - _transfer(e, sent)[0] for e in moving]
    ends = [t for e in plain.events for t in (e.start_s, e.end_s)]
    times = np.array([0.0, end, *cuts, *ends, *begin, *starts])
    bounds = np.unique(times)
    bounds = bounds[np.append(True, np.diff(bounds) > SAME * end)]
    place = _Places(bounds, SAME * end)

    def during(begin: list[float], until: list[float]) -> NDArray[np.bool_]:
        change = np.zeros(len(bounds), np.int64)
        np.add.at(change, place(begin), 1)
        np.add.at(change, place(until), -1)
        return np.cumsum(change)[:-1] > 0

    working = during([e.start_s for e in computes], [e.end_s for e in computes])
    own = during(begin, [e.end_s for e in collectives])
    transfers = np.zeros((len(sent.classes), len(bounds) - 1), bool)
    for number in range(len(sent.classes)):
        mine = [i for i, e in enumerate(moving) if sent.class_of[e.path] == number]
        transfers[number] = during([starts[i] for i in mine], [moving[i].end_s for i in mine])
    window = np.zeros(len(bounds), np.int64)
    window[place(cuts)] = 1
    return Timeline(
        seconds=np.diff(bounds),
        working=working,
        communicating=own,
        transfers=transfers,
        window=np.cumsum(window)[:-1],
    )


class _Places:
    """Numbers the bounds at which times are, give or take `same`."""

    def __init__(self, bounds: Floats, same: float):
        self.bounds, self.same = bounds, same

    def __call__(self, times: list[float]) -> Ints:
        later = np.searchsorted(self.bounds, np.array(times, float) + self.same, side="right")
        return np.maximum(later - 1, 0)


def _transfer(event: Event, sent: Sent) -> tuple[float, float]:
    """Return the seconds of transfer over the network and of latency in a collective's event."""
    if event.path not in sent.class_of:
        return 0.0, 0.0
    return (
        float(sent.transfer_of[event.path][event.rank]),
        float(sent.latency_of[event.path][event.rank]),
    )


def _begin_s(event: Event, on_network_s: float) -> float:
    """Return when what an event of a collective waits for is over.

    Of a permute it spans what a rank sends and what it receives, with a wait between perhaps.
    """
    assert event.cost is not None
    return max(event.start_s, event.end_s - max(event.cost.seconds, on_network_s))


def _waits(plain: Simulation, slow: Simulation) -> list[float]:
    """Return when in the plain run those computes start that wait in the slow one."""
    waits, last, same = [], 0.0, SAME * slow.step_s
    for event, late in zip(plain.events, slow.events, strict=True):
        assert event.path == late.path, "the runs differ in more than time"
        if event.kind == "compute":
            if late.start_s > last + same:
                waits.append(event.start_s)
            last = late.end_s
    return waits
