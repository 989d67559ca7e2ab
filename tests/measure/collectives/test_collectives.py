"""Collectives one by one: sizes and factors by known answers, programs checked, samples kept."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, Mesh

from jaxbench.errors import InputError
from jaxbench.fills import fill_value
from jaxbench.measure import machine
from jaxbench.measure.collectives import bench as microbenchmark
from jaxbench.measure.collectives import job
from jaxbench.measure.collectives.bench import (
    CHAIN,
    FORMS,
    Bench,
    Measured,
    chain_length,
    measure_cells,
    needed_bytes,
)
from jaxbench.measure.collectives.cells import Cell, make_cell, make_cells
from jaxbench.measure.collectives.job import Outcome, make_mesh, run_collectives
from jaxbench.measure.collectives.kinds import KINDS, bus_factor
from jaxbench.measure.collectives.program import VERBS, build_program, by_branch
from jaxbench.measure.collectives.request import Request, read_request
from jaxbench.measure.collectives.sizes import parse_bytes, steps
from jaxbench.measure.gather import gather, total
from jaxbench.measure.record import read_records
from jaxbench.program import trace
from jaxbench.rank import Rank
from jaxbench.readings.ranks import Ranks
from jaxbench.readings.reference import reference


def mesh_of(**sizes: int) -> Mesh:
    """Return a mesh of virtual devices."""
    count = int(np.prod(list(sizes.values())))
    auto = (AxisType.Auto,) * len(sizes)
    devices = jax.devices()[:count]
    return jax.make_mesh(tuple(sizes.values()), tuple(sizes), axis_types=auto, devices=devices)


@pytest.fixture
def short_chains(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep what needs no precision quick."""
    monkeypatch.setattr(microbenchmark, "CHAIN", (3, 3))


# --- sizes ------------------------------------------------------------------------------------


def test_sizes_as_people_write_them() -> None:
    read = {"8": 8, "64K": 1 << 16, "128M": 1 << 27, "2g": 2 << 30, "16MiB": 1 << 24}
    read |= {"1T": 1 << 40, "16MB": 16_000_000, "1kB": 1000, " 8 B ": 8}
    assert {text: parse_bytes(text) for text in read} == read
    for wrong in ("", "0", "-8", "8x", "1.5M", "1e6", "9" * 18 + "G", "M"):
        with pytest.raises(ValueError, match="bytes|byte"):
            parse_bytes(wrong)


def test_sizes_step_up_to_the_largest() -> None:
    assert list(steps(8, 64, 2)) == [8, 16, 32, 64]
    assert list(steps(8, 100, 8)) == [8, 64]
    assert list(steps(8, 8, 2)) == [8]


@pytest.mark.parametrize(
    ("kind", "n", "dtype", "asked", "nbytes", "count", "operand"),
    [  # size and count as nccl-tests counts them; what a rank starts with
        ("all_reduce", 3, "float32", 8, 8, 2, 2),
        ("all_reduce", 3, "float32", 9, 12, 3, 3),
        ("all_gather", 4, "float32", 1024, 1024, 64, 64),
        ("all_gather", 4, "float32", 8, 16, 1, 1),
        ("all_gather", 3, "bfloat16", 8, 12, 2, 2),
        ("reduce_scatter", 4, "float32", 1024, 1024, 64, 256),
        ("reduce_scatter", 3, "float32", 1024, 1032, 86, 258),
        ("all_to_all", 4, "float32", 1024, 1024, 64, 256),
        ("permute", 5, "float8_e5m2", 7, 7, 7, 7),
        ("broadcast", 3, "float32", 8, 8, 2, 2),
        ("reduce", 3, "float16", 7, 8, 4, 4),
    ],
)
def test_sizes_are_whole_elements_and_equal_parts(
    kind: str, n: int, dtype: str, asked: int, nbytes: int, count: int, operand: int
) -> None:
    cell = make_cell(kind, "data", n, dtype, asked)
    assert (cell.bytes, cell.count, cell.operand_elements) == (nbytes, count, operand)


def test_tpu_padding_fills_tiles() -> None:
    for kind in ("all_gather", "reduce_scatter"):
        assert make_cell(kind, "data", 4, "float32", 8, "tpu").count == 16 * 128
    assert make_cell("all_reduce", "data", 4, "float32", 8, "tpu").elements == 2


