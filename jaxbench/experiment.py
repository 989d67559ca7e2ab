"""One frozen description of a run, validated once: nothing behind it checks a setting again.

Every fault of a call is told at once, in one InputError. `Experiment.from_flags` takes strings
as a person gave them, `from_dict` what a record holds.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from typing import Any

from jaxbench.axes import (
    AXES,
    STRATEGY_AXES,
    Mesh,
    mesh_in_order,
    mesh_text,
    parse_mesh,
    resolve_mesh,
)
from jaxbench.catalog.hardware import HARDWARE
from jaxbench.catalog.models import MODELS
from jaxbench.catalog.systems import find_system
from jaxbench.errors import InputError, unknown
from jaxbench.experiment_rules import find_faults, find_notes
from jaxbench.timing_model import experts_per_token

__all__ = ["AXES", "STRATEGY_AXES", "Experiment", "Mesh"]


Delays = tuple[tuple[int, float], ...]
Share = float


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """What is run, on which mesh, as how much work, how often. Sizes are of the unscaled model.

    `mesh` holds all five axes in rank order (outermost first); `seq_len` and `top_k` are the
    model's where not given. `mfu` None is the hardware's. `notes` names settings without effect.
    Raises InputError with everything that is wrong.
    """

    strategy: str
    model: str
    mesh: Mesh
    devices: int
    hardware: str = "h100"
    system: str | None = None

    batch: int = 16  # samples per data-parallel rank and step
    seq_len: int | None = None
    microbatches: int = 16
    buckets: int = 50
    units: int = 16
    schedule: str = "gpipe"
    chunks: int = 1  # of layers, per stage
    sequence_parallel: bool = False
    reshard_after_forward: bool = True
    top_k: int | None = None
    head_placement: str = "even"

    dtype: str = "bfloat16"  # parameters and activations
    grad_dtype: str = ""  # gradients on the wire; '' is dtype
    convention: str = "true"
    mfu: float | None = None
    memory_efficiency: float = 0.8
    recompute: bool = False
    forward_s: float | None = None  # of the whole model for `batch` samples; replaces the roofline
    backward_s: float | None = None
    time_scale: float = 1.0
    size_scale: float = 1.0
    padding: str = "exact"  # of shards: only to the group, or to the tiles of a TPU

    axis_order: tuple[str, ...] = AXES
    payload: str = "auto"
    steps: int = 10
    warmup: int = 2
    min_seconds: float = 0.0  # of timed steps, beside `steps`
    until_ci: Share | None = None  # of the median: more steps until its interval is within it
    max_steps: int = 1000  # when `until_ci` is given up
    profile: bool = False  # of some steps after the timed ones
    decompose: bool = True  # measure the variants too, not the full program only
    inject_delay: Delays = ()  # (rank, seconds) of extra compute a step: stragglers on purpose
    seed: int = 0
    expect_devices: int | None = None

    notes: tuple[str, ...] = field(default=(), compare=False)

    def __post_init__(self) -> None:
        def fill(name: str, value: Any) -> None:
            object.__setattr__(self, name, value)

        fill("grad_dtype", self.grad_dtype or self.dtype)
        if faults := find_faults(vars(self)):
            raise InputError(faults)
        fill("mesh", mesh_in_order(dict(self.mesh), self.axis_order))
        model = MODELS[self.model]
        fill("seq_len", self.seq_len or model.seq_len)
        if model.experts:
            fill("top_k", experts_per_token(model, self.convention, self.top_k))

    @classmethod
    def from_flags(cls, given: Mapping[str, str]) -> Experiment:
        """Return the experiment of flags by their names without dashes; '' means the default."""
        kinds = {f.name: str(f.type) for f in fields(cls) if f.name != "notes"}
        texts = {name: text.strip() for name, text in given.items() if text.strip()}
        faults = [unknown("flag", name, kinds) for name in texts if name not in kinds]
        values: dict[str, Any] = {}
        bad: set[str] = set()
        for name, kind in kinds.items():
            if name in texts and name != "mesh":
                try:
                    values[name] = _READERS[kind](texts[name])
                except ValueError as error:
                    faults.append(f"--{name} is '{texts[name]}'; it must be {error}")
                    bad.add(name)
        for name in ("strategy", "model"):
            if name not in texts:
                known = STRATEGY_AXES if name == "strategy" else MODELS
                faults.append(f"--{name} is missing; known: {', '.join(sorted(known))}")
                bad.add(name)

        if "system" in values and "hardware" not in texts:
            try:
                values["hardware"] = find_system(values["system"]).hardware
            except InputError:  # told as a fault of the system
                bad.add("hardware")

        mesh_faults = _read_mesh(texts, values, bad)
        for f in fields(cls):
            if f.default is not MISSING:
                values.setdefault(f.name, f.default)
        if "grad_dtype" not in texts:  # follows dtype, and so do its faults
            bad.add("grad_dtype")
        faults += mesh_faults + find_faults(values, bad)
        if faults:
            raise InputError(faults)
        values["notes"] = tuple(find_notes(values, texts))
        return cls(**values)

    def to_dict(self) -> dict[str, Any]:
        """Return the experiment for a record: plain values, the mesh as {axis: size} in order."""
        values = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "notes"}
        lists = {name: list(map(_plain, values[name])) for name in ("axis_order", "inject_delay")}
        return {**values, "mesh": dict(self.mesh), **lists}

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Experiment:
        """Return the experiment of a record's `experiment`."""
        known = {f.name for f in fields(cls)} - {"notes"}
        if faults := [unknown("experiment field", name, known) for name in record.keys() - known]:
            raise InputError(faults)
        rebuilt = {
            "mesh": tuple(record["mesh"].items()),
            "axis_order": tuple(record["axis_order"]),
            "inject_delay": tuple((rank, seconds) for rank, seconds in record["inject_delay"]),
        }
        return cls(**{**record, **rebuilt})

    def axis(self, name: str) -> int:
        """Return the size of a mesh axis."""
        return dict(self.mesh)[name]

    def describe(self) -> str:
        """Return the title of the experiment, its scales included."""
        parts = [f"{self.strategy} {self.model}", mesh_text(self.mesh), self.dtype]
        if self.grad_dtype != self.dtype:
            parts.append(f"gradients {self.grad_dtype}")
        if self.forward_s is None:
            mfu = self.mfu or HARDWARE[self.hardware].default_mfu
            exact = self.convention == "dlnetbench"
            parts.append(f"times of {self.hardware}" + ("" if exact else f" at MFU {mfu:.3g}"))
        if self.convention != "true":
            parts.append(f"convention {self.convention}")
        if self.time_scale != 1.0:
            parts.append(f"time x {self.time_scale:g}")
        if self.size_scale != 1.0:
            parts.append(f"size x {self.size_scale:g}")
        parts += [f"rank {rank} delayed by {s * 1e6:g} us" for rank, s in self.inject_delay]
        return ", ".join(parts)


