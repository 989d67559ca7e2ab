"""What real training holds on a device, by strategy: states, gathered parameters, activations.

States (Rajbhandari et al. 2020, ZeRO, arXiv 1910.02054, section 3.1): with mixed-precision Adam a
parameter takes 2 bytes, its gradient 2, and the optimizer 12 (a float32 copy, momentum, variance):
16 in all; P of them on every device, or their share where an axis splits them.

Activations (Korthikanti et al. 2022, arXiv 2205.05198, section 4 and table 2): a layer of the GPT
kind keeps s*b*h*(34 + 5*a*s/h) bytes for its backward pass, with tensor parallelism
s*b*h*(10 + 24/t + 5*a*s/(h*t)), with sequence parallelism beside it all of it / t. Here the same
sum is taken over what a model really has: grouped or latent attention, gated feed-forward, experts.

Letters as in `workload`: P, L, S, D, B, M, p, v, t, e, f; w bytes of an element; tokens = B/M*S.
This is the memory of training a model, not of the proxy (that is `readings/memory.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from jaxbench.catalog.hardware import find_hardware
from jaxbench.catalog.shape import Model
from jaxbench.dtypes import find_dtype
from jaxbench.experiment import STRATEGY_AXES
from jaxbench.workload import Stage, Workload, split

FLOAT32 = 4
MOMENTS = 2  # of Adam: momentum and variance

# The runtime, the communication library and fragmentation take the rest. Source: unverified.
USABLE_SHARE = 0.90

# fsdp as the strategy has it: the unit at work and the one gathered ahead; in the backward pass
# the gradient being computed and the one being reduced.
WHOLE_UNITS = 2


@dataclass(frozen=True)
class States:
    """Bytes of parameters, of their gradients, and of the optimizer."""

    parameters_bytes: int
    gradients_bytes: int
    optimizer_bytes: int

    @property
    def total_bytes(self) -> int:
        """All three."""
        return self.parameters_bytes + self.gradients_bytes + self.optimizer_bytes


@dataclass(frozen=True)
class TrainingMemory:
    """Bytes on the fullest device of a job: `stage` tells which pipeline stage it belongs to.

    `gathered_bytes` is what fsdp has whole at a time, parameters and gradients. `in_flight` counts
    the microbatches (times chunks) whose activations are kept at once.
    """

    states: States
    gathered_bytes: int
    activation_bytes: int
    stage: int
    in_flight: int
    device_bytes: int

    @property
    def total_bytes(self) -> int:
        """All of it."""
        return self.states.total_bytes + self.gathered_bytes + self.activation_bytes

    @property
    def usable_bytes(self) -> int:
        """What of the device's memory training can have."""
        return int(self.device_bytes * USABLE_SHARE)

    @property
    def fits(self) -> bool:
        """Whether the device can hold it."""
        return self.total_bytes <= self.usable_bytes

    @property
    def parts(self) -> dict[str, int]:
        """Bytes by what they are for, in the order a reader expects."""
        return {
            "parameters": self.states.parameters_bytes,
            "gradients": self.states.gradients_bytes,
            "optimizer": self.states.optimizer_bytes,
            "gathered units": self.gathered_bytes,
            "activations": self.activation_bytes,
        }


def training_memory(w: Workload, *, attention: str = "flash") -> TrainingMemory:
    """Return what training the experiment's (unscaled) model takes on its fullest device.

    Published schedules are counted, also where the program is built otherwise: 1f1b keeps p-s
    microbatches at stage s. `attention` is as in `layer_activation_bytes`.
    """
    stages = [_stage_memory(w, stage, attention) for stage in range(w.p)]
    return max(stages, key=lambda memory: memory.total_bytes)


# --- parameters, gradients, optimizer -----------------------------------------------------------


def adam_states(parameters: int, dtype: str = "bfloat16", grad_dtype: str = "") -> States:
    """Return the states of `parameters` under Adam: in 16 bits 2 + 2 + 12 bytes each.

    Parameters kept in float32 need no second float32 copy: 4 + 4 + 8.
    """
    width, grad_width = find_dtype(dtype), find_dtype(grad_dtype or dtype)
    copy = 0 if width >= FLOAT32 else FLOAT32
    optimizer = copy + MOMENTS * FLOAT32
    return States(parameters * width, parameters * grad_width, parameters * optimizer)


