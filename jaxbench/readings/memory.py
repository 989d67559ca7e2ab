"""What the proxy itself holds on a device: its buffers, and the most that lives beside them.

These are the bytes of the program as written (what XLA's memory analysis counts), not the memory
of real training.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from jax.extend.core import Jaxpr, Literal

from jaxbench.jaxprs import Equation, bodies, scan_counts
from jaxbench.program import Traced
from jaxbench.readings.sites import KINDS

# Results that take the place of their first operand, when nothing needs that afterwards.
IN_PLACE = {"tie", "compute", "dynamic_update_slice"}

# Results that are another name of their operand.
NAMES = {"reshape", "mark"}

# Whole buffers that a platform needs besides, to pack and unpack an all-to-all: XLA's CPU compiler
# turns it into one with an operand for every peer.
PACKED = {"cpu": 1}

# XLA's CPU compiler sends bfloat16 as float32 and fp8 as float16.
WIDENED_ON_CPU = {"bfloat16": 2, "float8_e4m3fn": 2, "float8_e5m2": 2}

# Platforms that reduce in place, on a copy where the operand is kept, and look at it in the end.
REDUCING_COPIES = ("gpu", "cuda", "rocm")


@dataclass(frozen=True)
class Memory:
    """Bytes on one device: the buffers kept from step to step, and the peak of all others."""

    buffer_bytes: int
    temporary_bytes: int

    @property
    def total_bytes(self) -> int:
        """All of it."""
        return self.buffer_bytes + self.temporary_bytes


def program_memory(traced: Traced, platform: str = "cpu") -> Memory:
    """Return what one device of `platform` holds while it runs the program."""
    (outer,) = [eqn for eqn in traced.closed.jaxpr.eqns if eqn.primitive.name == "shard_map"]
    body: Jaxpr = outer.params["jaxpr"]
    kept = sum(_bytes(variable) for variable in body.invars)
    return Memory(kept, _peak(body, set(body.invars), platform))


def _peak(jaxpr: Jaxpr, owned: set[Any], platform: str) -> int:
    """Return the most bytes that values made in `jaxpr` occupy at once, in program order.

    Arguments count with the caller. A result that takes its operand's place costs nothing if that
    was its last use; a loop's carry takes the place of its start value likewise. Of the arguments
    only the `owned` ones may be overwritten: donated buffers, a loop's carry. A reshape is another
    name of its operand.
    """
    names = _Names(jaxpr)
    last_use = _last_uses(jaxpr, names, platform)
    ending: dict[int, list[Any]] = {}
    for variable, number in last_use.items():
        ending.setdefault(number, []).append(variable)
    users = (e for e in jaxpr.eqns if e.primitive.name not in ("slice", *NAMES) and e.invars)
    whole = {names.of(e.invars[0]) for e in users if not isinstance(e.invars[0], Literal)}
    made_here: set[Any] = set()
    next_carry = _next_carry(jaxpr, owned, last_use)
    live: dict[Any, int] = {}
    peak = current = 0
    for number, eqn in enumerate(jaxpr.eqns):
        if eqn.primitive.name in NAMES:
            continue
        inner = max((_peak(body, _carry(eqn, body), platform) for body in bodies(eqn)), default=0)
        wider = _widening(eqn, platform)
        if wider > 1:  # the operand is converted, and back what isn't only looked at
            inner += wider * _bytes(eqn.invars[0])
            if eqn.outvars[0] in whole:
                inner, wider = inner + wider * _bytes(eqn.outvars[0]), 1
        if eqn.primitive.name == "all_to_all":
            inner += PACKED.get(platform, 0) * _bytes(eqn.outvars[0])
        made: dict[Any, int] = {}
        heirs: dict[Any, Any] = {}
        for position, variable in enumerate(eqn.outvars):
            operand = names.of(_place_of(eqn, position))
            free = operand is not None and last_use.get(operand) == number
            free = free and (operand in made_here or operand in owned)
            made_here.add(variable)
            kept = next_carry.get(variable, number) < number
            made[variable] = 0 if free or kept else wider * _bytes(variable)
            if free:
                heirs[operand] = variable
        peak = max(peak, current + inner + sum(made.values()))
        for variable, size in made.items():
            if last_use.get(variable, -1) > number:
                live[variable] = size
                current += size
        for variable in ending.get(number, ()):
            size, heir = live.pop(variable, 0), heirs.get(variable)
            if heir is not None and last_use.get(heir, -1) > number:
                live[heir] = size
            else:
                current -= size
    return peak


def _carry(eqn: Equation, body: Jaxpr) -> set[Any]:
    """Return the arguments of a loop's body that it may overwrite."""
    if eqn.primitive.name == "scan":
        first, count = scan_counts(eqn)
        return set(body.invars[first : first + count])
    if eqn.primitive.name == "while" and len(body.outvars) > 1:
        return set(body.invars[eqn.params["body_nconsts"] :])
    return set()


