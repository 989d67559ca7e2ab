"""The value every rank must hold after a step, computed in NumPy from the same program.

Large flat arrays stay formulas (`lazy.Flat`), so the reference of a program of any size costs only
the elements its results look at. Sums are taken in float64 and rounded to the array's dtype; XLA
on CPU sums bf16 in f32 and rounds once, which is the same for the whole numbers used as data.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ml_dtypes  # noqa: F401  (registers bfloat16 and float8 with NumPy)
import numpy as np

from jaxbench.errors import RunError
from jaxbench.fills import fill_value
from jaxbench.jaxprs import Equation
from jaxbench.program import Traced
from jaxbench.readings import lazy
from jaxbench.readings.arithmetic import RULES
from jaxbench.readings.lazy import Flat
from jaxbench.readings.ranks import Ranks
from jaxbench.readings.sites import KINDS, collective_axes
from jaxbench.readings.walker import Walker

DENSE_ELEMENTS = 1 << 12  # arrays with more elements on a rank stay formulas

Held = np.ndarray | Flat


class Reference(Walker[Held]):
    """Evaluates a program's values for all ranks; arrays above `dense` elements stay formulas."""

    def __init__(self, ranks: Ranks, dense: int = DENSE_ELEMENTS):
        super().__init__(ranks)
        self.dense = dense

    def literal(self, value: Any) -> Held:
        return np.asarray(value)[None]

    def concrete(self, value: Held) -> np.ndarray:
        if isinstance(value, Flat):
            raise RunError("a predicate of this program is a large array; it must be a scalar")
        return value

    def choose(self, which: np.ndarray, cases: list[Held]) -> Held:
        if all(case is cases[0] for case in cases):
            return cases[0]
        if not any(isinstance(case, Flat) for case in cases):
            return RULES["select_n"]({}, which, *cases)
        flats = [_flat(case, str(getattr(case, "dtype", ""))) for case in cases]

        def get(r: np.ndarray, i: np.ndarray) -> np.ndarray:
            return np.choose(which[r], [flat.get(r, i) for flat in flats])

        return Flat(flats[0].size, flats[0].dtype, get)

    def unstack(self, stacked: Held, index: int) -> Held:
        return np.asarray(stacked)[:, index]

    def stack(self, parts: list[Held]) -> Held:
        return np.stack([np.asarray(part) for part in parts], axis=1)

    def rule(self, eqn: Equation, operands: list[Held]) -> list[Held]:
        name = eqn.primitive.name
        if name in ("compute", "tie", "mark"):
            return [operands[0]]
        if name == "axis_index":
            return [self.ranks.coordinate(eqn.params["axis_name"]).astype(np.int32)]
        if name in KINDS:
            return [self._collective(eqn, operand) for operand in operands]
        flat = next((o for o in operands if isinstance(o, Flat)), None)
        if flat is not None or self._makes_large(eqn):
            return [self._on_flat(eqn, operands)]
        if name not in RULES:
            raise RunError(f"the reference has no rule for primitive '{name}'")
        with np.errstate(all="ignore"):
            result = RULES[name](eqn.params, *operands)
        return [np.asarray(result).astype(eqn.outvars[0].aval.dtype, copy=False)]

    def _collective(self, eqn: Equation, operand: Held) -> Held:
        axes = collective_axes(eqn)
        self.require_whole_groups(axes, str(eqn.source_info.name_stack) or eqn.primitive.name)
        variable = eqn.invars[0].aval
        array = _flat(operand, str(variable.dtype))
        peers, position = self.ranks.peers(axes), self.ranks.position(axes)
        rounded = _rounding(str(variable.dtype))
        kind = KINDS[eqn.primitive.name]
        if eqn.primitive.name in ("pmax", "pmin"):
            raise RunError("the reference covers sums; a program with pmax or pmin has none")
        if kind == "all_reduce":
            result = lazy.all_reduce(array, peers, rounded)
        elif kind == "all_gather":
            result = lazy.all_gather(array, peers)
        elif kind == "reduce_scatter":
            result = lazy.reduce_scatter(array, peers, position, rounded)
        elif kind == "all_to_all":
            result = lazy.all_to_all(array, peers, position)
        else:
            result = lazy.permute(array, self.ranks.sources(axes[0], eqn.params["perm"]))
        return self._settle(result)

    def _on_flat(self, eqn: Equation, operands: list[Held]) -> Held:
        """The few primitives that touch whole buffers."""
        name, out = eqn.primitive.name, eqn.outvars[0].aval
        if name == "broadcast_in_dim" and isinstance(operands[0], np.ndarray):
            value = operands[0].reshape(-1)
            return Flat(
                out.size, str(out.dtype), lambda r, i: value[r if value.size > 1 else r * 0]
            )
        source = operands[0]
        assert isinstance(source, Flat), name
        if name == "convert_element_type":
            rounded = _rounding(str(out.dtype))
            return Flat(source.size, str(out.dtype), lambda r, i: rounded(source.get(r, i)))
        if name == "slice":
            (start,) = eqn.params["start_indices"]
            (step,) = eqn.params["strides"] or (1,)
            moved = Flat(out.size, source.dtype, lambda r, i: source.get(r, start + step * i))
            return self._settle(moved)
        if name == "dynamic_update_slice":
            start = int(np.asarray(operands[2]).item())
            rounded = _rounding(source.dtype)
            piece = _flat(operands[1], source.dtype)
            return lazy.write(
                source,
                start,
                Flat(piece.size, source.dtype, lambda r, i: rounded(piece.get(r, i))),
            )
        if name in ("reshape", "copy", "squeeze"):  # the order of elements stays
            return source
        raise RunError(f"the reference has no rule for '{name}' on a large array")

    def _settle(self, array: Flat) -> Held:
        """Hold an array densely if it is small, so that later looks don't compute it again."""
        if array.size > self.dense:
            return array
        return array.materialize(self.ranks).astype(array.dtype)

    def _makes_large(self, eqn: Equation) -> bool:
        made = eqn.outvars[0].aval
        return eqn.primitive.name == "broadcast_in_dim" and made.size > self.dense


