"""Data, pipeline and tensor parallelism (Shoeybi et al. 2019, Megatron-LM, arXiv 1909.08053).

Forward of a microbatch on a stage, per layer (the backward runs the MLP first, then attention):

    attention / t, all-reduce A over `tensor`      waited for
    MLP / t, all-reduce A over `tensor`            waited for

With sequence parallelism (Korthikanti et al. 2022, arXiv 2205.05198), for attention and MLP each:

    forward:  all-gather A/t -> A, compute / t, reduce-scatter A -> A/t
    backward: all-gather the gradient, input gradient / t,
              re-gather the saved input            while computing the weight gradient / t,
              reduce-scatter

The stage hands A (A/t with sequence parallelism) to the next one from every tensor rank; the
schedule is that of dp_pp. At the end all-reduce the P/(p t) gradients over `data`.
"""

from __future__ import annotations

import jax

from jaxbench.program import Buffer, Program
from jaxbench.rank import DATA, TENSOR, Rank
from jaxbench.strategies.schedules import Layer, run_layers, run_schedule
from jaxbench.workload import Workload


def build(w: Workload) -> Program:
    """Return the dp_pp_tp program of a workload."""
    sequence_parallel = w.experiment.sequence_parallel
    whole = w.sequence_activation() if sequence_parallel else w.activation(w.t)
    message = w.tensor_message()
    part = w.shard(whole, w.t) if sequence_parallel else whole
    # DLNetBench's smaller all-reduce needs a buffer of its own; else it sums what the hop sends.
    own = {} if sequence_parallel or message == part else {"partial": message}

    def forward_block(rank: Rank, seconds: float, block: str) -> None:
        if sequence_parallel:
            gathered_forward(rank, seconds, block)
        else:
            reduced_block(rank, seconds, block, "forward", "partial" if own else "activation")

    def backward_block(rank: Rank, seconds: float, block: str) -> None:
        if sequence_parallel:
            gathered_backward(rank, seconds, block)
        else:
            reduced_block(rank, seconds, block, "backward", "partial" if own else "error")

    def forward_layer(mlp_s: float, _moe: bool) -> Layer:
        def layer(rank: Rank, _: jax.Array) -> None:
            forward_block(rank, w.part_s(w.times.attention_s, "forward"), "attention")
            forward_block(rank, w.part_s(mlp_s, "forward"), "mlp")

        return layer

    def backward_layer(mlp_s: float, _moe: bool) -> Layer:
        def layer(rank: Rank, _: jax.Array) -> None:
            backward_block(rank, w.part_s(mlp_s, "backward"), "mlp")
            backward_block(rank, w.part_s(w.times.attention_s, "backward"), "attention")

        return layer

    def step(rank: Rank) -> None:
        run_schedule(
            rank,
            w,
            lambda r, virtual: run_layers(r, w, virtual, "forward", forward_layer),
            lambda r, virtual: run_layers(r, w, virtual, "backward", backward_layer),
        )
        rank.all_reduce("gradient", DATA, "gradient")

    gradients = w.size(-(-w.model.parameters // (w.p * w.t)))
    buffers = {
        "activation": Buffer(part, w.experiment.dtype),
        "error": Buffer(part, w.experiment.dtype),
        **{name: Buffer(size, w.experiment.dtype) for name, size in own.items()},
        "gradient": Buffer(gradients, w.experiment.grad_dtype),
    }
    exchanged = whole if sequence_parallel else message
    blocks = {f"{block} {way}": exchanged for block in ("attention", "mlp") for way in WAYS}
    return Program("dp_pp_tp", buffers, step, {**blocks, "forward hop": part, "backward hop": part})


WAYS = ("forward", "backward", "gather", "scatter", "gradient gather", "gradient scatter", "again")


def reduced_block(rank: Rank, seconds: float, block: str, way: str, buffer: str) -> None:
    """Compute a block on its tensor shard and sum the partial results of all tensor ranks."""
    rank.compute(seconds, f"{block} {way}")
    rank.wait(rank.all_reduce(buffer, TENSOR, f"{block} {way}"))


def gathered_forward(rank: Rank, seconds: float, block: str) -> None:
    """Gather the sequence, compute a block, scatter the summed result over the sequence."""
    whole = rank.all_gather("activation", TENSOR, f"{block} gather")
    rank.wait(whole)
    rank.compute(seconds, f"{block} forward")
    rank.wait(rank.reduce_scatter(whole, TENSOR, f"{block} scatter"))


def gathered_backward(rank: Rank, seconds: float, block: str) -> None:
    """Gather the gradient and, while the weight gradient is computed, the saved input again."""
    whole = rank.all_gather("error", TENSOR, f"{block} gradient gather")
    rank.wait(whole)
    rank.compute(seconds / 2, f"{block} input gradient")
    saved = rank.all_gather("activation", TENSOR, f"{block} again")
    rank.compute(seconds / 2, f"{block} weight gradient")
    rank.wait(saved)
    rank.wait(rank.reduce_scatter(whole, TENSOR, f"{block} gradient scatter"))
