"""A program's step, simulated: who is done when, what collectives took, what happened."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from jax.extend.core import ClosedJaxpr

from jaxbench.costs.interface import Costs
from jaxbench.jaxprs import Equation
from jaxbench.readings.ranks import Ranks
from jaxbench.readings.simulate.events import Event
from jaxbench.readings.simulate.fold import FoldingTimeline
from jaxbench.readings.simulate.streams import Semantics
from jaxbench.readings.simulate.uses import Use, make_use, spent
from jaxbench.readings.simulate.walker import Timeline, Work, proxy_work


@dataclass(frozen=True)
class Simulation:
    """A step in numbers, all in seconds; arrays are per rank, [R].

    `end_s` is when a rank has done all it does, `compute_s` how long its compute stream worked;
    `compute_by_label` are maxima over ranks. `uses` are the collectives in the order of the
    program, `events` what the recorded ranks did, in program order.
    """

    end_s: np.ndarray
    compute_s: np.ndarray
    compute_by_label: dict[str, float]
    uses: tuple[Use, ...]
    events: tuple[Event, ...]

    @property
    def step_s(self) -> float:
        """When the last rank is done."""
        return float(self.end_s.max())

    @property
    def blocked_s(self) -> np.ndarray:
        """How long each rank's compute stream waits: for collectives, and for the step's end.

        It has nothing else to do, so this is the step less its compute.
        """
        return self.step_s - self.compute_s


def simulate(
    closed: ClosedJaxpr,
    ranks: Ranks,
    costs: Costs,
    semantics: Semantics,
    *,
    record: Sequence[int] = (),
    work: Callable[[Equation], Work | None] = proxy_work,
    fold: bool = True,
) -> Simulation:
    """Follow a step of a program (jit of a shard_map) on all ranks of its mesh.

    `record` lists ranks whose operations are kept as events; `work` prices the equations that
    occupy a rank's compute stream; `fold` False walks every iteration of every loop. A predicate
    that depends on computed data, or a collective inside a conditional that its group decides
    differently, is a RunError.
    """
    return simulate_all(closed, ranks, [costs], semantics, record=record, work=work, fold=fold)[0]


def simulate_all(
    closed: ClosedJaxpr,
    ranks: Ranks,
    costs: Sequence[Costs],
    semantics: Semantics,
    *,
    record: Sequence[int] = (),
    work: Callable[[Equation], Work | None] = proxy_work,
    fold: bool = True,
) -> list[Simulation]:
    """As `simulate`, for several cost models in one walk; the first one has the events."""
    # An inline step isn't the sum of its iterations' shifts: entries are compared with starts.
    kind = FoldingTimeline if fold and not semantics.inline else Timeline
    walk = kind(closed, ranks, costs, semantics, record, work).follow()
    executed = spent(walk.counts, walk.masks, walk.grid)
    compute, by_label = np.zeros(ranks.count), {}
    for path, work_ in walk.works.items():
        seconds = sum(executed[path].values()) * work_.seconds
        compute = compute + seconds
        by_label[work_.label] = by_label.get(work_.label, 0.0) + seconds
    end = walk.streams.end()
    simulations = []
    for model in range(len(costs)):
        uses = [
            make_use(path, times, walk.grid, model)
            for path, ranks_of in executed.items()
            for times in walk.priced(path, ranks_of)
        ]
        simulations.append(
            Simulation(
                end_s=walk.grid.per_rank(end, model),
                compute_s=compute,
                compute_by_label={name: float(s.max()) for name, s in by_label.items()},
                uses=tuple(use for use in uses if use is not None),
                events=tuple(walk.recorder.events) if model == 0 else (),
            )
        )
    return simulations