def stage_parameters(w: Workload, stage: int) -> int:
    """Return the parameters that one rank of a pipeline stage has, before any fsdp sharding.

    Tensor ranks split every matrix, expert ranks the experts. With --head_placement=ends the
    first stage has the embedding and the last one the head; a tied head is then a copy.
    """
    model, last = w.model, w.p - 1
    ends = w.experiment.head_placement == "ends"
    embedding = model.embedding_parameters * (stage == 0) if ends else 0.0
    head = model.head_parameters * (stage == last) if ends else 0.0
    if ends and model.tied and stage == last and w.p > 1:
        head += model.vocab * model.hidden
    if not ends:
        embedding, head = model.embedding_parameters / w.p, model.head_parameters / w.p
    held = _stages_of(w, stage)
    moe_layers = sum(virtual.moe_layers for virtual in held)
    others = (
        embedding
        + head
        + sum(virtual.layers for virtual in held) * model.attention_parameters
        + sum(virtual.dense_layers for virtual in held) * model.dense_mlp_parameters
        + moe_layers * model.moe_nonexpert_parameters
    )
    experts = moe_layers * model.experts * model.parameters_of_one_expert
    if model.given_parameters is not None:  # stated for the whole model, not derived from it
        share = len(held) / (w.p * w.v)
        others, experts = model.nonexpert_parameters * share, model.expert_parameters * share
    return ceil((others + experts / w.e) / w.t)


# --- activations --------------------------------------------------------------------------------


def layer_activation_bytes(
    model: Model,
    tokens: int,
    seq_len: int,
    *,
    width: int = 2,
    tensor: int = 1,
    sequence_parallel: bool = False,
    attention: str = "flash",
    recomputation: str = "none",
    dropout: bool = False,
    moe: bool = False,
    top_k: int = 0,
) -> float:
    """Return what one layer keeps of `tokens` tokens, in samples of `seq_len`, per device.

    `attention` is 'materialised' (all scores are kept: the term 5*a*s/h) or 'flash' (a float32 per
    query and head is kept instead). `recomputation` is 'none', 'selective' (no scores are kept) or
    'full' (only the layer's input). `dropout` adds its masks, a byte an element.
    """
    shared = 1 / tensor if sequence_parallel else 1.0
    row = tokens * width
    if recomputation == "full":
        return row * model.hidden * shared
    split_, whole = _attention_elements(model)
    masks = 2 * tokens * model.hidden if dropout else 0  # after attention, after the feed-forward
    kept = (row * whole + masks) * shared + row * split_ / tensor

    whole, split_ = 2 * model.hidden, model.dense_d_ff  # its norm's input, and its own
    if moe:  # every expert's copy of a token, and what it makes of it
        whole, split_ = (2 + 2 * top_k) * model.hidden, model.d_ff * (top_k + model.shared_experts)
        kept += tokens * model.experts * FLOAT32  # the router's scores
    # A plain feed-forward keeps what goes into its activation function and what comes out, a gated
    # one its two products and what they make.
    kept += row * whole * shared + row * split_ * model.mlp_matrices / tensor

    if recomputation == "none":
        scores = tokens * seq_len * model.heads / tensor
        per_score = 2 * width + 1 if dropout else width  # softmax; what dropout leaves, its mask
        statistics = tokens * model.heads * FLOAT32 / tensor
        kept += scores * per_score if attention == "materialised" else statistics
    return kept


def microbatches_in_flight(schedule: str, p: int, v: int, microbatches: int, stage: int) -> int:
    """Return how many microbatches (times chunks) a stage keeps the activations of, at most.

    GPipe: all. 1F1B: p-s. Interleaved: 2(p-s-1) + (v-1)p + 1 chunks, so (1 + (p-1)/(pv)) times a
    stage's layers at the first one (Narayanan et al. 2021, arXiv 2104.04473; Korthikanti et al.).
    """
    if schedule == "gpipe":
        return microbatches
    if schedule == "1f1b":
        return min(p - stage, microbatches)
    return min(2 * (p - stage - 1) + (v - 1) * p + 1, v * microbatches)


