"""What `jaxbench collectives` is asked to measure: read from flags, every fault told at once."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, TypeVar

from jaxbench.axes import AXES, Mesh, mesh_in_order, parse_mesh, resolve_mesh
from jaxbench.errors import InputError, unknown
from jaxbench.experiment import Experiment
from jaxbench.experiment_rules import find_faults
from jaxbench.measure.collectives.kinds import DEFAULT_KINDS, KINDS
from jaxbench.measure.collectives.manner import IN_A_ROW, Manner
from jaxbench.measure.collectives.sizes import parse_bytes, steps

Value = TypeVar("Value")

LONGEST_PAUSE_S = 10.0


@dataclass(frozen=True, kw_only=True)
class Request:
    """A grid of kinds, axes, dtypes and sizes on a mesh, and how to measure it.

    `manner` is what is between two executions. `ranks` are the devices the mesh is made of, in its
    rank order; None: the first ones. `devices` is how many the backend must have.
    """

    kinds: tuple[str, ...]
    axes: tuple[str, ...]
    dtypes: tuple[str, ...]
    sizes: tuple[int, ...]
    manner: Manner
    mesh: Mesh
    devices: int
    ranks: tuple[int, ...] | None
    padding: str
    steps: int
    warmup: int
    seed: int
    expect_devices: int | None
    out: str
    fit: str | None

    @property
    def mesh_size(self) -> int:
        """Ranks of the mesh."""
        return math.prod(size for _, size in self.mesh)


def read_request(texts: Mapping[str, str]) -> Request:
    """Return the request of flags by their names without dashes; '' means the default.

    Raises InputError with everything that is wrong.
    """
    given = {name: text.strip() for name, text in texts.items() if text.strip()}
    faults: list[str] = []

    def read(name: str, reader: Callable[[str], Value], default: Value) -> Value | None:
        """Return the flag's value; None if it is wrong, which is told."""
        if name not in given:
            return default
        try:
            return reader(given[name])
        except ValueError as error:
            faults.append(f"--{name} is '{given[name]}'; it must be {error}")
            return None

    defaults: dict[str, Any] = {f.name: f.default for f in fields(Experiment)}
    values: dict[str, Any] = {
        name: read(name, _whole, defaults[name])
        for name in ("steps", "warmup", "seed", "expect_devices")
    }
    values["padding"] = given.get("padding") or defaults["padding"]
    devices = read("devices", _whole, None)
    if devices is not None:
        values["devices"] = devices
    others = {f.name for f in fields(Experiment)} - values.keys()
    faults += find_faults(values, others | {name for name, v in values.items() if v is None})

    kinds = _names(given.get("kinds", ",".join(DEFAULT_KINDS)))
    kinds = tuple(KINDS) if kinds == ("all",) else kinds
    faults += [unknown("kind of collective", name, KINDS) for name in kinds if name not in KINDS]
    dtypes = _names(given.get("dtype", str(defaults["dtype"])))
    for dtype in dtypes:
        faults += find_faults({"dtype": dtype}, {f.name for f in fields(Experiment)} - {"dtype"})

    smallest = read("min_bytes", parse_bytes, parse_bytes("8"))
    largest = read("max_bytes", parse_bytes, parse_bytes("16M"))
    factor = read("factor", _factor, 8)
    sizes: tuple[int, ...] = ()
    if smallest and largest and factor:
        if smallest > largest:
            faults.append(f"--min_bytes is {smallest:,}, more than --max_bytes of {largest:,}")
        sizes = tuple(steps(smallest, largest, factor))

    messages = read("messages", _at_least_one, IN_A_ROW.messages)
    pause_s = read("pause_s", _pause, IN_A_ROW.pause_s)
    ranks = read("ranks", read_ranks, None)
    told = len(faults)
    mesh: Mesh = ()
    if "ranks" not in given or ranks is not None:
        mesh, mesh_faults = _read_mesh(given, devices, ranks)
        faults += mesh_faults
    axes = _axes(given, mesh, faults) if len(faults) == told and mesh else ()
    if faults:
        raise InputError(list(dict.fromkeys(faults)))
    size = math.prod(n for _, n in mesh)
    return Request(
        kinds=kinds,
        axes=axes,
        dtypes=dtypes,
        sizes=sizes,
        manner=Manner(messages or IN_A_ROW.messages, pause_s or IN_A_ROW.pause_s),
        mesh=mesh,
        devices=devices or (max(ranks) + 1 if ranks else size),
        ranks=ranks,
        padding=values["padding"],
        steps=values["steps"],
        warmup=values["warmup"],
        seed=values["seed"],
        expect_devices=values["expect_devices"],
        out=given.get("out", "results"),
        fit=given.get("fit"),
    )


def read_ranks(text: str) -> tuple[int, ...]:
    """Return the ranks of '0-3,6', in the order given; ValueError with what is allowed."""
    ranks: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"\s*([0-9]{1,6})(?:-([0-9]{1,6}))?\s*", part)
        if not match:
            raise ValueError("ranks and ranges of ranks, as in 0-3 or 0,2,4-6")
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first:
            raise ValueError(f"ranges that go upwards, unlike {part.strip()}")
        ranks += range(first, last + 1)
    if len(set(ranks)) < len(ranks):
        raise ValueError("ranks that are named once each")
    return tuple(ranks)


def _read_mesh(
    given: Mapping[str, str], devices: int | None, ranks: tuple[int, ...] | None
) -> tuple[Mesh, list[str]]:
    """Return the mesh over all devices, or over the ranks if some are named."""
    sizes, faults = parse_mesh(given["mesh"]) if "mesh" in given else ({}, [])
    if faults or ("devices" in given and (devices is None or devices < 1)):
        return (), faults
    if ranks is None:
        full, faults = resolve_mesh(None, sizes, devices)
    else:
        full, faults = resolve_mesh(None, sizes, len(ranks))
        faults = [fault.replace("--devices is", "--ranks names") for fault in faults]
        if devices is not None and max(ranks) >= devices:
            faults.append(f"--ranks names {max(ranks)}; the ranks are 0 to {devices - 1}")
    return (mesh_in_order(full, AXES) if not faults else ()), faults


def _axes(given: Mapping[str, str], mesh: Mesh, faults: list[str]) -> tuple[str, ...]:
    """Return the axes to communicate over: those named, else all with more than one rank."""
    sizes = dict(mesh)
    if "axis" not in given:
        used = tuple(axis for axis, size in mesh if size > 1)
        if not used:
            faults.append("one rank has nobody to communicate with; give --devices=2 or more")
        return used
    named = _names(given["axis"])
    faults += [unknown("mesh axis", axis, AXES) for axis in named if axis not in AXES]
    faults += [
        f"axis '{axis}' has one rank, so nobody to communicate with; give it a size in --mesh"
        for axis in named
        if sizes.get(axis) == 1
    ]
    return named


def _names(text: str) -> tuple[str, ...]:
    """Return the names of a list, each once."""
    return tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))


def _whole(text: str) -> int:
    if not re.fullmatch(r"[+-]?[0-9]{1,18}", text):
        raise ValueError("a whole number")
    return int(text)


def _at_least_one(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,4}", text) or int(text) < 1:
        raise ValueError("a whole number from 1 to 9999")
    return int(text)


def _pause(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds <= LONGEST_PAUSE_S:
        raise ValueError(f"a number of seconds from 0 to {LONGEST_PAUSE_S:g}")
    return seconds


def _factor(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,6}", text) or int(text) < 2:
        raise ValueError("a whole number of at least 2")
    return int(text)
