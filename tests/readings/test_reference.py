"""The reference against hand-computed values and against XLA, and that it sees what is wrong."""

from __future__ import annotations

from collections.abc import Callable

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax

from jaxbench import rank as verbs
from jaxbench.errors import RunError
from jaxbench.fills import fill_value
from jaxbench.payload.none import NoPayload
from jaxbench.program import Buffer, Program, Size, abstract_mesh, trace
from jaxbench.rank import Rank, probe_positions
from jaxbench.readings.build import compile_step, make_buffers
from jaxbench.readings.compiler_options import compiler_options
from jaxbench.readings.counting import Counting
from jaxbench.readings.ranks import Ranks
from jaxbench.readings.reference import reference
from jaxbench.readings.values import compare_values, small_program
from tests.cases import case, cpu_mesh


def one_buffer(elements: int, step: Callable[[Rank], None], dtype: str = "float32") -> Program:
    size = Size(elements, elements, elements)
    return Program("hand-made", {"x": Buffer(size, dtype)}, step)


def seen_by(program: Program, axes: tuple[tuple[str, int], ...]) -> dict[str, np.ndarray]:
    ranks = Ranks(axes)
    return reference(trace(program, abstract_mesh(axes)), ranks)[1]


def test_all_reduce_of_a_gradient_beyond_32_bits_in_closed_form() -> None:
    """2,204,803,328 elements: a 70B model's gradient on 8 stages and 4 tensor ranks."""
    elements, ranks = 2_204_803_328, 7
    program = one_buffer(elements, lambda r: void(r.all_reduce("x", "data", "g")))
    seen = seen_by(program, mesh_of(data=ranks))["g"]
    places = np.array(probe_positions(elements, 64))
    assert places[0] == 0 and places[-1] == elements - 1 and len(set(places.tolist())) == 64
    wanted = np.sum([1 + (61 * r + places) % 509 for r in range(ranks)], axis=0)
    assert seen.tolist() == [wanted.tolist()] * ranks


def test_gather_scatter_exchange_and_permute_in_closed_form() -> None:
    def step(rank: Rank) -> None:
        rank.all_gather("x", "fsdp", "gathered")
        rank.reduce_scatter("x", "fsdp", "scattered")
        rank.all_to_all("x", "fsdp", "exchanged")
        ring = [(0, 1), (1, 2), (2, 0)]
        useful = lax.axis_index("fsdp") >= 0
        rank.see("sent", rank.permute("x", "fsdp", ring, "hop", useful))

    seen = seen_by(one_buffer(6, step), mesh_of(fsdp=3))
    x = np.array([[1 + 61 * r + i for i in range(6)] for r in range(3)])
    assert seen["gathered"].tolist() == [x.reshape(-1).tolist()] * 3
    assert seen["scattered"].tolist() == x.sum(0).reshape(3, 2).tolist()
    assert seen["exchanged"].tolist() == [
        np.concatenate([x[s, 2 * r : 2 * r + 2] for s in range(3)]).tolist() for r in range(3)
    ]
    assert seen["sent"].tolist() == x[[2, 0, 1]].tolist()


def test_counts_show_in_what_was_seen() -> None:
    """A sum over executions: one reduction too few or too many changes it."""

    def step(rank: Rank) -> None:
        rank.loop(5, lambda r, _: r.wait(r.all_reduce("x", "data", "g")))

    once = one_buffer(8, lambda r: void(r.all_reduce("x", "data", "g")))
    five = seen_by(one_buffer(8, step), mesh_of(data=2))["g"]
    assert five.tolist() == (5 * seen_by(once, mesh_of(data=2))["g"]).tolist()


def test_a_divergent_predicate_is_refused() -> None:
    """Members of one group that disagree would hang and then abort the process."""

    def step(rank: Rank) -> None:
        odd = lax.axis_index("data") == 1
        rank.when(odd, lambda r: r.wait(r.all_reduce("x", "data", "g")))

    traced = trace(one_buffer(8, step), abstract_mesh(mesh_of(data=2)))
    with pytest.raises(RunError, match=r"ranks \[0, 1\] of one group decide differently"):
        Counting(Ranks(mesh_of(data=2))).count(traced.closed)
    with pytest.raises(RunError, match="decide differently"):
        reference(traced, Ranks(mesh_of(data=2)))


