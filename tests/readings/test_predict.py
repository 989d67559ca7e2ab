"""The parts of a predicted step, and predictions for the systems of meshes/."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from jaxbench.cli.flagfile import read_flagfile
from jaxbench.errors import InputError
from jaxbench.experiment import Experiment
from jaxbench.readings.plan import plan_experiment
from jaxbench.readings.predict import METRICS, Prediction, predict, predict_system
from jaxbench.readings.simulate import Semantics
from tests.cases import CASES, case, experiment
from tests.simple_costs import ByKind, TwoTiers

AXIS = Semantics("axis")
F, G = 0.020, 0.040  # of tests.cases


def paper(name: str, **flags: str) -> Experiment:
    values = read_flagfile(f"flags/paper_{name}.flags").values
    return Experiment.from_flags({**values, **flags})


@pytest.mark.parametrize("name", CASES)
def test_the_parts_add_up_and_none_is_below_zero(name: str) -> None:
    p = predict(case(name), TwoTiers(per_node=2), AXIS)
    parts = (p.compute_s, p.skew_s, p.bubble_s, p.transfer_exposed_s, p.latency_s)
    assert sum(parts) == pytest.approx(p.step_s, rel=1e-9)
    assert min(parts) >= 0
    communication = p.transfer_exposed_s + p.latency_s
    assert p.communication_share == pytest.approx(communication / p.step_s)
    assert p.blocked_s == pytest.approx(p.step_s - p.simulation.compute_s.min())
    assert p.communication_relevance == pytest.approx(p.blocked_s / p.step_s)
    assert p.communication_share <= p.communication_relevance < 1
    assert p.throughput == pytest.approx(p.plan.workload.global_batch / p.step_s)
    assert 0 < p.scaling_efficiency <= 1


def test_bubble_and_skew_are_those_of_the_schedule_whatever_the_network() -> None:
    flags = {"strategy": "dp_pp", "mesh": "data=2,pipeline=4", "microbatches": 8}
    p = predict(experiment(**flags), TwoTiers(), AXIS)
    assert (p.compute_s, p.skew_s) == (pytest.approx((F + G) / 4), 0.0)
    assert p.bubble_s == pytest.approx((F + G) / 4 * 3 / 8, rel=1e-12)
    assert p.latency_s > 0
    assert p.transfer_exposed_s > 0

    late = predict(experiment(**flags, inject_delay="3:5000"), TwoTiers(), AXIS)
    assert late.compute_s == pytest.approx((F + G) / 4)
    assert late.skew_s == pytest.approx(0.005)
    assert late.communication_relevance > p.communication_relevance


def test_latency_and_bytes_are_told_apart() -> None:
    e = experiment(strategy="dp", mesh="data=4", buckets=1)
    costs = TwoTiers(latency_s=1e-3, Bps=1e9)
    seconds, latency = costs.seconds("all_reduce", 8 * 10**6, 4, 1.0)
    p = predict(e, costs, AXIS)
    assert p.latency_s == pytest.approx(latency)
    assert p.transfer_exposed_s == pytest.approx(seconds - latency, rel=1e-4)
    assert p.bubble_s == 0.0


@pytest.mark.parametrize("name", ["dp-8", "fsdp-2x4", "pp-2x4", "tp-2x2x2", "ep-2x2x2"])
def test_efficiency_is_that_against_one_replica(name: str) -> None:
    e = case(name)
    mesh = ",".join(f"{axis}={1 if axis == 'data' else size}" for axis, size in e.mesh)
    alone = experiment(**{**CASES[name], "mesh": mesh})
    costs = TwoTiers(outside=1.0)
    p, one = predict(e, costs, AXIS), predict(alone, costs, AXIS)
    assert p.scaling_efficiency == pytest.approx(one.step_s / p.step_s, rel=1e-12)
    assert p.scaling_efficiency < 1
    assert one.scaling_efficiency == 1
    ratio = p.throughput / one.throughput / (e.devices / alone.devices)
    assert p.scaling_efficiency == pytest.approx(ratio)


def test_free_communication_leaves_nothing_to_tell() -> None:
    p = predict(case("tp-2x2x2"), ByKind(), AXIS)
    assert (p.transfer_exposed_s, p.latency_s, p.communication_share) == (0, 0, 0)
    assert p.communication_relevance == pytest.approx(p.bubble_s / p.step_s)


def test_json_has_every_metric_and_a_row_per_collective() -> None:
    p = predict(case("tp-sequence"), TwoTiers(), AXIS, described="two tiers", record=[0])
    document = json.loads(json.dumps(p.to_json()))
    assert list(document["metrics"]) == list(METRICS)
    assert document["metrics"]["step_s"] == p.step_s
    assert document["costs"] == "two tiers"
    assert document["semantics"] == {
        "streams": "axis",
        "permute": "pair",
        "inline": False,
        "shared": False,
    }
    assert Experiment.from_dict(document["experiment"]) == p.experiment
    assert len(document["collectives"]) == len(p.simulation.uses)
    counted: dict[str, int] = {}
    for row in document["collectives"]:
        counted[row["kind"]] = counted.get(row["kind"], 0) + row["count"]
    planned: dict[str, int] = {}
    for row in plan_experiment(p.experiment).rows:
        planned[row.kind] = planned.get(row.kind, 0) + row.count
    assert counted == planned
    assert {event.rank for event in p.simulation.events} == {0}


# --- systems ---


def test_a_system_is_found_by_its_name_and_placed() -> None:
    e = paper("dp_pp_tp_llama3_70b", devices="224", system="jupiter")
    p = predict_system(e, "jupiter")
    assert "jupiter" in p.costs
    assert p.semantics == Semantics("one", "pair")
    assert p.bubble_s == pytest.approx(p.compute_s * 7 / 16, rel=1e-9)
    assert 0 < p.communication_share < 0.5
    assert p.plan.memory.total_bytes > 0
    spread = predict_system(e, "jupiter", placement="inter-group")
    assert spread.step_s > p.step_s
    assert "inter-group" in spread.costs
    assert predict_system(e, "jupiter", comm_streams="axis").step_s <= p.step_s


def test_one_algorithm_is_never_faster_than_the_cheapest() -> None:
    e = paper("dp_vit_h14", devices="64", system="leonardo", hardware="")
    auto, ring = (predict_system(e, "leonardo", algorithm=a) for a in ("auto", "ring"))
    assert ring.step_s >= auto.step_s
    assert {use.cost.algorithm.partition("/")[0] for use in ring.simulation.uses} == {"ring"}


def test_devices_of_a_kind_communicate_in_their_own_way() -> None:
    def semantics(system: str) -> Semantics:
        return predict_system(experiment(strategy="dp", mesh="data=4"), system).semantics

    assert semantics("tpu_v5p") == Semantics("axis", "pair")
    assert semantics("laptop") == Semantics("one", "clique", inline=True, shared=True)
    assert semantics("alps") == Semantics("one", "pair")


FITS = {
    "environment": {"platform": "cpu"},
    "fits": [
        {
            "kind": "all_reduce",
            "axis": "data",
            "group_size": 4,
            "groups": 1,
            "dtype": "float32",
            "latency_s": 1e-3,
            "bandwidth_Bps": 1e9,
            "bytes": [10**6, 10**7],
            "time_s": [2e-3, 11e-3],
        }
    ],
}


def test_measured_fits_take_the_place_of_a_system() -> None:
    e = experiment(strategy="dp", mesh="data=4", buckets=1)  # 2 million parameters of 4 bytes
    p = predict_system(e, None, fits={"": FITS})
    assert p.step_s == pytest.approx(F + G + 1e-3 + 8e-3, rel=1e-3)
    assert p.semantics == Semantics("one", "clique", inline=True, shared=True)
    (use,) = p.simulation.uses
    assert use.bound == "measured"


def test_measured_fits_take_the_place_of_a_tier() -> None:
    e = experiment(strategy="dp", mesh="data=4", buckets=1)
    formulas = predict_system(e, "h100_node")
    node = predict_system(e, "h100_node", fits={"node": FITS})
    other = predict_system(e, "h100_node", fits={"leaf": FITS})
    assert node.step_s == pytest.approx(F + G + 9e-3, rel=1e-3)
    assert node.semantics == formulas.semantics
    assert other.step_s == formulas.step_s < node.step_s


def faults(*arguments: Any, **named: Any) -> list[str]:
    with pytest.raises(InputError) as caught:
        predict_system(*arguments, **named)
    return list(caught.value.faults)


def test_everything_wrong_is_told_at_once() -> None:
    e = experiment(strategy="dp", mesh="data=64")
    told = faults(
        e,
        "h100_node",
        placement="intra-rack",
        algorithm="rings",
        comm_streams="two",
        fits={"nod": FITS, "node": {"fits": [{}]}},
    )
    for piece in (
        "tier of --fits 'nod'; did you mean 'node'?",
        "unknown --comm_streams 'two'; known: axis, one",
        "unknown algorithm 'rings'; did you mean 'ring'?",
        "unknown placement 'intra-rack'",
        "64 devices need 8 nodes",
        "kind is None",
    ):
        assert any(piece in fault for fault in told), (piece, told)


def test_a_system_or_fits_of_all_that_is_used_are_needed() -> None:
    e = experiment(strategy="fsdp", mesh="data=2,fsdp=2")
    (missing,) = faults(e, None)
    assert missing.startswith("--system is missing; known: alps, ")
    (unknown,) = faults(e, "jupyter")
    assert "did you mean 'jupiter'?" in unknown
    told = faults(e, None, fits={"": FITS}, placement="intra-l1")
    assert any("no all_gather" in fault for fault in told)
    assert any("no reduce_scatter" in fault for fault in told)
    assert any("--fits=node:FILE" in fault for fault in told)


def test_the_paper_s_metric_contains_the_bubble_and_ours_does_not() -> None:
    """7/23 of a step of 8 stages and 16 microbatches is bubble, even with a free network."""
    p: Prediction = predict(paper("dp_pp_tp_llama3_70b"), ByKind(), AXIS)
    assert p.communication_relevance == pytest.approx(7 / 23)
    assert p.communication_share == 0
    assert np.allclose(p.simulation.blocked_s, p.step_s * 7 / 23)