def test_sizes_that_round_to_the_same_are_measured_once() -> None:
    cells = make_cells(["all_gather", "permute"], {"data": 4}, ["float32"], [4, 8, 16, 32])
    assert [(c.kind, c.bytes, c.asked_bytes) for c in cells] == [
        ("all_gather", 16, (4, 8, 16)),
        ("all_gather", 32, (32,)),
        ("permute", 4, (4,)),
        ("permute", 8, (8,)),
        ("permute", 16, (16,)),
        ("permute", 32, (32,)),
    ]


def test_bus_factors_are_those_of_nccl_tests() -> None:
    assert {kind: [bus_factor(kind, n) for n in (2, 4, 5)] for kind in KINDS} == {
        "all_reduce": [1.0, 1.5, 1.6],
        "all_gather": [0.5, 0.75, 0.8],
        "reduce_scatter": [0.5, 0.75, 0.8],
        "all_to_all": [0.5, 0.75, 0.8],
        "permute": [1.0, 1.0, 1.0],
        "broadcast": [1.0, 1.0, 1.0],
        "reduce": [1.0, 1.0, 1.0],
    }
    assert list(KINDS) == list(VERBS)


# --- programs ---------------------------------------------------------------------------------

EXECUTED = {kind: kind for kind in KINDS} | {"broadcast": "all_reduce", "reduce": "all_reduce"}


@pytest.mark.usefixtures("short_chains")
def test_every_kind_is_checked_and_timed() -> None:
    """Groups of three ranks side by side, small and large against the reference's dense limit."""
    mesh = mesh_of(data=2, tensor=3)
    sizes = [12, 60_000]
    found = measure_cells(make_cells(KINDS, {"tensor": 3}, ["float32"], sizes), mesh, steps=2)
    assert [m.cell.kind for m in found] == [kind for kind in KINDS for _ in sizes]
    for m in found:
        assert (m.failure, m.complete, m.wrong) == (None, True, 0)
        assert m.checks["values_ok"] and m.checks["plan_equals_compiled"]
        # Six ranks of three or more elements, or of 64 probed ones.
        looked_at = m.checks["measured_values"]
        assert all(looked_at[form]["compared"] >= 6 * min(m.cell.count, 64) for form in FORMS)
        assert [len(m.samples_s[form]) for form in FORMS] == [2, 2]
        assert all(len(row) == 1 and row[0] > 0 for row in m.samples_s["full"])
        (site,) = m.sites
        assert (site.kind, site.axes) == (EXECUTED[m.cell.kind], ("tensor",))
        assert site.elements == m.cell.elements
        assert site.groups == ((0, 1, 2), (3, 4, 5))


def test_a_wire_type_is_told() -> None:
    (m,) = measure_cells([make_cell("permute", "data", 2, "bfloat16", 8)], mesh_of(data=2), steps=1)
    assert m.wire_dtypes == ("f32",)
    assert job.warnings(m) == ["bfloat16 travels as f32 here, sizes count bfloat16"]


@pytest.mark.parametrize("mask", ["select", "branch"])
def test_a_broadcast_delivers_the_root_s_data(mask: str) -> None:
    """Known answer, and both ways to mask mean the same; only the select is executed."""
    mesh = mesh_of(data=2, tensor=3)
    cell = make_cell("broadcast", "tensor", 3, "float32", 20)
    program = build_program(cell) if mask == "select" else build_program(cell, 1, by_branch)
    traced = trace(program, mesh)
    _, seen = reference(traced, Ranks(tuple(mesh.shape.items())))
    root = np.array([0, 0, 0, 3, 3, 3])[:, None]
    expected = fill_value(root, np.arange(5)[None], program.fill_modulus(6))
    np.testing.assert_array_equal(seen["message"], expected)


def test_a_permute_delivers_what_the_rank_before_had() -> None:
    mesh = mesh_of(data=4)
    program = build_program(make_cell("permute", "data", 4, "float32", 20))
    traced = trace(program, mesh)
    _, seen = reference(traced, Ranks((("data", 4),)))
    before = np.array([3, 0, 1, 2])[:, None]
    expected = fill_value(before, np.arange(5)[None], program.fill_modulus(4))
    np.testing.assert_array_equal(seen["message"], expected)


