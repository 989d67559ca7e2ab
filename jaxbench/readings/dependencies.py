"""What one rank does in a step, one operation after the other, and which of them wait for which.

Loops are unrolled and branches taken as this rank takes them. Dependencies are those of the
program's values, so nothing here says in which order a device starts what is free to start.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr

from jaxbench.errors import RunError
from jaxbench.jaxprs import Equation, equations
from jaxbench.readings.arithmetic import RULES
from jaxbench.readings.ranks import Ranks
from jaxbench.readings.simulate.liveness import Liveness
from jaxbench.readings.sites import KINDS, collective_axes
from jaxbench.readings.walker import Walker


@dataclass(frozen=True)
class Operation:
    """One thing a rank does: `kind` is compute, send, recv, or a collective's but for permute.

    A permute is a send and a receive, to or from the rank `offset` further on, and has the `tag`
    that both ends give it; its result needs what is received. `seconds` are a compute's, `nbytes`
    a message's: of all_reduce, reduce_scatter and all_to_all the operand, of all_gather the
    result. `after` numbers the operations (counted from 0) whose results it needs, without those
    that others of them need.
    """

    kind: str
    label: str
    after: tuple[int, ...]
    axes: tuple[str, ...] = ()
    seconds: float = 0.0
    nbytes: int = 0
    offset: int = 0
    tag: int = 0


@dataclass(frozen=True)
class Dependent:
    """A value: it is there when the operations `after` are done; known (whole numbers) or not."""

    after: frozenset[int]
    known: np.ndarray | None = None


NOTHING: frozenset[int] = frozenset()


def find_operations(closed: ClosedJaxpr, ranks: Ranks, rank: int) -> tuple[Operation, ...]:
    """Return what `rank` does in a step of the program, in the program's order."""
    position = {axis: int(ranks.coordinate(axis)[rank]) for axis in ranks.sizes}
    walk = Dependencies(closed, ranks, position)
    walk.run(closed, [Dependent(NOTHING)] * len(closed.jaxpr.invars))
    return tuple(walk.operations)


def steering_axes(closed: ClosedJaxpr) -> tuple[str, ...]:
    """Return the axes whose coordinates decide what a rank does; ranks that agree on them do the
    same operations, with the same offsets."""
    steering: dict[str, None] = {}
    for eqn in equations(closed.jaxpr):
        if eqn.primitive.name == "axis_index":
            steering[eqn.params["axis_name"]] = None
        elif KINDS.get(eqn.primitive.name) == "permute":
            steering[collective_axes(eqn)[0]] = None
    return tuple(steering)


def _is_operation(eqn: Equation) -> bool:
    return eqn.primitive.name == "compute" or eqn.primitive.name in KINDS


