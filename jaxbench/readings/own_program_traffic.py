"""The bytes a user's equations move through device memory, where compilers fuse what they can.

Element by element operations, reductions and changes of layout that follow each other are one
kernel: it reads each of its inputs once and writes only what others need (the best a compiler
does, so a lower bound). What multiplies matrices reads its operands and writes its result; what
gathers or scatters moves as many elements as it picks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from jax.extend.core import Jaxpr, Literal

from jaxbench.jaxprs import Equation, bodies
from jaxbench.readings.sites import KINDS

# Another name of the operand, or nothing at all.
NAMES = frozenset(
    "reshape squeeze expand_dims stop_gradient copy_p pvary pcast mesh_cast optimization_barrier "
    "sharding_constraint layout_constraint bitcast_convert_type axis_index "
    "random_wrap random_unwrap create_token after_all tie_in name".split()
)

ELEMENTWISE = frozenset(
    "abs acos acosh add add_any and asin asinh atan atan2 atanh cbrt ceil clamp clz complex conj "
    "convert_element_type copy cos cosh digamma div eq erf erf_inv erfc exp exp2 expm1 floor ge gt "
    "imag integer_pow is_finite le lgamma log log1p logistic lt max min mul ne neg nextafter not "
    "or polygamma population_count pow real rem round rsqrt select_n shift_left "
    "shift_right_arithmetic shift_right_logical sign sin sinh sqrt square sub tan tanh xor "
    "reduce_precision threefry2x32 random_bits random_seed random_fold_in random_split".split()
)
LAYOUT = frozenset("broadcast_in_dim iota transpose rev concatenate pad split stack tile".split())
SLICES = frozenset("slice dynamic_slice".split())  # they read what they return
REDUCTIONS = frozenset(
    "reduce_sum reduce_max reduce_min reduce_prod reduce_and reduce_or reduce_xor reduce "
    "argmax argmin".split()
)
FUSED = ELEMENTWISE | LAYOUT | SLICES | REDUCTIONS
PICKING = frozenset("gather dynamic_update_slice".split())
SCATTERING = frozenset(
    "scatter scatter-add scatter_add scatter-mul scatter_mul scatter-min scatter_min "
    "scatter-max scatter_max".split()
)
WHOLE = frozenset(  # operands in, results out
    "dot_general conv_general_dilated ragged_dot_general sort top_k cumsum cumprod "
    "cummax cummin cumlogsumexp reduce_window reduce_window_sum reduce_window_max "
    "reduce_window_min select_and_scatter_add select_and_gather_add".split()
)
STRUCTURE = frozenset("scan while cond shard_map".split())  # their bodies are looked at


def is_known(eqn: Equation) -> bool:
    """Whether the traffic of an equation is more than a guess."""
    name = eqn.primitive.name
    kinds = (NAMES, FUSED, PICKING, SCATTERING, WHOLE, STRUCTURE, KINDS)
    return any(name in kind for kind in kinds)


def traffic(jaxpr: Jaxpr) -> dict[int, int]:
    """Return the bytes that each equation moves, by `id`, in this jaxpr and all bodies below."""
    found: dict[int, int] = {}
    for part in _all_jaxprs(jaxpr):
        _add_traffic(part, found)
    return found


def size_bytes(atom: Any) -> int:
    """Return the bytes of a variable's or a literal's value."""
    dtype = getattr(atom.aval, "dtype", None)
    return 0 if dtype is None else atom.aval.size * dtype.itemsize


def structure(eqn: Equation) -> Iterator[Jaxpr]:
    """Yield the bodies of a loop, a conditional or a shard_map; a scatter's sum is no such body."""
    if eqn.primitive.name in STRUCTURE:
        yield from bodies(eqn)


def structured_equations(jaxpr: Jaxpr) -> Iterator[Equation]:
    """Yield every equation of `jaxpr` and of the bodies of its structure."""
    for part in _all_jaxprs(jaxpr):
        yield from part.eqns


