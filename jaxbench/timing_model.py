"""How long a model's parts take on a device: a roofline over FLOPs and bytes, in two conventions.

A part (the attention of one layer, say) needs

    seconds = max(FLOPs / (peak * mfu), bytes / (bandwidth * memory_efficiency)).

`true` counts what the model really has: gated feed-forward, grouped-query or latent attention,
causal halves and sliding windows, routers, shared and top-k experts, head. `dlnetbench` counts
as DLNetBench does (arXiv 2609.00817): square projections, full attention, two feed-forward
matrices, no ends, at 100 % of its own peaks. A multiply-add is two FLOPs. The backward pass
costs twice the forward pass, three times where activations are recomputed.

Letters: B samples, S tokens per sample, D hidden, w bytes per element, k experts per token.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from jaxbench.catalog.hardware import Hardware
from jaxbench.catalog.shape import Model
from jaxbench.dtypes import find_dtype
from jaxbench.errors import InputError, unknown

DEFAULT_MEMORY_EFFICIENCY = 0.80
DLNETBENCH_TOP_K = 2  # whatever the model has


@dataclass(frozen=True)
class Work:
    """What one part does in one forward pass."""

    flops: float = 0.0
    bytes: float = 0.0


@dataclass(frozen=True)
class ModelWork:
    """The forward work of B samples: of one layer for the first three, then of the two ends."""

    attention: Work
    dense_mlp: Work
    moe_mlp: Work
    embedding: Work
    head: Work


@dataclass(frozen=True)
class ModelTimes:
    """Seconds of B samples on one device, forward unless a name says otherwise.

    `attention_s`, `dense_mlp_s` and `moe_mlp_s` are of one layer (0.0 where the model has no
    such layer), `forward_s` and `backward_s` of the whole model. Any part's backward time is its
    forward time times `backward_factor`.
    """

    attention_s: float
    dense_mlp_s: float
    moe_mlp_s: float
    embedding_s: float
    head_s: float
    forward_s: float
    backward_s: float

    @property
    def ends_s(self) -> float:
        """Embedding and head together."""
        return self.embedding_s + self.head_s

    @property
    def backward_factor(self) -> float:
        """Backward over forward time."""
        return self.backward_s / self.forward_s


def experts_per_token(model: Model, convention: str = "true", top_k: int | None = None) -> int:
    """Return k: `top_k` if given, else the convention's or the model's; 0 without experts."""
    if not model.experts:
        return 0
    if top_k is not None:
        return top_k
    return DLNETBENCH_TOP_K if convention == "dlnetbench" else model.top_k


def attended_pairs(model: Model, seq_len: int) -> float:
    """Query-key pairs of one sample and head, the mean over layers.

    A causal layer has S^2/2 (the continuous limit of S(S+1)/2), one with a window W < S the
    triangle of the first W queries and W keys for each of the others: S*W - W^2/2.
    """
    if not model.causal:
        return float(seq_len**2)
    window = min(model.window, seq_len)
    windowed_share = model.windowed_layers / model.layers
    full = seq_len**2 / 2
    return windowed_share * (seq_len * window - window**2 / 2) + (1 - windowed_share) * full


def _true_work(model: Model, batch: int, seq_len: int, width: int, k: int) -> ModelWork:
    tokens, D = batch * seq_len, model.hidden
    activations = 2 * tokens * D * width  # a part reads its input and writes its output

    latent = model.latent
    key_dim = model.head_dim + (latent.rotary_dim if latent else 0)
    value_dim = latent.value_dim if latent else model.head_dim
    pairs = batch * model.heads * attended_pairs(model, seq_len)
    attention = Work(
        2 * tokens * model.attention_weights + 2 * pairs * (key_dim + value_dim),
        model.attention_parameters * width + activations,
    )

    matrices = model.mlp_matrices * D
    dense_mlp = moe_mlp = Work()
    if model.num_dense_layers:
        dense_mlp = Work(
            2 * tokens * matrices * model.dense_d_ff,
            model.dense_mlp_parameters * width + activations,
        )
    if model.num_moe_layers:
        # Experts that at least one token of uniformly routed ones reaches, in expectation.
        touched = model.experts * (1 - (1 - k / model.experts) ** tokens)
        weights = model.moe_nonexpert_parameters + touched * model.parameters_of_one_expert
        networks = matrices * model.d_ff * (k + model.shared_experts)
        moe_mlp = Work(2 * tokens * (networks + D * model.experts), weights * width + activations)

    embedding = head = Work()
    if model.vocab:
        rows = min(model.vocab, tokens) * D  # a look-up: no FLOPs
        embedding = Work(0.0, rows * width + activations)
        head = Work(2 * tokens * D * model.vocab, model.vocab * D * width + activations)
    elif model.patch:
        patches = batch * (seq_len - 1)  # the class token is not projected
        flops = 2 * patches * model.patch_elements * D
        embedding = Work(flops, model.embedding_parameters * width + activations)
        if model.pooler:  # sees the class token only
            head = Work(2 * batch * D * D, model.head_parameters * width + 2 * batch * D * width)
    return ModelWork(attention, dense_mlp, moe_mlp, embedding, head)


def _dlnetbench_work(model: Model, batch: int, seq_len: int, width: int, k: int) -> ModelWork:
    tokens, D, F = batch * seq_len, model.hidden, model.d_ff
    activations = 2 * tokens * D * width
    attention = Work(8 * tokens * D**2 + 4 * tokens * seq_len * D, 4 * D**2 * width + activations)
    mlp = Work(  # every layer alike: a dense model is one with a single expert, always chosen
        4 * tokens * D * F * max(k, 1), 2 * D * F * width * max(model.experts, 1) + activations
    )
    dense_mlp = mlp if model.num_dense_layers else Work()
    moe_mlp = mlp if model.num_moe_layers else Work()
    return ModelWork(attention, dense_mlp, moe_mlp, Work(), Work())


CONVENTIONS: dict[str, Callable[[Model, int, int, int, int], ModelWork]] = {
    "true": _true_work,
    "dlnetbench": _dlnetbench_work,
}


def forward_work(
    model: Model,
    batch: int,
    seq_len: int,
    *,
    dtype: str = "bfloat16",
    convention: str = "true",
    top_k: int | None = None,
) -> ModelWork:
    """Count FLOPs and bytes of each part; an unknown dtype or convention is an InputError."""
    if convention not in CONVENTIONS:
        raise InputError(unknown("convention", convention, CONVENTIONS))
    k = experts_per_token(model, convention, top_k)
    return CONVENTIONS[convention](model, batch, seq_len, find_dtype(dtype), k)


def _total(model: Model, attention: float, dense: float, moe: float, ends: float) -> float:
    """Sum over the layers of a model from one layer's values."""
    return (
        model.layers * attention
        + model.num_dense_layers * dense
        + model.num_moe_layers * moe
        + ends
    )


