"""What the equations of a user's program cost: a roofline over real FLOPs and memory traffic.

An equation takes max(FLOPs / (peak * mfu), bytes / (bandwidth * memory_efficiency)) on a device,
as the parts of a model do (`timing_model`). Only matrix products and convolutions have FLOPs (a
multiply-add is two); all else is bound by memory. Shapes are those of one device, since they are
taken from inside the shard_map.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from jax.extend.core import Jaxpr

from jaxbench.catalog.hardware import Hardware
from jaxbench.errors import InputError
from jaxbench.jaxprs import Equation
from jaxbench.readings.own_program_traffic import structured_equations, traffic
from jaxbench.timing_model import DEFAULT_MEMORY_EFFICIENCY

MATRIX, MEMORY = "matrix products", "memory traffic"


@dataclass(frozen=True)
class Price:
    """One execution of an equation on one device: FLOPs of `dtype`, bytes, seconds, what bounds."""

    flops: int
    dtype: str
    bytes: int
    seconds: float

    @property
    def what(self) -> str:
        """Which row of a table it belongs to."""
        return MATRIX if self.flops else MEMORY


@dataclass(frozen=True)
class Roofline:
    """A device as the roofline sees it: FLOP/s by dtype and byte/s, both as they are reached."""

    hardware: Hardware
    mfu: float | None = None
    memory_efficiency: float = DEFAULT_MEMORY_EFFICIENCY

    def price_all(self, jaxpr: Jaxpr) -> dict[int, Price]:
        """Return the price of each equation that has one, by `id`, in all bodies below `jaxpr`.

        InputError: matrix products in dtypes that the hardware has no known peak for.
        """
        moved = traffic(jaxpr)
        if faults := self.faults([jaxpr]):
            raise InputError(faults)
        return {
            id(eqn): self._price(eqn, moved[id(eqn)])
            for eqn in structured_equations(jaxpr)
            if id(eqn) in moved
        }

    def _price(self, eqn: Equation, moved: int) -> Price:
        flops, dtype = equation_flops(eqn), _operand_dtype(eqn)
        seconds = moved / (self.hardware.memory_Bps * self.memory_efficiency)
        if flops:
            mfu = self.hardware.default_mfu if self.mfu is None else self.mfu
            peak = self.hardware.peak_FLOPs(dtype)
            assert peak is not None  # told before
            seconds = max(seconds, flops / (peak * mfu))
        return Price(flops, dtype, moved, seconds)

    def faults(self, bodies: Sequence[Jaxpr]) -> list[str]:
        """Return why the matrix products of some programs can't be priced, or nothing."""
        return list(dict.fromkeys(fault for body in bodies for fault in self._faults(body)))

    def _faults(self, jaxpr: Jaxpr) -> Iterator[str]:
        known = self.hardware.dtypes()
        for eqn in structured_equations(jaxpr):
            if equation_flops(eqn) and _operand_dtype(eqn) not in known:
                yield (
                    f"the program multiplies matrices of {_operand_dtype(eqn)}, which hardware "
                    f"'{self.hardware.name}' has no known peak for; known: {', '.join(known)}; "
                    "choose another --hardware, or another dtype in the program"
                )


def equation_flops(eqn: Equation) -> int:
    """Return the FLOPs of one execution of an equation on one device; 0 if it has no matrices."""
    count = FLOPS.get(eqn.primitive.name)
    return count(eqn) if count else 0


def _dot_general(eqn: Equation) -> int:
    """2 * batch * rows * columns * contracted elements."""
    (contracted, _), _ = eqn.params["dimension_numbers"]
    left = eqn.invars[0].aval.shape
    return 2 * _size(eqn.outvars[0]) * math.prod(left[d] for d in contracted)


def _convolution(eqn: Equation) -> int:
    """2 * result elements * the kernel elements that each is a sum over (padding counted)."""
    kernel = eqn.invars[1].aval.shape
    features = kernel[eqn.params["dimension_numbers"].rhs_spec[0]]
    return 2 * _size(eqn.outvars[0]) * (math.prod(kernel) // features)


def _ragged_dot(eqn: Equation) -> int:
    """2 * left elements * columns: every row meets the matrix of its own group only."""
    numbers = eqn.params["ragged_dot_dimension_numbers"]
    (_, contracted), (_, batch) = numbers.dot_dimension_numbers
    taken = {*contracted, *batch, *numbers.rhs_group_dimensions}
    right = eqn.invars[1].aval.shape
    columns = math.prod(size for dim, size in enumerate(right) if dim not in taken)
    return 2 * _size(eqn.invars[0]) * columns


FLOPS: dict[str, Callable[[Equation], int]] = {
    "dot_general": _dot_general,
    "conv_general_dilated": _convolution,
    "ragged_dot_general": _ragged_dot,
}


def _operand_dtype(eqn: Equation) -> str:
    """Return the wider dtype of the first two operands: what the multiplication is done in."""
    dtypes = [atom.aval.dtype for atom in eqn.invars[:2] if hasattr(atom.aval, "dtype")]
    return str(max(dtypes, key=lambda dtype: dtype.itemsize)) if dtypes else ""


def _size(variable: Any) -> int:
    return math.prod(variable.aval.shape)
