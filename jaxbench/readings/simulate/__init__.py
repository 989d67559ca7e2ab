"""When a program's step ends on any system, without devices: its text followed through time.

simulation = simulate(traced.closed, ranks, costs, semantics_of("h100"))   # any number of ranks

The program is the one that runs: same collectives, same conditionals per rank, same dependencies.
What takes time is its work, on a rank's compute stream, and its collectives, priced by a cost
model; see `walker` and `streams`. Loops are folded exactly (`fold`).
"""

from __future__ import annotations

from jaxbench.readings.simulate.events import Event
from jaxbench.readings.simulate.step import Simulation, simulate, simulate_all
from jaxbench.readings.simulate.streams import Semantics, semantics_of
from jaxbench.readings.simulate.uses import Use
from jaxbench.readings.simulate.walker import Work

__all__ = [
    "Event",
    "Semantics",
    "Simulation",
    "Use",
    "Work",
    "semantics_of",
    "simulate",
    "simulate_all",
]
