"""The memory of real training, against published arithmetic and laws that any model obeys."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxbench.catalog.hardware import HARDWARE
from jaxbench.catalog.models import MODELS
from jaxbench.catalog.shape import Model
from jaxbench.experiment import Experiment
from jaxbench.training_memory import (
    USABLE_SHARE,
    TrainingMemory,
    adam_states,
    layer_activation_bytes,
    microbatches_in_flight,
    stage_parameters,
    training_memory,
)
from jaxbench.workload import Workload, build_workload


def gpt(name: str, layers: int, hidden: int, heads: int) -> Model:
    """Return a model of the GPT kind, which the published formulas are about."""
    return Model(
        name=name,
        source="arXiv 2205.05198 table 3",
        published_parameters=0,
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=heads,
        head_dim=hidden // heads,
        d_ff=4 * hidden,
        mlp_matrices=2,
        seq_len=2048,
        vocab=51_200,
    )


GPT3_175B = gpt("gpt3_175b", 96, 12_288, 96)
MT_NLG_530B = gpt("mt_nlg_530b", 105, 20_480, 128)
GPTS = (GPT3_175B, MT_NLG_530B)


def workload(**flags: Any) -> Workload:
    base = {"strategy": "dp", "model": "llama3_8b", "hardware": "h100"}
    given = {k: str(v) for k, v in {**base, **flags}.items()}
    return build_workload(Experiment.from_flags(given))


def memory(**flags: Any) -> TrainingMemory:
    return training_memory(workload(**flags))


# --- states -----------------------------------------------------------------------------------


def test_states_of_zero_figure_1() -> None:
    """ZeRO figure 1: 7.5e9 parameters, 64 devices; 120 GB, and with everything split 1.9 GB."""
    states = adam_states(7_500_000_000, "float16")
    parts = (states.parameters_bytes, states.gradients_bytes, states.optimizer_bytes)
    assert parts == (15e9, 15e9, 90e9)
    assert states.total_bytes == 120e9
    assert parts[0] + parts[1] + parts[2] / 64 == pytest.approx(31.4e9, rel=2e-3)
    assert parts[0] + (parts[1] + parts[2]) / 64 == pytest.approx(16.6e9, rel=3e-3)
    sharded = adam_states(7_500_000_000 // 64, "float16").total_bytes
    assert sharded == pytest.approx(1.9e9, rel=0.02)


def test_states_follow_the_dtypes() -> None:
    assert adam_states(1, "float32").total_bytes == 4 + 4 + 8
    assert adam_states(1, "bfloat16", "float32").total_bytes == 2 + 4 + 12
    assert adam_states(1, "float8_e4m3fn", "bfloat16").total_bytes == 1 + 2 + 12


def test_dp_keeps_everything_and_fsdp_its_share() -> None:
    parameters = MODELS["llama3_8b"].parameters
    assert memory(devices=64).states.total_bytes == 16 * parameters
    sharded = memory(strategy="fsdp", devices=64, mesh="fsdp=64")
    assert sharded.states.total_bytes == pytest.approx(16 * parameters / 64, rel=1e-6)
    hybrid = memory(strategy="fsdp", devices=64, mesh="fsdp=8")
    assert hybrid.states.total_bytes == pytest.approx(16 * parameters / 8, rel=1e-6)


def test_what_fsdp_has_whole() -> None:
    """Two units of parameters and two of gradients; everything where it isn't resharded."""
    parameters = MODELS["llama3_8b"].parameters
    flags = {"strategy": "fsdp", "devices": 8, "mesh": "fsdp=8", "units": 32}
    assert memory(**flags).gathered_bytes == pytest.approx(parameters / 32 * 2 * (2 + 2), rel=1e-6)
    kept = memory(**flags, reshard_after_forward="false")
    assert kept.gathered_bytes == pytest.approx(parameters * 2 + parameters / 32 * 2 * 2, rel=1e-6)
    assert memory(**{**flags, "units": 1}).gathered_bytes == parameters * 4
    assert memory(strategy="fsdp", devices=8, mesh="fsdp=1,data=8").gathered_bytes == 0


@pytest.mark.parametrize("ends", ["even", "ends"])
@pytest.mark.parametrize("name", sorted(MODELS))
def test_all_stages_together_have_the_model(name: str, ends: str) -> None:
    """Whatever the layers divide into, nothing is lost; a tied head is a copy of the embedding."""
    model = MODELS[name]
    stages = min(7, model.layers)
    w = workload(
        strategy="dp_pp",
        model=name,
        mesh=f"pipeline={stages}",
        head_placement=ends,
        forward_s=1,
        microbatches=1,
    )
    held = sum(stage_parameters(w, stage) for stage in range(stages))
    copy = model.vocab * model.hidden if model.tied and ends == "ends" else 0
    assert held == pytest.approx(model.parameters + copy, abs=stages)


