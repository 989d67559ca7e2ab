"""How often a compiled `while` runs, worked out from its start value, condition and body.

XLA writes `known_trip_count` beside a loop only where one of its passes found it: the TPU
compiler never prints it, the CPU compiler loses it when `cse` is disabled. The loops JAX makes
from static bounds are simple enough to count here: an integer carried from a constant start,
changed by a constant each time, compared with a constant.

A `Scope` is a computation seen from one place that calls it. It gives the values of scalar
integers that are constant there, and of what a loop carries in terms of the iteration's start.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from jaxbench.readings.hlo_text import Instruction, Module

_KNOWN = re.compile(r'"known_trip_count":\{"n":"(\d+)"')
_INDEX = re.compile(r"\bindex=(\d+)")
_DIRECTION = re.compile(r"\bdirection=(\w+)")
_INTEGER_OR_TUPLE = re.compile(r"\(|[su]\d+\[\]")
_COPIES = ("copy", "copy-start", "copy-done", "bitcast", "convert", "reshape", "opt-barrier")
_MIRRORED = {"LT": "GT", "LE": "GE", "GT": "LT", "GE": "LE", "NE": "NE"}
# Deeper chains of scalar integers than any loop bound needs (and shorter than Python's stack).
_DEEPEST = 100


@dataclass(frozen=True)
class Carried:
    """What a loop carries at `index`, as an iteration starts, plus `offset`."""

    index: int
    offset: int = 0


@dataclass(frozen=True)
class Tuple:
    """A tuple whose elements are worked out when asked for."""

    element: Callable[[int], Value]


Value = int | Carried | Tuple | None  # None: not known


class Scope:
    """The values inside `computation`, called with `arguments` (in order of its parameters)."""

    def __init__(self, module: Module, computation: str, arguments: Sequence[Value] = ()):
        self.module = module
        self.computation = module.computations[computation]
        self.arguments = arguments
        self._known: dict[str, Value] = {}
        self._depth = 0

    def value(self, name: str) -> Value:
        """Return the value of an instruction: None unless it is a constant or carried integer."""
        if name not in self._known:
            if self._depth >= _DEEPEST or name not in self.computation.instructions:
                return None
            self._depth += 1
            self._known[name] = self._evaluate(self.computation.instructions[name])
            self._depth -= 1
        return self._known[name]

    @property
    def root(self) -> Instruction:
        return self.computation.instructions[self.computation.root]

    def called(self, computation: str, operands: Sequence[str]) -> Scope:
        """Return the scope of a computation that this one calls with its own `operands`."""
        scope = Scope(self.module, computation, [self.value(name) for name in operands])
        scope._depth = self._depth
        return scope

    def body_of(self, loop: Instruction) -> Scope:
        """Return the scope of a loop's body: what no iteration changes keeps its start value."""
        return Scope(self.module, dict(loop.callees)["body"], [self._invariants(loop)])

    def _evaluate(self, instruction: Instruction) -> Value:
        if not _INTEGER_OR_TUPLE.match(instruction.type):
            return None
        opcode, operands = instruction.opcode, instruction.operands
        if opcode == "constant":
            return _integer(instruction.argument)
        if opcode == "parameter":
            number = int(instruction.argument)
            return self.arguments[number] if number < len(self.arguments) else None
        if opcode in _COPIES:
            return self.value(operands[0])
        if opcode in ("add", "subtract"):
            sign = 1 if opcode == "add" else -1
            return _sum(self.value(operands[0]), self.value(operands[1]), sign)
        if opcode == "tuple":
            return Tuple(lambda index: self.value(operands[index]))
        if opcode == "get-tuple-element":
            whole, index = self.value(operands[0]), _INDEX.search(instruction.attributes)
            return whole.element(int(index[1])) if isinstance(whole, Tuple) and index else None
        if opcode in ("fusion", "call"):
            inner = self.called(instruction.callees[0][1], operands)
            return inner.value(inner.computation.root)
        if opcode == "while":
            return self._invariants(instruction)
        return None

    def _invariants(self, loop: Instruction) -> Tuple:
        """Return what `loop` carries: start values where no iteration changes them."""
        start = self.value(loop.operands[0])
        step = _one_iteration(self.module, dict(loop.callees)["body"])

        def element(index: int) -> Value:
            unchanged = isinstance(start, Tuple) and step(index) == Carried(index)
            return start.element(index) if unchanged and isinstance(start, Tuple) else None

        return Tuple(element)


