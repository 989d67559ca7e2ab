"""What must hold for an experiment to make sense, one small function per rule.

The parameters of a rule are the fields it looks at: it is asked only if those are right in
themselves, so that one mistake is told once. A rule yields what is wrong, in the words of the
command line: what was given, what is allowed, what to do.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from jaxbench.axes import AXES, STRATEGY_AXES, Mesh, mesh_text
from jaxbench.catalog.hardware import HARDWARE
from jaxbench.catalog.models import MODELS
from jaxbench.catalog.systems import find_system, system_names
from jaxbench.dtypes import DTYPES
from jaxbench.errors import InputError, unknown
from jaxbench.timing_model import experts_per_token, missing_peak

INT64_MAX = 2**63 - 1
MOST_DEVICES = 1 << 20
LONGEST_S = 1e9  # 32 years

SMALLEST: dict[str, int] = {  # of whole numbers
    "devices": 1,
    "batch": 1,
    "seq_len": 1,
    "microbatches": 1,
    "buckets": 1,
    "units": 1,
    "chunks": 1,
    "top_k": 1,
    "steps": 1,
    "warmup": 2,  # the second step still touches fresh memory
    "seed": 0,
    "expect_devices": 1,
    "max_steps": 1,
}
POSITIVE = ("forward_s", "backward_s", "time_scale", "size_scale")
FRACTIONS = ("mfu", "memory_efficiency", "until_ci")
NOT_NEGATIVE = ("min_seconds",)

CHOICES: dict[str, tuple[str, ...]] = {
    "strategy": tuple(STRATEGY_AXES),
    "model": tuple(MODELS),
    "hardware": tuple(HARDWARE),
    "dtype": tuple(DTYPES),
    "grad_dtype": tuple(DTYPES),
    "schedule": ("gpipe", "1f1b", "interleaved"),
    "convention": ("true", "dlnetbench"),
    "head_placement": ("even", "ends"),
    "payload": ("auto", "matmul", "sleep", "none"),
    "padding": ("exact", "tpu"),
}


def find_faults(values: Mapping[str, Any], bad: Iterable[str] = ()) -> list[str]:
    """Return everything that is wrong with the fields' values; fields in `bad` are told already."""
    bad = set(bad)
    faults = []
    for name, value in values.items():
        fault = None if name in bad or value is None else _field_fault(name, value)
        if fault:
            bad.add(name)
            faults.append(fault)
    for rule in RULES:
        needed = inspect.signature(rule).parameters
        if not bad.intersection(needed):
            faults += rule(**{name: values[name] for name in needed})
    return faults


def _field_fault(name: str, value: Any) -> str | None:
    """Return what is wrong with one value in itself."""
    # A user's file is read, and its faults told, by the rules below.
    if name == "system" and not value.endswith(".toml") and value not in system_names():
        return unknown("system", value, system_names())
    if name in CHOICES and value not in CHOICES[name]:
        return unknown(name, value, CHOICES[name])
    if name in SMALLEST and not SMALLEST[name] <= value <= INT64_MAX:
        return f"--{name} is {value}; it must be at least {SMALLEST[name]} and fit 64 bits"
    if name in POSITIVE and not 0 < value < math.inf:
        return f"--{name} is {value:g}; it must be greater than 0"
    if name in FRACTIONS and not 0 < value <= 1:
        return f"--{name} is {value:g}; it must be greater than 0 and at most 1"
    if name in NOT_NEGATIVE and not 0 <= value < math.inf:
        return f"--{name} is {value:g}; it must be at least 0"
    if name == "mesh":
        return _mesh_fault(value)
    if name == "axis_order" and sorted(value) != sorted(AXES):
        return f"--axis_order is '{','.join(value)}'; it must hold each of {', '.join(AXES)} once"
    return None