def test_a_broadcast_is_measured_without_a_branch() -> None:
    bench = Bench(mesh_of(data=2))
    cell = make_cell("broadcast", "data", 2, "float32", 60_000)
    assert bench.prepare(cell).failure is None
    assert " conditional(" not in bench.executable(cell).text
    assert " all-reduce(" in bench.executable(cell).text


# --- what the checks find ---------------------------------------------------------------------


@pytest.mark.parametrize("part", ["small", "measured"])
def test_a_wrong_value_is_found_and_not_timed(part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One rank starts with another value in one place; once in either part of the check."""
    cell = make_cell("all_gather", "data", 3, "float32", 120)
    original = microbenchmark.make_buffers

    def spoiled(program: Any, mesh: Mesh) -> list[jax.Array]:
        token, buffer = original(program, mesh)
        small = program.buffers["message 0"].size.padded != cell.operand_elements
        if small == (part == "small"):
            buffer = buffer.at[buffer.size // 3].add(1)  # the first element of rank 1
        return [token, jax.device_put(buffer, token.sharding)]

    monkeypatch.setattr(microbenchmark, "make_buffers", spoiled)
    (m,) = measure_cells([cell], mesh_of(data=3), steps=1)
    assert m.failure is not None and "values are wrong" in m.failure
    assert m.checks["values_ok"] is False
    assert (m.complete, m.samples_s) == (False, {"full": [], "chained": []})
    if part == "measured":
        assert m.wrong == 3  # all three ranks got it
        assert " at 10: " in m.failure


@pytest.mark.usefixtures("short_chains")
def test_a_dropped_collective_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody looks at the result, so XLA drops the collective."""
    cells = [make_cell("all_reduce", "data", 2, "float32", 64)]
    monkeypatch.setattr(Rank, "wait", lambda self, value: None)
    monkeypatch.setattr(Rank, "see", lambda self, label, value: None)
    # The value check would be the first to miss it.
    monkeypatch.setattr(Bench, "_check_every_value", lambda self, measured: None)
    (m,) = measure_cells(cells, mesh_of(data=2), steps=1)
    assert m.failure is not None and "planned but not compiled: 1 x all_reduce" in m.failure
    assert m.checks["plan_equals_compiled"] is False and not m.complete


# --- samples ----------------------------------------------------------------------------------


def measured_with(single: list[float], chained: list[float], executions: int = 5) -> Measured:
    m = Measured(make_cell("all_reduce", "data", 4, "float32", 1000), executions=executions)
    m.samples_s = {"full": [[s] for s in single], "chained": [[s] for s in chained]}
    m.wrong, m.complete = 0, True
    return m


def test_the_dispatch_cancels_out() -> None:
    """0.5 ms each and 0.2 ms of dispatch: a chain of five takes 2.7 ms."""
    m = measured_with([0.0007] * 12, [0.0027] * 12)
    one = m.collective
    assert one.value == pytest.approx(0.0005) and one.n == 12
    assert one.ci_low == pytest.approx(0.0005) and one.ci_high == pytest.approx(0.0005)
    metrics = job.cell_metrics(m)
    assert metrics["algorithmic_bandwidth_Bps"]["value"] == pytest.approx(1000 / 0.0005)
    assert metrics["bus_bandwidth_Bps"]["value"] == pytest.approx(1.5 * 1000 / 0.0005)
    assert metrics["step_s"]["value"] == pytest.approx(0.0007)


def test_the_interval_of_a_difference_holds_both() -> None:
    single = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]  # 97.5 % of the median: all seven
    one = measured_with(single, [s + 40 for s in single], executions=5).collective
    assert (one.value, one.ci_low, one.ci_high) == (10.0, (41 - 7) / 4, (47 - 1) / 4)
    assert measured_with(single[:6], single[:6]).collective.ci_low is None


def test_what_is_not_told_from_noise_is_none() -> None:
    m = measured_with([0.002] * 8, [0.001] * 8)
    metrics = job.cell_metrics(m)
    for name in ("collective_s", "algorithmic_bandwidth_Bps", "bus_bandwidth_Bps"):
        assert metrics[name]["value"] is None and metrics[name]["n"] == 8
    assert job.fit_series([m], a_request()) == []
    assert measured_with([], []).collective.value is None