def _next_carry(jaxpr: Jaxpr, owned: set[Any], last_use: dict[Any, int]) -> dict[Any, int]:
    """Return for each result that a loop carries on when its predecessor was needed last.

    From then on the result can be written where the predecessor was.
    """
    arguments = [variable for variable in jaxpr.invars if variable in owned]
    if len(arguments) != len(jaxpr.outvars):
        return {}
    pairs = zip(jaxpr.outvars, arguments, strict=True)
    return {out: last_use.get(old, -1) for out, old in pairs if not isinstance(out, Literal)}


def _widening(eqn: Equation, platform: str) -> int:
    """How much wider a collective's elements are in memory than in the program."""
    if platform != "cpu" or eqn.primitive.name not in KINDS:
        return 1
    return WIDENED_ON_CPU.get(str(eqn.invars[0].aval.dtype), 1)


class _Names:
    """Finds the value behind a reshaped one."""

    def __init__(self, jaxpr: Jaxpr):
        self._behind: dict[Any, Any] = {}
        for eqn in jaxpr.eqns:
            if eqn.primitive.name in NAMES and not isinstance(eqn.invars[0], Literal):
                self._behind[eqn.outvars[0]] = self.of(eqn.invars[0])

    def of(self, variable: Any) -> Any:
        """Return the value that `variable` is a name of."""
        return self._behind.get(variable, variable)


def _last_uses(jaxpr: Jaxpr, names: _Names, platform: str) -> dict[Any, int]:
    """Return for each value the number of the last equation that needs it."""
    last_use: dict[Any, int] = {}
    for number, eqn in enumerate(jaxpr.eqns):
        # A slice reads a few elements and is done as soon as they exist, wherever it is written.
        if eqn.primitive.name not in ("slice", *NAMES):
            last_use.update((names.of(v), number) for v in _variables(eqn.invars))
    last_use.update((names.of(v), len(jaxpr.eqns)) for v in _variables(jaxpr.outvars))
    for variable, until in _in_flight(jaxpr, names, platform):
        last_use[variable] = max(last_use.get(variable, -1), until)
    return last_use


def _in_flight(jaxpr: Jaxpr, names: _Names, platform: str) -> Iterator[tuple[Any, int]]:
    """Yield what a collective that isn't waited for holds on to, and until which equation.

    It is free to run as long as the next compute does, and keeps operand and result meanwhile.
    """
    following = len(jaxpr.eqns)
    used = (e for e in jaxpr.eqns if e.primitive.name not in ("slice", *NAMES))
    read = {names.of(v) for e in used for v in _variables(e.invars)}
    for number in reversed(range(len(jaxpr.eqns))):
        eqn = jaxpr.eqns[number]
        if eqn.primitive.name == "compute":
            following = number
        elif eqn.primitive.name in KINDS and following < len(jaxpr.eqns):
            between = jaxpr.eqns[number + 1 : following]
            if not any(_waits(user, eqn.outvars[0], names) for user in between):
                copied = platform in REDUCING_COPIES and KINDS[eqn.primitive.name] == "all_reduce"
                until = len(jaxpr.eqns) if copied else following
                unread = [v for v in eqn.outvars if v not in read]
                for variable in (*_variables(eqn.invars), *unread):
                    yield names.of(variable), until


def _waits(eqn: Equation, value: Any, names: _Names) -> bool:
    """Whether the equation holds the token back until `value` is there."""
    if eqn.primitive.name != "tie" or eqn.invars[0].aval.size != 1:
        return False
    return names.of(eqn.invars[1]) is value


def _place_of(eqn: Equation, position: int) -> Any | None:
    """Return the operand whose memory result `position` can take."""
    name = eqn.primitive.name
    operand = None
    if name in IN_PLACE:
        operand = eqn.invars[0]
    elif name == "scan" and position < scan_counts(eqn)[1]:
        operand = eqn.invars[scan_counts(eqn)[0] + position]
    elif name == "while":
        operand = eqn.invars[eqn.params["cond_nconsts"] + eqn.params["body_nconsts"] + position]
    return None if operand is None or isinstance(operand, Literal) else operand


def _bytes(variable: Any) -> int:
    return variable.aval.size * variable.aval.dtype.itemsize


def _variables(atoms: Any) -> list[Any]:
    return [atom for atom in atoms if not isinstance(atom, Literal)]
