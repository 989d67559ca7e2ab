"""Events of XLA's GPU backend (CUDA through CUPTI, ROCm alike), one kernel or copy each.

A device is a plane `/device:GPU:n`, a stream of it a line `Stream #k(...)`. A kernel's own name
says little (`ncclDevKernel_AllGather_RING_LL`, or a Triton kernel's for a small all-reduce); the
operation that launched it is its stat `hlo_op`. Steps aren't marked. The time of a collective's
kernel includes waiting for its peers. Kernels that are launched as a recorded graph (command
buffers) may have no `hlo_op`; XLA doesn't use them while profiling unless told to.
"""

from __future__ import annotations

import re

from jaxbench.errors import RunError
from jaxbench.readings.device_events import (
    Event,
    Events,
    Request,
    no_events,
    other_program,
    unknown_layout,
)
from jaxbench.readings.xspace import Space

PREFIX = "/device:GPU:"
_STREAM = re.compile(r"Stream #\d+")
_COMMUNICATION = ("nccl", "rccl")


def read_gpu(space: Space, request: Request) -> Events:
    """Return the events of the requested devices; see `device_events` for the errors."""
    planes = space.numbered(PREFIX)
    if not any(list(plane.lines) for plane in planes.values()):
        raise no_events(space, "gpu", f"plane '{PREFIX}n' with events")
    events, modules, nameless_collectives = Events(), set(), 0
    operations = request.operations
    for number, rank in request.ranks.items():
        if number not in planes:
            raise no_events(space, "gpu", f"plane '{PREFIX}{number}' (of rank {rank})")
        streams = [line for line in planes[number].lines if _STREAM.match(line.name)]
        if not streams:
            raise unknown_layout(space, "gpu", f"no line 'Stream #k' in '{PREFIX}{number}'")
        for event in (event for line in streams for event in line.events):
            stats = dict(event.stats)
            name = stats.get("hlo_op")
            if name is None:
                events.nameless += 1
                nameless_collectives += event.name.startswith(_COMMUNICATION)
                continue
            modules.add(stats.get("hlo_module", operations.module))
            if stats.get("hlo_module", operations.module) != operations.module:
                continue
            kept, name = events.compute, str(name)
            if name in operations.begins:
                kept, name = events.collectives, operations.begins[name]
            elif name not in operations.compute:
                continue
            kept.append(Event(rank, None, name, event.start_ns, event.end_ns))
    if nameless_collectives:
        raise RunError(
            f"the profile {space.path} has {nameless_collectives} communication kernels without "
            "the name of their operation; profile without command buffers: "
            "XLA_FLAGS=--xla_enable_command_buffers_during_profiling=false"
        )
    if operations.module not in modules:
        raise other_program(space, operations.module, modules)
    return events
