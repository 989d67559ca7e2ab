"""Data, pipeline and expert parallelism (Lepikhin et al. 2020, GShard, arXiv 2006.16668).

Every expert rank has its own batch. Forward of a microbatch on a stage, per MoE layer:

    attention
    all-to-all over `expert`: dispatch A*k elements, A*k/e to each peer      waited for
    experts
    all-to-all over `expert`: combine                                        waited for

The backward runs the experts first (dispatch of gradients, experts, combine), then attention; the
schedule is that of dp_pp. Layers without experts only compute. At the end all-reduce the P_ne/p
gradients outside of experts over `expert`, then all P_ne/p + (P - P_ne)/(p e) over `data`.
"""

from __future__ import annotations

import jax

from jaxbench.program import Buffer, Program
from jaxbench.rank import DATA, EXPERT, Rank
from jaxbench.strategies.schedules import Layer, run_layers, run_schedule
from jaxbench.workload import Workload


def build(w: Workload) -> Program:
    """Return the dp_pp_ep program of a workload."""
    attention = {way: w.part_s(w.times.attention_s, way) for way in ("forward", "backward")}

    def experts(rank: Rank, seconds: float, way: str) -> None:
        dispatched = rank.all_to_all("tokens", EXPERT, f"dispatch {way}")
        rank.wait(dispatched)
        rank.compute(seconds, f"experts {way}")
        rank.wait(rank.all_to_all(dispatched, EXPERT, f"combine {way}"))

    def mlp(rank: Rank, mlp_s: float, way: str, moe: bool) -> None:
        seconds = w.part_s(mlp_s, way)
        if moe:
            experts(rank, seconds, way)
        else:
            rank.compute(seconds, f"mlp {way}")

    def forward_layer(mlp_s: float, moe: bool) -> Layer:
        def layer(rank: Rank, _: jax.Array) -> None:
            rank.compute(attention["forward"], "attention forward")
            mlp(rank, mlp_s, "forward", moe)

        return layer

    def backward_layer(mlp_s: float, moe: bool) -> Layer:
        def layer(rank: Rank, _: jax.Array) -> None:
            mlp(rank, mlp_s, "backward", moe)
            rank.compute(attention["backward"], "attention backward")

        return layer

    def step(rank: Rank) -> None:
        run_schedule(
            rank,
            w,
            lambda r, virtual: run_layers(r, w, virtual, "forward", forward_layer),
            lambda r, virtual: run_layers(r, w, virtual, "backward", backward_layer),
        )
        rank.wait(rank.all_reduce("shared gradient", EXPERT, "shared gradient"))
        rank.all_reduce("gradient", DATA, "gradient")

    activation = w.activation()
    tokens = w.activation(w.e, w.top_k)
    shared = -(-w.model.nonexpert_parameters // w.p)
    own = -(-w.model.expert_parameters // (w.p * w.e))
    buffers = {
        "activation": Buffer(activation, w.experiment.dtype),
        "error": Buffer(activation, w.experiment.dtype),
        "tokens": Buffer(tokens, w.experiment.dtype),
        "shared gradient": Buffer(w.size(shared), w.experiment.grad_dtype),
        "gradient": Buffer(w.size(shared + own), w.experiment.grad_dtype),
    }
    exchanges = {f"{what} {way}": tokens for what in ("dispatch", "combine") for way in attention}
    hops = {"forward hop": activation, "backward hop": activation}
    return Program("dp_pp_ep", buffers, step, {**exchanges, **hops})