def test_a_step_is_the_slowest_process_s() -> None:
    m = measured_with([], [])
    m.samples_s = {"full": [[1.0, 3.0], [2.0, 1.0]], "chained": [[9.0, 9.0], [9.0, 9.0]]}
    assert m.steps_s == [3.0, 2.0]


def test_percentiles_need_samples() -> None:
    few, many = (job.cell_metrics(measured_with([1.0] * n, [2.0] * n)) for n in (19, 100))
    assert few["step_p95_s"]["value"] is None and few["step_p99_s"]["value"] is None
    assert many["step_p95_s"]["value"] == 1.0 and many["step_p99_s"]["value"] == 1.0


def test_chains_are_long_for_short_collectives() -> None:
    assert chain_length(1e-6) == CHAIN[1] and chain_length(10.0) == CHAIN[0]
    assert chain_length(0.0) == CHAIN[1]
    assert CHAIN[0] < chain_length(0.001) < CHAIN[1]


@pytest.mark.usefixtures("short_chains")
def test_rounds_visit_every_cell_in_an_order_of_the_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    cells = make_cells(["permute"], {"data": 2}, ["float32"], [4, 8, 16, 32, 64])

    def visits(seed: int) -> list[int]:
        order: list[int] = []

        def visit(self: Bench, measured: Measured) -> None:
            order.append(measured.cell.bytes)
            for form in FORMS:
                measured.samples_s[form].append([1.0])

        monkeypatch.setattr(Bench, "visit", visit)
        monkeypatch.setattr(Bench, "prepare", lambda self, cell: Measured(cell, executions=3))
        measure_cells(cells, mesh_of(data=2), steps=4, seed=seed)
        return order

    first = visits(7)
    rounds = [first[i : i + 5] for i in range(0, 20, 5)]
    assert all(sorted(one) == [4, 8, 16, 32, 64] for one in rounds)
    assert len({tuple(one) for one in rounds}) > 1
    assert visits(7) == first != visits(8)


def test_gathering_keeps_every_bit() -> None:
    values = [random.random(), 1e-300, 3.0]
    assert gather(values) == [values] and total(3) == 3


def test_cells_of_one_size_share_their_buffers() -> None:
    mesh = mesh_of(data=4)
    one = [make_cell("permute", "data", 4, "float32", 1 << 20)]
    kept = needed_bytes(one, mesh)
    assert 1 << 20 < kept < 3 << 20
    both = [*one, make_cell("all_reduce", "data", 4, "float32", 1 << 20)]
    assert needed_bytes(both, mesh) == kept
    more = [*one, make_cell("permute", "data", 4, "float32", 1 << 19)]
    assert needed_bytes(more, mesh) == kept + (1 << 19)
    narrow = [make_cell("permute", "data", 4, "bfloat16", 1 << 20)]  # travels as f32 on CPU
    assert needed_bytes(narrow, mesh) >= 3 << 20


# --- the job ----------------------------------------------------------------------------------


def a_request(**flags: str) -> Request:
    base = {"devices": "4", "dtype": "float32", "kinds": "permute", "max_bytes": "8", "steps": "1"}
    return read_request({**base, **flags})


@pytest.mark.usefixtures("short_chains")
def test_a_record_for_every_cell(tmp_path: Path) -> None:
    request = a_request(out=str(tmp_path), max_bytes="64", ranks="5,1,3", devices="", steps="2")
    heard: list[Outcome] = []
    outcome = run_collectives(request, command=["jaxbench"], report=heard.append)
    assert heard == [outcome] and outcome.complete
    records, warnings = read_records(tmp_path)
    assert warnings == []
    assert [r["experiment"]["bytes"] for r in records] == [8, 64]
    for record in records:
        assert record["experiment"]["ranks"] == [5, 1, 3]
        assert record["environment"]["devices"] == 3
        assert (record["partial"], record["warnings"]) == (False, [])
        assert record["checks"]["wrong"] == 0
        assert record["calibration"]["chained_executions"] == 3
        assert set(record["samples"]) == {"full", "chained"}
        assert record["metrics"]["bus_bandwidth_Bps"]["unit"] == "B/s"
        (row,) = record["plan"]
        assert (row["kind"], row["group_size"], row["count"]) == ("permute", 3, 1)
        assert all(record["timing"][name] > 0 for name in ("trace_s", "lower_s", "compile_s"))
    # What two runs of one configuration must have in common holds nothing that was measured.
    assert records[1]["experiment"] == {
        "benchmark": "collectives",
        "kind": "permute",
        "executes": KINDS["permute"].executes,
        "root": None,
        "bytes": 64,
        "asked_bytes": [64],
        "elements": 16,
        "count": 16,
        "dtype": "float32",
        "axis": "data",
        "group_size": 3,
        "groups": 1,
        "mesh": {"data": 3, "fsdp": 1, "pipeline": 1, "expert": 1, "tensor": 1},
        "devices": 3,
        "ranks": [5, 1, 3],
        "padding": "exact",
        "messages": 1,
        "pause_s": 0.0,
        "steps": 2,
        "warmup": 2,
        "seed": 0,
    }