def reference(
    traced: Traced, ranks: Ranks, dense: int = DENSE_ELEMENTS
) -> tuple[list[Held], dict[str, np.ndarray]]:
    """Return what a step must leave: the buffers, and per label what was seen ([R, elements]).

    Programs traced with `probed=None` add up whole arrays, which takes `dense` as large as those.
    """
    arguments: list[Held] = [np.zeros((ranks.count, 1), np.float32)]
    for buffer in traced.program.buffers.values():
        m = traced.program.fill_modulus(ranks.count)
        array = Flat(buffer.size.padded, buffer.dtype, lambda r, i, m=m: fill_value(r, i, m))
        small = array.size <= dense
        arguments.append(array.materialize(ranks).astype(array.dtype) if small else array)
    _, *buffers, seen = Reference(ranks, dense).run(traced.closed, arguments)
    vector = seen.materialize(ranks) if isinstance(seen, Flat) else np.asarray(seen)
    vector = np.broadcast_to(vector, (ranks.count, vector.shape[1]))
    return buffers, split_seen(vector, traced.layout)


def split_seen(vector: np.ndarray, layout: Sequence[tuple[str, int]]) -> dict[str, np.ndarray]:
    """Split [R, total] into the parts that `layout` names."""
    parts, start = {}, 0
    for label, elements in layout:
        parts[label] = vector[:, start : start + elements]
        start += elements
    return parts


def _flat(value: Held, dtype: str) -> Flat:
    if isinstance(value, Flat):
        return value
    return lazy.from_dense(value.reshape(value.shape[0], -1), dtype)


def _rounding(dtype: str) -> Any:
    """Return the function that rounds float64 values to `dtype` and back."""
    return lambda values: values.astype(np.float32).astype(dtype).astype(np.float64)