def test_tensor_and_expert_ranks_split_what_they_split() -> None:
    llama = MODELS["llama3_70b"].parameters
    w = workload(strategy="dp_pp_tp", model="llama3_70b", mesh="pipeline=8,tensor=4")
    assert stage_parameters(w, 3) == pytest.approx(llama / 32, rel=1e-6)
    mixtral = MODELS["mixtral_8x7b"]
    w = workload(strategy="dp_pp_ep", model="mixtral_8x7b", mesh="pipeline=8,expert=8")
    want = mixtral.nonexpert_parameters / 8 + mixtral.expert_parameters / 64
    assert stage_parameters(w, 0) == pytest.approx(want, rel=1e-6)


def test_the_stage_with_one_layer_more_is_the_fullest() -> None:
    """126 layers on 4 stages: 32, 32, 31, 31; with the ends, the first has the embedding too."""
    base = {"strategy": "dp_pp_tp", "model": "llama3_405b", "mesh": "pipeline=4,tensor=8"}
    w = workload(**base)
    layer = w.model.attention_parameters + w.model.dense_mlp_parameters
    assert stage_parameters(w, 1) - stage_parameters(w, 2) == pytest.approx(layer / 8, abs=1)
    assert memory(**base, schedule="gpipe").stage in (0, 1)
    w = workload(**base, head_placement="ends")
    table = w.model.vocab * w.model.hidden
    assert stage_parameters(w, 0) - stage_parameters(w, 1) == pytest.approx(table / 8, abs=1)


# --- activations of a layer ---------------------------------------------------------------------


@pytest.mark.parametrize("model", GPTS, ids=lambda m: m.name)
@pytest.mark.parametrize("tensor", [1, 8])
@pytest.mark.parametrize("b", [1, 4])
def test_the_rows_of_table_2(model: Model, tensor: int, b: int) -> None:
    """Korthikanti et al. table 2, all six rows."""
    s, h, a, t = model.seq_len, model.hidden, model.heads, tensor
    sbh, core = s * b * h, 5 * a * s / h

    def kept(**options: Any) -> float:
        every = {"tensor": t, "attention": "materialised", "dropout": True}
        return layer_activation_bytes(model, s * b, s, **{**every, **options})

    assert kept() == pytest.approx(sbh * (10 + 24 / t + core / t))
    assert kept(sequence_parallel=True) == pytest.approx(sbh * (34 / t + core / t))
    assert kept(recomputation="selective") == pytest.approx(sbh * (10 + 24 / t))
    both = kept(recomputation="selective", sequence_parallel=True)
    assert both == pytest.approx(sbh * 34 / t)
    assert kept(recomputation="full") == sbh * 2
    if t == 1:
        assert kept() == pytest.approx(sbh * (34 + core))


@pytest.mark.parametrize(
    ("model", "core", "saved"), [(GPT3_175B, 80, 0.70), (MT_NLG_530B, 64, 0.65)]
)
def test_what_selective_recomputation_saves(model: Model, core: float, saved: float) -> None:
    """Section 5: 5as/h is 80 and 64, so 70 % and 65 % less."""
    assert 5 * model.heads * model.seq_len / model.hidden == core
    options: dict[str, Any] = {"attention": "materialised", "dropout": True}
    everything = layer_activation_bytes(model, 2048, 2048, **options)
    less = layer_activation_bytes(model, 2048, 2048, recomputation="selective", **options)
    assert 1 - less / everything == pytest.approx(saved, abs=0.005)


def test_flash_attention_keeps_a_number_per_query_and_head() -> None:
    flash = layer_activation_bytes(GPT3_175B, 4096, 2048, dropout=True)
    selective = layer_activation_bytes(
        GPT3_175B, 4096, 2048, dropout=True, recomputation="selective"
    )
    assert flash - selective == 4096 * 96 * 4


def test_a_gated_layer_with_grouped_queries() -> None:
    """llama3_8b by hand, elements a token: 4 inputs of D; q, k, v, output; gate, up, product."""
    D, kv, F = 4096, 1024, 14_336
    kept = layer_activation_bytes(MODELS["llama3_8b"], 10, 8192)
    assert kept == 10 * (2 * (4 * D + (D + kv + kv + D) + 3 * F) + 4 * 32)


def test_an_expert_layer() -> None:
    """mixtral by hand: a copy in and out for each of two experts, and eight scores a token."""
    D, kv, F = 4096, 1024, 14_336
    kept = layer_activation_bytes(MODELS["mixtral_8x7b"], 10, 8192, moe=True, top_k=2)
    elements = 4 * D + (D + kv + kv + D) + 2 * 2 * D + 2 * 3 * F
    assert kept == 10 * (2 * elements + 4 * 32 + 4 * 8)


def test_latent_attention() -> None:
    """deepseek_v3 by hand: q and k of 192, v and output of 128 per head, what is compressed."""
    row = MODELS["deepseek_v3"]
    kept = layer_activation_bytes(row, 10, 4096)
    elements = 4 * 7168 + 128 * (192 + 192 + 128 + 128) + (1536 + 512 + 64) + 3 * 18_432
    assert kept == 10 * (2 * elements + 4 * 128)


# --- in flight ----------------------------------------------------------------------------------