@pytest.mark.usefixtures("short_chains")
def test_one_failure_leaves_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    original = microbenchmark.compare

    def compare(sites: Any, found: Any) -> Any:
        return original([*sites, *sites] if sites[0].elements == 16 else sites, found)

    monkeypatch.setattr(microbenchmark, "compare", compare)
    outcome = run_collectives(a_request(out=str(tmp_path), max_bytes="512"), command=["jaxbench"])
    assert not outcome.complete
    records, _ = read_records(tmp_path)
    assert [r["partial"] for r in records] == [False, True, False]
    assert records[1]["warnings"][0].startswith("failed: plan and compiled program differ")
    assert records[1]["metrics"]["collective_s"]["value"] is None


@pytest.mark.usefixtures("short_chains")
def test_an_error_of_the_system_costs_one_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    """Here while the buffer that another cell has used before is donated."""
    original, calls = microbenchmark.time_step, []

    def time_step(compiled: Any, state: Any) -> Any:
        calls.append(compiled)
        if len(calls) == 6:  # two programs warmed up twice before: the second cell's second step
            original(compiled, state)
            raise MemoryError("no more")
        return original(compiled, state)

    monkeypatch.setattr(microbenchmark, "time_step", time_step)
    cells = make_cells(["permute", "all_reduce"], {"data": 2}, ["float32"], [64])
    first, second = measure_cells(cells, mesh_of(data=2), steps=1)
    assert first.complete and second.failure == "MemoryError: no more"


@pytest.mark.usefixtures("short_chains")
def test_an_interruption_keeps_what_was_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original, visits = Bench.visit, []

    def visit(self: Bench, measured: Measured) -> None:
        if len(visits) == 3:
            raise KeyboardInterrupt
        visits.append(measured)
        original(self, measured)

    monkeypatch.setattr(Bench, "visit", visit)
    fit = tmp_path / "fit.json"
    request = a_request(out=str(tmp_path), max_bytes="64", steps="5", fit=str(fit))
    heard: list[Outcome] = []
    with pytest.raises(KeyboardInterrupt):
        run_collectives(request, command=["jaxbench"], report=heard.append)
    records, _ = read_records(tmp_path)
    assert [r["partial"] for r in records] == [True, True]
    assert sum(len(r["samples"]["full"]) for r in records) == 3
    assert len(heard[0].records) == 2 and not heard[0].complete
    assert not fit.exists()


def test_memory_is_asked_for_before_it_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "available_bytes", lambda device: 1 << 30)
    request = a_request(min_bytes="1G", max_bytes="1G")
    with pytest.raises(InputError, match=r"needs 8.59 GB of memory.*1.07 GB: lower --max_bytes"):
        run_collectives(request, command=["jaxbench"])


def test_the_mesh_is_made_of_the_ranks_named() -> None:
    mesh = make_mesh(a_request(ranks="5,0-2", devices="8", mesh="data=2,tensor=2"))
    assert [d.id for d in mesh.devices.flat] == [5, 0, 1, 2]
    assert (mesh.shape["data"], mesh.shape["tensor"], mesh.shape["pipeline"]) == (2, 2, 1)
    assert [d.id for d in make_mesh(a_request(devices="3")).devices.flat] == [0, 1, 2]


def test_a_cell_is_hashable_and_says_what_it_is() -> None:
    cell = make_cell("all_reduce", "data", 4, "float32", 1 << 20)
    assert cell in {cell} and isinstance(cell, Cell)
    assert cell.describe() == "all_reduce of 1,048,576 B of float32 over data=4"
    assert jnp.dtype(cell.dtype).itemsize * cell.elements == cell.bytes
