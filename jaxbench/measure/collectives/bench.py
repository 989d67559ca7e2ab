"""Timing collectives one by one: checked like every program, sampled in random order.

    cell = make_cell("all_reduce", "data", 4, "float32", 1 << 20)
    (measured,) = measure_cells([cell], mesh, steps=20)
    measured.collective.value                           # seconds

Each cell is compiled twice: once as a single execution and once as a chain of n. A visit to a cell
runs both, one right after the other in random order. Their samples give two numbers:

    step = median t(single)                  one execution, dispatched alone: percentiles are of it
    collective = (median t(chain) - median t(single)) / (n - 1)         dispatch has cancelled out

Pauses between them (manner.Manner) are in the samples and in neither number.

Every round visits all cells in a new random order, so that what changes on the machine meanwhile
meets all cells alike. Cells with buffers of the same size and type share them.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from jaxbench.dtypes import find_dtype
from jaxbench.errors import RunError
from jaxbench.measure.agree import agree, everywhere
from jaxbench.measure.calibrate import calibrate
from jaxbench.measure.collectives.cells import Cell, make_cell
from jaxbench.measure.collectives.manner import IN_A_ROW, Manner
from jaxbench.measure.collectives.program import (
    Mask,
    build_program,
    by_branch,
    by_select,
)
from jaxbench.measure.gather import gather, total
from jaxbench.measure.machine import choose_payload
from jaxbench.measure.processes import here
from jaxbench.measure.statistics import CONFIDENCE, Median, max_over_ranks, median
from jaxbench.measure.timing import time_step
from jaxbench.payload.interface import Payload
from jaxbench.payload.none import NoPayload
from jaxbench.program import Program, Traced, trace
from jaxbench.readings.build import Executable, compile_step, make_buffers
from jaxbench.readings.compiled import compare
from jaxbench.readings.compiler_options import compiler_options
from jaxbench.readings.hlo import collectives
from jaxbench.readings.memory import program_memory
from jaxbench.readings.ranks import Ranks
from jaxbench.readings.reference import reference, split_seen
from jaxbench.readings.sites import Site, find_sites
from jaxbench.readings.values import LIMIT_BYTES, check_seen, compare_values, local_parts

CHAIN_S = 0.05  # what as many single executions as a chain has would take,
CHAIN = (4, 256)  # within these numbers of them

FORMS = ("full", "chained")  # the names of the samples in a record: single and chained execution


@dataclass
class Measured:
    """A cell and what is known of it so far.

    `samples_s` holds, by form, [rounds][processes] seconds, of this process only until all rounds
    are done. `failure` says why there are no samples, `wrong` how many of the looked-at elements
    were wrong.
    """

    cell: Cell
    manner: Manner = IN_A_ROW
    payload: str = "none"
    executions: int | None = None
    samples_s: dict[str, list[list[float]]] = field(default_factory=lambda: {f: [] for f in FORMS})
    checks: dict[str, Any] = field(
        default_factory=lambda: {"plan_equals_compiled": None, "values_ok": None}
    )
    timing: dict[str, float | None] = field(
        default_factory=lambda: dict.fromkeys(("trace_s", "lower_s", "compile_s", "first_call_s"))
    )
    sites: Sequence[Site] = ()
    wire_dtypes: tuple[str, ...] = ()
    wrong: int | None = None
    failure: str | None = None
    complete: bool = False

    @property
    def step(self) -> Median:
        """Seconds of one execution dispatched alone, on the slowest process."""
        return median(self.steps_s)

    @property
    def steps_s(self) -> list[float]:
        """The samples behind `step`."""
        return self._slowest("full")

    @property
    def collective(self) -> Median:
        """Seconds of one execution among many in a row; None if it isn't told from noise.

        The interval has the lowest difference of the two medians' own intervals and the highest;
        with 97.5 % of each, it holds at 95 % at least (Bonferroni).
        """
        each = 1 - (1 - CONFIDENCE) / len(FORMS)
        single, chain = (median(self._slowest(form), each) for form in FORMS)
        if not self.executions or single.value is None or chain.value is None:
            return Median(None, None, None, None, chain.n)
        more = self.executions - 1
        value = (chain.value - single.value) / more
        if value <= 0:
            return Median(None, None, None, None, chain.n)
        if single.ci_low is None or single.ci_high is None:
            return Median(value, None, None, None, chain.n)
        assert chain.ci_low is not None and chain.ci_high is not None  # as many samples
        low, high = chain.ci_low - single.ci_high, chain.ci_high - single.ci_low
        return Median(value, max(0.0, low / more), high / more, CONFIDENCE, chain.n)

    def _slowest(self, form: str) -> list[float]:
        pauses = 1 if form == FORMS[0] else self.executions or 0
        paused_s = pauses * self.manner.pause_s
        return [s - paused_s for s in max_over_ranks(self.samples_s[form]) if s is not None]


class Bench:
    """Cells on one mesh: `prepare` each, then `visit` it as often as samples are wanted."""

    def __init__(self, mesh: Mesh, *, warmup: int = 2, seed: int = 0, manner: Manner = IN_A_ROW):
        """`warmup` executions of every program, at least 2, come before anything is timed."""
        self.mesh = mesh
        self.manner = manner
        self.warmup = warmup
        self.platform = mesh.devices.flat[0].platform
        self.order = random.Random(agree(seed))
        self._ranks = Ranks(tuple(mesh.shape.items()))
        self._options = compiler_options(self.platform)
        self.payload, self._work = self._choose_payload()
        self._states: dict[tuple[int, str], Sequence[jax.Array]] = {}
        self._values: dict[tuple[Any, ...], dict[str, Any]] = {}
        self._compiled: dict[Cell, tuple[Executable, Executable]] = {}

    def _choose_payload(self) -> tuple[str, Callable[[float, str], Payload]]:
        """Return the name of what ranks do in a pause, and the payload of a compute."""
        if not self.manner.pause_s:
            return "none", lambda seconds, label: NoPayload()
        name = choose_payload("auto", self.mesh.size, self.platform)
        calibration = calibrate(self.mesh, name, dtype="float32")
        return name, lambda seconds, label: calibration.payload(seconds)

    def prepare(self, cell: Cell) -> Measured:
        """Compile and check a cell and warm it up; what was wrong is its `failure`."""
        measured = Measured(cell, self.manner, self.payload)
        here().stage("compile")
        try:
            self._prepare(measured)
        except RunError as error:
            measured.failure = str(error)
        except Exception as error:  # of JAX or the system: it costs this cell only
            measured.failure = f"{type(error).__name__}: {error}"
            self._states.pop(_buffer_key(cell), None)  # whatever it was doing may have donated it
        measured.failure = here().settle(measured.failure)
        return measured

    def executable(self, cell: Cell) -> Executable:
        """Return the program of a prepared cell's single execution."""
        return self._compiled[cell][0]

    def visit(self, measured: Measured) -> None:
        """Take one sample of each form of a cell that was prepared without failure."""
        programs = dict(zip(FORMS, self._compiled[measured.cell], strict=True))
        key = _buffer_key(measured.cell)
        # The other cells' buffers were touched last: one execution brings this one's back.
        _, _, state, _ = time_step(programs["full"].compiled, self._state(measured.cell))
        taken: dict[str, float] = {}
        here().stage("step", len(measured.samples_s[FORMS[0]]))
        for form in self.order.sample(FORMS, len(FORMS)):
            here().align()
            taken[form], _, state, _ = time_step(programs[form].compiled, state)
        self._states[key] = state
        for form in FORMS:
            measured.samples_s[form].append([taken[form]])

    def _state(self, cell: Cell) -> Sequence[jax.Array]:
        """Return token and buffer, made if no cell of this size has been there."""
        key = _buffer_key(cell)
        if key not in self._states:
            self._states[key] = make_buffers(self._program(cell), self.mesh)
        return self._states[key]

    def _program(self, cell: Cell, executions: int = 1, mask: Mask = by_select) -> Program:
        return build_program(cell, executions, mask, self.manner)

    def _prepare(self, measured: Measured) -> None:
        cell = measured.cell
        self._check_every_value(measured)
        single, first_s, warm_s = self._compile(measured, 1)
        measured.executions = chain_length(agree(min(warm_s)), self.manner.messages)
        chained, _, _ = self._compile(measured, measured.executions)
        measured.timing.update(
            lower_s=single.lower_s + chained.lower_s,
            compile_s=single.compile_s + chained.compile_s,
            first_call_s=first_s,
        )
        self._compiled[cell] = single, chained

    def _check_every_value(self, measured: Measured) -> None:
        """Compare every element on every rank, once for all sizes of a kind, axis and dtype."""
        cell = measured.cell
        if cell.series not in self._values:
            padding = "tpu" if self.platform == "tpu" else "exact"
            small = make_cell(*cell.series, LIMIT_BYTES // self.mesh.size, padding)
            traced = trace(build_program(small), self.mesh, probed=None)
            executable = self._compile_traced(traced)
            outputs = executable.compiled(*make_buffers(traced.program, self.mesh))
            found = compare_values(traced, self.mesh, outputs)
            self._values[cell.series] = {**found.to_json(), "ok": everywhere(found.ok)}
        check = self._values[cell.series]
        measured.checks.update(values_ok=check["ok"], values=check)
        if not check["ok"]:
            raise RunError("; ".join(check["faults"]) or "wrong values, on another process only")

    def _compile(
        self, measured: Measured, executions: int
    ) -> tuple[Executable, float, list[float]]:
        """Return the checked program, seconds of its first call, and those of later ones."""
        cell, checks = measured.cell, measured.checks
        start = time.perf_counter()
        traced = trace(self._program(cell, executions), self.mesh)
        trace_s = time.perf_counter() - start
        measured.timing["trace_s"] = (measured.timing["trace_s"] or 0.0) + trace_s
        executable = self._compile_traced(traced)
        sites = find_sites(traced.closed, self._ranks)
        comparison = compare(sites, collectives(executable.text, self.mesh.size))
        equal = everywhere(comparison.equal)
        form = FORMS[executions > 1]
        checks.update(plan_equals_compiled=comparison.equal)
        checks.setdefault("compiled", {})[form] = comparison.to_json()
        if not equal:
            other = "another process has compiled other collectives"
            what = other if comparison.equal else f"{comparison}"
            raise RunError(f"{what}{self._remedy(cell)}")
        if executions == 1:
            measured.sites = sites
            types = [t for kind in comparison.wire_dtypes.values() for t in kind]
            measured.wire_dtypes = tuple(sorted(set(types)))

        key = _buffer_key(cell)
        if key not in self._states:
            self._states[key] = make_buffers(traced.program, self.mesh)
        taken = []
        for number in range(self.warmup):
            seconds, _, self._states[key], seen = time_step(executable.compiled, self._states[key])
            taken.append(seconds)
            if number == 0:
                self._look(measured, form, executions, traced, seen)
        return executable, taken[0], taken[1:]

    def _look(
        self, measured: Measured, form: str, executions: int, traced: Traced, seen: jax.Array
    ) -> None:
        """Compare what the measured program itself returned with the reference."""
        readable = traced
        if measured.cell.kind == "broadcast":
            readable = trace(self._program(measured.cell, executions, by_branch), self.mesh)
        found = check_seen(readable, self.mesh, seen)
        ok = everywhere(found.ok)
        wrong = 0 if ok else total(count_wrong(readable, self.mesh, seen))
        measured.wrong = (measured.wrong or 0) + wrong
        measured.checks.update(values_ok=ok)
        measured.checks.setdefault("measured_values", {})[form] = found.to_json()
        if not ok:
            raise RunError("; ".join(found.faults) or "wrong values, on another process only")

    def _compile_traced(self, traced: Traced) -> Executable:
        return compile_step(traced, self.mesh, self._work, self._options)

    def _remedy(self, cell: Cell) -> str:
        if self.platform == "tpu" and cell.kind in ("all_gather", "reduce_scatter"):
            return "; TPUs keep it only of parts that fill their tiles: --padding=tpu"
        return ""


def measure_cells(
    cells: Sequence[Cell],
    mesh: Mesh,
    *,
    steps: int,
    warmup: int = 2,
    seed: int = 0,
    manner: Manner = IN_A_ROW,
    measured: list[Measured] | None = None,
    say: Callable[[str], None] = lambda line: None,
) -> list[Measured]:
    """Prepare all cells, then take `steps` samples of each in random interleaved order.

    `measured` is filled as it goes, for a caller who wants to keep what there is at an
    interruption; `say` hears what is being done. A cell whose check fails has a `failure`; the
    others go on.
    """
    bench = Bench(mesh, warmup=warmup, seed=seed, manner=manner)
    done = [] if measured is None else measured
    for cell in cells:
        if not done or done[-1].cell.series != cell.series:
            say(f"checking {cell.kind} of {cell.dtype} over {cell.axis}={cell.group_size} ...")
        done.append(bench.prepare(cell))
        if done[-1].failure:
            say(f"failed: {cell.describe()}: {done[-1].failure}")
    ready = [m for m in done if m.failure is None]
    say(f"timing {len(ready)} cells, {steps} times each ...")
    for _ in range(steps):
        for each in bench.order.sample(ready, len(ready)):
            bench.visit(each)
    here().stage("gather")
    for each in ready:
        for form in FORMS:
            local = [row[0] for row in each.samples_s[form]]
            each.samples_s[form] = [list(row) for row in zip(*gather(local), strict=True)]
        each.complete = True
    return done


def chain_length(single_s: float, messages: int = 1) -> int:
    """Return how many executions a chain has, given that a single one took `single_s`.

    Most of what a small one takes is its dispatch, which a chain needs once. It is a multiple of
    the `messages` that take turns.
    """
    shortest, longest = CHAIN
    wanted = min(max(round(CHAIN_S / max(single_s, 1e-9)), shortest), longest)
    return messages * -(-wanted // messages)


def needed_bytes(cells: Sequence[Cell], mesh: Mesh, messages: int = 1) -> int:
    """Return what a device must hold for all cells: their buffers, and the largest temporaries."""
    platform = mesh.devices.flat[0].platform
    buffers = {_buffer_key(cell) for cell in cells}
    kept = messages * sum(elements * find_dtype(dtype) for elements, dtype in buffers)
    largest: dict[tuple[Any, ...], Cell] = {}
    for cell in cells:
        if cell.series not in largest or largest[cell.series].elements < cell.elements:
            largest[cell.series] = cell
    temporary = 0
    for cell in largest.values():
        memory = program_memory(trace(build_program(cell), mesh), platform)
        temporary = max(temporary, memory.temporary_bytes)
    return kept + temporary


def count_wrong(traced: Traced, mesh: Mesh, seen: jax.Array) -> int:
    """Return how many of the looked-at elements of this process differ from the reference."""
    _, expected = reference(traced, Ranks(tuple(mesh.shape.items())))
    return sum(
        int((got[0] != expected[label][rank]).sum())
        for rank, vector in local_parts(seen, mesh)
        for label, got in split_seen(np.asarray(vector)[None], traced.layout).items()
    )


def _buffer_key(cell: Cell) -> tuple[int, str]:
    return cell.operand_elements, cell.dtype
