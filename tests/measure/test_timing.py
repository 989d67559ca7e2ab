"""The timed loop with a program that tells how often it was called, and on what."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest

from jaxbench.measure.timing import Timed, run_steps


class Counter:
    """A step that adds one to its state and returns the count as what was seen."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, state: jax.Array) -> tuple[jax.Array, jax.Array]:
        self.calls += 1
        return state + 1, state


def test_every_step_continues_the_one_before() -> None:
    step, timed = Counter(), Timed()
    run_steps(step, [jnp.zeros(1)], warmup=2, steps=5, timed=timed)
    assert step.calls == 7
    assert timed.seen is not None and timed.seen.tolist() == [6.0]
    assert len(timed.samples_s) == len(timed.ready_s) == 5 and len(timed.warmup_s) == 2
    assert timed.first_call_s == timed.warmup_s[0]
    for seconds, ready in zip(timed.samples_s, timed.ready_s, strict=True):
        assert 0 < ready[0] <= seconds


def test_a_failed_check_of_the_first_call_leaves_nothing_timed() -> None:
    def refuse(seen: jax.Array) -> None:
        raise ValueError("wrong")

    step, timed = Counter(), Timed()
    with pytest.raises(ValueError, match="wrong"):
        run_steps(step, [jnp.zeros(1)], warmup=2, steps=5, timed=timed, after_first=refuse)
    assert step.calls == 1 and timed.samples_s == []


def test_an_interruption_keeps_what_was_measured() -> None:
    step, timed = Counter(), Timed()

    def interrupted(state: jax.Array) -> tuple[jax.Array, jax.Array]:
        if step.calls == 4:
            raise KeyboardInterrupt
        return step(state)

    with pytest.raises(KeyboardInterrupt):
        run_steps(interrupted, [jnp.zeros(1)], warmup=2, steps=50, timed=timed)
    assert len(timed.samples_s) == 2
