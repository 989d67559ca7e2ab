"""Chakra traces, read back by a parser of their own: field numbers and wire types are told here."""

from __future__ import annotations

import ast
import json
import struct
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from jax import lax
from jax.sharding import PartitionSpec

from jaxbench.errors import InputError, RunError
from jaxbench.program import Program, Traced, abstract_mesh, trace
from jaxbench.rank import Rank
from jaxbench.readings.counting import Counting
from jaxbench.readings.dependencies import find_operations
from jaxbench.readings.plan import Plan, plan_experiment
from jaxbench.readings.ranks import Ranks
from jaxbench.readings.simulate import Semantics, simulate
from jaxbench.report import chakra, chakra_schema
from jaxbench.report.chakra import write_chakra
from tests.cases import case, experiment
from tests.simple_costs import ByKind

CASES = [
    "dp-3",
    "fsdp-2x4",
    "fsdp-f32-grads",
    "pp-uneven",
    "pp-ends",
    "pp-interleaved",
    "tp-2x2x2",
    "tp-reordered",
    "tp-sequence-1f1b",
    "ep-2x2x2",
]

UNLIMITED = Semantics("unlimited", "pair")  # nothing but dependencies, as in a trace

COMPUTE, SEND, RECV, COLLECTIVE = 4, 5, 6, 7
KINDS = {0: "all_reduce", 2: "all_gather", 6: "all_to_all", 7: "reduce_scatter"}
# The types of an attribute's value that traces use, by their field numbers.
INT32, INT64, BOOL, BOOLS, STRING = 7, 9, 27, 28, 29


@dataclass
class Node:
    id: int = 0
    name: str = ""
    type: int = 0
    deps: list[int] = field(default_factory=list)
    duration_us: int = 0
    attributes: dict[str, tuple[int, Any]] = field(default_factory=dict)

    def get(self, name: str, number: int) -> Any:
        """Return an attribute, which must be of the type with this field number."""
        found, value = self.attributes[name]
        assert found == number, f"{name} is in field {found}"
        return value


def varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        value |= (data[at] & 127) << shift
        shift += 7
        at += 1
        if data[at - 1] < 128:
            return value, at


def fields(data: bytes) -> Iterator[tuple[int, Any]]:
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        wire = key & 7
        if wire == 0:
            value, at = varint(data, at)
        elif wire == 2:
            size, at = varint(data, at)
            value, at = data[at : at + size], at + size
            assert len(value) == size
        else:
            assert wire == 1
            value, at = struct.unpack("<d", data[at : at + 8])[0], at + 8
        yield key >> 3, value


def varints(data: bytes) -> list[int]:
    found, at = [], 0
    while at < len(data):
        value, at = varint(data, at)
        found.append(value)
    return found


def attribute(data: bytes) -> tuple[str, tuple[int, Any]]:
    name, *values = fields(data)
    assert name[0] == 1 and len(values) == 1
    number, value = values[0]
    if number == STRING:
        value = value.decode()
    if number == BOOLS:
        [(one, packed)] = fields(value)
        assert one == 1
        value = [bool(v) for v in varints(packed)]
    return name[1].decode(), (number, value)


def read_node(data: bytes) -> Node:
    node = Node()
    for number, value in fields(data):
        if number == 1:
            node.id = value
        elif number == 2:
            node.name = value.decode()
        elif number == 3:
            node.type = value
        elif number == 5:
            node.deps += varints(value)
        elif number == 7:
            node.duration_us = value
        else:
            assert number == 10, f"field {number}"
            name, held = attribute(value)
            assert name not in node.attributes
            node.attributes[name] = held
    return node


def read_trace(path: Path) -> tuple[dict[str, Any], list[Node]]:
    data, messages, at = path.read_bytes(), [], 0
    while at < len(data):
        size, at = varint(data, at)
        messages.append(data[at : at + size])
        at += size
    assert at == len(data)
    metadata: dict[str, Any] = {}
    for number, value in fields(messages[0]):
        if number == 1:
            metadata["version"] = value.decode()
        else:
            assert number == 2
            name, (kind, text) = attribute(value)
            assert kind == STRING
            metadata[name] = text
    return metadata, [read_node(message) for message in messages[1:]]


@cache
def planned(name: str) -> Plan:
    return plan_experiment(case(name))


