"""The timed loop: compiled steps in random order, nothing else between two looks at the clock."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax

from jaxbench.measure.agree import agree
from jaxbench.measure.steady import WarmUp
from jaxbench.measure.stopping import StopRule

Step = Callable[..., Any]

LOOK_S = 20e-6  # asked for between two looks; about 80 us pass, little beside a skew


@dataclass
class Timed:
    """What the loop has measured so far, in seconds; readable after an interruption.

    Per program: `samples_s` are the timed steps of this process, `warmup_s` the steps before them;
    of watched programs `ready_s` tells for each step when each device was done, from its start.
    `first_call_s` is the first step of all, `state` what the last step left.
    """

    first_call_s: float | None = None
    warmup_s: dict[str, list[float]] = field(default_factory=dict)
    samples_s: dict[str, list[float]] = field(default_factory=dict)
    ready_s: dict[str, list[list[float]]] = field(default_factory=dict)
    state: Sequence[jax.Array] = ()


def warm_up(
    programs: Mapping[str, Step],
    state: Sequence[jax.Array],
    *,
    rule: WarmUp,
    timed: Timed,
    after_first: Callable[[jax.Array], None] = lambda seen: None,
) -> None:
    """Call every program until its steps are steady, filling `timed`.

    The programs share one state: each call's is the result of the one before (buffers are
    donated). `after_first` gets what the first program's first call returned last; if it raises,
    nothing more is called.
    """
    timed.state = state
    for name, step in programs.items():
        taken = timed.warmup_s.setdefault(name, [])
        while not agree(int(rule.decide(taken))):
            seconds, _, timed.state, seen = time_step(step, timed.state)
            taken.append(seconds)
            if timed.first_call_s is None:
                timed.first_call_s = seconds
                after_first(seen)


def run_rounds(
    programs: Mapping[str, Step],
    *,
    rule: StopRule,
    seed: int,
    timed: Timed,
    watched: Collection[str] = (),
    before: Callable[[int], None] = lambda number: None,
) -> None:
    """Call every program once a round, in random order, until the first one's steps are enough.

    `seed` decides the order, the same on every process. Of the `watched` programs it is found out
    when each device is ready; others are only waited for. `before` is called before every step,
    with its number from 0 on, outside of what is timed.
    """
    order, names = random.Random(seed), list(programs)
    for name in names:
        timed.samples_s[name] = []
        if name in watched:
            timed.ready_s[name] = []
    number = 0
    while more := agree(rule.more(timed.samples_s[names[0]])):
        for _ in range(more):
            for name in order.sample(names, len(names)):
                before(number)
                number += 1
                seconds, ready, timed.state, _ = time_step(
                    programs[name], timed.state, watch=name in watched
                )
                timed.samples_s[name].append(seconds)
                if name in watched:
                    timed.ready_s[name].append(ready)


def time_step(
    compiled: Step, state: Sequence[jax.Array], *, watch: bool = False
) -> tuple[float, list[float], Sequence[jax.Array], jax.Array]:
    """Run one step to its end on all devices of this process.

    Returns its seconds, when each device was ready, the state it leaves, and what was seen. Unless
    `watch` is set nothing is told about devices (an empty list): to ask for each device's part
    costs some 60 us on 8 of them, and collectives end them together anyway.
    """
    start = time.perf_counter()
    results = compiled(*state)
    ready = []
    if watch:
        ready = watch_shards([shard.data for shard in results[0].addressable_shards], start)
    jax.block_until_ready(results)
    return time.perf_counter() - start, ready, results[:-1], results[-1]


def watch_shards(shards: Sequence[Any], start: float) -> list[float]:
    """Return when each shard became ready, in seconds from `start`, by looking again and again."""
    ready = dict.fromkeys(range(len(shards)), 0.0)
    waiting = list(ready)
    while waiting:
        now = time.perf_counter() - start
        done = {index for index in waiting if shards[index].is_ready()}
        ready.update(dict.fromkeys(done, now))
        waiting = [index for index in waiting if index not in done]
        if waiting and not done:
            time.sleep(LOOK_S)
    return list(ready.values())