def _all_jaxprs(jaxpr: Jaxpr) -> Iterator[Jaxpr]:
    yield jaxpr
    for eqn in jaxpr.eqns:
        for body in structure(eqn):
            yield from _all_jaxprs(body)


def _add_traffic(jaxpr: Jaxpr, found: dict[int, int]) -> None:
    fusion = _Fusion(jaxpr)
    for eqn in jaxpr.eqns:
        name = eqn.primitive.name
        if name in NAMES or name in STRUCTURE or name in KINDS:
            continue
        if name in FUSED:
            moved = fusion.moved(eqn)
        elif name == "gather":  # what is picked, and where
            moved = 2 * size_bytes(eqn.outvars[0]) + size_bytes(eqn.invars[1])
        elif name == "dynamic_update_slice":  # in place
            moved = 2 * size_bytes(eqn.invars[1])
        elif name in SCATTERING:  # reads and writes where an update goes, in place
            moved = size_bytes(eqn.invars[1]) + 3 * size_bytes(eqn.invars[2])
        else:
            moved = sum(map(size_bytes, (*eqn.invars, *eqn.outvars)))
        found[id(eqn)] = moved


class _Fusion:
    """Which values of one jaxpr are never written, and which equations are one kernel."""

    def __init__(self, jaxpr: Jaxpr):
        self._root: dict[Any, Any] = {}
        self._kernel: dict[int, int] = {}  # equation -> another of the same kernel
        self._read: set[tuple[int, Any]] = set()  # (kernel, value)
        for eqn in jaxpr.eqns:
            if eqn.primitive.name in NAMES and eqn.invars:
                pairs = zip(eqn.outvars, eqn.invars, strict=False)
                self._root.update((out, self._of(operand)) for out, operand in pairs)
        users: dict[Any, list[Equation]] = {}
        for eqn in jaxpr.eqns:
            if eqn.primitive.name not in NAMES:
                for atom in set(self._values(eqn.invars)):
                    users.setdefault(atom, []).append(eqn)
        kept = set(self._values(jaxpr.outvars))
        self._unwritten: set[Any] = set()
        for eqn in jaxpr.eqns:
            if eqn.primitive.name not in FUSED or eqn.primitive.name in REDUCTIONS:
                continue
            for result in eqn.outvars:
                readers = users.get(result, [])
                if result not in kept and all(r.primitive.name in FUSED for r in readers):
                    self._unwritten.add(result)
                    for reader in readers:
                        self._kernel[self._kernel_of(reader)] = self._kernel_of(eqn)

    def moved(self, eqn: Equation) -> int:
        """Return the bytes it reads that its kernel hasn't read yet, and those it writes."""
        kernel, total = self._kernel_of(eqn), 0
        for atom in self._values(eqn.invars):
            if atom in self._unwritten or (kernel, atom) in self._read:
                continue
            if eqn.primitive.name in SLICES:
                total += min(size_bytes(atom), sum(map(size_bytes, eqn.outvars)))
                continue
            self._read.add((kernel, atom))
            total += size_bytes(atom)
        return total + sum(size_bytes(v) for v in eqn.outvars if v not in self._unwritten)

    def _values(self, atoms: Sequence[Any]) -> list[Any]:
        """Return what is behind some atoms, without literals."""
        return [v for v in map(self._of, atoms) if not isinstance(v, Literal)]

    def _of(self, atom: Any) -> Any:
        return atom if isinstance(atom, Literal) else self._root.get(atom, atom)

    def _kernel_of(self, eqn: Equation) -> int:
        number = id(eqn)
        while self._kernel.get(number, number) != number:
            number = self._kernel[number]
        return number


def unknown_primitives(jaxpr: Jaxpr) -> Counter[str]:
    """Return how often each primitive stands in the program text that only a guess is made for."""
    return Counter(e.primitive.name for e in structured_equations(jaxpr) if not is_known(e))
