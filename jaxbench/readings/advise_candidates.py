"""What `advise` chooses among: every strategy, mesh shape and option that the rules allow.

What was given stays as it is; what wasn't is varied. Whether a combination makes sense is for
`Experiment` to say.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from jaxbench.axes import AXES, STRATEGY_AXES, Mesh, mesh_in_order, mesh_text
from jaxbench.catalog.models import find_model
from jaxbench.errors import InputError
from jaxbench.experiment import Experiment
from jaxbench.readings.advise_batch import batch_warning
from jaxbench.training_memory import TrainingMemory, training_memory
from jaxbench.workload import Workload, build_workload

Shape = tuple[str, Mesh]  # a strategy on a mesh
Options = dict[str, Any]

# Samples per data-parallel rank and step to try where no batch is given.
BATCHES = (64, 32, 16, 8, 4, 2, 1)

MOST_TENSOR = 16

# More chunks save little of the bubble, (p-1)/(vM+p-1), and hop more often.
MOST_CHUNKS = 5

SCHEDULES = ("1f1b", "gpipe", "interleaved")


@dataclass(frozen=True)
class Candidate:
    """A feasible experiment, with what is known of it before any simulation."""

    experiment: Experiment
    workload: Workload
    memory: TrainingMemory

    @property
    def shape(self) -> Shape:
        """Its strategy and mesh."""
        return self.experiment.strategy, self.experiment.mesh

    @property
    def global_batch(self) -> int:
        """Samples a step."""
        return self.workload.global_batch

    @cached_property
    def warning(self) -> str | None:
        """What is to be said against its global batch."""
        return batch_warning(self.workload.model, self.workload.sequence, self.global_batch)

    @cached_property
    def most_throughput(self) -> float:
        """Samples a second if all communication were free: it can't be more."""
        return self.global_batch / least_step_s(self.workload)

    @property
    def options(self) -> str:
        """Its options as text, such as '1f1b, 16 microbatches, recompute'."""
        e, parts = self.experiment, []
        if "pipeline" in STRATEGY_AXES[e.strategy]:
            chunks = f" x{e.chunks}" if e.chunks > 1 else ""
            noun = "microbatches" if e.microbatches > 1 else "microbatch"
            parts = [f"{e.schedule}{chunks}", f"{e.microbatches} {noun}"]
        if e.strategy == "fsdp":
            parts = [f"{e.units} units"] + (
                ["not resharded"] if not e.reshard_after_forward else []
            )
        parts += ["sequence parallel"] if e.sequence_parallel else []
        parts += ["recompute"] if e.recompute else []
        return ", ".join(parts)

    @property
    def flags(self) -> list[str]:
        """The flags that make `run`, `plan` and `simulate` take the same choice."""
        e = self.experiment
        words = [f"--strategy={e.strategy}", f"--mesh={mesh_text(e.mesh)}", f"--batch={e.batch}"]
        if "pipeline" in STRATEGY_AXES[e.strategy]:
            words += [f"--microbatches={e.microbatches}", f"--schedule={e.schedule}"]
            words += [f"--chunks={e.chunks}"] if e.chunks > 1 else []
        if e.strategy == "fsdp":
            words.append(f"--units={e.units}")
            words += ["--noreshard_after_forward"] if not e.reshard_after_forward else []
        words += ["--sequence_parallel"] if e.sequence_parallel else []
        return words + (["--recompute"] if e.recompute else [])

    def describe(self) -> str:
        """Return strategy, mesh and options as text."""
        e = self.experiment
        return f"{e.strategy} {mesh_text(e.mesh)}" + (f" ({self.options})" if self.options else "")


@dataclass(frozen=True)
class Found:
    """The candidates, how many combinations were looked at, and why others make no sense."""

    candidates: list[Candidate]
    considered: int
    refused: Counter[str]


def least_step_s(w: Workload) -> float:
    """Return seconds that no schedule can beat, communication being free.

    A stage works on all microbatches; before its first one these pass the stages before it, and
    after its last one the gradients do.
    """
    factor = 1 + w.times.backward_factor
    scale = factor * w.experiment.time_scale / w.t
    attention, dense, moe = w.times.attention_s, w.times.dense_mlp_s, w.times.moe_mlp_s
    virtual = [
        scale
        * (
            stage.dense_layers * (attention + dense)
            + stage.moe_layers * (attention + moe)
            + stage.before_s
            + stage.after_s
        )
        for stage in w.stages()
    ]
    pipeline = "pipeline" in STRATEGY_AXES[w.experiment.strategy]
    microbatches = w.microbatches if pipeline else 1
    own = [sum(virtual[stage :: w.p]) for stage in range(w.p)]
    return max(own[stage] + sum(virtual[:stage]) / microbatches for stage in range(w.p))