def _read_mesh(texts: Mapping[str, str], values: dict[str, Any], bad: set[str]) -> list[str]:
    """Put `mesh` and `devices` into values, or into bad; return what is wrong."""
    sizes, faults = parse_mesh(texts["mesh"]) if "mesh" in texts else ({}, [])
    devices = values.get("devices")
    if not faults and "devices" not in bad and (devices is None or devices > 0):
        strategy = values.get("strategy")
        strategy = strategy if strategy in STRATEGY_AXES else None
        full, faults = resolve_mesh(strategy, sizes, devices)
        if not faults:
            values["mesh"] = mesh_in_order(full, AXES)
            values["devices"] = math.prod(full.values())
    if "mesh" not in values:
        bad.update(["mesh"] if "devices" in values else ["mesh", "devices"])
    return faults


def _read_int(text: str) -> int:
    if not re.fullmatch(r"[+-]?[0-9]{1,1000}", text):
        raise ValueError("a whole number")
    return int(text)


def _read_float(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError("a number") from None


def _read_share(text: str) -> float:
    try:
        return _read_float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        raise ValueError("a number or a percentage, as in 0.02 or 2%") from None


def _read_delays(text: str) -> Delays:
    pairs = [part.partition(":") for part in text.split(",")]
    try:
        return tuple((_read_int(rank.strip()), _read_float(us) * 1e-6) for rank, _, us in pairs)
    except ValueError:
        raise ValueError("rank:microseconds, as in 3:500 or 3:500,5:200") from None


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _read_bool(text: str) -> bool:
    if text.lower() not in ("true", "false", "1", "0", "yes", "no"):
        raise ValueError("true or false")
    return text.lower() in ("true", "1", "yes")


_READERS: dict[str, Callable[[str], Any]] = {  # by a field's type
    "str": str,
    "str | None": str,
    "int": _read_int,
    "int | None": _read_int,
    "float": _read_float,
    "float | None": _read_float,
    "bool": _read_bool,
    "Delays": _read_delays,
    "Share | None": _read_share,
    "tuple[str, ...]": lambda text: tuple(part.strip() for part in text.split(",")),
}