@cache
def written(name: str, folder: Path) -> tuple[Plan, Ranks, dict[int, list[Node]], dict[str, Any]]:
    plan = planned(name)
    ranks = Ranks(plan.experiment.mesh)
    told = write_chakra(folder, plan.experiment.strategy, plan.traced.closed, ranks)
    nodes = {}
    for rank in range(ranks.count):
        metadata, nodes[rank] = read_trace(folder / f"{plan.experiment.strategy}.{rank}.et")
        assert metadata["rank"] == str(rank)
        assert metadata["version"] and metadata["program"] == plan.experiment.strategy
    files = list(folder.glob("*.et"))
    assert told.files == len(files) == ranks.count and told.first in files
    assert told.nodes == sum(map(len, nodes.values()))
    assert told.nbytes == sum(path.stat().st_size for path in files)
    return plan, ranks, nodes, json.loads(told.groups.read_text())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("traces")


@pytest.mark.parametrize("name", CASES)
def test_traces_hold_what_the_plan_counts(name: str, folder: Path) -> None:
    plan, ranks, nodes, _ = written(name, folder / name)
    counting = Counting(ranks).count(plan.traced.closed)
    width = {"float32": 4, "bfloat16": 2}
    for rank in range(ranks.count):
        planned_messages: Counter[tuple[str, str, int]] = Counter()
        for site in plan.sites:
            executed = int(counting.counts.get(site.path, np.zeros(ranks.count))[rank])
            nbytes = site.elements * width[site.dtype]
            if site.kind == "permute":
                for way, place in (("send", 0), ("recv", 1)):
                    if rank in {pair[place] for pair in site.pairs}:
                        planned_messages[way, site.label, nbytes] += executed
            else:
                if site.kind == "all_gather":
                    nbytes //= site.group_size  # a trace has what a rank puts in
                planned_messages[site.kind, site.label, nbytes] += executed
        found: Counter[tuple[str, str, int]] = Counter()
        for node in nodes[rank]:
            if node.type != COMPUTE:
                kind, _, label = node.name.partition(" ")
                size = node.get("comm_size", INT64)
                found[kind, label, size] += 1
                if node.type == COLLECTIVE:
                    assert KINDS[node.get("comm_type", INT64)] == kind
                else:
                    assert node.type == {"send": SEND, "recv": RECV}[kind]
            assert node.get("is_cpu_op", BOOL) == 0
        assert found == +planned_messages
        spent = sum(node.duration_us for node in nodes[rank] if node.type == COMPUTE)
        assert spent == pytest.approx(plan.compute_s[rank] * 1e6, abs=1)
        assert all(node.duration_us == 0 for node in nodes[rank] if node.type != COMPUTE)


@pytest.mark.parametrize("name", CASES)
def test_nodes_come_after_what_they_need_and_nothing_twice(name: str, folder: Path) -> None:
    *_, nodes, _ = written(name, folder / name)
    for own in nodes.values():
        assert [node.id for node in own] == list(range(1, len(own) + 1))
        before: dict[int, set[int]] = {}
        for node in own:
            assert all(dep < node.id for dep in node.deps)
            reached = [before[dep] | {dep} for dep in node.deps]
            for n, dep in enumerate(node.deps):
                others = reached[:n] + reached[n + 1 :]
                assert not any(dep in other for other in others), "implied by another"
            before[node.id] = set().union(*reached)
        computes = [node for node in own if node.type == COMPUTE]
        for earlier, later in zip(computes, computes[1:], strict=False):
            assert earlier.id in before[later.id]


@pytest.mark.parametrize("name", CASES)
def test_every_message_has_both_ends(name: str, folder: Path) -> None:
    *_, nodes, _ = written(name, folder / name)
    ends: dict[int, Counter[Any]] = {SEND: Counter(), RECV: Counter()}
    for rank, own in nodes.items():
        for node in own:
            if node.type in ends:
                source, target = node.get("comm_src", INT32), node.get("comm_dst", INT32)
                assert rank == (source if node.type == SEND else target) and source != target
                size = node.get("comm_size", INT64)
                ends[node.type][source, target, node.get("comm_tag", INT32), size] += 1
    assert ends[SEND] == ends[RECV]
    assert set(ends[SEND].values()) <= {1}
    assert bool(ends[SEND]) == name.startswith(("pp", "tp", "ep"))


