"""Advice: nothing feasible is forgotten, nothing that could win is pruned, the reason is right."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from types import SimpleNamespace
from typing import Any, cast

import pytest

from jaxbench.axes import AXES, STRATEGY_AXES, mesh_in_order
from jaxbench.catalog.models import MODELS
from jaxbench.catalog.systems import find_system
from jaxbench.errors import InputError
from jaxbench.experiment import Experiment
from jaxbench.readings.advise import PARTS, Advice, advise, predictor_on, why_unfit
from jaxbench.readings.advise_batch import CRITICAL_TOKENS, batch_warning, critical_batch
from jaxbench.readings.advise_candidates import (
    BATCHES,
    MOST_TENSOR,
    Candidate,
    find_candidates,
    least_step_s,
    make_candidate,
)
from jaxbench.readings.predict import Prediction, predict
from jaxbench.readings.simulate import semantics_of
from jaxbench.readings.simulate.costs import Free
from jaxbench.workload import build_workload
from tests.cases import CASES, case


def base(**flags: Any) -> Experiment:
    given = {"strategy": "dp", "model": "llama3_8b", "hardware": "h100", "devices": 8, **flags}
    return Experiment.from_flags({name: str(value) for name, value in given.items()})


# --- the bound ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CASES)
def test_no_schedule_beats_the_bound(name: str) -> None:
    """With free communication a step takes at least as long, as long if the stages are equal."""
    found = predict(case(name), Free(), semantics_of("h100"))
    bound = least_step_s(found.workload)
    assert found.step_s >= bound * (1 - 1e-9)
    stages = {
        (s.dense_layers, s.moe_layers, s.before_s, s.after_s) for s in found.workload.stages()
    }
    if len(stages) == 1:
        assert found.step_s == pytest.approx(bound)


# --- candidates ---------------------------------------------------------------------------------


def all_shapes(e: Experiment, scale_up: int) -> set[tuple[str, Any]]:
    """Return every strategy and mesh that an Experiment can have, found the slow way."""
    sizes = [d for d in range(1, e.devices + 1) if e.devices % d == 0]
    found = set()
    for strategy, axes in STRATEGY_AXES.items():
        for inner in product(sizes, repeat=len(axes) - 1):
            mesh = dict(zip(axes[1:], inner, strict=True))
            rest = e.devices
            for size in inner:
                rest //= size if rest % size == 0 else e.devices + 1
            tensor = mesh.get("tensor", 2)
            own = {"fsdp": "fsdp", "dp_pp_tp": "tensor", "dp_pp_ep": "expert"}.get(strategy)
            if rest == 0 or (own and mesh[own] == 1):
                continue
            if strategy == "dp_pp_tp" and (
                scale_up % tensor or MODELS[e.model].heads % tensor or tensor > MOST_TENSOR
            ):
                continue
            full = mesh_in_order(dict.fromkeys(AXES, 1) | mesh | {"data": rest}, AXES)
            for schedule in ("gpipe", "interleaved"):
                try:
                    make_candidate(
                        e, strategy, full, {"schedule": schedule, "batch": 64, "microbatches": 64}
                    )
                except InputError:
                    continue
                found.add((strategy, full))
    return found


@pytest.mark.parametrize(
    ("model", "devices", "scale_up"),
    [("llama3_8b", 8, 8), ("llama3_8b", 48, 4), ("mixtral_8x7b", 24, 8), ("gpt2_l", 12, 12)],
)
def test_every_feasible_shape_is_a_candidate(model: str, devices: int, scale_up: int) -> None:
    e = base(model=model, devices=devices)
    found = find_candidates(e, (), tuple(STRATEGY_AXES), scale_up)
    assert {c.shape for c in found.candidates} == all_shapes(e, scale_up)


def test_candidates_are_experiments_that_the_rules_allow() -> None:
    found = find_candidates(base(devices=16), (), tuple(STRATEGY_AXES), 8)
    for candidate in found.candidates:
        e = candidate.experiment
        again = Experiment.from_dict(e.to_dict())
        assert again == e and e.devices == 16
    assert sum(found.refused.values()) > 0  # such as interleaved with too few microbatches
    schedules = {c.experiment.schedule for c in found.candidates}
    assert schedules == {"gpipe", "1f1b", "interleaved"}
    assert {c.experiment.sequence_parallel for c in found.candidates} == {True, False}
    assert {c.experiment.recompute for c in found.candidates} == {True, False}


def test_tensor_ranks_share_fast_links_and_divide_the_heads() -> None:
    found = find_candidates(base(devices=64), (), ["dp_pp_tp"], 8)
    assert {c.workload.t for c in found.candidates} == {2, 4, 8}
    found = find_candidates(base(model="gpt2_l", devices=64), (), ["dp_pp_tp"], 8)  # 20 heads
    assert {c.workload.t for c in found.candidates} == {2, 4}


def test_only_models_with_experts_have_expert_ranks() -> None:
    assert not find_candidates(base(), (), ["dp_pp_ep"], 8).candidates
    found = find_candidates(base(model="mixtral_8x7b"), (), ["dp_pp_ep"], 8)
    assert {c.workload.e for c in found.candidates} == {2, 4, 8}


def test_what_is_given_stays() -> None:
    flags = {"batch": 12, "microbatches": 3, "schedule": "gpipe", "recompute": "true", "units": 5}
    found = find_candidates(base(**flags), set(flags), tuple(STRATEGY_AXES), 8)
    for c in found.candidates:
        e = c.experiment
        assert (e.batch, e.microbatches, e.schedule, e.recompute, e.units) == (
            12,
            3,
            "gpipe",
            True,
            5,
        )


def test_the_batch_is_the_largest_that_fits_and_converges() -> None:
    e = base(model="llama3_8b", hardware="h200", devices=64)
    found = find_candidates(e, (), ["fsdp"], 8)
    limit = critical_batch(MODELS["llama3_8b"], 8192)
    smaller = 0
    for c in found.candidates:
        fits = [
            batch
            for batch in BATCHES
            if (other := at_batch(c, batch)).memory.fits and other.global_batch <= limit
        ]
        if fits:
            assert c.experiment.batch == max(fits) and not c.warning
            smaller += max(fits) < BATCHES[0]
    assert smaller > 0


def at_batch(c: Candidate, batch: int) -> Candidate:
    e = c.experiment
    options = {
        "batch": batch,
        "recompute": e.recompute,
        "units": e.units,
        "reshard_after_forward": e.reshard_after_forward,
    }
    return make_candidate(e, e.strategy, e.mesh, options)


def test_flags_make_the_same_experiment() -> None:
    found = find_candidates(base(model="mixtral_8x7b", devices=16), (), tuple(STRATEGY_AXES), 8)
    for c in found.candidates:
        flags = {}
        for word in c.flags:
            name, _, value = word.removeprefix("--").partition("=")
            value = value or ("false" if name.startswith("no") else "true")
            flags[name.removeprefix("no")] = value
        again = Experiment.from_flags({**flags, "model": "mixtral_8x7b", "hardware": "h100"})
        assert again == c.experiment


# --- the critical batch -------------------------------------------------------------------------


def test_the_critical_batch() -> None:
    """2e8 / 2^(1/.21) tokens = 7.37 million; of images 15,000 whatever their patches."""
    assert pytest.approx(7.37e6, rel=0.01) == CRITICAL_TOKENS
    llama, vit = MODELS["llama3_70b"], MODELS["vit_h14"]
    assert critical_batch(llama, 8192) == int(CRITICAL_TOKENS / 8192) == 899
    assert critical_batch(vit, 257) == 15_000
    assert batch_warning(llama, 8192, 899) is None
    warning = batch_warning(llama, 8192, 900)
    assert warning and "7,372,800 tokens" in warning and "1812.06162" in warning
    assert "unverified" in warning
    assert batch_warning(vit, 257, 15_000) is None
    assert "15,001 images" in (batch_warning(vit, 257, 15_001) or "")


# --- the ranking --------------------------------------------------------------------------------


def stub(speed: Callable[[Experiment], dict[str, float]]) -> Any:
    """Return a predictor whose steps have the parts that `speed` gives, and a list of its calls."""
    calls: list[Experiment] = []

    def predicted(experiment: Experiment, record: Any = ()) -> Prediction:
        calls.append(experiment)
        parts = {**dict.fromkeys(PARTS, 0.0), **speed(experiment)}
        step_s = sum(parts.values())
        batch = experiment.batch * experiment.devices
        for axis in ("pipeline", "tensor"):
            batch //= experiment.axis(axis)
        shares = {"throughput": batch / step_s, "communication_share": parts["latency_s"] / step_s}
        return cast(Prediction, SimpleNamespace(step_s=step_s, **parts, **shares))

    predicted.calls = calls  # type: ignore[attr-defined]
    return predicted


def advised(e: Experiment, predictor: Any, given: Any = (), **options: Any) -> Advice:
    return advise(e, given, predictor, scale_up=8, **options)


SMALL = {"model": "gpt2_l", "devices": 8, "batch": 2, "microbatches": 2, "hardware": "h100"}


def test_the_ranking_is_by_throughput_and_one_row_a_shape() -> None:
    def speed(e: Experiment) -> dict[str, float]:
        return {"compute_s": 1.0 + e.axis("fsdp") % 5 + e.axis("pipeline") * e.axis("tensor")}

    advice = advised(base(**SMALL), stub(speed), {"batch", "microbatches"})
    speeds = [choice.throughput for choice in advice.ranking]
    assert speeds == sorted(speeds, reverse=True) and len(speeds) > 5
    rows = [choice.candidate.shape for choice in advice.ranking]
    assert len(set(rows)) == len(rows)
    assert advice.winner is advice.ranking[0] and advice.runner_up is advice.ranking[1]
    assert not advice.unfit


def test_a_batch_that_does_not_converge_does_not_win() -> None:
    """Data parallelism is fastest here, with 8 x 2,048 samples of 1,024 tokens a step."""

    def speed(e: Experiment) -> dict[str, float]:
        return {"compute_s": e.axis("pipeline") * e.axis("tensor") * 0.9}

    e = base(model="vit_b16", devices=8, batch=2048, microbatches=2048)
    advice = advised(e, stub(speed), {"batch", "microbatches"})
    assert (
        advice.ranking[0].candidate.warning and advice.ranking[0].candidate.global_batch == 16_384
    )
    winner = advice.winner
    assert winner and winner.candidate.global_batch <= 15_000 and winner is not advice.ranking[0]
    assert advice.runner_up and not advice.runner_up.candidate.warning
    everything = advised(e, stub(speed), {"batch", "microbatches"}, strategies=["dp"])
    assert everything.winner and everything.winner.candidate.warning


def test_the_reason_names_what_is_smaller() -> None:
    def speed(e: Experiment) -> dict[str, float]:
        if e.strategy == "fsdp":
            return {"compute_s": 2.0, "latency_s": 0.5}
        return {"compute_s": 1.0, "transfer_exposed_s": 1.0, "bubble_s": 1.0}

    e = base(**SMALL, mfu=1)
    advice = advised(e, stub(speed), {"batch", "microbatches"}, strategies=["dp", "fsdp"])
    assert advice.winner and advice.winner.candidate.experiment.strategy == "fsdp"
    assert advice.runner_up  # another fsdp: equal in all
    same, better = advice.reason.split("; ")
    assert same == f"as fast as {advice.runner_up.candidate.describe()}"
    assert better.startswith("20.0 % faster than dp data=8: a sample takes 500 ms less bubble")
    two = Advice(
        ranking=(advice.ranking[0], advice.ranking[-1]),
        unfit=(),
        considered=0,
        refused=advice.refused,
        feasible=0,
        fitting=0,
        simulated=0,
        took_s=0.0,
    )
    # a step of 16 samples on 8 devices: half of a part's seconds are device-seconds a sample
    assert two.reason == (
        "20.0 % faster than dp data=8: a sample takes 500 ms less bubble, 500 ms less exposed "
        "transfer (and 500 ms more compute, 250 ms more latency) in device-seconds"
    )


def test_nothing_is_simulated_that_does_not_fit() -> None:
    predictor = stub(lambda e: {"compute_s": 1.0})
    advice = advised(base(model="llama3_405b", devices=8), predictor)
    assert advice.winner is None and not predictor.calls and not advice.ranking
    assert advice.reason == "nothing fits" and advice.to_json()["winner"] is None
    sizes = [c.memory.total_bytes for c in advice.unfit]
    assert sizes == sorted(sizes) and sizes[0] > advice.unfit[0].memory.usable_bytes
    why = why_unfit(advice.unfit[0])
    assert (
        "817 GB a device (optimizer 609 GB, parameters 101 GB)" in why
        and "of 72 GB that are usable" in why
    )


def test_a_shape_is_unfit_only_if_all_its_options_are() -> None:
    advice = advised(base(model="llama3_8b", devices=16), stub(lambda e: {"compute_s": 1.0}))
    fits = {choice.candidate.shape for choice in advice.ranking}
    unfit = {c.shape for c in advice.unfit}
    assert fits and unfit and not fits & unfit
    assert ("dp", mesh_in_order({"data": 16}, AXES)) in unfit  # 8e9 * 16 bytes
    assert all(choice.candidate.memory.fits for choice in advice.ranking)


def test_no_strategy_that_makes_sense_is_refused() -> None:
    with pytest.raises(InputError, match="none of the strategies can use 7 devices"):
        advised(base(devices=7), stub(lambda e: {}), strategies=["dp_pp_tp"])
    with pytest.raises(InputError, match="doesn't divide --batch=5"):
        advised(
            base(batch=5, microbatches=2),
            stub(lambda e: {}),
            {"batch", "microbatches"},
            strategies=["dp_pp"],
        )


@pytest.mark.slow
@pytest.mark.parametrize(("model", "devices"), [("gpt2_l", 4), ("vit_b16", 6)])
def test_pruning_does_not_change_who_wins(model: str, devices: int) -> None:
    """All candidates simulated, without pruning, give the same winner and runner-up."""
    given = {"batch": 2, "microbatches": 2, "units": 8, "recompute": False}
    e = base(model=model, devices=devices, system="h100_cluster", **given)
    predictor = predictor_on("h100_cluster", e)
    advice = advised(e, predictor, given)
    best: dict[Any, float] = {}
    found = find_candidates(e, given, tuple(STRATEGY_AXES), 8)
    fitting = [c for c in found.candidates if c.memory.fits and not c.warning]
    for c in fitting:
        throughput = predictor(c.experiment).throughput
        assert throughput <= c.most_throughput * (1 + 1e-9)
        best[c.shape] = max(best.get(c.shape, 0.0), throughput)
    order = sorted(best.items(), key=lambda item: -item[1])
    assert advice.winner and advice.runner_up
    assert advice.winner.throughput == pytest.approx(order[0][1])
    assert advice.runner_up.throughput == pytest.approx(order[1][1])
    assert advice.simulated < len(fitting)


def test_the_runner_up_is_as_fast_as_it_can_be() -> None:
    """Nothing can beat the winner here, but the other shapes have better options than the first."""

    def speed(e: Experiment) -> dict[str, float]:
        least = least_step_s(build_workload(e))
        slow = 1.0 if e.strategy == "dp" else 1.5 if e.reshard_after_forward else 1.1
        return {"compute_s": least * slow}

    given = {"batch": 2, "recompute": False}
    e = base(**{**SMALL, **given})
    advice = advised(e, stub(speed), given, strategies=["dp", "fsdp"])
    assert advice.winner and advice.winner.candidate.experiment.strategy == "dp"
    second = advice.runner_up
    assert second and not second.candidate.experiment.reshard_after_forward
    assert advice.winner.throughput == pytest.approx(1.1 * second.throughput)


def test_parts_add_up_to_the_step() -> None:
    e = base(model="llama3_8b", devices=16, system="h100_cluster", batch=4)
    advice = advised(e, predictor_on("h100_cluster", e), {"batch"}, strategies=["fsdp", "dp_pp_tp"])
    for choice in advice.ranking:
        assert sum(choice.parts_s.values()) == pytest.approx(choice.step_s)
        shares = choice.parts_s["transfer_exposed_s"] + choice.parts_s["latency_s"]
        assert choice.communication_share == pytest.approx(shares / choice.step_s)
        per_sample = sum(choice.device_s.values())
        assert per_sample == pytest.approx(16 / choice.throughput)


def test_a_scale_up_domain_of_several_nodes_takes_wider_tensor_groups() -> None:
    system = find_system("gb300_nvl72")
    assert system.devices_per_node * system.node.nodes == 72
    e = base(model="llama3_70b", hardware="gb300", devices=72)
    found = find_candidates(e, (), ["dp_pp_tp"], 72)
    assert {c.workload.t for c in found.candidates} == {2, 4, 8}
