"""From an experiment to what a strategy needs: element counts, and seconds of every part.

Letters as in the docstrings of the strategies: P parameters (P_ne not in experts), L layers,
S tokens per sample, D hidden size, B samples per data-parallel rank and step, M microbatches,
p stages, v chunks per stage, t tensor ranks, e expert ranks, f shards, r replicas;
A = B/M*S*D activation elements of a microbatch.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from jaxbench.catalog.hardware import find_hardware
from jaxbench.catalog.models import find_model
from jaxbench.catalog.shape import Model
from jaxbench.experiment import Experiment
from jaxbench.program import Size
from jaxbench.rank import DATA, EXPERT, FSDP, LANES, PIPELINE, TENSOR
from jaxbench.timing_model import ModelTimes, experts_per_token, model_times


@dataclass(frozen=True)
class Workload:
    """One experiment in numbers: the model, its times on the target, and the mesh axes."""

    experiment: Experiment
    model: Model
    times: ModelTimes

    @property
    def r(self) -> int:
        """Replicas: ranks along `data`."""
        return self._axis(DATA)

    @property
    def f(self) -> int:
        """Shards: ranks along `fsdp`."""
        return self._axis(FSDP)

    @property
    def p(self) -> int:
        """Pipeline stages."""
        return self._axis(PIPELINE)

    @property
    def e(self) -> int:
        """Expert-parallel ranks."""
        return self._axis(EXPERT)

    @property
    def t(self) -> int:
        """Tensor-parallel ranks."""
        return self._axis(TENSOR)

    @property
    def v(self) -> int:
        """Chunks per stage."""
        return self.experiment.chunks

    @property
    def microbatches(self) -> int:
        """M, microbatches a step."""
        return self.experiment.microbatches

    @property
    def bubble_slots(self) -> int:
        """vM, the slots in which a stage works; it is idle in p-1 more of that length."""
        return self.v * self.microbatches

    @property
    def top_k(self) -> int:
        """k, experts a token is sent to."""
        e = self.experiment
        return experts_per_token(self.model, e.convention, e.top_k)

    @property
    def sequence(self) -> int:
        """S, tokens per sample."""
        return self.experiment.seq_len or self.model.seq_len

    @property
    def global_batch(self) -> int:
        """Samples a step of the whole mesh (pipeline and tensor ranks share a batch)."""
        return self.experiment.batch * self.r * self.f * self.e

    @property
    def forward_s(self) -> float:
        """F, forward seconds of the whole model for B samples on one device."""
        return self.times.forward_s * self.experiment.time_scale

    @property
    def backward_s(self) -> float:
        """G, backward seconds of the whole model for B samples on one device."""
        return self.times.backward_s * self.experiment.time_scale

    def size(self, full: int, multiple: int = 1) -> Size:
        """Scale `full` elements by --size_scale and pad them to a multiple of the group."""
        scale = self.experiment.size_scale
        scaled = full if scale == 1.0 else max(1, math.ceil(full * scale))
        return Size(full, scaled, -(-scaled // multiple) * multiple)

    def whole(self, full: int, shards: int) -> Size:
        """Return the size of what is gathered from or scattered to `shards` equal parts.

        With --padding=tpu each part fills the tiles that a TPU's reduce-scatter works on.
        """
        exact = self.size(full, shards)
        if self.experiment.padding == "exact":
            return exact
        return Size(full, exact.scaled, tpu_tiles(exact.padded // shards) * shards)

    def activation(self, multiple: int = 1, copies: int = 1) -> Size:
        """A (times `copies`) elements: what one microbatch hands from layer to layer."""
        elements = self.experiment.batch * self.sequence * self.model.hidden // self.microbatches
        return self.size(elements * copies, multiple)

    def sequence_activation(self) -> Size:
        """A elements, gathered from and scattered to the tensor ranks (sequence parallelism)."""
        return self.whole(self.activation().full, self.t)

    def tensor_message(self) -> Size:
        """What a tensor-parallel all-reduce sums: A, or A/t as DLNetBench has it."""
        whole = self.activation(self.t)
        return self.shard(whole, self.t) if self.experiment.convention == "dlnetbench" else whole

    @staticmethod
    def shard(whole: Size, shards: int) -> Size:
        """Return the size of one of `shards` equal parts of a padded whole."""
        full, scaled = -(-whole.full // shards), -(-whole.scaled // shards)
        return Size(full, scaled, whole.padded // shards)

    def part_s(self, part_s: float, direction: str) -> float:
        """Seconds of a part of the model (given for B samples, forward) for one microbatch.

        `direction` is 'forward' or 'backward'; the part is shared by the tensor ranks.
        """
        factor = 1.0 if direction == "forward" else self.times.backward_factor
        scale = self.experiment.time_scale
        return part_s * factor * scale / (self.microbatches * self.t)

    def stages(self) -> list[Stage]:
        """Return the p*v virtual stages, in model order: chunk c of stage s is c*p + s.

        Where L doesn't divide, the first L mod (p*v) stages hold one layer more. Embedding and
        head are spread evenly, or put in the first and last stage (--head_placement=ends).
        """
        count = self.p * self.v
        base, extra = divmod(self.model.layers, count)
        ends = self.experiment.head_placement == "ends"
        stages = []
        for index in range(count):
            layers = base + (index < extra)
            first = index * base + min(index, extra)
            dense = min(max(self.model.num_dense_layers - first, 0), layers)
            before = self.times.embedding_s * (index == 0) if ends else 0.0
            after = self.times.head_s * (index == count - 1) if ends else self.times.ends_s / count
            stages.append(Stage(dense, layers - dense, before, after))
        return stages

    def _axis(self, name: str) -> int:
        return dict(self.experiment.mesh)[name]


@dataclass(frozen=True)
class Stage:
    """A virtual pipeline stage: its layers, and forward seconds (B samples) outside of layers."""

    dense_layers: int
    moe_layers: int
    before_s: float
    after_s: float

    @property
    def layers(self) -> int:
        """Layers of this stage."""
        return self.dense_layers + self.moe_layers


def tpu_tiles(elements: int) -> int:
    """Return `elements` rounded up so that libtpu keeps a reduce-scatter of such parts as it is.

    Parts are rows of 128 elements; their number must divide by 16, and by the next power of two
    over 128 where that is more. Found by compiling for v5e and v6e with libtpu 0.0.52.
    """
    rows = -(-elements // LANES)
    block = max(16, 2 ** max(0, (rows - 1).bit_length() - 7))
    return -(-rows // block) * block * LANES


def split(total: int, parts: int) -> list[int]:
    """Split `total` into `parts` whole numbers that differ by at most one, larger ones first."""
    base, extra = divmod(total, parts)
    return [base + (i < extra) for i in range(parts)]


def build_workload(experiment: Experiment) -> Workload:
    """Resolve model, hardware and timing model of a (valid) experiment."""
    model = find_model(experiment.model)
    times = model_times(
        model,
        find_hardware(experiment.hardware),
        batch=experiment.batch,
        seq_len=experiment.seq_len or model.seq_len,
        dtype=experiment.dtype,
        convention=experiment.convention,
        mfu=experiment.mfu,
        memory_efficiency=experiment.memory_efficiency,
        recompute=experiment.recompute,
        top_k=experiment.top_k,
        forward_s=experiment.forward_s,
        backward_s=experiment.backward_s,
    )
    return Workload(experiment, model, times)
