"""An experiment is checked once, tells every fault at once, and survives a record."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxbench.axes import AXES, STRATEGY_AXES
from jaxbench.catalog.models import MODELS
from jaxbench.errors import InputError
from jaxbench.experiment import Experiment
from jaxbench.experiment_rules import CHOICES, FRACTIONS, OPTION_STRATEGIES, POSITIVE, SMALLEST

DP = {"strategy": "dp", "model": "tiny", "devices": "8"}
PP = {"strategy": "dp_pp", "model": "tiny", "mesh": "pipeline=4", "devices": "8"}
TP = {"strategy": "dp_pp_tp", "model": "tiny", "mesh": "pipeline=2,tensor=2", "devices": "8"}
EP = {"strategy": "dp_pp_ep", "model": "tiny_moe", "mesh": "pipeline=2,expert=2", "devices": "8"}
FSDP = {"strategy": "fsdp", "model": "tiny", "mesh": "fsdp=4", "devices": "8"}


def faults(base: dict[str, str], **changes: str) -> list[str]:
    """Return the faults of an experiment with some flags changed."""
    with pytest.raises(InputError) as caught:
        Experiment.from_flags({**base, **changes})
    return list(caught.value.faults)


def only_fault(base: dict[str, str], **changes: str) -> str:
    """Return the one fault of an experiment with some flags changed."""
    found = faults(base, **changes)
    assert len(found) == 1, found
    return found[0]


@pytest.mark.parametrize("flags", [DP, FSDP, PP, TP, EP], ids=lambda flags: flags["strategy"])
def test_survives_a_record(flags: dict[str, str]) -> None:
    experiment = Experiment.from_flags({**flags, "axis_order": "tensor,data,fsdp,expert,pipeline"})
    record = json.loads(json.dumps(experiment.to_dict()))
    assert Experiment.from_dict(record) == experiment
    assert list(record["mesh"]) == ["tensor", "data", "fsdp", "expert", "pipeline"]


def test_a_record_with_an_unknown_field_is_refused() -> None:
    record = {**Experiment.from_flags(DP).to_dict(), "stratgy": "dp"}
    with pytest.raises(InputError, match="did you mean 'strategy'"):
        Experiment.from_dict(record)


def test_a_mesh_made_without_flags_is_checked_and_completed() -> None:
    made = Experiment(strategy="dp", model="tiny", mesh=(("data", 2),), devices=2)
    assert made == Experiment.from_flags({**DP, "devices": "2"})
    for mesh, reason in {
        (("data", 2),): "--mesh=data=2 makes 2 ranks, but --devices is 4",
        (("dtaa", 4),): "unknown mesh axis 'dtaa'; did you mean 'data'?",
        (("data", 0),): "mesh axis 'data' has size 0",
    }.items():
        with pytest.raises(InputError, match=reason):
            Experiment(strategy="dp", model="tiny", mesh=mesh, devices=4)


def test_defaults_are_resolved() -> None:
    tiny = Experiment.from_flags(DP)
    assert (tiny.seq_len, tiny.grad_dtype, tiny.top_k) == (128, "bfloat16", None)
    assert Experiment.from_flags({**DP, "dtype": "float32"}).grad_dtype == "float32"
    qwen = {**DP, "model": "qwen3_30b_a3b"}
    assert Experiment.from_flags(qwen).top_k == 8
    dlnetbench = {**qwen, "convention": "dlnetbench", "hardware": "gh200"}
    assert Experiment.from_flags(dlnetbench).top_k == 2


def test_an_empty_value_is_the_default() -> None:
    emptied = {**DP, "mesh": "", "batch": " ", "system": ""}
    assert Experiment.from_flags(emptied) == Experiment.from_flags(DP)


def test_booleans() -> None:
    for text, value in {"true": True, "0": False, "No": False, "yes": True}.items():
        assert Experiment.from_flags({**DP, "recompute": text}).recompute is value
    assert only_fault(DP, recompute="maybe") == "--recompute is 'maybe'; it must be true or false"


def test_all_faults_are_told_at_once() -> None:
    text = "\n".join(
        faults(
            {"strategy": "fdsp", "model": "llama", "mesh": "data=0,foo=2,x,fsdp=2,fsdp=3"},
            batch="1.5",
            dtype="bf16",
            seed="-1",
            mfu="1.5",
            size_scale="0",
            stpes="3",
            schedule="zigzag",
            system="frontier",
            payload="Sleep",
        )
    )
    for part in (
        "unknown flag 'stpes'; did you mean 'steps'?",
        "unknown strategy 'fdsp'; did you mean 'fsdp'? known: dp, dp_pp,",
        "unknown model 'llama'; did you mean 'llama3_8b'? known: ",
        "unknown mesh axis 'foo'; known: data, expert, fsdp, pipeline, tensor",
        "--mesh gives 'data' the size '0'",
        "--mesh has 'x'; write axis=size",
        "names the axis 'fsdp' twice",
        "--batch is '1.5'; it must be a whole number",
        "unknown dtype 'bf16'; did you mean 'bfloat16'?",
        "--seed is -1; it must be at least 0",
        "--mfu is 1.5; it must be greater than 0 and at most 1",
        "--size_scale is 0; it must be greater than 0",
        "unknown schedule 'zigzag'; known: 1f1b, gpipe, interleaved",
        "unknown system 'frontier'",
        "unknown payload 'Sleep'; did you mean 'sleep'?",
    ):
        assert part in text
    assert len(text.splitlines()) == 15


def test_scales_beyond_all_reason_are_refused() -> None:
    assert "64 bits hold 9.22e18" in only_fault(DP, size_scale="1e300")
    assert "computes of 1e+12 s or more; 1e+09 s is the most" in only_fault(DP, time_scale="1e12")


def test_nothing_given_tells_what_is_missing() -> None:
    text = "\n".join(faults({}))
    assert "--strategy is missing; known: dp," in text
    assert "--model is missing; known: deepseek_v3," in text
    assert "give --devices=8 or --mesh=" in text


@pytest.mark.parametrize("name", SMALLEST)
def test_whole_numbers_have_bounds(name: str) -> None:
    low = SMALLEST[name]
    assert (
        f"--{name} is {low - 1}; it must be at least {low}" in faults(DP, **{name: str(low - 1)})[0]
    )
    assert "whole number" in only_fault(DP, **{name: "ten"})
    assert "fit 64 bits" in faults(DP, **{name: str(2**63)})[0]


@pytest.mark.parametrize("name", POSITIVE + FRACTIONS)
def test_real_numbers_have_bounds(name: str) -> None:
    base = {**DP, "forward_s": "1"}
    for text in ("0", "-1", "inf", "nan"):
        assert f"--{name} is {float(text):g}; it must be" in faults(base, **{name: text})[0]
    assert "it must be a number" in only_fault(base, **{name: "fast"})
    assert getattr(Experiment.from_flags({**base, name: "0.5"}), name) == 0.5


@pytest.mark.parametrize("name", CHOICES)
def test_every_choice_is_a_closed_list(name: str) -> None:
    assert f"unknown {name} 'nonesuch'" in faults(DP, **{name: "nonesuch"})[0]


# --- the mesh ---------------------------------------------------------------------------------


def sizes(flags: dict[str, str]) -> dict[str, int]:
    """Return the axes that an experiment uses."""
    experiment = Experiment.from_flags(flags)
    assert [axis for axis, _ in experiment.mesh] == list(AXES)
    assert math.prod(size for _, size in experiment.mesh) == experiment.devices
    return {axis: size for axis, size in experiment.mesh if size > 1}


def test_data_is_what_is_left() -> None:
    assert sizes(DP) == {"data": 8}
    assert sizes(PP) == {"data": 2, "pipeline": 4}
    assert sizes({**TP, "devices": "12"}) == {"data": 3, "pipeline": 2, "tensor": 2}
    no_devices = {**PP, "mesh": "pipeline=4,data=3", "devices": ""}
    assert sizes(no_devices) == {"data": 3, "pipeline": 4}
    assert sizes({**PP, "devices": ""}) == {"pipeline": 4}
    assert sizes({**PP, "mesh": "", "devices": "1"}) == {}


def test_a_mesh_that_does_not_fit_the_devices() -> None:
    assert only_fault(PP, mesh="data=3,pipeline=4") == (
        "--mesh=data=3,pipeline=4 makes 12 ranks, but --devices is 8"
    )
    assert only_fault(TP, devices="10") == (
        "--mesh=pipeline=2,tensor=2 takes a multiple of 4 ranks, but --devices is 10; use 8 or 12"
    )
    assert "use 4" in only_fault(TP, devices="3")
    assert only_fault(PP, mesh="") == (
        "strategy dp_pp needs a mesh beside --devices, as in --mesh=pipeline=2"
    )


@pytest.mark.parametrize("strategy", STRATEGY_AXES)
@pytest.mark.parametrize("axis", AXES)
def test_an_axis_is_used_or_refused(strategy: str, axis: str) -> None:
    model = "tiny_moe" if strategy == "dp_pp_ep" else "tiny"
    flags = {"strategy": strategy, "model": model, "mesh": f"{axis}=2"}
    if axis in STRATEGY_AXES[strategy]:
        assert Experiment.from_flags(flags).axis(axis) == 2
    else:
        assert f"doesn't use the mesh axis '{axis}' (size 2)" in only_fault(flags)
    assert Experiment.from_flags({**flags, "mesh": f"data=2,{axis}=1"} if axis != "data" else flags)


def test_axis_order() -> None:
    order = "pipeline,data,fsdp,expert,tensor"
    experiment = Experiment.from_flags({**PP, "axis_order": order})
    assert experiment.mesh[:2] == (("pipeline", 4), ("data", 2))
    assert "must hold each of data, fsdp" in only_fault(PP, axis_order="data,pipeline")


def test_a_system_implies_its_hardware_and_its_size() -> None:
    assert Experiment.from_flags({**DP, "system": "dgx_a100"}).hardware == "a100_80"
    assert "has 8 devices, but the mesh takes 16" in only_fault(DP, system="dgx_a100", devices="16")
    assert "has hardware a100_80, but --hardware is h100" in only_fault(
        DP, system="dgx_a100", hardware="h100"
    )


# --- strategies -------------------------------------------------------------------------------


def test_microbatches_divide_the_batch() -> None:
    assert only_fault(PP, microbatches="5") == (
        "--microbatches=5 doesn't divide --batch=16; divisors: 1, 2, 4, 8, 16"
    )
    assert Experiment.from_flags({**DP, "batch": "3"})  # dp has no microbatches


def test_stages_have_layers() -> None:
    assert "16 pipeline stages are more than the 8 layers" in only_fault(
        PP, mesh="pipeline=16", devices="16"
    )
    assert Experiment.from_flags({**PP, "mesh": "pipeline=3", "devices": "3"})  # uneven is fine


def test_interleaved() -> None:
    interleaved = {**PP, "schedule": "interleaved", "chunks": "2"}
    assert Experiment.from_flags(interleaved).chunks == 2
    assert only_fault(interleaved, chunks="1") == "--schedule=interleaved needs --chunks=2 or more"
    assert "4 stages of 3 chunks don't divide the 8 layers" in only_fault(interleaved, chunks="3")
    assert "multiples of the 4 stages, but --microbatches is 2" in only_fault(
        interleaved, microbatches="2"
    )
    assert "--chunks=2 needs --schedule=interleaved, not gpipe" in only_fault(PP, chunks="2")


def test_tensor_ranks_divide_the_activation() -> None:
    odd = {**TP, "model": "gpt2_xl", "seq_len": "7", "mesh": "tensor=3", "devices": "3"}
    assert "11,200 elements, which the 3 ranks of axis 'tensor' don't divide" in only_fault(odd)
    assert Experiment.from_flags({**odd, "seq_len": "6"})


def test_experts() -> None:
    assert "needs a model with experts, which tiny hasn't; known: deepseek_v3" in only_fault(
        EP, model="tiny"
    )
    assert (
        "the 3 ranks of axis 'expert' don't divide the 8 experts of tiny_moe"
        in faults(EP, mesh="expert=3", devices="3")[0]
    )
    assert "--top_k=9 is more than the 8 experts" in only_fault(EP, top_k="9")
    assert "--top_k=1 is more than the 0 experts of tiny" in only_fault(DP, top_k="1")
    odd = {"seq_len": "1", "top_k": "1", "model": "deepseek_v3", "mesh": "expert=4"}
    assert Experiment.from_flags({**EP, **odd})
    uneven = {"model": "gpt_oss_120b", "seq_len": "1", "top_k": "1", "mesh": "expert=128"}
    assert "dispatches 2,880 elements, which the 128 ranks" in only_fault(
        EP, **uneven, devices="128"
    )


def test_buckets_and_units_are_not_empty() -> None:
    assert "more than the 2,000,003 parameters of tiny" in only_fault(DP, buckets="2000004")
    assert "more than the 2,000,003 parameters of tiny" in only_fault(FSDP, units="2000004")
    assert Experiment.from_flags({**DP, "buckets": "2000003"})


def test_time_needs_a_source() -> None:
    fp8 = {"dtype": "float8_e4m3fn", "hardware": "a100_80"}
    assert "hardware 'a100_80' has no known peak for dtype 'float8_e4m3fn'" in only_fault(DP, **fp8)
    assert Experiment.from_flags({**DP, **fp8, "forward_s": "1"})
    assert Experiment.from_flags({**DP, **fp8, "hardware": "h100"})
    assert "DLNetBench has no peak for hardware 'h100'" in only_fault(DP, convention="dlnetbench")
    assert only_fault(DP, backward_s="1") == "--backward_s needs --forward_s beside it"


# --- notes and titles -------------------------------------------------------------------------


@pytest.mark.parametrize("option", OPTION_STRATEGIES)
@pytest.mark.parametrize("base", [DP, FSDP, PP, TP, EP], ids=lambda flags: flags["strategy"])
def test_a_setting_without_effect_is_noted(option: str, base: dict[str, str]) -> None:
    default = getattr(Experiment.from_flags(base), option)
    text = str(default).lower() if isinstance(default, bool) else str(default)
    notes = Experiment.from_flags({**base, option: text}).notes
    used = base["strategy"] in OPTION_STRATEGIES[option]
    assert bool(notes) is not used
    assert all(f"--{option} has no effect with strategy" in note for note in notes)


def test_timing_settings_without_effect_are_noted() -> None:
    dlnetbench = {"convention": "dlnetbench", "hardware": "gh200", "mfu": "0.4"}
    assert Experiment.from_flags({**DP, **dlnetbench}).notes == (
        "--mfu has no effect beside --convention=dlnetbench",
    )
    given_times = {"forward_s": "1", "backward_s": "2", "recompute": "true"}
    assert Experiment.from_flags({**DP, **given_times}).notes == (
        "--recompute has no effect beside --backward_s",
    )
    assert Experiment.from_flags(DP).notes == ()


def test_the_title_has_the_scales() -> None:
    title = Experiment.from_flags({**PP, "size_scale": "0.01", "time_scale": "0.5"}).describe()
    assert title == (
        "dp_pp tiny, data=2,pipeline=4, bfloat16, times of h100 at MFU 0.425, "
        "time x 0.5, size x 0.01"
    )
    assert "times of" not in Experiment.from_flags({**DP, "forward_s": "1"}).describe()


@settings(max_examples=200, deadline=None)
@given(
    strategy=st.sampled_from(sorted(STRATEGY_AXES)),
    model=st.sampled_from(sorted(MODELS)),
    mesh=st.dictionaries(st.sampled_from(AXES), st.integers(-1, 9), max_size=4),
    devices=st.sampled_from(["", "1", "3", "8", "24", "0", "x"]),
    others=st.dictionaries(
        st.sampled_from(["microbatches", "batch", "chunks", "top_k", "buckets", "seq_len"]),
        st.integers(-1, 40).map(str),
        max_size=3,
    ),
    schedule=st.sampled_from(["gpipe", "1f1b", "interleaved", "none"]),
)
def test_any_flags_make_an_experiment_or_faults(
    strategy: str,
    model: str,
    mesh: dict[str, int],
    devices: str,
    others: dict[str, str],
    schedule: str,
) -> None:
    text = ",".join(f"{axis}={size}" for axis, size in mesh.items())
    flags = {"strategy": strategy, "model": model, "mesh": text, "devices": devices}
    try:
        experiment = Experiment.from_flags({**flags, "schedule": schedule, **others})
    except InputError as error:
        assert error.faults and len(set(error.faults)) == len(error.faults)
        return
    assert math.prod(size for _, size in experiment.mesh) == experiment.devices
    stages = experiment.axis("pipeline")
    assert stages == 1 or experiment.batch % experiment.microbatches == 0
    assert Experiment.from_dict(experiment.to_dict()) == experiment
