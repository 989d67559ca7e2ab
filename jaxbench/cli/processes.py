"""What a command with many processes does first: start them, or meet the others."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence

from jaxbench.errors import InputError, unknown
from jaxbench.measure.processes import here

ORDERS = ("nearness", "process")


def meet(
    values: Mapping[str, str],
    who: str,
    faults: Sequence[str],
    own_faults: Callable[[], Sequence[str]] = lambda: (),
) -> int | None:
    """Join the processes of this run; return an exit code if it only had to start them.

    InputError has the `faults` of the call, told once for all processes, and `own_faults`, which
    concern process 0 alone.
    """
    from jaxbench.launch.join import join_world, read_limits
    from jaxbench.launch.world import find_world

    faults = list(faults)
    order = values.get("device_order") or ORDERS[0]
    aligned = (values.get("align_steps") or "true").lower()
    if order not in ORDERS:
        faults.append(unknown("device_order", order, ORDERS))
    if aligned not in ("true", "false", "1", "0", "yes", "no"):
        faults.append(f"--align_steps is '{aligned}'; it must be true or false")
    limits = None
    try:
        limits = read_limits(values)
    except InputError as error:
        faults += error.faults
    try:
        world = find_world(values, os.environ)
    except InputError as error:
        raise InputError([*faults, *error.faults]) from None
    if world.index == 0:
        faults += own_faults()
        for note in world.notes:
            print(f"{who}: {note}", file=sys.stderr)
    if world.starts:
        if faults:
            raise InputError(faults)
        from jaxbench.launch.local_processes import run_local

        return run_local(world.starts, os.environ)
    from jaxbench.launch.watch import Limits

    joined = join_world(world, limits or Limits(), who)
    if faults:
        raise InputError(faults)
    if joined:
        if order == "process":
            joined.order = range(joined.count)
        joined.aligned = aligned in ("true", "1", "yes")
    return None


def same_experiments(experiments: Sequence[Mapping[str, object]]) -> None:
    """Raise InputError, the same on all, unless every process is about to do the same."""
    if here().count > 1:
        from jaxbench.launch.handshake import identity, odd_ones

        began = time.perf_counter()
        here().stage("handshake")
        told = here().to_first(identity(experiments))
        fault = here().from_first(odd_ones(told, here().places) if here().index == 0 else None)
        here().start_s["handshake"] = time.perf_counter() - began
        if fault:
            raise InputError(fault)
