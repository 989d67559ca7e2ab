"""The collectives of a compiled program, read from its HLO text.

What a compiler makes of a program is not what was written: this is what really runs, to be
compared with the plan. Every collective is listed once per place that runs it, with the loops and
conditionals around it. Forms found by compiling for each backend (jax 0.10.2 and 0.11.0):

* CPU: plain opcodes; all-to-all with one operand per peer.
* GPU: `all-gather-start` and the like; combined all-reduces have one concatenated operand.
* TPU: plain opcodes, `collective-permute-start`, and two fusions. An overlapped collective stands
  in three (its start, the computation it overlaps, its end), and counts where it starts. A
  reduce-scatter that doesn't fit the tiles is a fusion `all-reduce-scatter` of a padded operand
  (then `elements` is the padded number), with a permute that repairs the edges.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from jaxbench.errors import RunError
from jaxbench.readings.hlo_groups import Groups, replica_groups, source_target_pairs
from jaxbench.readings.hlo_loops import Scope, trip_count
from jaxbench.readings.hlo_text import Array, Computation, Instruction, Module, parse

KINDS = {
    "all-reduce": "all_reduce",
    "all-gather": "all_gather",
    "reduce-scatter": "reduce_scatter",
    "all-to-all": "all_to_all",
    "collective-permute": "permute",
}

# Not one of these five, but communication all the same; so is every opcode with groups or pairs.
_OTHERS = ("send", "recv", "all-", "collective-", "ragged-")
_ENDS = ("-done", "-update")
_BRANCHES = ("branch_computations", "true_computation", "false_computation")
_OP_NAME = re.compile(r'\bop_name="((?:[^"\\]|\\.)*)"')
_CHANNEL = re.compile(r"\bchannel_id=(\d+)")
_OVERLAPPED = "async_collective_fusion_config"  # in the backend_config of all three, TPU only
_OVERLAP_START = 'custom_call_target="AsyncCollectiveStart"'
_REDUCE_SCATTER_FUSION = "all-reduce-scatter"


@dataclass(frozen=True)
class HloCollective:
    """One collective of a compiled program, at one place that runs it.

    `elements` on one rank: all_reduce its input, all_gather its result, reduce_scatter its input,
    all_to_all the buffer of a rank, permute the message. An opcode that is none of the five keeps
    its HLO name as `kind`, and `elements` is its input.
    """

    kind: str
    elements: int
    dtype: str  # HLO element type, as it travels
    bytes: int  # of `elements`
    groups: Groups  # positions in the mesh, order kept; () for a permute
    pairs: tuple[tuple[int, int], ...]  # (source, destination); () unless a permute
    trips: int | None  # executions by the loops around it, branches taken; None: not known
    conditional: int  # how many conditionals are around it
    combined: int  # operands merged into this collective: 1 unless XLA combined several
    name: str
    op_name: str  # path of named scopes; '' for what the compiler added


def collectives(hlo_text: str, num_devices: int) -> list[HloCollective]:
    """Return the collectives of the program `hlo_text`, in the order its computations run them.

    `num_devices` is the size of the mesh. A collective that XLA combined from several operands
    gives one entry per operand, all with that `combined`. Raises RunError for text that isn't HLO
    and for collectives in a computation that is called in an unknown way.
    """
    reader = _Reader(parse(hlo_text), num_devices)
    found = list(reader.walk(Scope(reader.module, reader.module.entry), 1, 0))
    missed = reader.own.keys() - reader.visited
    if missed:
        raise RunError(
            "the compiled program has collectives in computations that are called in a way "
            f"this version of jaxbench doesn't know: {', '.join(sorted(missed))}"
        )
    return found


class _Reader:
    """Walks a module from its entry along all calls that lead to a collective."""

    def __init__(self, module: Module, num_devices: int):
        self.module = module
        self.num_devices = num_devices
        self.visited: set[str] = set()
        self.started = {key for c in module.computations.values() for key in _started(c)}
        self.own = {
            name: listed
            for name, computation in module.computations.items()
            if (listed := self._collectives_of(computation))
        }
        self._leads: dict[str, bool] = {}

    def walk(self, scope: Scope, trips: int | None, conditional: int) -> Iterator[HloCollective]:
        """Yield what `scope` runs, itself run `trips` times inside `conditional` conditionals."""
        computation = scope.computation
        self.visited.add(computation.name)
        own = self.own.get(computation.name, {})
        for instruction in computation.instructions.values():
            if instruction.name in own:
                yield from self._read(instruction, computation, trips, conditional)
            elif instruction.opcode.endswith(_ENDS):
                continue  # the end of an async call names the computation again
            elif any(self._leads_to_collective(name) for _, name in instruction.callees):
                yield from self._follow(instruction, scope, trips, conditional)

    def _follow(
        self, instruction: Instruction, scope: Scope, trips: int | None, conditional: int
    ) -> Iterator[HloCollective]:
        """Yield the collectives of the computations that `instruction` calls."""
        operands = instruction.operands
        if instruction.opcode == "while":
            count = trip_count(instruction, scope)
            body, condition = scope.body_of(instruction), dict(instruction.callees)["condition"]
            # The condition is evaluated once more than the body.
            checks = _times(trips, None if count is None else count + 1)
            yield from self.walk(
                Scope(scope.module, condition, body.arguments), checks, conditional
            )
            yield from self.walk(body, _times(trips, count), conditional)
            return
        for position, (attribute, name) in enumerate(instruction.callees):
            if not self._leads_to_collective(name):
                continue
            branch = attribute in _BRANCHES
            arguments = [operands[position + 1]] if branch else operands
            yield from self.walk(scope.called(name, arguments), trips, conditional + branch)

    def _read(
        self,
        instruction: Instruction,
        computation: Computation,
        trips: int | None,
        conditional: int,
    ) -> Iterator[HloCollective]:
        """Yield the entries of one collective instruction."""
        opcode = instruction.opcode.removesuffix("-start")
        kind = KINDS.get(opcode, opcode)
        if computation.name.startswith(_REDUCE_SCATTER_FUSION) and kind == "all_reduce":
            kind = "reduce_scatter"
        attributes = instruction.attributes
        pairs = source_target_pairs(attributes, self.num_devices)
        groups = replica_groups(attributes, self.num_devices)
        inputs = [
            array for name in instruction.operands for array in _operand(computation, name).arrays
        ]
        if kind == "all_to_all":
            inputs = [Array(inputs[0].dtype, sum(array.elements for array in inputs))]
        if kind == "all_gather":
            inputs = [Array(array.dtype, array.elements * len(groups[0])) for array in inputs]
        op_name = _OP_NAME.search(attributes)
        for array in inputs:
            yield HloCollective(
                kind=kind,
                elements=array.elements,
                dtype=array.dtype,
                bytes=array.bytes,
                groups=() if kind == "permute" else groups,
                pairs=pairs,
                trips=trips,
                conditional=conditional,
                combined=len(inputs),
                name=instruction.name,
                op_name=op_name[1] if op_name else "",
            )

    def _collectives_of(self, computation: Computation) -> dict[str, Instruction]:
        """Return the collectives that `computation` itself starts, by name."""
        starts = set(_started(computation))
        return {
            name: instruction
            for name, instruction in computation.instructions.items()
            if _is_collective(instruction)
            and (
                _OVERLAPPED not in instruction.attributes
                or _channel(instruction) in starts
                or _channel(instruction) not in self.started
            )
        }

    def _leads_to_collective(self, name: str) -> bool:
        """Whether `name` or a computation it calls has a collective."""
        if name not in self._leads:
            computation = self.module.computations.get(name, Computation(name))
            self._leads[name] = name in self.own or any(
                self._leads_to_collective(callee)
                for instruction in computation.instructions.values()
                for _, callee in instruction.callees
            )
        return self._leads[name]


def _is_collective(instruction: Instruction) -> bool:
    opcode, attributes = instruction.opcode, instruction.attributes
    if opcode.endswith(_ENDS) or "is_host_transfer=true" in attributes:
        return False
    return (
        opcode.startswith(_OTHERS)
        or opcode.removesuffix("-start") in KINDS
        or "replica_groups=" in attributes
        or "source_target_pairs=" in attributes
    )


def _started(computation: Computation) -> Iterator[tuple[str, str]]:
    """Yield opcode and channel of what a TPU fusion starts in order to overlap it."""
    listed = computation.instructions.values()
    if any(_OVERLAP_START in instruction.attributes for instruction in listed):
        yield from (_channel(instruction) for instruction in listed if _is_collective(instruction))


def _channel(instruction: Instruction) -> tuple[str, str]:
    found = _CHANNEL.search(instruction.attributes)
    return instruction.opcode, found[1] if found else ""


def _operand(computation: Computation, name: str) -> Instruction:
    if name not in computation.instructions:
        raise RunError(f"the compiled program has no '{name}' in computation '{computation.name}'")
    return computation.instructions[name]


def _times(left: int | None, right: int | None) -> int | None:
    return None if left is None or right is None else left * right