def _mesh_fault(mesh: Mesh) -> str | None:
    """Return what is wrong with axes that no text was read for, such as those of a record."""
    for axis, size in mesh:
        if axis not in AXES:
            return unknown("mesh axis", axis, AXES)
        if size < 1:
            return f"mesh axis '{axis}' has size {size}; it must be at least 1"
    return None


# --- the mesh ---------------------------------------------------------------------------------


def axes_are_used(strategy: str, mesh: Mesh) -> Iterator[str]:
    """A mesh axis that the strategy doesn't use would make idle copies of it."""
    used = STRATEGY_AXES[strategy]
    for axis, size in mesh:
        if size > 1 and axis not in used:
            others = [name for name, axes in STRATEGY_AXES.items() if axis in axes]
            yield (
                f"strategy {strategy} doesn't use the mesh axis '{axis}' (size {size}), only "
                f"{', '.join(used)}; leave it out, or choose --strategy={' or '.join(others)}"
            )


def mesh_has_the_devices(mesh: Mesh, devices: int) -> Iterator[str]:
    """The axes multiply to the number of devices."""
    if devices > MOST_DEVICES:
        yield f"--devices is {devices}; at most {MOST_DEVICES:,} ranks are planned at once"
    product = math.prod(size for _, size in mesh)
    if product != devices:
        yield f"--mesh={mesh_text(mesh)} makes {product} ranks, but --devices is {devices}"


def system_is_large_enough(system: str | None, devices: int) -> Iterator[str]:
    """A system has as many devices as the mesh takes."""
    if system is not None:
        try:
            found = find_system(system).devices
        except InputError as error:
            yield from error.faults
            return
        if devices > found:
            yield f"system {system} has {found} devices, but the mesh takes {devices}"


def system_has_the_hardware(system: str | None, hardware: str) -> Iterator[str]:
    """A system implies its hardware."""
    if system is not None:
        try:
            implied = find_system(system).hardware
        except InputError:
            return  # told above
        if hardware != implied:
            yield f"system {system} has hardware {implied}, but --hardware is {hardware}"


# --- pipelines --------------------------------------------------------------------------------


def microbatches_divide_the_batch(strategy: str, batch: int, microbatches: int) -> Iterator[str]:
    """Every microbatch has the same number of samples."""
    if "pipeline" in STRATEGY_AXES[strategy] and batch % microbatches:
        yield (
            f"--microbatches={microbatches} doesn't divide --batch={batch}; "
            f"divisors: {_divisors(batch)}"
        )


def chunks_fit_the_schedule(strategy: str, schedule: str, chunks: int) -> Iterator[str]:
    """Only the interleaved schedule has more than one chunk of layers per stage."""
    if "pipeline" not in STRATEGY_AXES[strategy]:
        return
    if schedule == "interleaved" and chunks < 2:
        yield "--schedule=interleaved needs --chunks=2 or more"
    if schedule != "interleaved" and chunks > 1:
        yield f"--chunks={chunks} needs --schedule=interleaved, not {schedule}"


def stages_have_layers(
    strategy: str, model: str, mesh: Mesh, schedule: str, chunks: int
) -> Iterator[str]:
    """Every stage has a layer; interleaved stages have equally many."""
    layers, stages = MODELS[model].layers, _size(mesh, "pipeline")
    if "pipeline" not in STRATEGY_AXES[strategy]:
        return
    if schedule == "interleaved" and chunks > 1 and layers % (stages * chunks):
        yield (
            f"{stages} stages of {chunks} chunks don't divide the {layers} layers of {model}; "
            f"interleaved needs stages * chunks to be one of {_divisors(layers)}"
        )
    elif stages > layers:
        yield f"{stages} pipeline stages are more than the {layers} layers of {model}"


def microbatches_fill_the_ring(
    strategy: str, mesh: Mesh, schedule: str, microbatches: int
) -> Iterator[str]:
    """The interleaved schedule takes microbatches in groups of as many as there are stages."""
    stages = _size(mesh, "pipeline")
    if "pipeline" not in STRATEGY_AXES[strategy] or schedule != "interleaved":
        return
    if microbatches % stages:
        yield (
            f"--schedule=interleaved needs microbatches in multiples of the {stages} stages, "
            f"but --microbatches is {microbatches}"
        )


