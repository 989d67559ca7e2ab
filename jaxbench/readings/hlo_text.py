"""HLO text, as `compiled.as_text()` prints it, read into computations and instructions.

A line-wise parser, linear in the length of the text: programs of thousands of instructions
print several MB, most of it backend configurations. Shapes and attributes are kept as text
and read only where they are asked for. Text is the one form of a compiled program that every
JAX backend and version gives; JAX ships no protobuf classes to read the other one.

    %psum.1 = f32[1024]{0:T(1024)} all-reduce(%x), replica_groups={{0,1}}, metadata={...}
     name     type                 opcode     operands  attributes
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field

from jaxbench.errors import RunError

_HEADER = re.compile(r"(ENTRY )?%?([\w.\-]+) \(.*\{$")
_ASSIGNMENT = re.compile(r"\s+(ROOT )?%?([\w.\-]+) = ")
# Types contain `T(8,128)` and `S(1)`, but never a blank, a lower-case word and a parenthesis.
_OPCODE = re.compile(r"(?:^| )([a-z][a-z0-9\-]*)\(")
_PARENTHESIS = re.compile(r"[()]")
_OPERAND = re.compile(r"%([\w.\-]+)")
_ARRAY = re.compile(r"([a-z][a-z0-9]*)\[([\d,<=]*)\]")
_BITS = re.compile(r"(?:bf|f|s|u|c)(\d+)")
_CALLEES = re.compile(
    r"\b(calls|to_apply|called_computations|body|condition|branch_computations|"
    r"true_computation|false_computation)=(?:%([\w.\-]+)|\{([^}]*)\})"
)


@dataclass(frozen=True, slots=True)
class Array:
    """The type of one array: HLO element type, number of elements, bytes they take."""

    dtype: str
    elements: int

    @property
    def bytes(self) -> int:
        """Elements times element size, rounded up to whole bytes (4-bit types are packed)."""
        return math.ceil(self.elements * element_bits(self.dtype) / 8)


@dataclass(frozen=True, slots=True)
class Instruction:
    """One line of a computation."""

    name: str
    type: str
    opcode: str
    argument: str  # what stands between the parentheses: operands, or a constant's value
    attributes: str

    @property
    def operands(self) -> list[str]:
        return _OPERAND.findall(self.argument)

    @property
    def callees(self) -> list[tuple[str, str]]:
        """(attribute, computation) of every computation this instruction names, in order."""
        found = []
        for key, one, several in _CALLEES.findall(self.attributes):
            found += [(key, name) for name in ([one] if one else _OPERAND.findall(several))]
        return found

    @property
    def arrays(self) -> list[Array]:
        """The arrays of the result, the leaves of a tuple in order."""
        return [
            Array(dtype, math.prod(int(size.lstrip("<=")) for size in sizes.split(",") if size))
            for dtype, sizes in _ARRAY.findall(self.type)
        ]


@dataclass(slots=True)
class Computation:
    """A named list of instructions; `root` is the one whose value the computation gives."""

    name: str
    instructions: dict[str, Instruction] = field(default_factory=dict)
    root: str = ""


@dataclass(slots=True)
class Module:
    """All computations of a program by name; `entry` is the one that runs."""

    entry: str = ""
    computations: dict[str, Computation] = field(default_factory=dict)


def element_bits(dtype: str) -> int:
    """Bits of one element of an HLO type: f32 32, bf16 16, f8e4m3fn 8, s4 4, c64 64, pred 8."""
    if dtype == "pred":
        return 8
    found = _BITS.match(dtype)
    if not found:
        raise RunError(f"the compiled program uses the element type '{dtype}', size unknown here")
    return int(found[1])


def parse(text: str) -> Module:
    """Return the module that `text` prints; raise RunError if there is no entry computation."""
    module = Module()
    current: Computation | None = None
    for line in text.split("\n"):
        if current is None:
            header = _HEADER.match(line)
            if header:
                current = Computation(header[2])
                module.computations[current.name] = current
                if header[1]:
                    module.entry = current.name
        elif line.startswith("}"):
            current = None
        else:
            _read_line(line, current)
    if not module.entry:
        raise RunError("the compiled program's text has no ENTRY computation; is it HLO?")
    return module


def _read_line(line: str, computation: Computation) -> None:
    """Add the instruction on `line` to the computation; lines without one are left out."""
    assignment = _ASSIGNMENT.match(line)
    if not assignment:
        return
    opcode = _OPCODE.search(line, assignment.end() - 1)
    if not opcode:
        raise RunError(f"can't read this line of the compiled program: {line.strip()[:200]}")
    end = _closing_parenthesis(line, opcode.end())
    name = assignment[2]
    computation.instructions[name] = Instruction(
        name=name,
        type=line[assignment.end() : opcode.start()].strip(),
        opcode=opcode[1],
        argument=line[opcode.end() : end],
        attributes=line[end + 1 :],
    )
    if assignment[1]:
        computation.root = name


def _closing_parenthesis(line: str, start: int) -> int:
    """Return where the parenthesis opened just before `start` closes."""
    depth = 1
    for found in _PARENTHESIS.finditer(line, start):
        depth += 1 if found[0] == "(" else -1
        if depth == 0:
            return found.start()
    return len(line)