@pytest.mark.parametrize("name", CASES)
def test_groups_are_those_of_the_mesh(name: str, folder: Path) -> None:
    plan, ranks, nodes, table = written(name, folder / name)
    used = {site.axes for site in plan.sites if site.kind != "permute"}
    expected = sorted(group.tolist() for axes in used for group in ranks.groups(axes))
    assert sorted(table.values()) == expected and "0" not in table
    involved = [axis for axis, size in reversed(ranks.axes) if size > 1]
    orders = defaultdict(list)
    for rank, own in nodes.items():
        sequence = defaultdict(list)
        for node in own:
            if node.type == COLLECTIVE:
                number = node.get("pg_name", STRING)
                assert rank in table[number]
                kind, size = node.get("comm_type", INT64), node.get("comm_size", INT64)
                sequence[number].append((kind, size, node.name))
                dimensions = node.get("involved_dim", BOOLS)
                product = 1
                for axis, inside in zip(involved, dimensions, strict=True):
                    product *= ranks.sizes[axis] if inside else 1
                assert product == len(table[number])
        for number, order in sequence.items():
            orders[number].append(order)
    for number, of_ranks in orders.items():
        assert len(of_ranks) == len(table[number])
        assert all(order == of_ranks[0] for order in of_ranks)


def replayed_s(
    nodes: dict[int, list[Node]], table: dict[str, Any], costs: dict[str, float]
) -> float:
    """Return the end of a step by nothing but the files: nodes run as soon as they may."""
    ends: dict[tuple[int, int], float] = {}
    met: dict[Any, dict[int, float]] = defaultdict(dict)  # when ranks come to what they do together
    at, passed = dict.fromkeys(nodes, 0), {rank: Counter[str]() for rank in nodes}

    def end_of(rank: int, node: Node) -> float | None:
        """Return when a node ends, None while another rank hasn't come to it."""
        begin = max((ends[rank, dep] for dep in node.deps), default=0.0)
        if node.type == COMPUTE:
            return begin + node.duration_us * 1e-6
        if node.type == COLLECTIVE:
            group = node.get("pg_name", STRING)
            members, others = table[group], (group, passed[rank][group])
            seconds = costs[KINDS[node.get("comm_type", INT64)]]
        else:
            source, target = node.get("comm_src", INT32), node.get("comm_dst", INT32)
            members, others = [source], (source, target, node.get("comm_tag", INT32))
            seconds = costs["permute"]
        met[others][rank] = begin
        if not set(members) <= set(met[others]):
            return None
        return max(begin, max(met[others][member] for member in members) + seconds)

    while any(at[rank] < len(own) for rank, own in nodes.items()):
        before = dict(at)
        for rank, own in nodes.items():
            while at[rank] < len(own) and (end := end_of(rank, own[at[rank]])) is not None:
                node = own[at[rank]]
                ends[rank, node.id] = end
                at[rank] += 1
                if node.type == COLLECTIVE:
                    passed[rank][node.get("pg_name", STRING)] += 1
        assert at != before, "the traces wait for each other in a circle"
    return max(ends.values())


@pytest.mark.parametrize("name", CASES)
@settings(max_examples=5, phases=(Phase.generate,))  # to shrink a failure takes minutes
@given(
    micros=st.fixed_dictionaries(
        {kind: st.integers(0, 20_000) for kind in (*KINDS.values(), "permute")}
    )
)
def test_a_step_is_as_long_by_its_traces_as_by_its_program(
    name: str, folder: Path, micros: dict[str, int]
) -> None:
    plan, ranks, nodes, table = written(name, folder / name)
    costs = {kind: us * 1e-6 for kind, us in micros.items()}
    computes = max(sum(node.type == COMPUTE for node in own) for own in nodes.values())
    expected = simulate(plan.traced.closed, ranks, ByKind(costs), UNLIMITED).step_s
    assert replayed_s(nodes, table, costs) == pytest.approx(expected, abs=computes * 1e-6)