# --- tensors and experts ----------------------------------------------------------------------


def activation_divides(
    strategy: str, model: str, mesh: Mesh, batch: int, microbatches: int, seq_len: int | None
) -> Iterator[str]:
    """A/t is whole, A = B/M*S*D elements of a microbatch's activation."""
    tensor = _size(mesh, "tensor")
    if "tensor" not in STRATEGY_AXES[strategy] or batch % microbatches:
        return
    row = MODELS[model]
    elements = batch // microbatches * (seq_len or row.seq_len) * row.hidden
    if elements % tensor:
        yield (
            f"the activation of a microbatch of {model} has {elements:,} elements, "
            f"which the {tensor} ranks of axis 'tensor' don't divide"
        )


def there_are_experts(strategy: str, model: str) -> Iterator[str]:
    """An expert-parallel strategy needs a mixture of experts."""
    if "expert" in STRATEGY_AXES[strategy] and not MODELS[model].experts:
        known = sorted(name for name, row in MODELS.items() if row.experts)
        yield f"strategy {strategy} needs a model with experts, which {model} hasn't; known: " + (
            ", ".join(known)
        )


def experts_divide(strategy: str, model: str, mesh: Mesh) -> Iterator[str]:
    """Every expert rank holds the same number of experts."""
    ranks, experts = _size(mesh, "expert"), MODELS[model].experts
    if "expert" in STRATEGY_AXES[strategy] and experts and experts % ranks:
        yield (
            f"the {ranks} ranks of axis 'expert' don't divide the {experts} experts of {model}; "
            f"use one of {_divisors(experts)}"
        )


def top_k_fits(model: str, top_k: int | None) -> Iterator[str]:
    """A token goes to at most as many experts as there are."""
    experts = MODELS[model].experts
    if top_k is not None and top_k > experts:
        yield f"--top_k={top_k} is more than the {experts} experts of {model}"


def dispatch_divides(
    strategy: str,
    model: str,
    mesh: Mesh,
    batch: int,
    microbatches: int,
    seq_len: int | None,
    top_k: int | None,
    convention: str,
) -> Iterator[str]:
    """A*k/e is whole: what a rank sends to each expert rank."""
    ranks, row = _size(mesh, "expert"), MODELS[model]
    if "expert" not in STRATEGY_AXES[strategy] or not row.experts or batch % microbatches:
        return
    elements = batch // microbatches * (seq_len or row.seq_len) * row.hidden
    elements *= experts_per_token(row, convention, top_k)
    if elements % ranks:
        yield (
            f"a microbatch of {model} dispatches {elements:,} elements, "
            f"which the {ranks} ranks of axis 'expert' don't divide"
        )


# --- parameters and time ----------------------------------------------------------------------


def parameters_fill(strategy: str, model: str, buckets: int, units: int) -> Iterator[str]:
    """No bucket and no unit is empty."""
    name = {"dp": "buckets", "fsdp": "units"}.get(strategy)
    count = units if name == "units" else buckets
    parameters = MODELS[model].parameters
    if name and count > parameters:
        yield f"--{name}={count} is more than the {parameters:,} parameters of {model}"


def backward_needs_forward(forward_s: float | None, backward_s: float | None) -> Iterator[str]:
    """A given backward time belongs to a given forward time."""
    if backward_s is not None and forward_s is None:
        yield "--backward_s needs --forward_s beside it"


def peak_is_known(
    hardware: str, dtype: str, convention: str, forward_s: float | None
) -> Iterator[str]:
    """The timing model has a peak to compute with, or the time is given."""
    if forward_s is None and (fault := missing_peak(HARDWARE[hardware], dtype, convention)):
        yield fault


