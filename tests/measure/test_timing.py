"""The timed loop with a program that tells how often it was called, and on what."""

from __future__ import annotations

import time
from collections.abc import Callable

import jax
import jax.numpy as jnp
import pytest

from jaxbench.measure.steady import WarmUp
from jaxbench.measure.stopping import StopRule
from jaxbench.measure.timing import Timed, run_rounds, warm_up, watch_shards

TWICE = WarmUp(least=2, most=2)


class Counter:
    """A step that adds one to its state and returns the count as what was seen."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, state: jax.Array) -> tuple[jax.Array, jax.Array]:
        self.calls += 1
        return state + 1, state


def test_every_step_continues_the_one_before_and_every_round_has_every_program() -> None:
    steps, timed = {"full": Counter(), "sync_only": Counter()}, Timed()
    warm_up(steps, [jnp.zeros(1)], rule=TWICE, timed=timed)
    run_rounds(steps, rule=StopRule(steps=5), seed=0, timed=timed, watched=("sync_only",))
    assert [step.calls for step in steps.values()] == [7, 7]
    assert timed.state[0].tolist() == [14.0]
    for name in steps:
        assert len(timed.samples_s[name]) == 5 and len(timed.warmup_s[name]) == 2
    assert list(timed.ready_s) == ["sync_only"]
    for seconds, ready in zip(
        *(d["sync_only"] for d in (timed.samples_s, timed.ready_s)), strict=True
    ):
        assert 0 < ready[0] <= seconds
    assert timed.first_call_s == timed.warmup_s["full"][0]


def order_of(seed: int) -> list[str]:
    called: list[str] = []

    def program(name: str) -> Callable[..., tuple[jax.Array, jax.Array]]:
        def step(state: jax.Array) -> tuple[jax.Array, jax.Array]:
            called.append(name)
            return state, state

        return step

    programs = {name: program(name) for name in "abc"}
    run_rounds(programs, rule=StopRule(20), seed=seed, timed=Timed(state=[jnp.zeros(1)]))
    return called


def test_the_order_is_random_by_seed_and_the_same_everywhere() -> None:
    one = order_of(1)
    assert one == order_of(1) != order_of(2)
    rounds = [one[i : i + 3] for i in range(0, 60, 3)]
    assert all(sorted(taken) == ["a", "b", "c"] for taken in rounds)
    assert len({tuple(taken) for taken in rounds}) > 3


def test_a_failed_check_of_the_first_call_leaves_nothing_timed() -> None:
    def refuse(seen: jax.Array) -> None:
        raise ValueError("wrong")

    step, timed = Counter(), Timed()
    with pytest.raises(ValueError, match="wrong"):
        warm_up({"full": step}, [jnp.zeros(1)], rule=TWICE, timed=timed, after_first=refuse)
    assert step.calls == 1 and timed.samples_s == {}


def test_an_interruption_keeps_what_was_measured() -> None:
    step, timed = Counter(), Timed()

    def interrupted(state: jax.Array) -> tuple[jax.Array, jax.Array]:
        if step.calls == 4:
            raise KeyboardInterrupt
        return step(state)

    with pytest.raises(KeyboardInterrupt):
        warm_up({"full": interrupted}, [jnp.zeros(1)], rule=TWICE, timed=timed)
        run_rounds({"full": interrupted}, rule=StopRule(steps=50), seed=0, timed=timed)
    assert len(timed.samples_s["full"]) == 2


class Late:
    """A shard that becomes ready at a given time from now."""

    def __init__(self, seconds: float) -> None:
        self.at = time.perf_counter() + seconds

    def is_ready(self) -> bool:
        return time.perf_counter() >= self.at


def test_a_late_device_does_not_make_those_behind_it_late() -> None:
    start = time.perf_counter()
    ready = watch_shards([Late(0.01), Late(0.05), Late(0.01)], start)
    assert ready[1] >= 0.05 > max(ready[0], ready[2]) >= 0.01
