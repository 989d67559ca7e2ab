"""The timed loop: a compiled step again and again, nothing else between two looks at the clock."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax


@dataclass
class Timed:
    """What the loop has measured so far, in seconds; readable after an interruption.

    `samples_s` are the timed steps of this process, `ready_s` for each of them when each of its
    devices was done, from the start of the step. `seen` is what the last step returned last.
    """

    first_call_s: float | None = None
    warmup_s: list[float] = field(default_factory=list)
    samples_s: list[float] = field(default_factory=list)
    ready_s: list[list[float]] = field(default_factory=list)
    seen: jax.Array | None = None


def run_steps(
    compiled: Callable[..., Any],
    state: Sequence[jax.Array],
    *,
    warmup: int,
    steps: int,
    timed: Timed,
    after_first: Callable[[jax.Array], None] = lambda seen: None,
) -> None:
    """Call `compiled(*state)` `warmup` times and then `steps` times, filling `timed`.

    Every call's state is the result of the one before (buffers are donated). `after_first` gets
    what the first call returned last; if it raises, nothing is timed.
    """
    for number in range(warmup):
        seconds, _, state, timed.seen = time_step(compiled, state)
        if number == 0:
            timed.first_call_s = seconds
            after_first(timed.seen)
        timed.warmup_s.append(seconds)
    for _ in range(steps):
        seconds, ready, state, timed.seen = time_step(compiled, state)
        timed.samples_s.append(seconds)
        timed.ready_s.append(ready)


def time_step(
    compiled: Callable[..., Any], state: Sequence[jax.Array]
) -> tuple[float, list[float], Sequence[jax.Array], jax.Array]:
    """Run one step to its end on all devices of this process."""
    start = time.perf_counter()
    results = compiled(*state)
    ready = []
    for shard in results[0].addressable_shards:
        shard.data.block_until_ready()
        ready.append(time.perf_counter() - start)
    jax.block_until_ready(results)
    return time.perf_counter() - start, ready, results[:-1], results[-1]