def test_times_are_rounded_so_that_sums_stay_right(tmp_path: Path) -> None:
    """80 computes of 0.3 us are 24 us, not 0."""

    def step(rank: Rank) -> None:
        rank.loop(80, lambda r, _: r.compute(0.3e-6, "short"))

    traced = trace(Program("short", {}, step), abstract_mesh([("data", 1)]))
    told = write_chakra(tmp_path, "short", traced.closed, Ranks([("data", 1)]))
    durations = [node.duration_us for node in read_trace(told.first)[1]]
    assert len(durations) == 80 and sum(durations) == 24 and set(durations) == {0, 1}


def test_a_delay_of_one_rank_is_in_its_trace_only(tmp_path: Path) -> None:
    """Ranks that decide differently aren't taken for the same."""
    plan = plan_experiment(experiment(strategy="dp", mesh="data=3", inject_delay="1:5000"))
    ranks = Ranks(plan.experiment.mesh)
    write_chakra(tmp_path, "dp", plan.traced.closed, ranks)
    traces = [read_trace(tmp_path / f"dp.{rank}.et")[1] for rank in range(3)]
    assert [trace[0].name for trace in traces] == ["forward", "injected delay", "forward"]
    assert traces[1][0].duration_us == 5000 and len(traces[0]) == len(traces[1]) - 1


def test_some_ranks_have_the_files_that_they_have_among_all(tmp_path: Path, folder: Path) -> None:
    plan, ranks, *_ = written("tp-2x2x2", folder / "tp-2x2x2")
    told = write_chakra(tmp_path, "dp_pp_tp", plan.traced.closed, ranks, [1, 6])
    names = ["dp_pp_tp.1.et", "dp_pp_tp.6.et", "dp_pp_tp.comm_groups.json"]
    assert sorted(path.name for path in tmp_path.iterdir()) == names
    for name in names[:2]:
        assert (tmp_path / name).read_bytes() == (folder / "tp-2x2x2" / name).read_bytes()
    table = json.loads(told.groups.read_text())
    assert table and all({1, 6} & set(members) for members in table.values())
    assert table.items() <= written("tp-2x2x2", folder / "tp-2x2x2")[3].items()


def shard_mapped(function: Any, **sizes: int) -> Traced:
    """Return a user's program: a shard_map of `function` over one f32 vector."""
    mesh = abstract_mesh(list(sizes.items()))
    spec = PartitionSpec(tuple(sizes))
    mapped = jax.shard_map(function, mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False)
    shape = jax.ShapeDtypeStruct((24 * mesh.size,), jnp.float32)
    closed = jax.jit(mapped).trace(shape).jaxpr
    return Traced(Program("own", {}, lambda rank: None), mesh, closed, (shape,), ())


def own_ranks(traced: Traced) -> Ranks:
    return Ranks(list(zip(traced.mesh.axis_names, traced.mesh.axis_sizes, strict=True)))


def test_what_a_program_of_one_s_own_does() -> None:
    """Two operands, groups over two axes, a swap of neighbours, a message to oneself."""

    def step(x: jax.Array) -> jax.Array:
        a, b = lax.psum((x, x[:4]), ("inner", "outer"))
        swapped = lax.ppermute(a, "outer", [(1, 0), (0, 1), (2, 2)])
        gathered = lax.all_gather(b, "inner", tiled=True)
        return swapped + gathered.sum()

    traced = shard_mapped(step, outer=3, inner=2)
    ranks = own_ranks(traced)
    first = find_operations(traced.closed, ranks, 1)
    assert [(o.kind, o.nbytes, o.after, o.offset) for o in first] == [
        ("all_reduce", 96, (), 0),
        ("all_reduce", 16, (), 0),
        ("send", 96, (0,), 2),
        ("recv", 96, (0,), 2),
        ("all_gather", 32, (1,), 0),
    ]
    assert [o.axes for o in first[:2]] == [("inner", "outer")] * 2
    assert [o.kind for o in find_operations(traced.closed, ranks, 4)] == [
        "all_reduce",
        "all_reduce",
        "all_gather",
    ]


def test_both_ends_of_a_chain_are_told_apart_without_asking_for_the_axis(tmp_path: Path) -> None:
    traced = shard_mapped(lambda x: lax.ppermute(x, "a", [(0, 1), (1, 2)]), a=3)
    write_chakra(tmp_path, "own:chain", traced.closed, own_ranks(traced))
    types = [[n.type for n in read_trace(tmp_path / f"own_chain.{r}.et")[1]] for r in range(3)]
    assert types == [[SEND], [SEND, RECV], [RECV]]


