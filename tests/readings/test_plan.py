"""The plan of published configurations, number by number."""

from __future__ import annotations

import json
import math

import pytest

from jaxbench.experiment import STRATEGY_AXES, Experiment
from jaxbench.readings.plan import Plan, Row, plan_experiment, wire_factor
from tests.cases import CASES, case, experiment


def plan(**flags: object) -> Plan:
    return plan_experiment(Experiment.from_flags({k: str(v) for k, v in flags.items()}))


def row(of: Plan, kind: str, axis: str) -> Row:
    (found,) = [r for r in of.rows if (r.kind, r.axis) == (kind, axis)]
    return found


def test_llama3_70b_on_224_ranks() -> None:
    p = plan(strategy="dp_pp_tp", model="llama3_70b", mesh="data=7,pipeline=8,tensor=4")
    gradient = row(p, "all_reduce", "data")
    assert (gradient.elements, gradient.count) == (2_204_803_328, 1)
    assert (gradient.groups, gradient.group_size) == (32, 7)

    layers, microbatches = 80 // 8, 16
    tensor = row(p, "all_reduce", "tensor")
    assert tensor.labels == {
        "attention forward": layers * microbatches,
        "mlp forward": layers * microbatches,
        "mlp backward": layers * microbatches,
        "attention backward": layers * microbatches,
    }
    assert tensor.count == tensor.count_min == 2 * 2 * layers * microbatches
    assert tensor.elements == 16 // 16 * 8192 * 8192
    assert (tensor.groups, tensor.group_size) == (56, 4)

    hops = row(p, "permute", "pipeline")
    assert hops.labels == {"forward hop": 16 + 8 - 1, "backward hop": 16 + 8 - 1}
    assert (hops.useful, hops.elements, hops.groups) == (2 * 16, 8192 * 8192, 28)


def test_sequence_parallelism_gathers_and_scatters() -> None:
    p = plan(
        strategy="dp_pp_tp",
        model="llama3_70b",
        mesh="data=7,pipeline=8,tensor=4",
        sequence_parallel="true",
    )
    blocks = 10 * 16  # layers of a stage times microbatches
    gather, scatter = row(p, "all_gather", "tensor"), row(p, "reduce_scatter", "tensor")
    assert gather.count == (2 + 2 + 2) * blocks and scatter.count == (2 + 2) * blocks
    assert gather.elements == scatter.elements == 8192 * 8192
    assert gather.shard_elements == scatter.shard_elements == 8192 * 8192 // 4
    assert row(p, "permute", "pipeline").elements == 8192 * 8192 // 4


def test_vit_h14_in_50_buckets() -> None:
    p = plan(strategy="dp", model="vit_h14", devices=8)
    assert {r.elements for r in p.rows} == {12_648_089, 12_648_090}
    assert sum(r.count for r in p.rows) == 50
    assert sum(r.count * r.elements for r in p.rows) == 632_404_480
    assert all((r.kind, r.groups, r.group_size) == ("all_reduce", 1, 8) for r in p.rows)


def test_llama3_8b_in_16_units_of_8_shards() -> None:
    p = plan(strategy="fsdp", model="llama3_8b", mesh="data=2,fsdp=8")
    gather = row(p, "all_gather", "fsdp")
    assert gather.shard_elements == 62_736_416
    assert gather.count == 16 + 15  # the last unit is still there when the backward starts
    assert (gather.groups, gather.group_size) == (2, 8)
    assert row(p, "reduce_scatter", "fsdp").count == 16
    shard = row(p, "all_reduce", "data")
    assert (shard.count, shard.elements, shard.groups) == (16, 62_736_416, 8)
    kept = plan(
        strategy="fsdp", model="llama3_8b", mesh="data=2,fsdp=8", reshard_after_forward="false"
    )
    assert row(kept, "all_gather", "fsdp").count == 16