def trip_count(loop: Instruction, scope: Scope) -> int | None:
    """Return how often the body of `loop`, an instruction of `scope`, runs; None if not known."""
    known = _KNOWN.search(loop.attributes)
    if known:
        return int(known[1])
    start = scope.value(loop.operands[0])
    if not isinstance(start, Tuple):
        return None
    callees = dict(loop.callees)
    step = _one_iteration(scope.module, callees["body"])
    compared = _comparison(Scope(scope.module, callees["condition"], [Tuple(Carried)]))
    if compared is None:
        return None
    left, right, direction = compared
    left, right = (_unchanged(side, start, step) for side in (left, right))
    if isinstance(left, int):
        left, right, direction = right, left, _MIRRORED.get(direction, "")
    if not isinstance(left, Carried) or not isinstance(right, int):
        return None
    first = _sum(start.element(left.index), left.offset, 1)
    after = step(left.index)
    if not isinstance(first, int) or not isinstance(after, Carried) or after.index != left.index:
        return None
    return _count(first, right, after.offset, direction)


def _unchanged(side: Value, start: Tuple, step: Callable[[int], Value]) -> Value:
    """Return the start value of what is compared, if it is carried and no iteration changes it."""
    if isinstance(side, Carried) and step(side.index) == Carried(side.index):
        return _sum(start.element(side.index), side.offset, 1)
    return side


def _one_iteration(module: Module, body: str) -> Callable[[int], Value]:
    """Return a function: the value that an iteration gives element i, in terms of its start."""
    scope = Scope(module, body, [Tuple(Carried)])
    result = scope.value(scope.computation.root)
    return result.element if isinstance(result, Tuple) else lambda index: None


def _comparison(scope: Scope) -> tuple[Value, Value, str] | None:
    """Return left, right and direction of the comparison that a loop's condition ends with."""
    root = scope.root
    while root.opcode in ("fusion", "call"):
        scope = scope.called(root.callees[0][1], root.operands)
        root = scope.root
    direction = _DIRECTION.search(root.attributes)
    if root.opcode != "compare" or direction is None:
        return None
    left, right = root.operands
    return scope.value(left), scope.value(right), direction[1]


def _count(first: int, limit: int, step: int, direction: str) -> int | None:
    """Count iterations of `for (i = first; i <direction> limit; i += step)`; None if endless."""
    if direction in ("LE", "GE"):
        limit += 1 if direction == "LE" else -1
    if direction in ("GT", "GE"):
        first, limit, step = -first, -limit, -step
    if direction == "NE":
        exact = step != 0 and (limit - first) % step == 0
        return (limit - first) // step if exact and (limit - first) // step >= 0 else None
    if direction not in ("LT", "LE", "GT", "GE"):
        return None
    if first >= limit:
        return 0
    return -((first - limit) // step) if step > 0 else None


def _sum(left: Value, right: Value, sign: int) -> Value:
    """Return left + sign * right where that is an integer or a carried value plus an integer."""
    if isinstance(left, int) and isinstance(right, int):
        return left + sign * right
    if isinstance(left, Carried) and isinstance(right, int):
        return Carried(left.index, left.offset + sign * right)
    if isinstance(left, int) and isinstance(right, Carried) and sign == 1:
        return Carried(right.index, right.offset + left)
    return None


def _integer(text: str) -> int | None:
    return int(text) if re.fullmatch(r"-?\d+", text.strip()) else None
