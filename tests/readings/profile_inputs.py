"""Small profiles and programs made by hand, as their recorders and compilers print them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jax.profiler import ProfileData

from jaxbench.program import abstract_mesh, trace
from jaxbench.readings.plan import Plan, build_program, plan_traced
from tests.cases import experiment

MODULE = "jit_step"


@dataclass(frozen=True)
class E:
    """An event: name, start and end in nanoseconds, stats."""

    name: str
    start: int
    end: int
    stats: Mapping[str, Any] = field(default_factory=dict)


Lines = Mapping[str, Sequence[E]]


def write_profile(
    folder: Path,
    planes: Mapping[str, Lines],
    *,
    stats: Mapping[str, Any] | None = None,
    warnings: Sequence[str] = (),
    errors: Sequence[str] = (),
) -> str:
    """Write a profile and return its path; `stats` are those of every plane."""
    text = [
        _plane(number, name, lines, stats or {})
        for number, (name, lines) in enumerate(planes.items())
    ]
    text += [f"warnings: {json.dumps(w)}" for w in warnings]
    text += [f"errors: {json.dumps(e)}" for e in errors]
    path = folder / "host.xplane.pb"
    path.write_bytes(ProfileData.text_proto_to_serialized_xspace("\n".join(text)))
    return str(path)


def _plane(number: int, name: str, lines: Lines, stats: Mapping[str, Any]) -> str:
    events: dict[str, int] = {}
    keys: dict[str, int] = {}

    def stat(key: str, value: Any) -> str:
        typed = (
            f"int64_value: {value}" if isinstance(value, int) else f"str_value: {json.dumps(value)}"
        )
        return f"stats {{ metadata_id: {keys.setdefault(key, len(keys) + 1)} {typed} }}"

    body = [stat(key, value) for key, value in stats.items()]
    for line, (title, listed) in enumerate(lines.items()):
        text = [
            f"events {{ metadata_id: {events.setdefault(e.name, len(events) + 1)} "
            f"offset_ps: {e.start * 1000} duration_ps: {(e.end - e.start) * 1000} "
            f"{' '.join(stat(key, value) for key, value in e.stats.items())} }}"
            for e in listed
        ]
        body.append(f"lines {{ id: {line + 1} name: {json.dumps(title)} {' '.join(text)} }}")
    for kind, names in (("event", events), ("stat", keys)):
        body += [
            f"{kind}_metadata {{ key: {n} value {{ id: {n} name: {json.dumps(called)} }} }}"
            for called, n in names.items()
        ]
    return f"planes {{ id: {number} name: {json.dumps(name)} {' '.join(body)} }}"


def make_plan(**flags: Any) -> Plan:
    """Return the plan of a small experiment."""
    e = experiment(**flags)
    workload, program = build_program(e)
    traced = trace(program, abstract_mesh(e.mesh))
    return plan_traced(e, workload, traced, 0.0)


def program_text(instructions: Sequence[str], computations: Sequence[str] = ()) -> str:
    """Return a program of these instructions."""
    body = "\n".join(f"  {line}" for line in instructions)
    rest = "".join(f"{computation}\n\n" for computation in computations)
    return (
        f"HloModule {MODULE}, is_scheduled=true\n\n{rest}"
        f"ENTRY %main (x: f32[1]) -> f32[1] {{\n  %x = f32[1]{{0}} parameter(0)\n{body}\n}}\n"
    )


def scope(label: str, operation: str) -> str:
    """Return the metadata of an instruction lowered under `label`."""
    return f'metadata={{op_name="jit(step)/shard_map/{label}/{operation}"}}'