def test_microbatches_in_flight() -> None:
    assert [microbatches_in_flight("gpipe", 4, 1, 16, s) for s in range(4)] == [16] * 4
    assert [microbatches_in_flight("1f1b", 4, 1, 16, s) for s in range(4)] == [4, 3, 2, 1]
    assert [microbatches_in_flight("1f1b", 4, 1, 2, s) for s in range(4)] == [2, 2, 2, 1]
    chunks = [microbatches_in_flight("interleaved", 4, 3, 16, s) for s in range(4)]
    assert chunks == [15, 13, 11, 9]


@pytest.mark.parametrize(("p", "v"), [(4, 2), (8, 5), (2, 10)])
def test_the_interleaved_schedule_keeps_what_is_published(p: int, v: int) -> None:
    """Korthikanti et al. section 4.2.3: L layers' activations times 1 + (p-1)/(pv)."""
    layers = microbatches_in_flight("interleaved", p, v, 10 * p, 0) / (p * v)
    assert layers == pytest.approx(1 + (p - 1) / (p * v))


PIPELINE = {
    "strategy": "dp_pp_tp",
    "model": "llama3_70b",
    "hardware": "gh200",
    "mesh": "data=2,pipeline=8,tensor=4",
}


def test_activations_of_a_pipeline_by_hand() -> None:
    """Stage 0 of 1f1b keeps 8 microbatches of 10 layers, and an eighth of the head's."""
    w = workload(**PIPELINE, schedule="1f1b", sequence_parallel="true")
    found = training_memory(w)
    layer = layer_activation_bytes(w.model, 8192, 8192, tensor=4, sequence_parallel=True)
    head = (2 * 8192 * 8192 * 2 + 4 * 8192 * 128_256) / 4
    assert (found.stage, found.in_flight) == (0, 8)
    assert found.activation_bytes == pytest.approx(8 * 10 * layer + head / 8, abs=1)
    gpipe = training_memory(workload(**PIPELINE, sequence_parallel="true"))
    assert gpipe.activation_bytes == pytest.approx(16 * (10 * layer + head / 8), abs=1)
    full = training_memory(
        workload(**PIPELINE, schedule="1f1b", sequence_parallel="true", recompute="true")
    )
    inputs = 8 * 10 * 8192 * 8192 * 2 / 4
    assert full.activation_bytes == pytest.approx(inputs + layer + head / 8, abs=1)


def test_activations_of_chunks_by_hand() -> None:
    """Interleaved, 5 chunks of 2 layers: 47 chunks at stage 0, 80 * (1 + 7/40) = 94 layers."""
    w = workload(**PIPELINE, schedule="interleaved", chunks=5)
    found = training_memory(w)
    layer = layer_activation_bytes(w.model, 8192, 8192, tensor=4)
    head = 2 * 8192 * 8192 * 2 + 4 * 8192 * 128_256 / 4
    assert (found.stage, found.in_flight) == (0, 47)
    assert found.activation_bytes == pytest.approx(94 * layer + head / 8, abs=1)


def test_it_fits_or_it_does_not() -> None:
    parameters = MODELS["llama3_70b"].parameters
    whole = memory(model="llama3_70b", devices=8)
    assert not whole.fits and whole.total_bytes > 16 * parameters
    assert whole.usable_bytes == HARDWARE["h100"].memory_bytes * USABLE_SHARE
    assert memory(**PIPELINE, schedule="1f1b", sequence_parallel="true").fits
    assert sum(whole.parts.values()) == whole.total_bytes


def test_scaling_the_proxy_leaves_real_training_as_it_is() -> None:
    assert memory(**PIPELINE, size_scale=0.001, time_scale=0.1) == memory(**PIPELINE)


# --- laws ---------------------------------------------------------------------------------------

SHAPES = st.fixed_dictionaries(
    {
        "model": st.sampled_from(["llama3_8b", "llama3_70b", "gpt2_xl", "minerva_7b"]),
        "mesh": st.builds(
            lambda p, t: f"pipeline={p},tensor={t}",
            st.sampled_from([1, 2, 5, 8]),
            st.sampled_from([1, 2, 4]),
        ),
        "schedule": st.sampled_from(["gpipe", "1f1b"]),
        "batch": st.sampled_from([8, 16]),
        "microbatches": st.sampled_from([2, 8]),
        "head_placement": st.sampled_from(["even", "ends"]),
    }
)


@given(SHAPES)
def test_what_saves_memory_saves_memory(flags: dict[str, Any]) -> None:
    flags = {"strategy": "dp_pp_tp", **flags}
    usual = memory(**flags).total_bytes
    assert memory(**flags, sequence_parallel="true").total_bytes <= usual
    assert memory(**flags, recompute="true").total_bytes < usual
    assert memory(**{**flags, "schedule": "1f1b"}).total_bytes <= usual
    assert memory(**{**flags, "batch": flags["batch"] * 2}).total_bytes > usual
    assert training_memory(workload(**flags), attention="materialised").total_bytes > usual
    assert memory(**flags, dtype="float32").total_bytes > usual * 0.99
