"""The proof that all processes are about to do the same: compared before anything is measured.

Here the resolved experiments and the versions of what runs them; the traced program of each is
compared when it is traced (`measure.execute`).
"""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from typing import Any

from jaxbench.launch.watch import named
from jaxbench.measure.host import versions
from jaxbench.measure.processes import Place

MOST_TOLD = 6  # differences of a process


def identity(experiments: Sequence[Mapping[str, object]]) -> dict[str, Any]:
    """Return what must be the same everywhere."""
    return {
        "experiments": [dict(experiment) for experiment in experiments],
        "versions": versions(),
        "machine": platform.machine(),
    }


def odd_ones(told: Sequence[Mapping[str, Any]], places: Sequence[Place]) -> str | None:
    """Return which processes differ from process 0, and in what; None if all are alike."""
    by_difference: dict[str, list[int]] = {}
    for number, other in enumerate(told):
        if found := differences(told[0], other):
            more = f" and {len(found) - MOST_TOLD} more" if len(found) > MOST_TOLD else ""
            by_difference.setdefault("; ".join(found[:MOST_TOLD]) + more, []).append(number)
    if not by_difference:
        return None
    lines = []
    for difference, numbers in list(by_difference.items())[:8]:
        hosts = sorted({places[n].host for n in numbers})
        where = ", ".join(hosts[:4]) + (" ..." if len(hosts) > 4 else "")
        lines.append(f"{named(numbers)} ({where}): {difference}")
    return "not all processes run what process 0 runs: " + "; ".join(lines)


def differences(first: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """Return in words what the identity of another process has that process 0's hasn't."""
    found = []
    runs, theirs = first["experiments"], other["experiments"]
    if len(runs) != len(theirs):
        found.append(f"{len(theirs)} experiments instead of {len(runs)}")
    for number, (one, two) in enumerate(zip(runs, theirs, strict=False)):
        which = f" in experiment {number + 1}" if len(runs) > 1 else ""
        found += [
            f"--{name} is {_text(two.get(name))} instead of {_text(one.get(name))}{which}"
            for name in {**one, **two}
            if one.get(name) != two.get(name)
        ]
    for what in ("versions", "machine"):
        one, two = first[what], other[what]
        if isinstance(one, Mapping):
            found += [
                f"{name} {two.get(name)} instead of {one.get(name)}"
                for name in {**one, **two}
                if one.get(name) != two.get(name)
            ]
        elif one != two:
            found.append(f"{what} {two} instead of {one}")
    return found


def _text(value: Any) -> str:
    if isinstance(value, Mapping):
        return ",".join(f"{name}={part}" for name, part in value.items())
    return str(value)