@pytest.mark.parametrize("replicas", [1, 2, 5])
def test_each_replica_of_mixtral_adds_8_groups_of_8(replicas: int) -> None:
    p = plan(strategy="dp_pp_ep", model="mixtral_8x7b", mesh=f"data={replicas},pipeline=8,expert=8")
    exchange = row(p, "all_to_all", "expert")
    assert (exchange.groups, exchange.group_size) == (8 * replicas, 8)
    assert exchange.count == 4 * (32 // 8) * 16  # dispatch and combine, forward and backward
    assert exchange.elements == 16 // 16 * 32768 * 4096 * 2
    assert exchange.shard_elements == exchange.elements // 8
    shared = row(p, "all_reduce", "expert")
    assert shared.elements == math.ceil(1_605_636_096 / 8)
    if replicas > 1:
        own = math.ceil((46_702_792_704 - 1_605_636_096) / 64)
        assert row(p, "all_reduce", "data").elements == shared.elements + own


@pytest.mark.parametrize(
    ("schedule", "chunks", "hops", "useful"),
    [("gpipe", 1, 16 + 7, 16), ("1f1b", 1, 16 + 8 + 8 - 2, 16), ("interleaved", 2, 54, 32)],
)
def test_hops_of_the_schedules(schedule: str, chunks: int, hops: int, useful: int) -> None:
    p = plan(
        strategy="dp_pp",
        model="llama3_8b",
        mesh="data=2,pipeline=8",
        schedule=schedule,
        chunks=chunks,
    )
    permutes = row(p, "permute", "pipeline")
    assert set(permutes.labels.values()) == {hops}
    assert permutes.useful == 2 * useful


def test_stages_of_405b_differ_by_one_layer() -> None:
    p = plan(strategy="dp_pp", model="llama3_405b", mesh="pipeline=8")
    long, short = p.compute_s.max(), p.compute_s.min()
    times = p.workload.times
    layer = (times.attention_s + times.dense_mlp_s) * (1 + times.backward_factor)
    assert long - short == pytest.approx(layer, rel=1e-6)
    assert (p.compute_s == long).sum() == 126 % 8 == 6


def test_head_at_the_ends() -> None:
    spread, ends = (
        plan(strategy="dp_pp", model="llama3_8b", mesh="pipeline=4", head_placement=where)
        for where in ("even", "ends")
    )
    assert spread.compute_s.min() == spread.compute_s.max()
    assert ends.compute_s.argmax() == 3
    assert ends.compute_s.sum() == pytest.approx(spread.compute_s.sum())


def test_dlnetbench_reduces_a_part_but_sends_the_whole() -> None:
    p = plan(
        strategy="dp_pp_tp",
        model="llama3_70b",
        mesh="pipeline=8,tensor=4",
        convention="dlnetbench",
        hardware="gh200",
    )
    assert row(p, "all_reduce", "tensor").elements == 8192 * 8192 // 4
    assert row(p, "permute", "pipeline").elements == 8192 * 8192


def test_scaling_shows_before_and_after() -> None:
    p = plan(
        strategy="fsdp", model="llama3_8b", mesh="fsdp=8", size_scale="0.001", time_scale="0.01"
    )
    gather = row(p, "all_gather", "fsdp")
    assert gather.full_elements == 501_891_328
    assert gather.elements == math.ceil(501_891.328)
    assert gather.padded_elements == 501_896 and gather.shard_elements * 8 == 501_896
    full = plan(strategy="fsdp", model="llama3_8b", mesh="fsdp=8")
    assert p.compute_s.max() == pytest.approx(0.01 * full.compute_s.max())


def test_deepseek_exchanges_in_moe_layers_only() -> None:
    p = plan(strategy="dp_pp_ep", model="deepseek_v3", mesh="pipeline=16,expert=8")
    exchange = row(p, "all_to_all", "expert")
    assert exchange.count == 4 * 4 * 16  # four MoE layers in a stage
    assert exchange.count_min == 4 * 1 * 16  # the first stage has three dense layers and one MoE


@pytest.mark.parametrize("name", CASES)
def test_the_plan_is_json_and_free_of_nonsense(name: str) -> None:
    p = plan_experiment(case(name))
    document = json.loads(json.dumps(p.to_json(), allow_nan=False))
    by_kind = {row["kind"]: row for row in document}
    parts = by_kind["compute"]["labels"].values()  # of the busiest rank for each label
    assert max(parts, default=0) <= by_kind["compute"]["seconds"] <= sum(parts) * (1 + 1e-9)
    assert by_kind["memory"]["total_bytes"] >= by_kind["memory"]["buffer_bytes"] > 0
    assert ("schedule" in by_kind) == ("pipeline" in STRATEGY_AXES[p.experiment.strategy])
    for entry in [row for row in document if row["elements"] is not None]:
        assert entry["bytes_wire"] == pytest.approx(entry["bytes_logical"] * entry["wire_factor"])
        assert entry["elements"] <= entry["padded_elements"]


def test_2048_ranks_cost_no_more_rows_than_8() -> None:
    few = plan(strategy="dp_pp_ep", model="mixtral_8x7b", mesh="data=2,pipeline=8,expert=8")
    many = plan(strategy="dp_pp_ep", model="mixtral_8x7b", mesh="data=32,pipeline=8,expert=8")
    assert [r.id for r in few.rows] == [r.id for r in many.rows]
    assert len(many.traced.closed.jaxpr.eqns) == len(few.traced.closed.jaxpr.eqns)


@pytest.mark.parametrize(
    ("kind", "factor"),
    [
        ("all_reduce", 1.75),
        ("all_gather", 0.875),
        ("reduce_scatter", 0.875),
        ("all_to_all", 0.875),
        ("permute", 1.0),
    ],
)
def test_wire_factors(kind: str, factor: float) -> None:
    assert wire_factor(kind, 8) == factor


def test_size_one_axes_are_not_traced() -> None:
    p = plan_experiment(experiment(strategy="dp_pp_tp", mesh="data=1,pipeline=1,tensor=1"))
    assert p.rows == ()
