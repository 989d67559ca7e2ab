"""The payload `matmul`: a loop of dense matrix products that keeps a device busy.

The loop multiplies a dense matrix again and again by an orthogonal one, so that its numbers
neither grow nor vanish and no product is cheaper than another. Both matrices are made on the
device from indices: no literal in the program, and nothing a compiler could evaluate beforehand,
since they depend on the token.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from jaxbench.dtypes import DTYPES
from jaxbench.errors import RunError
from jaxbench.payload.interface import Timing
from jaxbench.payload.opaque import empty_loop, late, unchanged

# Sizes of the square matrices, smallest first: powers of four, so that the entries +-1/sqrt(size)
# of the orthogonal matrix are exact in every dtype and no number of trips overflows. On CPU one
# that a core multiplies in some microseconds and XLA doesn't split over threads; on accelerators
# large ones fill the device, small ones are for short computes.
CPU_SIZES = (64,)
ACCELERATOR_SIZES = (1024, 4096)
ACCELERATOR_DTYPES = ("float32", "bfloat16", "float16")
NARROW_DTYPE = "bfloat16"  # stands for types that matrix units don't take as they are (fp8)

FITTED_S = 0.010  # length of the longer of the two loops that a line is laid through,
FEW = 8  # which has that many times the trips of the shorter
CPU_FLOPS = 5e10  # a device's rate to start from; only costs time if it is far off
ACCELERATOR_FLOPS = 1e14
MOST_TRIPS = 2**26
SLOWEST_TRIP_S = 0.1  # sizes of which one product would take longer are left out
ROUNDING = 0.01  # largest error by whole trips that a size is chosen with


@dataclass(frozen=True)
class Matmul:
    """`trips` products of two `size` x `size` matrices of `dtype`, one after the other."""

    trips: int
    size: int
    dtype: str

    def apply(self, token: jax.Array) -> jax.Array:
        """Return `token` (f32[1]) after the products; with 0 trips nothing is multiplied."""
        if self.trips == 0:
            return empty_loop(token)
        seed = late(token).astype(jnp.int32)
        rotation = orthogonal(self.size, self.dtype, seed)
        # Static bounds: on accelerators a run-time count costs a host transfer per iteration.
        rotated = lax.fori_loop(
            0, self.trips, lambda _, x: lax.dot(x, rotation), dense(self.size, self.dtype, seed)
        )
        # All elements are looked at, or XLA might compute only those that are.
        return unchanged(token, jnp.max(rotated).astype(jnp.float32))

    @property
    def flops(self) -> int:
        """Floating-point operations of one compute."""
        return 2 * self.size**3 * self.trips

    @property
    def work_bytes(self) -> int:
        """Memory that a compute needs on its device: the rotation, and operand and result."""
        return 3 * self.size**2 * DTYPES[self.dtype] if self.trips else 0


def orthogonal(size: int, dtype: str, seed: jax.Array) -> jax.Array:
    """Return the Hadamard matrix of a power of two over sqrt(size): symmetric, its own inverse."""
    common = _index(size, 0) & _index(size, 1)
    odd = (lax.population_count(common) ^ seed) & 1
    entry = jnp.asarray(1 / math.sqrt(size), dtype)
    return jnp.where(odd == 1, -entry, entry)


def dense(size: int, dtype: str, seed: jax.Array) -> jax.Array:
    """Return numbers in [-1/2, 1/2) without structure: a hash of the indices."""
    mixed = _index(size, 0) * 374761393 + _index(size, 1) * 668265263 + seed
    mixed = (mixed ^ (mixed >> 13)) * 1274126177
    return (((mixed >> 8) & 0xFFFF).astype(jnp.float32) / 65536 - 0.5).astype(dtype)


def _index(size: int, dimension: int) -> jax.Array:
    return lax.broadcasted_iota(jnp.int32, (size, size), dimension)


@dataclass(frozen=True)
class Line:
    """Time of `Matmul(trips, size, dtype)`: overhead_s + trips * trip_s."""

    size: int
    dtype: str
    trip_s: float
    overhead_s: float


@dataclass(frozen=True)
class MatmulFit:
    """One line per matrix size, smallest first."""

    lines: tuple[Line, ...]

    def payload(self, seconds: float) -> Matmul:
        """Return whole trips of the largest matrices that round well enough; 0 s is 0 trips."""
        fine = [line for line in self.lines if line.trip_s <= 2 * ROUNDING * seconds]
        line = fine[-1] if fine else self.lines[0]
        trips = round((seconds - line.overhead_s) / line.trip_s) if seconds > 0 else 0
        return Matmul(max(0, trips), line.size, line.dtype)

    def to_dict(self) -> dict[str, Any]:
        """Return the lines for the record."""
        return {"implementation": "matmul", "lines": [asdict(line) for line in self.lines]}


def fit(clock: Timing, platform: str, dtype: str) -> MatmulFit:
    """Fit seconds per trip and overhead for each matrix size that isn't too slow here."""
    sizes, assumed_flops = ACCELERATOR_SIZES, ACCELERATOR_FLOPS
    if platform == "cpu":
        sizes, assumed_flops, dtype = CPU_SIZES, CPU_FLOPS, "float32"
    elif dtype not in ACCELERATOR_DTYPES:
        dtype = NARROW_DTYPE
    lines: list[Line] = []
    for size in sizes:
        if lines and lines[-1].trip_s * (size / lines[-1].size) ** 3 > SLOWEST_TRIP_S:
            break
        lines.append(_fit_line(clock, size, dtype, assumed_flops))
    return MatmulFit(tuple(lines))


def _fit_line(clock: Timing, size: int, dtype: str, assumed_flops: float) -> Line:
    """Compare a loop of about FITTED_S (at least 2 trips) with one of a FEW-th of its trips.

    Not with a single product: the first trips of a loop take longer than the later ones on CPU, and
    a loop of one doesn't show it.
    """
    trips = max(1, round(FITTED_S / 4 * assumed_flops / Matmul(1, size, dtype).flops))
    (seconds,) = clock([Matmul(trips, size, dtype)])
    while seconds < FITTED_S / 16:  # too short to extrapolate from
        if trips >= MOST_TRIPS:
            raise RunError(
                f"{trips} products of {size}x{size} {dtype} matrices took {seconds:.2g} s, which "
                "no device can do: the compiler removed them; use --payload=none or report it"
            )
        trips *= 16
        (seconds,) = clock([Matmul(trips, size, dtype)])
    many = max(2, round(trips * FITTED_S / seconds))
    few = max(1, round(many / FEW))
    long_s, short_s = clock([Matmul(many, size, dtype), Matmul(few, size, dtype)])
    trip_s = (long_s - short_s) / (many - few)
    if trip_s <= 0:  # noise larger than the difference: the best guess left
        return Line(size, dtype, long_s / many, 0.0)
    return Line(size, dtype, trip_s, max(0.0, short_s - few * trip_s))
