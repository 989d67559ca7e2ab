"""The contract table: every strategy, option and mesh shape that all generic tests run through."""

from __future__ import annotations

from typing import Any

import jax
from jax.sharding import Mesh

from jaxbench.experiment import Experiment
from jaxbench.readings.build import make_mesh

# From here on XLA's CPU compiler keeps optimization barriers and schedules otherwise.
NEW_CPU_SCHEDULES = jax.__version_info__ >= (0, 11, 1)

# Small enough to execute on CPU; the timing comes from the model, no payload runs.
SMALL = {"model": "tiny", "dtype": "float32", "forward_s": "0.02", "backward_s": "0.04"}
MOE = {**SMALL, "model": "tiny_moe"}

CASES: dict[str, dict[str, Any]] = {
    "dp-1": {"strategy": "dp", "mesh": "data=1", "buckets": 3},
    "dp-e4m3": {"strategy": "dp", "mesh": "data=12", "buckets": 2, "dtype": "float8_e4m3fn"},
    "fsdp-e4m3-grads": {
        "strategy": "fsdp",
        "mesh": "data=2,fsdp=3",
        "units": 2,
        "dtype": "float16",
        "grad_dtype": "float8_e4m3fn",
    },
    "fsdp-1": {"strategy": "fsdp", "mesh": "fsdp=1", "units": 2},
    "dp-3": {"strategy": "dp", "mesh": "data=3", "buckets": 7},
    "dp-8": {"strategy": "dp", "mesh": "data=8", "buckets": 4},
    "dp-12-bf16": {"strategy": "dp", "mesh": "data=12", "buckets": 2, "dtype": "bfloat16"},
    "dp-f16-grads": {"strategy": "dp", "mesh": "data=6", "buckets": 5, "grad_dtype": "float16"},
    "fsdp-2x4": {"strategy": "fsdp", "mesh": "data=2,fsdp=4", "units": 4},
    "fsdp-4x3": {"strategy": "fsdp", "mesh": "data=4,fsdp=3", "units": 3},
    "fsdp-1x6": {"strategy": "fsdp", "mesh": "fsdp=6", "units": 5},
    "fsdp-keep": {
        "strategy": "fsdp",
        "mesh": "data=2,fsdp=3",
        "units": 4,
        "reshard_after_forward": "false",
    },
    "fsdp-one-unit": {"strategy": "fsdp", "mesh": "fsdp=2", "units": 1},
    "fsdp-f32-grads": {
        "strategy": "fsdp",
        "mesh": "data=2,fsdp=2",
        "units": 3,
        "dtype": "bfloat16",
        "grad_dtype": "float32",
    },
    "fsdp-unsharded": {"strategy": "fsdp", "mesh": "data=3,fsdp=1", "units": 2},
    "pp-2x4": {"strategy": "dp_pp", "mesh": "data=2,pipeline=4", "microbatches": 4},
    "pp-uneven": {"strategy": "dp_pp", "mesh": "pipeline=3", "microbatches": 8},
    "pp-6": {"strategy": "dp_pp", "mesh": "data=2,pipeline=6", "microbatches": 2},
    "pp-1": {"strategy": "dp_pp", "mesh": "data=3,pipeline=1", "microbatches": 2},
    "pp-ends": {
        "strategy": "dp_pp",
        "mesh": "data=1,pipeline=4",
        "microbatches": 4,
        "head_placement": "ends",
        "model": "gpt2_l",
        "size_scale": "0.0005",
    },
    "pp-1f1b": {
        "strategy": "dp_pp",
        "mesh": "data=3,pipeline=4",
        "microbatches": 8,
        "schedule": "1f1b",
    },
    "pp-interleaved": {
        "strategy": "dp_pp",
        "mesh": "data=2,pipeline=4",
        "microbatches": 8,
        "schedule": "interleaved",
        "chunks": 2,
    },
    "tp-2x2x2": {"strategy": "dp_pp_tp", "mesh": "data=2,pipeline=2,tensor=2", "microbatches": 4},
    "tp-3x4": {"strategy": "dp_pp_tp", "mesh": "pipeline=3,tensor=4", "microbatches": 4},
    "tp-only": {"strategy": "dp_pp_tp", "mesh": "tensor=8", "microbatches": 2},
    "tp-tensor-1": {"strategy": "dp_pp_tp", "mesh": "pipeline=2,tensor=1", "microbatches": 2},
    "tp-sequence": {
        "strategy": "dp_pp_tp",
        "mesh": "data=2,pipeline=3,tensor=2",
        "microbatches": 4,
        "sequence_parallel": "true",
    },
    "tp-sequence-1f1b": {
        "strategy": "dp_pp_tp",
        "mesh": "pipeline=2,tensor=4",
        "microbatches": 4,
        "sequence_parallel": "true",
        "schedule": "1f1b",
    },
    "tp-dlnetbench": {
        "strategy": "dp_pp_tp",
        "mesh": "pipeline=2,tensor=2",
        "microbatches": 4,
        "convention": "dlnetbench",
        "hardware": "gh200",
    },
    "tp-interleaved": {
        "strategy": "dp_pp_tp",
        "mesh": "data=1,pipeline=2,tensor=3",
        "batch": 12,
        "microbatches": 4,
        "schedule": "interleaved",
        "chunks": 4,
    },
    "tp-reordered": {
        "strategy": "dp_pp_tp",
        "mesh": "data=2,pipeline=2,tensor=2",
        "microbatches": 2,
        "axis_order": "tensor,data,expert,fsdp,pipeline",
    },
    "ep-2x2x2": {"strategy": "dp_pp_ep", "mesh": "data=2,pipeline=2,expert=2", "microbatches": 4},
    "ep-3x4": {"strategy": "dp_pp_ep", "mesh": "pipeline=3,expert=4", "microbatches": 4},
    "ep-top1": {"strategy": "dp_pp_ep", "mesh": "data=3,expert=2", "microbatches": 2, "top_k": 1},
    "ep-1": {"strategy": "dp_pp_ep", "mesh": "data=2,pipeline=2,expert=1", "microbatches": 2},
    "ep-interleaved": {
        "strategy": "dp_pp_ep",
        "mesh": "pipeline=2,expert=2",
        "microbatches": 4,
        "schedule": "interleaved",
        "chunks": 2,
    },
    "ep-dense-layers": {
        "strategy": "dp_pp_ep",
        "mesh": "pipeline=3,expert=2",
        "microbatches": 4,
        "model": "deepseek_v3",
        "size_scale": "0.00001",
    },
}


def experiment(**flags: Any) -> Experiment:
    """Return a small experiment with these flags."""
    base = MOE if flags.get("strategy") == "dp_pp_ep" else SMALL
    return Experiment.from_flags({k: str(v) for k, v in {**base, **flags}.items()})


def case(name: str) -> Experiment:
    """Return the experiment of a row."""
    return experiment(**CASES[name])


def cpu_mesh(e: Experiment) -> Mesh:
    """Return the experiment's mesh of virtual devices."""
    return make_mesh(e, jax.devices())