def forward_flops(
    model: Model,
    batch: int,
    seq_len: int,
    convention: str = "true",
    top_k: int | None = None,
) -> float:
    """Return the forward FLOPs of the whole model for `batch` samples of `seq_len` tokens."""
    work = forward_work(model, batch, seq_len, convention=convention, top_k=top_k)
    return _total(
        model,
        work.attention.flops,
        work.dense_mlp.flops,
        work.moe_mlp.flops,
        work.embedding.flops + work.head.flops,
    )


def missing_peak(hardware: Hardware, dtype: str, convention: str = "true") -> str | None:
    """Say why `hardware` has no roofline for this dtype and convention; None where it has one."""
    if convention == "dlnetbench":
        if hardware.dlnetbench_FLOPs is None or hardware.dlnetbench_memory_Bps is None:
            return (
                f"DLNetBench has no peak for hardware '{hardware.name}'; "
                "use the convention 'true', or give forward_s"
            )
    elif hardware.peak_FLOPs(dtype) is None:
        return (
            f"hardware '{hardware.name}' has no known peak for dtype '{dtype}'; "
            f"known: {', '.join(hardware.dtypes())}; choose one of them, or give forward_s"
        )
    return None


def _roofline(
    hardware: Hardware, dtype: str, convention: str, mfu: float | None, memory_efficiency: float
) -> Callable[[Work], float] | None:
    """Return the function from work to seconds; None where a peak is missing."""
    if convention == "dlnetbench":
        # One peak per device whatever the dtype: the width changes the bytes alone.
        flops_per_s, bytes_per_s = hardware.dlnetbench_FLOPs, hardware.dlnetbench_memory_Bps
    else:
        peak = hardware.peak_FLOPs(dtype)
        flops_per_s = (
            None if peak is None else peak * (hardware.default_mfu if mfu is None else mfu)
        )
        bytes_per_s = hardware.memory_Bps * memory_efficiency
    if flops_per_s is None or bytes_per_s is None:
        return None
    return lambda work: max(work.flops / flops_per_s, work.bytes / bytes_per_s)


def model_times(
    model: Model,
    hardware: Hardware | None,
    *,
    batch: int,
    seq_len: int,
    dtype: str,
    convention: str = "true",
    mfu: float | None = None,
    memory_efficiency: float = DEFAULT_MEMORY_EFFICIENCY,
    recompute: bool = False,
    top_k: int | None = None,
    forward_s: float | None = None,
    backward_s: float | None = None,
) -> ModelTimes:
    """Return the times of `batch` samples of `seq_len` tokens of `model` on one device.

    `mfu` defaults to the device's; it and `memory_efficiency` play no part in `dlnetbench`.
    `forward_s` replaces the modelled total: parts keep their proportions in the roofline, or in
    FLOPs where there is none (then `hardware` may be None). `backward_s` replaces the total of
    the backward pass. InputError: an unknown dtype or convention, or neither a peak nor
    `forward_s`.
    """
    work = forward_work(model, batch, seq_len, dtype=dtype, convention=convention, top_k=top_k)
    seconds = _roofline(hardware, dtype, convention, mfu, memory_efficiency) if hardware else None
    if seconds is None and forward_s is None:
        fault = missing_peak(hardware, dtype, convention) if hardware else None
        raise InputError(fault or "no hardware; name one, or give forward_s")

    weigh = seconds or (lambda part: part.flops)
    attention, dense, moe = weigh(work.attention), weigh(work.dense_mlp), weigh(work.moe_mlp)
    embedding, head = weigh(work.embedding), weigh(work.head)
    total = _total(model, attention, dense, moe, embedding + head)
    scale = 1.0 if forward_s is None else forward_s / total
    forward = total if forward_s is None else forward_s
    return ModelTimes(
        attention_s=attention * scale,
        dense_mlp_s=dense * scale,
        moe_mlp_s=moe * scale,
        embedding_s=embedding * scale,
        head_s=head * scale,
        forward_s=forward,
        backward_s=(3 if recompute else 2) * forward if backward_s is None else backward_s,
    )