def _attention_elements(model: Model) -> tuple[int, int]:
    """Return the elements a token's attention keeps: split over tensor ranks, and not split."""
    if model.latent is None:
        query, key_value = model.heads * model.head_dim, model.kv_heads * model.head_dim
        return 2 * query + 2 * key_value, 2 * model.hidden  # norm's input and attention's
    latent = model.latent
    query_key = 2 * model.heads * (model.head_dim + latent.rotary_dim)
    value_output = 2 * model.heads * latent.value_dim
    compressed = latent.query_rank + latent.kv_rank + latent.rotary_dim
    return query_key + value_output, 2 * model.hidden + compressed


def _stages_of(w: Workload, stage: int) -> list[Stage]:
    return w.stages()[stage :: w.p]


def _stage_memory(w: Workload, stage: int, attention: str) -> TrainingMemory:
    e = w.experiment
    held = stage_parameters(w, stage)
    in_flight = 1
    if "pipeline" in STRATEGY_AXES[e.strategy]:
        in_flight = microbatches_in_flight(e.schedule, w.p, w.v, w.microbatches, stage)
    return TrainingMemory(
        states=adam_states(ceil(held / w.f), e.dtype, e.grad_dtype),
        gathered_bytes=_gathered_bytes(w, held),
        activation_bytes=ceil(_activation_bytes(w, stage, in_flight, attention)),
        stage=stage,
        in_flight=in_flight,
        device_bytes=find_hardware(e.hardware).memory_bytes,
    )


def _gathered_bytes(w: Workload, parameters: int) -> int:
    """Return what fsdp has whole at once; nothing where there is nothing to gather."""
    e = w.experiment
    if w.f == 1:
        return 0
    unit = split(parameters, e.units)[0]
    whole_units = min(WHOLE_UNITS, e.units)
    whole = whole_units * unit if e.reshard_after_forward else parameters
    return whole * find_dtype(e.dtype) + whole_units * unit * find_dtype(e.grad_dtype)


def _activation_bytes(w: Workload, stage: int, in_flight: int, attention: str) -> float:
    """Return the activations of a stage: of its layers, and of the head where that is."""
    e, model = w.experiment, w.model
    pipeline = "pipeline" in STRATEGY_AXES[e.strategy]
    tokens = e.batch * w.sequence // (w.microbatches if pipeline else 1)
    width = find_dtype(e.dtype)

    def layer(moe: bool, recomputation: str) -> float:
        return layer_activation_bytes(
            model,
            tokens,
            w.sequence,
            width=width,
            tensor=w.t,
            sequence_parallel=e.sequence_parallel,
            attention=attention,
            recomputation=recomputation,
            moe=moe,
            top_k=w.top_k,
        )

    held = _stages_of(w, stage)
    dense = sum(virtual.dense_layers for virtual in held)
    moe = sum(virtual.moe_layers for virtual in held)
    kept = "full" if e.recompute else "none"
    of_a_chunk = (dense * layer(False, kept) + moe * layer(True, kept)) / w.v
    total = in_flight * of_a_chunk
    if e.recompute:  # one layer at a time is there as a whole
        total += max(layer(False, "none") if dense else 0, layer(True, "none") if moe else 0)

    if model.vocab:  # final norm, head, float32 logits: 4sbh(1 + V/h), of the last stage
        share = (stage == w.p - 1) if e.head_placement == "ends" else 1 / w.p
        shared = w.t if e.sequence_parallel else 1
        head = 2 * tokens * model.hidden * width / shared + FLOAT32 * tokens * model.vocab / w.t
        # Its backward follows at once, unless GPipe does all forward passes before.
        waiting = w.microbatches if pipeline and e.schedule == "gpipe" and not e.recompute else 1
        total += waiting * share * head
    return total