def find_candidates(
    base: Experiment, given: Collection[str], strategies: Collection[str], scale_up: int
) -> Found:
    """Return what the devices of `base` can be used for.

    `given` names the fields of `base` that stay; `scale_up` devices share a node (or a domain of
    nodes with the same links), which tensor ranks don't leave. Where no batch is given, the largest
    that fits and isn't beyond the critical batch is taken for each combination of the others: a
    larger one is no slower per sample.
    """
    found = Found([], 0, Counter())
    considered = 0
    for strategy, mesh in shapes(base, strategies, scale_up):
        for options in _options(base, given, strategy, mesh):
            kept: list[Candidate] = []
            for sizes in _batches(base, given, strategy):
                considered += 1
                try:
                    candidate = make_candidate(base, strategy, mesh, {**options, **sizes})
                except InputError as error:
                    found.refused[error.faults[0]] += 1
                    continue
                kept.append(candidate)
                if candidate.memory.fits and not candidate.warning:
                    break  # smaller ones are no better
            if chosen := _chosen(kept):
                found.candidates.append(chosen)
    return replace(found, considered=considered)


def make_candidate(base: Experiment, strategy: str, mesh: Mesh, options: Options) -> Candidate:
    """Return a candidate; InputError if the rules don't allow it."""
    experiment = replace(base, strategy=strategy, mesh=mesh, notes=(), **options)
    workload = build_workload(experiment)
    return Candidate(experiment, workload, training_memory(workload))


def shapes(base: Experiment, strategies: Collection[str], scale_up: int) -> Iterator[Shape]:
    """Yield every strategy and mesh that uses each of the strategy's axes but for the outer ones.

    An axis of size 1 would make it another strategy: fsdp has shards, dp_pp_tp tensor ranks,
    dp_pp_ep expert ranks. A single stage is left in: it adds up the gradients of microbatches.
    Tensor ranks divide the heads, and the `scale_up` devices that have fast links.
    """
    model, devices = find_model(base.model), base.devices
    stages = [p for p in _divisors(devices) if p <= model.layers]
    splits: dict[str, list[dict[str, int]]] = {
        "dp": [{}],
        "fsdp": [{"fsdp": f} for f in _divisors(devices) if f > 1],
        "dp_pp": [{"pipeline": p} for p in stages],
        "dp_pp_tp": [
            {"pipeline": p, "tensor": t}
            for t in _divisors(scale_up)
            for p in stages
            if 1 < t <= MOST_TENSOR and model.heads % t == 0 and devices % (p * t) == 0
        ],
        "dp_pp_ep": [
            {"pipeline": p, "expert": e}
            for e in _divisors(model.experts or 1)
            for p in stages
            if e > 1 and devices % (p * e) == 0
        ],
    }
    for strategy in strategies:
        for split in splits[strategy]:
            inner = 1
            for size in split.values():
                inner *= size
            sizes = {axis: split.get(axis, 1) for axis in AXES} | {"data": devices // inner}
            yield strategy, mesh_in_order(sizes, base.axis_order)


def _options(
    base: Experiment, given: Collection[str], strategy: str, mesh: Mesh
) -> Iterator[Options]:
    """Yield the options of a strategy beside its batch; those given are left out."""
    ways: list[Options] = [{}]

    def vary(name: str, values: Collection[Any]) -> None:
        if name not in given:
            ways[:] = [{**way, name: value} for way in ways for value in values]

    vary("recompute", (False, True))
    if strategy == "fsdp":
        vary("reshard_after_forward", (True, False))
        vary("units", dict.fromkeys((base.units, find_model(base.model).layers)))
    if strategy == "dp_pp_tp":
        vary("sequence_parallel", (False, True))
    if "pipeline" not in STRATEGY_AXES[strategy]:
        yield from ways
        return
    stages = dict(mesh)["pipeline"]
    per_stage, rest = divmod(find_model(base.model).layers, stages)
    chunks = [c for c in _divisors(per_stage) if 1 < c <= MOST_CHUNKS and not rest and stages > 1]
    for way in ways:
        for schedule in (base.schedule,) if "schedule" in given else SCHEDULES:
            counts = [1] if schedule != "interleaved" else chunks
            for count in [base.chunks] if "chunks" in given else counts:
                yield {**way, "schedule": schedule, "chunks": count}


def _batches(base: Experiment, given: Collection[str], strategy: str) -> Iterator[Options]:
    """Yield batches from large to small, in a pipeline each cut into single samples."""
    batches = [base.batch] if "batch" in given else BATCHES
    for batch in batches:
        pipeline = "pipeline" in STRATEGY_AXES[strategy]
        yield {"batch": batch} | (
            {"microbatches": batch} if pipeline and "microbatches" not in given else {}
        )


def _chosen(candidates: list[Candidate]) -> Candidate | None:
    """Return the largest batch that fits and converges, else the smallest that fits, or at all.

    `candidates` differ in their batch only, larger ones first.
    """
    fitting = [candidate for candidate in candidates if candidate.memory.fits]
    converging = [candidate for candidate in fitting if not candidate.warning]
    best = converging[:1] or fitting[-1:] or candidates[-1:]
    return best[0] if best else None


def _divisors(number: int) -> list[int]:
    return [d for d in range(1, number + 1) if number % d == 0]