def test_scanned_arrays_keep_what_they_wait_for() -> None:
    def step(x: jax.Array) -> jax.Array:
        summed = lax.psum(x.reshape(4, 6), "a")

        def body(carry: jax.Array, row: jax.Array) -> tuple[jax.Array, jax.Array]:
            return carry, lax.psum(row, "a")

        _, rows = lax.scan(body, jnp.zeros(6), summed)
        return lax.psum(rows.reshape(24), "a")

    traced = shard_mapped(step, a=2)
    after = [o.after for o in find_operations(traced.closed, own_ranks(traced), 0)]
    assert after == [(), (0,), (0,), (0,), (0,), (1, 2, 3, 4)]


def test_a_predicate_on_data_is_refused() -> None:
    def step(x: jax.Array) -> jax.Array:
        return lax.cond(x[0] > 0, lambda v: lax.psum(v, "a"), lambda v: v, x)

    traced = shard_mapped(step, a=2)
    with pytest.raises(RunError, match="depends on computed data"):
        find_operations(traced.closed, own_ranks(traced), 0)


def test_a_permute_over_two_axes_is_refused() -> None:
    traced = shard_mapped(lambda x: lax.ppermute(x, ("a", "b"), [(0, 1)]), a=2, b=2)
    with pytest.raises(RunError, match="single axis"):
        find_operations(traced.closed, own_ranks(traced), 0)


def test_groups_that_are_not_the_mesh_s_are_refused() -> None:
    def step(x: jax.Array) -> jax.Array:
        return lax.psum(x, "a", axis_index_groups=[[0, 1], [2, 3]])

    traced = shard_mapped(step, a=4)
    with pytest.raises(RunError, match="axis_index_groups"):
        find_operations(traced.closed, own_ranks(traced), 0)


def test_without_protobuf_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for answer in (lambda name: None, lambda name: (_ for _ in ()).throw(ModuleNotFoundError())):
        monkeypatch.setattr(chakra_schema.importlib.util, "find_spec", answer)
        with pytest.raises(InputError, match=r"pip install 'jaxbench\[chakra\]'"):
            write_chakra(tmp_path / "x", "dp", planned("dp-3").traced.closed, Ranks([("data", 3)]))
        assert not (tmp_path / "x").exists()


@pytest.mark.parametrize("module", [chakra, chakra_schema])
def test_protobuf_is_imported_when_it_is_needed_only(module: Any) -> None:
    imports = (ast.Import, ast.ImportFrom)
    top = [
        ast.unparse(n)
        for n in ast.parse(Path(module.__file__).read_text()).body
        if isinstance(n, imports)
    ]
    assert top and not any("google" in line for line in top)


def test_a_file_in_the_way_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert chakra.chakra_faults(tmp_path / "new" / "folder") == []
    for name in ("file", "file/below"):
        [fault] = chakra.chakra_faults(tmp_path / name)
        assert name in fault and f"'{tmp_path / 'file'}' is not a folder" in fault


def test_a_full_disk_is_told_before_anything_is_written(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, folder: Path
) -> None:
    plan, ranks, nodes, _ = written("dp-3", folder / "dp-3")
    size = sum(path.stat().st_size for path in (folder / "dp-3").glob("*.et"))
    monkeypatch.setattr(chakra.shutil, "disk_usage", lambda _: SimpleNamespace(free=size - 1))
    with pytest.raises(InputError, match="traces of 3 ranks take about .* fewer --devices"):
        write_chakra(tmp_path, "dp", plan.traced.closed, ranks)
    assert not list(tmp_path.iterdir())
    monkeypatch.setattr(chakra.shutil, "disk_usage", lambda _: SimpleNamespace(free=4 * size))
    write_chakra(tmp_path, "dp", plan.traced.closed, ranks)


def test_what_can_t_be_written_is_a_failed_run(tmp_path: Path) -> None:
    (tmp_path / "dp.0.et").mkdir()
    with pytest.raises(RunError, match="can't write traces"):
        write_chakra(tmp_path, "dp", planned("dp-3").traced.closed, Ranks([("data", 3)]))
