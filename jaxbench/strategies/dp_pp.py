"""Data and pipeline parallelism (GPipe, 1F1B, interleaved; see schedules.py for the sources).

for each slot of the schedule:
    forward of a microbatch on this stage, send A to the next stage
    backward of a microbatch, send the gradient of A to the previous stage
all-reduce the stage's P/p gradients over `data`
"""

from __future__ import annotations

import jax

from jaxbench.program import Buffer, Program
from jaxbench.rank import DATA, Rank
from jaxbench.strategies.schedules import at_stage, run_schedule
from jaxbench.workload import Workload


def build(w: Workload) -> Program:
    """Return the dp_pp program of a workload."""
    seconds = [
        stage.before_s
        + stage.layers * w.times.attention_s
        + stage.dense_layers * w.times.dense_mlp_s
        + stage.moe_layers * w.times.moe_mlp_s
        + stage.after_s
        for stage in w.stages()
    ]

    def forward(rank: Rank, virtual: jax.Array) -> None:
        amounts = [w.part_s(s, "forward") for s in seconds]
        at_stage(rank, virtual, amounts, lambda r, s: r.compute(s, "forward"))

    def backward(rank: Rank, virtual: jax.Array) -> None:
        amounts = [w.part_s(s, "backward") for s in seconds]
        at_stage(rank, virtual, amounts, lambda r, s: r.compute(s, "backward"))

    def step(rank: Rank) -> None:
        run_schedule(rank, w, forward, backward)
        rank.all_reduce("gradient", DATA, "gradient")

    activation = w.activation()
    buffers = {
        "activation": Buffer(activation, w.experiment.dtype),
        "error": Buffer(activation, w.experiment.dtype),
        "gradient": Buffer(w.size(-(-w.model.parameters // w.p)), w.experiment.grad_dtype),
    }
    messages = {"forward hop": activation, "backward hop": activation}
    return Program("dp_pp", buffers, step, messages)
