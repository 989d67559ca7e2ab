"""The walk that follows a program through time, on all ranks and for several cost models at once.

Whole numbers and booleans are concrete (`Known`), all else is the time at which it is there.
`compute` and whatever else is `Work` occupies a rank's compute stream; a collective starts when
its operands are there and the streams free on the whole group, and takes the group's cost; all
other equations take no time.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr

from jaxbench.costs.interface import Costs
from jaxbench.errors import RunError
from jaxbench.jaxprs import Equation, equations
from jaxbench.readings.arithmetic import RULES
from jaxbench.readings.ranks import Ranks
from jaxbench.readings.simulate.events import Recorder
from jaxbench.readings.simulate.liveness import Liveness
from jaxbench.readings.simulate.sites import PricedSite, price_sites
from jaxbench.readings.simulate.streams import INSTANT, Mask, Semantics, Streams
from jaxbench.readings.simulate.times import Grid, Known, Times, Value
from jaxbench.readings.sites import KINDS
from jaxbench.readings.walker import Path, Walker


class Work(NamedTuple):
    """What an equation keeps a rank's compute stream busy with."""

    label: str
    seconds: float


def proxy_work(eqn: Equation) -> Work | None:
    """Return the work of a proxy's equations: `compute` says itself what it stands for."""
    if eqn.primitive.name != "compute":
        return None
    return Work(eqn.params["label"], eqn.params["seconds"])


