"""What waits for what, and what is free to overlap: the length of a step in closed form.

Each case gives a collective a cost small enough to hide where it may hide, so that a wait too many
or too few changes the length; nothing queues. Times are of the timing model: F + G = 60 ms.
"""

from __future__ import annotations

from typing import Any

import pytest

from jaxbench.program import abstract_mesh, trace
from jaxbench.readings.plan import build_program
from jaxbench.readings.ranks import Ranks
from jaxbench.readings.simulate import Semantics, simulate
from tests.cases import experiment
from tests.readings.test_variants import story
from tests.simple_costs import ByKind

F, G, C = 0.020, 0.040, 0.0005


def length(costs: dict[str, float], **flags: Any) -> float:
    e = experiment(**flags)
    _, program = build_program(e)
    closed = trace(program, abstract_mesh(e.mesh)).closed
    return simulate(closed, Ranks(e.mesh), ByKind(costs), Semantics("unlimited")).step_s


def told(**flags: Any) -> list[str]:
    e = experiment(**flags)
    return story(trace(build_program(e)[1], abstract_mesh(e.mesh)).closed)


def test_dp_hides_all_buckets_but_the_last() -> None:
    flags = {"strategy": "dp", "mesh": "data=4", "buckets": 4}
    assert length({"all_reduce": C}, **flags) == pytest.approx(F + G + C)
    # Longer than a bucket's backward: from the first bucket on they only overlap each other.
    assert length({"all_reduce": 0.025}, **flags) == pytest.approx(F + G + 0.025)
    # Longer than all that follows: bound by the first bucket, which leaves after F + G/4.
    assert length({"all_reduce": 1.0}, **flags) == pytest.approx(F + G + 1.0)


def test_dp_reduces_the_last_layers_first() -> None:
    order = [label for label in told(strategy="dp", mesh="data=2", buckets=3) if "psum" in label]
    assert order == ["psum gradient 2", "psum gradient 1", "psum gradient 0"]


def test_fsdp_shows_the_first_gather_and_the_last_reduction_only() -> None:
    flags = {"strategy": "fsdp", "mesh": "data=2,fsdp=2", "units": 4}
    assert length({"all_gather": C}, **flags) == pytest.approx(C + F + G)
    assert length({"reduce_scatter": C, "all_reduce": C}, **flags) == pytest.approx(F + G + 2 * C)


def test_fsdp_prefetches_one_unit() -> None:
    """A gather longer than two units' compute: two gathers are under way at a time, not more."""
    flags = {"strategy": "fsdp", "mesh": "fsdp=2", "units": 4, "backward_s": 1e-9}
    unit, gather = F / 4, 0.1
    # Units 0 and 1 come together; unit u+1 may leave when the compute of unit u-1 is done.
    assert length({"all_gather": gather}, **flags) == pytest.approx(4 * gather + F, rel=0.2)
    short = length({"all_gather": 1.5 * unit}, **flags)
    assert short < 4 * 1.5 * unit + F  # a gather hides behind the unit before it


def test_fsdp_waits_for_what_it_computes_with() -> None:
    flags = {"strategy": "fsdp", "mesh": "fsdp=2", "units": 1}
    assert length({"all_gather": 0.1}, **flags) == pytest.approx(0.1 + F + G)


@pytest.mark.parametrize(("schedule", "chunks"), [("gpipe", 1), ("1f1b", 1), ("interleaved", 2)])
def test_a_pipeline_has_its_bubble_and_waits_for_its_messages(schedule: str, chunks: int) -> None:
    p, m = 4, 8
    flags = {
        "strategy": "dp_pp",
        "mesh": f"pipeline={p}",
        "microbatches": m,
        "schedule": schedule,
        "chunks": chunks,
    }
    closed = (F + G) / p * (1 + (p - 1) / (chunks * m))
    assert length({}, **flags) == pytest.approx(closed)
    hop = length({"permute": C}, **flags) - closed
    # A first microbatch travels p - 1 hops each way, whatever else overlaps.
    assert hop >= 2 * (p - 1) * C * 0.999


def test_pipeline_gradients_follow_the_last_backward() -> None:
    flags = {"strategy": "dp_pp", "mesh": "data=2,pipeline=2", "microbatches": 4}
    free = length({}, **flags)
    assert length({"all_reduce": C}, **flags) == pytest.approx(free + C)


def test_tensor_parallel_reductions_are_on_the_critical_path() -> None:
    flags = {"strategy": "dp_pp_tp", "mesh": "tensor=4", "microbatches": 2}
    layers, blocks, ways = 8, 2, 2
    reductions = layers * blocks * ways * 2  # of two microbatches
    wanted = (F + G) / 4 + reductions * C
    assert length({"all_reduce": C}, **flags) == pytest.approx(wanted)
    labels = [label for label in told(**flags) if "psum" not in label]
    assert labels.index("attention forward") < labels.index("mlp forward")
    assert labels.index("mlp backward") < labels.index("attention backward")
    whole = told(**flags)
    assert whole.index("attention forward") < whole.index("psum attention forward")
    assert whole.index("psum attention forward") < whole.index("mlp forward")


def test_a_sequence_parallel_regather_hides_behind_the_weight_gradient() -> None:
    flags = {
        "strategy": "dp_pp_tp",
        "mesh": "tensor=4",
        "microbatches": 1,
        "sequence_parallel": "true",
    }
    blocks, compute = 8 * 2, (F + G) / 4
    tiny = 1e-5  # far shorter than a weight gradient
    assert length({"reduce_scatter": tiny}, **flags) == pytest.approx(compute + 2 * blocks * tiny)
    # Forward and backward wait for one gather a block; the re-gather is hidden.
    assert length({"all_gather": tiny}, **flags) == pytest.approx(compute + 2 * blocks * tiny)
    # One longer than any compute is waited for before the block ends.
    long = length({"all_gather": 1.0}, **flags)
    assert long == pytest.approx(3 * blocks * 1.0, rel=0.02)


def test_expert_exchanges_are_waited_for_and_gradients_come_in_order() -> None:
    flags = {"strategy": "dp_pp_ep", "mesh": "data=2,expert=2", "microbatches": 2}
    exchanges = 8 * 2 * 2 * 2  # layers, dispatch and combine, ways, microbatches
    assert length({"all_to_all": C}, **flags) == pytest.approx(F + G + exchanges * C)
    assert length({"all_reduce": C}, **flags) == pytest.approx(F + G + 2 * C)
    labels = told(**flags)
    assert labels.index("psum shared gradient") < labels.index("psum gradient")
    first = labels.index("all_to_all dispatch forward")
    assert labels[first : first + 3] == [
        "all_to_all dispatch forward",
        "experts forward",
        "all_to_all combine forward",
    ]