class Dependencies(Walker[Dependent]):
    """Follows a program as the rank at `position` (a coordinate for each axis) executes it."""

    def __init__(self, closed: ClosedJaxpr, mesh: Ranks, position: Mapping[str, int]):
        super().__init__(Ranks(()))  # one rank
        self.mesh = mesh
        self.position = position
        self.operations: list[Operation] = []
        # For each operation the set of those that are done when it is, itself too, as bits.
        self._done: list[int] = []
        self._permutes: dict[str, int] = {}  # executed so far, by axis
        self._live = Liveness(closed, _is_operation)

    def left_out(self, jaxpr: Jaxpr) -> Collection[int]:
        return self._live.unneeded(jaxpr)

    def nothing(self) -> Dependent:
        return Dependent(NOTHING)

    def literal(self, value: Any) -> Dependent:
        array = np.asarray(value)
        return Dependent(NOTHING, array[None] if array.dtype.kind in "iub" else None)

    def concrete(self, value: Dependent) -> np.ndarray:
        if value.known is None:
            raise RunError(
                "a predicate of this program depends on computed data; its operations can only be "
                "listed where predicates follow from axis_index, loop counters and constants"
            )
        return value.known

    def unstack(self, stacked: Dependent, index: int) -> Dependent:
        known = stacked.known
        return Dependent(stacked.after, None if known is None else known[:, index])

    def stack(self, parts: list[Dependent]) -> Dependent:
        return Dependent(self._join(part.after for part in parts))

    def rule(self, eqn: Equation, operands: list[Dependent]) -> list[Dependent]:
        name, params = eqn.primitive.name, eqn.params
        if name in KINDS:
            return [Dependent(self._collective(eqn, n, o.after)) for n, o in enumerate(operands)]
        after = self._join(operand.after for operand in operands)
        known = None
        if name == "compute":
            after = self._add("compute", params["label"], after, seconds=params["seconds"])
        elif name == "axis_index":
            known = np.array([self.position[params["axis_name"]]], np.int32)
        elif (name == "iota" or operands) and name in RULES:
            arrays = [o.known for o in operands if o.known is not None]
            if len(arrays) == len(operands) and eqn.outvars[0].aval.dtype.kind in "iub":
                with np.errstate(all="ignore"):
                    known = RULES[name](params, *arrays)
        return [Dependent(after, known) for _ in eqn.outvars]

    def _collective(self, eqn: Equation, number: int, after: frozenset[int]) -> frozenset[int]:
        """Add the operations of a collective's operand `number`; return which its result needs."""
        kind, axes = KINDS[eqn.primitive.name], collective_axes(eqn)
        aval = (eqn.outvars if kind == "all_gather" else eqn.invars)[number].aval
        nbytes = math.prod(aval.shape) * aval.dtype.itemsize
        label = str(eqn.source_info.name_stack).rsplit("/", 1)[-1] or eqn.primitive.name
        if eqn.params.get("axis_index_groups") is not None:
            raise RunError(
                f"collective '{label}' has axis_index_groups, whose groups aren't those of the "
                "mesh; use a mesh axis for each set of groups"
            )
        if kind != "permute":
            return self._add(kind, label, after, axes=axes, nbytes=nbytes)
        return self._permute(eqn, axes, label, nbytes, after)

    def _permute(
        self, eqn: Equation, axes: tuple[str, ...], label: str, nbytes: int, after: frozenset[int]
    ) -> frozenset[int]:
        axis, pairs = axes[0], eqn.params["perm"]
        if len(axes) > 1:
            raise RunError(f"permute '{label}' is over {axes}; it must be over a single axis")
        tag = self._permutes[axis] = self._permutes.get(axis, -1) + 1
        here = self.position[axis]
        if (here, here) in pairs:  # what a rank sends to itself is no message
            return after
        arrived = NOTHING  # where nothing arrives there are zeros, which nobody waits for
        peers = [("send", target) for source, target in pairs if source == here]
        peers += [("recv", source) for source, target in pairs if target == here]
        for kind, peer in peers:
            offset = (peer - here) * self._stride(axis)
            end = self._add(kind, label, after, axes=axes, nbytes=nbytes, offset=offset, tag=tag)
            arrived = end if kind == "recv" else arrived
        return arrived

    def _stride(self, axis: str) -> int:
        """Return how far apart two ranks are that are neighbours along `axis`."""
        names = list(self.mesh.sizes)
        return math.prod(self.mesh.sizes[name] for name in names[names.index(axis) + 1 :])

    def _add(self, kind: str, label: str, after: frozenset[int], **fields: Any) -> frozenset[int]:
        number = len(self.operations)
        self.operations.append(Operation(kind, label, tuple(sorted(after)), **fields))
        done = 1 << number
        for earlier in after:
            done |= self._done[earlier]
        self._done.append(done)
        return frozenset((number,))

    def _join(self, sets: Iterable[frozenset[int]]) -> frozenset[int]:
        """Return the operations to wait for in order to have waited for all of `sets`."""
        different = set(sets)
        if len(different) <= 1:
            return different.pop() if different else NOTHING
        kept, done = [], 0
        for number in sorted(frozenset.union(*different), reverse=True):
            if not done >> number & 1:
                kept.append(number)
                done |= self._done[number]
        return frozenset(kept)