class Timeline(Walker[Value]):
    """Walks a program once.

    After `follow`: `streams.free` are the ends; `counts` say how often what is at a path was
    executed, by (path, number in `masks` of the ranks that did it); `works` and `sites` what is
    there; `recorder.events` what the ranks `record` did, with the first cost model.
    """

    def __init__(
        self,
        closed: ClosedJaxpr,
        ranks: Ranks,
        costs: Sequence[Costs],
        semantics: Semantics,
        record: Sequence[int] = (),
        work: Callable[[Equation], Work | None] = proxy_work,
    ):
        # What steers depends on some axes only: it is evaluated on the mesh of these.
        indexed = {
            eqn.params["axis_name"]
            for eqn in equations(closed.jaxpr)
            if eqn.primitive.name == "axis_index"
        }
        steering = [(axis, size if axis in indexed else 1) for axis, size in ranks.axes]
        super().__init__(Ranks(steering))
        self.closed = closed
        self.mesh_ranks = ranks
        self.costs = costs
        self.grid = Grid(ranks)
        self.streams = Streams(self.grid, semantics)
        self.recorder = Recorder(self.grid, record)
        self.sites: dict[Path, list[PricedSite]] = {}
        self._at_once: dict[tuple[Path, int], list[PricedSite]] = {}
        self.works: dict[Path, Work] = {}
        self.counts: dict[tuple[Path, int], int] = {}
        self.masks: list[Mask] = [None]
        self._work = {id(e): w for e in equations(closed.jaxpr) if (w := work(e))}
        self.live = Liveness(closed, lambda e: e.primitive.name in KINDS or id(e) in self._work)
        self._literals: dict[int, tuple[Any, Value]] = {}
        self._mask_numbers: dict[bytes, int] = {}
        self._masked: tuple[np.ndarray, int] = (self.active, 0)

    def follow(self) -> Timeline:
        """Walk the program and return self."""
        inputs: list[Value] = [self.grid.zero] * len(self.closed.jaxpr.invars)
        with np.errstate(all="ignore"):  # of whole numbers, as XLA does
            self.run(self.closed, inputs)
        return self

    # --- what a value is ---

    def left_out(self, jaxpr: Jaxpr) -> Collection[int]:
        return self.live.unneeded(jaxpr)

    def nothing(self) -> Value:
        return self.grid.zero

    def literal(self, value: Any) -> Value:
        if id(value) not in self._literals:
            array = np.asarray(value)
            known = array.dtype.kind in "iub"
            # The value is kept as well, so that no other one can have its id.
            self._literals[id(value)] = value, Known(array[None]) if known else self.grid.zero
        return self._literals[id(value)][1]

    def concrete(self, value: Value) -> np.ndarray:
        if isinstance(value, Known):
            return value.array
        raise RunError(
            "a predicate of this program depends on computed data; it can only be simulated where "
            "predicates follow from axis_index, loop counters and constants"
        )

    def choose(self, which: np.ndarray, cases: list[Value]) -> Value:
        known = [case.array for case in cases if isinstance(case, Known)]
        if len(known) == len(cases):
            return Known(RULES["select_n"]({}, which, *known))
        times = [self.grid.zero if isinstance(case, Known) else case for case in cases]
        if all(at is times[0] for at in times):
            return times[0]
        if which.min() == which.max():
            return times[int(which.flat[0])]
        place, result = self._on_mesh(which), times[0]
        for number, at in enumerate(times[1:], start=1):
            result = np.where(place == number, at, result)
        return result

    def unstack(self, stacked: Value, index: int) -> Value:
        return Known(stacked.array[:, index]) if isinstance(stacked, Known) else stacked

    def stack(self, parts: list[Value]) -> Value:
        known = [part.array for part in parts if isinstance(part, Known)]
        if not known or len(known) < len(parts):
            return self.grid.latest(parts)
        return Known(np.stack(np.broadcast_arrays(*known), axis=1))

    # --- what an equation does ---

    def rule(self, eqn: Equation, operands: list[Value]) -> list[Value]:
        name = eqn.primitive.name
        if name in KINDS:
            return self._communicate(eqn, operands)
        if name == "axis_index":
            return [Known(self.ranks.coordinate(eqn.params["axis_name"]).astype(np.int32))]
        if name == "iota" or (operands and name in RULES):
            known = [operand.array for operand in operands if isinstance(operand, Known)]
            if len(known) == len(operands) and eqn.outvars[0].aval.dtype.kind in "iub":
                return [Known(RULES[name](eqn.params, *known))]
        work = self._work.get(id(eqn))
        if work is not None:
            return [self._compute(work, operands)] * len(eqn.outvars)
        if name == "select_n" and isinstance(operands[0], Known) and operands[0].array.ndim == 1:
            return [self.choose(operands[0].array.astype(np.int64), operands[1:])]
        at = self.grid.latest(operands)
        if name == "tie" and self.streams.semantics.inline:
            at = at + INSTANT
        return [at] * len(eqn.outvars)

    def _compute(self, work: Work, operands: list[Value]) -> Times:
        number = self.mask_number()
        self.works[self.path] = work
        self._count(number)
        ready = self.grid.latest(operands)
        start, end = self.streams.compute(ready, work.seconds, self.masks[number])
        self.recorder.compute(self.path, work.label, (ready, start, end), self.masks[number])
        return end

    def _communicate(self, eqn: Equation, operands: list[Value]) -> list[Value]:
        sites = self.sites.get(self.path)
        if sites is None:
            sites = price_sites(eqn, self.mesh_ranks, self.grid, self.costs)
            self.sites[self.path] = sites
        number = self.mask_number()
        mask = self.masks[number]
        if mask is not None:
            self._require_whole(sites[0], mask)
            if self.streams.semantics.shared:
                sites = self._sites_at_once(eqn, number, mask)
        self._count(number)
        results: list[Value] = []
        for site, operand in zip(sites, operands, strict=True):
            ready = self.grid.latest([operand])
            if site.hop is None:
                start, end = self.streams.meet(site, ready, mask)
            else:
                start, end = self.streams.hop(site, site.hop, ready, mask)
            results.append(end)
            self.recorder.collective(self.path, site, (ready, start, end), mask)
        return results

    def priced(
        self, path: Path, executed: Mapping[int, np.ndarray]
    ) -> list[list[tuple[PricedSite, np.ndarray]]]:
        """Return, for each operand of a collective, its sites as they were priced for those at it.

        `executed` says by the number of a mask how often each rank executed it ([R]), which is
        returned beside them.
        """
        operands = range(len(self.sites.get(path, ())))
        return [
            [
                (self._at_once.get((path, number), self.sites[path])[i], ranks)
                for number, ranks in executed.items()
            ]
            for i in operands
        ]

    def _sites_at_once(self, eqn: Equation, number: int, mask: np.ndarray) -> list[PricedSite]:
        key = self.path, number
        if key not in self._at_once:
            active = self.grid.per_rank(mask)
            grid, costs = self.grid, self.costs
            self._at_once[key] = price_sites(eqn, self.mesh_ranks, grid, costs, active)
        return self._at_once[key]

    def _require_whole(self, site: PricedSite, mask: np.ndarray) -> None:
        some = np.logical_or.reduce(mask, axis=site.dims)
        every = np.logical_and.reduce(mask, axis=site.dims)
        if (some != every).any():
            whole = Walker(self.mesh_ranks)  # to name the ranks of the whole mesh
            whole.active = self.grid.per_rank(mask)
            whole.require_whole_groups(site.axes, site.label)

    # --- which ranks, and how often ---

    def _on_mesh(self, per_rank: np.ndarray) -> np.ndarray:
        """Return what steers ([steering ranks] or [1]) as an array of the mesh."""
        sizes = self.ranks.sizes.values()
        return per_rank.reshape(1, *(sizes if per_rank.size > 1 else [1] * len(sizes)))

    def mask_number(self) -> int:
        """Return the number in `masks` of the ranks that execute the equation at hand."""
        active, number = self._masked
        if active is not self.active:
            number = 0
            if not self.active.all():
                key = self.active.tobytes()
                if key not in self._mask_numbers:
                    self._mask_numbers[key] = len(self.masks)
                    self.masks.append(self._on_mesh(self.active))
                number = self._mask_numbers[key]
            self._masked = self.active, number
        return number

    def _count(self, number: int) -> None:
        key = (self.path, number)
        self.counts[key] = self.counts.get(key, 0) + 1