def sizes_fit_64_bits(model: str, size_scale: float) -> Iterator[str]:
    """Element counts stay whole numbers of 64 bits."""
    elements = MODELS[model].parameters * size_scale
    if elements > INT64_MAX:
        yield f"--size_scale={size_scale:g} makes {elements:.3g} parameters; 64 bits hold 9.22e18"


def seconds_are_a_lifetime(
    forward_s: float | None, backward_s: float | None, time_scale: float
) -> Iterator[str]:
    """Seconds of compute stay far from what floating point can't hold."""
    longest = max(forward_s or 0.0, backward_s or 0.0, 1.0) * time_scale
    if longest > LONGEST_S:
        yield (
            f"--time_scale={time_scale:g} makes computes of {longest:.3g} s or more; "
            f"{LONGEST_S:g} s is the most"
        )


def delays_are_of_ranks(inject_delay: Any, devices: int) -> Iterator[str]:
    """A delay is positive and of a rank of the mesh, one a rank."""
    ranks = [rank for rank, _ in inject_delay]
    for rank, seconds in inject_delay:
        if not 0 <= rank < devices:
            yield f"--inject_delay names rank {rank}; the ranks are 0 to {devices - 1}"
        if not 0 < seconds < math.inf:
            yield f"--inject_delay of rank {rank} is {seconds * 1e6:g} us; it must be above 0"
        if ranks.count(rank) > 1:
            yield f"--inject_delay names rank {rank} twice"
            return


RULES: tuple[Callable[..., Iterator[str]], ...] = (
    axes_are_used,
    mesh_has_the_devices,
    system_is_large_enough,
    system_has_the_hardware,
    microbatches_divide_the_batch,
    chunks_fit_the_schedule,
    stages_have_layers,
    microbatches_fill_the_ring,
    activation_divides,
    there_are_experts,
    experts_divide,
    top_k_fits,
    dispatch_divides,
    parameters_fill,
    backward_needs_forward,
    sizes_fit_64_bits,
    seconds_are_a_lifetime,
    peak_is_known,
    delays_are_of_ranks,
)


# --- settings without effect ------------------------------------------------------------------

PIPELINES = ("dp_pp", "dp_pp_tp", "dp_pp_ep")

OPTION_STRATEGIES: dict[str, tuple[str, ...]] = {
    "buckets": ("dp",),
    "units": ("fsdp",),
    "reshard_after_forward": ("fsdp",),
    "microbatches": PIPELINES,
    "schedule": PIPELINES,
    "chunks": PIPELINES,
    "head_placement": PIPELINES,
    "sequence_parallel": ("dp_pp_tp",),
}


def find_notes(values: Mapping[str, Any], given: Iterable[str]) -> list[str]:
    """Return a note for each option that was given and changes nothing in this experiment."""
    given = set(given)
    strategy = values["strategy"]
    notes = [
        f"--{name} has no effect with strategy {strategy}, only with {', '.join(strategies)}"
        for name, strategies in OPTION_STRATEGIES.items()
        if name in given and strategy not in strategies
    ]
    reasons = []
    if values["convention"] == "dlnetbench":
        reasons.append(("--convention=dlnetbench", ("mfu", "memory_efficiency")))
    if values["backward_s"] is not None:
        reasons.append(("--backward_s", ("recompute",)))
    if values["payload"] == "none":
        reasons.append(("--payload=none", ("time_scale", "inject_delay")))
    notes += [
        f"--{name} has no effect beside {reason}"
        for reason, names in reasons
        for name in names
        if name in given
    ]
    return notes


def _size(mesh: Mesh, axis: str) -> int:
    return dict(mesh).get(axis, 1)


def _divisors(number: int) -> str:
    """Return the divisors of a number as text, the smallest 24."""
    small = [d for d in range(1, math.isqrt(min(number, 10**8)) + 1) if number % d == 0]
    both = sorted({*small, *(number // d for d in small)})
    return ", ".join(map(str, both[:24]))