def test_a_predicate_uniform_in_its_groups_is_counted_per_rank() -> None:
    def step(rank: Rank) -> None:
        first = lax.axis_index("pipeline") == 0
        rank.when(first, lambda r: r.loop(3, lambda q, _: q.wait(q.all_reduce("x", "tensor", "g"))))

    axes = mesh_of(pipeline=2, tensor=2)
    counting = Counting(Ranks(axes)).count(trace(one_buffer(8, step), abstract_mesh(axes)).closed)
    (counts,) = counting.counts.values()
    assert counts.tolist() == [3, 3, 0, 0]


@pytest.mark.parametrize("name", ["fsdp-2x4", "tp-sequence", "ep-2x2x2", "pp-interleaved"])
@pytest.mark.parametrize("damage", ["one element of one rank", "a whole rank", "a missing member"])
def test_a_wrong_value_anywhere_is_seen(name: str, damage: str) -> None:
    e = case(name)
    mesh = cpu_mesh(e)
    program = small_program(e, limit_bytes=1 << 16)
    traced = trace(program, mesh, probed=None)
    step = compile_step(traced, mesh, lambda s, label: NoPayload(), compiler_options("cpu"))
    *state, seen = step.compiled(*make_buffers(program, mesh))
    assert compare_values(traced, mesh, [*state, seen]).ok
    wrong = np.array(seen).reshape(e.devices, -1)
    if damage == "one element of one rank":
        wrong[e.devices - 1, -1] += 1
    elif damage == "a whole rank":
        wrong[0] = wrong[1]
    else:
        wrong[1] -= fill_value(np.array(0), np.arange(wrong.shape[1]), 509)
    broken = jax.device_put(wrong.reshape(-1), seen.sharding)
    check = compare_values(traced, mesh, [*state, broken])
    assert not check.ok and check.faults


@settings(max_examples=40)
@given(
    st.sampled_from([(2, 3), (3, 2), (1, 4), (4, 1), (2, 2)]),
    st.lists(st.sampled_from(["reduce", "gather", "scatter", "exchange"]), min_size=1, max_size=4),
    st.sampled_from(["data", "tensor"]),
    st.sampled_from(["float32", "bfloat16"]),
)
def test_any_chain_of_collectives_equals_what_xla_computes(
    shape: tuple[int, int], chain: list[str], axis: str, dtype: str
) -> None:
    axes = mesh_of(data=shape[0], tensor=shape[1])

    def step(rank: Rank) -> None:
        value: str | jax.Array = "x"
        for number, kind in enumerate(chain):
            size = rank.buffers["x"].size if isinstance(value, str) else value.size
            if kind == "scatter" and size % verbs.axis_size(axis):
                continue
            operation = {
                "reduce": rank.all_reduce,
                "gather": rank.all_gather,
                "scatter": rank.reduce_scatter,
                "exchange": rank.all_to_all,
            }[kind]
            if kind == "exchange" and size % verbs.axis_size(axis):
                continue
            value = operation(value, axis, f"{number} {kind}")

    program = one_buffer(12, step, dtype)
    names, sizes = [name for name, _ in axes], [size for _, size in axes]
    count = shape[0] * shape[1]
    mesh = jax.make_mesh(
        sizes,
        names,
        axis_types=(jax.sharding.AxisType.Auto,) * 5,
        devices=jax.devices()[:count],
    )
    traced = trace(program, mesh, probed=None)
    executable = compile_step(traced, mesh, lambda s, label: NoPayload(), compiler_options("cpu"))
    check = compare_values(traced, mesh, executable.compiled(*make_buffers(program, mesh)))
    assert check.ok, check.faults


def mesh_of(**sizes: int) -> tuple[tuple[str, int], ...]:
    names = ("data", "fsdp", "pipeline", "expert", "tensor")
    return tuple((name, sizes.get(name, 1)) for name in names)


def void(value: object) -> None:
    """Say that a value isn't waited for."""
