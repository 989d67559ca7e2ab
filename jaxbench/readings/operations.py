"""What the names in a profile stand for: an index of a compiled program's instructions.

Events of a profile carry names of HLO instructions. Which of them communicate and which are the
payload's is in the program's text: a collective is known by its opcode, a payload's operations by
the scope they were lowered under (`primitives.COMPUTE_SCOPE`). All else (ties, copies, the
bookkeeping of loops) is neither.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from jaxbench.errors import RunError
from jaxbench.payload.native import TARGET as SLEEP_TARGET
from jaxbench.primitives import COMPUTE_SCOPE
from jaxbench.readings.hlo_text import Computation, Instruction, Module, parse

_MODULE = re.compile(r"HloModule ([^\s,]+)")
_COMPUTE = re.compile(rf'op_name="[^"]*/{COMPUTE_SCOPE} [^"]*"')
_OP_NAME = re.compile(r'op_name="([^"]*)"')
_CHAIN = re.compile(r'chain_id="(\d+)"')
_SLEEP = re.compile(r"\bnanoseconds = (\d+)\b.*\boverhead_ns = (\d+)\b")

# Instructions whose events stand for the collective in the computation they call.
_WRAPPERS = ("fusion", "async-start", "custom-call")
_TPU_END = 'custom_call_target="AsyncCollectiveDone"'


@dataclass(frozen=True)
class Sleep:
    """A sleep payload's call: how long it was asked to take, and waits after its beginning."""

    asked_ns: int
    waits_ns: int


@dataclass(frozen=True)
class Operations:
    """Names of instructions by what they are.

    `begins` maps the name of an event to the collective that it is, or (if asynchronous) starts;
    `ends` maps the name of one that waits for its end. `compute` are all operations of payloads,
    `outermost` those that no other one of them calls. `sleeps` are the sleep payloads' calls.
    """

    module: str
    begins: Mapping[str, str]
    ends: Mapping[str, str]
    compute: frozenset[str]
    outermost: frozenset[str]
    sleeps: Mapping[str, Sleep]


def read_operations(hlo_text: str, collectives: Collection[str]) -> Operations:
    """Index a program's text, of which `collectives` are the instructions that communicate."""
    name = _MODULE.match(hlo_text)
    if not name:
        raise RunError("the compiled program's text doesn't start with 'HloModule'; is it HLO?")
    module = parse(hlo_text)
    compute = {i.name for i in _instructions(module) if _COMPUTE.search(i.attributes)}
    compute -= set(collectives)
    inside = _called_by(module, compute)
    begins, ends = _begins(module, collectives), {}
    for end, begin in _ends(module, begins):
        ends[end] = begins[begin]
    return Operations(
        module=name[1],
        begins=begins,
        ends=ends,
        compute=frozenset(compute - begins.keys() - ends.keys()),
        outermost=frozenset(
            i.name
            for computation in module.computations.values()
            if computation.name not in inside
            for i in computation.instructions.values()
            if i.name in compute and i.name not in begins and i.name not in ends
        ),
        sleeps={i.name: _sleep(i) for i in _instructions(module) if _is_sleep(i)},
    )


def _instructions(module: Module) -> Iterator[Instruction]:
    for computation in module.computations.values():
        yield from computation.instructions.values()


def _called(module: Module, instruction: Instruction) -> Iterator[Computation]:
    for _, name in instruction.callees:
        if name in module.computations:
            yield module.computations[name]


def _called_by(module: Module, names: Collection[str]) -> set[str]:
    """Return the computations that instructions of these names call, directly or not."""
    found: set[str] = set()
    todo = [c for i in _instructions(module) if i.name in names for c in _called(module, i)]
    while todo:
        computation = todo.pop()
        if computation.name not in found:
            found.add(computation.name)
            for instruction in computation.instructions.values():
                todo.extend(_called(module, instruction))
    return found


def _begins(module: Module, collectives: Collection[str]) -> dict[str, str]:
    begins, wanted = {name: name for name in collectives}, set(collectives)
    for instruction in _instructions(module):
        if instruction.opcode in _WRAPPERS:
            for computation in _called(module, instruction):
                for name in computation.instructions.keys() & wanted:
                    begins[instruction.name] = name
    return begins


def _ends(module: Module, begins: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield (end, begin) of every asynchronous collective.

    An end names its begin as its operand. TPUs print an overlapped collective once more in the
    fusion that ends it, with the same scope and chain.
    """
    started = {_identity(i): i.name for i in _instructions(module) if i.name in begins}
    for computation in module.computations.values():
        for instruction in computation.instructions.values():
            if instruction.opcode.endswith("-done"):
                begin = _operand(computation, instruction)
                while begin and begin.opcode.endswith("-update"):
                    begin = _operand(computation, begin)
                if begin and begin.name in begins:
                    yield instruction.name, begin.name
            elif instruction.opcode == "fusion":
                for called in _called(module, instruction):
                    inner = called.instructions.values()
                    if any(_TPU_END in i.attributes for i in inner):
                        for begin in {_identity(i) for i in inner} & started.keys():
                            yield instruction.name, started[begin]


def _operand(computation: Computation, instruction: Instruction) -> Instruction | None:
    """Return what makes the first operand of an instruction."""
    return computation.instructions.get(next(iter(instruction.operands), ""))


def _identity(instruction: Instruction) -> tuple[str, str, str]:
    scope, chain = _OP_NAME.search(instruction.attributes), _CHAIN.search(instruction.attributes)
    return instruction.opcode, scope[1] if scope else "", chain[1] if chain else ""


def _is_sleep(instruction: Instruction) -> bool:
    return f'custom_call_target="{SLEEP_TARGET}"' in instruction.attributes


def _sleep(instruction: Instruction) -> Sleep:
    found = _SLEEP.search(instruction.attributes)
    if not found:
        raise RunError(f"can't read how long '{instruction.name}' sleeps: {instruction.attributes}")
    asked, overhead = int(found[1]), int(found[2])
    return Sleep(asked, max(0, asked - overhead))
