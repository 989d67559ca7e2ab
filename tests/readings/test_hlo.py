"""Reading collectives out of HLO: printed samples, forms by hand, and programs compiled for CPU."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax import lax
from jax.sharding import AxisType, PartitionSpec

from jaxbench.errors import RunError
from jaxbench.readings.compiler_options import compiler_options
from jaxbench.readings.hlo import HloCollective, collectives
from jaxbench.readings.hlo_groups import replica_groups
from jaxbench.readings.hlo_text import element_bits
from tests.readings import hlo_samples
from tests.readings.hlo_samples import by_hand, loop

RING = tuple((i, (i + 1) % 4) for i in range(4)) + tuple((4 + i, 4 + (i + 1) % 4) for i in range(4))
ROWS = ((0, 1, 2, 3), (4, 5, 6, 7))
COLUMNS = ((0, 4), (1, 5), (2, 6), (3, 7))
ALL = (tuple(range(8)),)


def short(found: HloCollective) -> tuple[Any, ...]:
    who = found.pairs or found.groups
    return found.kind, found.elements, found.dtype, who, found.trips, found.conditional


def shorts(text: str, num_devices: int = 8) -> list[tuple[Any, ...]]:
    return [short(found) for found in collectives(text, num_devices)]


# --- printed samples ---

KINDS = {
    ("permute", 128, "f32", RING, 1, 0),
    ("all_reduce", 128, "f32", COLUMNS, 1, 0),
    ("reduce_scatter", 128, "f32", ROWS, 1, 0),
    ("all_to_all", 128, "f32", ROWS, 1, 0),
}


@pytest.mark.parametrize("text", [hlo_samples.CPU_KINDS, hlo_samples.CPU_KINDS_0_11])
def test_cpu(text: str) -> None:
    found = shorts(text)
    assert set(found) == KINDS | {("all_gather", 64, "f32", ROWS, 1, 0)}
    assert len(found) == 5


@pytest.mark.parametrize("text", [hlo_samples.GPU_KINDS, hlo_samples.GPU_KINDS_0_11])
def test_gpu(text: str) -> None:
    found = shorts(text)
    assert set(found) == KINDS | {("all_gather", 64, "bf16", ROWS, 1, 0)}
    assert len(found) == 5


def test_the_samples_differ_where_the_versions_do() -> None:
    assert "replica_groups=mesh[" in hlo_samples.CPU_KINDS_0_11
    assert "replica_groups={{" not in hlo_samples.CPU_KINDS_0_11
    assert hlo_samples.GPU_KINDS_0_11.count("((") == hlo_samples.GPU_KINDS.count("((") + 3
    assert "true_computation" in hlo_samples.GPU_CONDITIONAL_IN_LOOP
    assert "known_trip_count" in hlo_samples.GPU_CONDITIONAL_IN_LOOP


def test_bytes_and_names() -> None:
    by_kind = {found.kind: found for found in collectives(hlo_samples.GPU_KINDS, 8)}
    assert by_kind["all_gather"].bytes == 64 * 2
    assert by_kind["all_reduce"].bytes == 128 * 4
    assert by_kind["all_reduce"].name == "all-reduce-start"
    assert by_kind["all_reduce"].op_name == "jit(f)/shard_map/psum"
    assert {found.combined for found in by_kind.values()} == {1}
    assert by_kind["permute"].groups == ()
    assert by_kind["all_reduce"].pairs == ()


def test_a_conditional_in_a_loop_without_a_known_count() -> None:
    pairs = ((0, 1), (2, 3), (4, 5), (6, 7))
    found = shorts(hlo_samples.CPU_CONDITIONAL_IN_LOOP)
    assert found == [("all_reduce", 131072, "f32", pairs, 7, 1)]


def test_a_known_count_is_believed() -> None:
    (found,) = collectives(hlo_samples.GPU_CONDITIONAL_IN_LOOP, 8)
    assert (found.trips, found.conditional) == (9, 1)


def test_an_overlapped_collective_of_a_tpu_counts_where_it_starts() -> None:
    found = collectives(hlo_samples.TPU_OVERLAPPED, 8)
    assert [one.name for one in found] == ["all-gather.7", "all-gather.14"]
    assert {short(one) for one in found} == {("all_gather", 131072, "f32", ALL, 1, 0)}


def test_an_overlapped_part_without_a_start_is_not_dropped() -> None:
    text = hlo_samples.TPU_OVERLAPPED.replace("AsyncCollectiveStart", "SomethingElse")
    assert sorted(one.trips or 0 for one in collectives(text, 8)) == [1, 1, 1, 20]


def test_a_padded_reduce_scatter_of_a_tpu() -> None:
    chain = tuple((i, i + 1) for i in range(7))
    assert shorts(hlo_samples.TPU_PADDED_REDUCE_SCATTER) == [
        ("reduce_scatter", 1024 * 128, "bf16", ALL, 1, 0),
        ("permute", 21 * 128, "bf16", chain, 1, 0),
    ]
    assert {one.op_name for one in collectives(hlo_samples.TPU_PADDED_REDUCE_SCATTER, 8)} == {""}


# --- who communicates ---


@pytest.mark.parametrize(
    ("written", "groups"),
    [
        ("{{0,1},{3,2}}", ((0, 1), (3, 2))),
        ("{}", ALL),
        ("[2,4]<=[8]", ROWS),
        ("[1,8]<=[8]", ALL),
        ("[8]<=[8]", ALL),
        ("[4,2]<=[2,4]T(1,0)", COLUMNS),
        ("[2,4]<=[2,2,2]T(1,0,2)", ((0, 1, 4, 5), (2, 3, 6, 7))),
        ("mesh['x'=8] {'x'}", ALL),
        ("mesh['a'=2,'b'=4] {'b'}", ROWS),
        ("mesh['a'=2,'b'=4] {'a'}", COLUMNS),
        ("mesh['a'=2,'b'=4] {'b','a'}", ((0, 4, 1, 5, 2, 6, 3, 7),)),
        ("mesh['a'=2,'b'=1,'c'=4] {'b'}", tuple((i,) for i in range(8))),
        ("mesh['a'=2,'b'=1,'c'=4] {'b','a'}", COLUMNS),
        ("mesh['a'=8] {'a':(1)2}", COLUMNS),
        ("mesh['a'=8] {'a':(2)4}", ROWS),
        ("mesh['a'=8] {'a':(2)2}", ((0, 2), (1, 3), (4, 6), (5, 7))),
        ("mesh['a'=8] {'a':(4)2,'a':(1)2}", ((0, 4, 1, 5), (2, 6, 3, 7))),
        ("mesh[a=2,b=4] {b}", ROWS),
        ("mesh['a'=2,'b'=4], device_ids=(7,6,5,4,3,2,1,0) {'b'}", ((7, 6, 5, 4), (3, 2, 1, 0))),
    ],
)
def test_replica_groups(written: str, groups: tuple[tuple[int, ...], ...]) -> None:
    line = f"channel_id=1, replica_groups={written}, use_global_device_ids=true, to_apply=%sum"
    assert replica_groups(line, 8) == groups


@st.composite
def shaped_axes(draw: st.DrawFn) -> tuple[list[int], list[int]]:
    sizes = draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    order = draw(st.permutations(range(len(sizes))))
    return sizes, list(order[: draw(st.integers(1, len(sizes)))])


@given(shaped_axes())
def test_mesh_and_iota_groups_agree_with_numpy(drawn: tuple[list[int], list[int]]) -> None:
    sizes, grouped = drawn
    total, others = math.prod(sizes), [d for d in range(len(sizes)) if d not in grouped]
    group = math.prod(sizes[d] for d in grouped)
    transposed = np.arange(total).reshape(sizes).transpose(others + grouped)
    expected = tuple(map(tuple, transposed.reshape(-1, group).tolist()))
    axes = ",".join(f"'{'abcd'[d]}'={size}" for d, size in enumerate(sizes))
    names = ",".join(f"'{'abcd'[d]}'" for d in grouped)
    assert replica_groups(f"replica_groups=mesh[{axes}] {{{names}}}, x=1", total) == expected
    reshape, order = ",".join(map(str, sizes)), ",".join(map(str, others + grouped))
    iota = f"replica_groups=[{total // group},{group}]<=[{reshape}]T({order})"
    assert replica_groups(iota, total) == expected


# --- forms by hand ---


def test_the_same_computation_called_from_two_places_counts_twice() -> None:
    text = by_hand(
        "%first = f32[64]{0} call(%x), to_apply=%sub",
        "%second = f32[64]{0} fusion(%first), kind=kCustom, calls=%sub",
        "ROOT %last = f32[64]{0} custom-call(%second), called_computations={%sub}",
        before="""\
%sub (v: f32[64]) -> f32[64] {
  %v = f32[64]{0} parameter(0)
  ROOT %r = f32[64]{0} all-reduce(%v), replica_groups={}, to_apply=%sum
}
""",
    )
    assert shorts(text) == [("all_reduce", 64, "f32", ALL, 1, 0)] * 3


def test_a_wrapped_asynchronous_collective_counts_once() -> None:
    text = by_hand(
        "%s = ((f32[64]{0}), f32[32]{0}, u32[]) async-start(%x), calls=%wrapped",
        "%u = ((f32[64]{0}), f32[32]{0}, u32[]) async-update(%s), calls=%wrapped",
        "ROOT %d = f32[32]{0} async-done(%u), calls=%wrapped",
        before="""\
%wrapped (v: f32[64]) -> f32[32] {
  %v = f32[64]{0} parameter(0)
  ROOT %r = f32[32]{0} reduce-scatter(%v), replica_groups=[4,2]<=[8], dimensions={0}, to_apply=%sum
}, execution_thread="parallel"
""",
    )
    groups = ((0, 1), (2, 3), (4, 5), (6, 7))
    assert shorts(text) == [("reduce_scatter", 64, "f32", groups, 1, 0)]


def test_combined_operands_are_told_apart_from_plain_ones() -> None:
    text = by_hand(
        "%r = (f32[64]{0}, s4[9]{0:E(4)}) all-reduce(%x, %y), replica_groups={}, to_apply=%sum",
        "%g = (f32[128]{0}, s4[18]{0}) all-gather(%x, %y), replica_groups=[4,2]<=[8]",
        "ROOT %p = f32[64]{0} collective-permute(%x), source_target_pairs={{0,3}}",
    )
    found = collectives(text, 8)
    assert [(one.kind, one.elements, one.bytes, one.combined) for one in found] == [
        ("all_reduce", 64, 256, 2),
        ("all_reduce", 9, 5, 2),
        ("all_gather", 128, 512, 2),
        ("all_gather", 18, 9, 2),
        ("permute", 64, 256, 1),
    ]


def test_other_communication_keeps_its_name() -> None:
    text = by_hand(
        "%a = f32[64]{0} ragged-all-to-all(%x), replica_groups={{0,1}}",
        "%b = f32[64]{0} collective-broadcast(%x), replica_groups={{0,1}}",
        "%c = f32[64]{0} brand-new-start(%x), replica_groups={{1,0}}",
        "%after = token[] after-all()",
        "%d = (f32[64]{0}, u32[], token[]) send(%x), channel_id=3",
        "%e = token[] send-done(%d), channel_id=3",
        "%f = (f32[64]{0}, u32[], token[]) send(%x), channel_id=4, is_host_transfer=true",
        "ROOT %g = u32[] partition-id()",
    )
    pair = ((0, 1),)
    assert shorts(text, 2) == [
        ("ragged-all-to-all", 64, "f32", pair, 1, 0),
        ("collective-broadcast", 64, "f32", pair, 1, 0),
        ("brand-new", 64, "f32", ((1, 0),), 1, 0),
        ("send", 64, "f32", pair, 1, 0),
    ]


@pytest.mark.parametrize(
    ("start", "step", "limit", "direction", "trips"),
    [
        ("s32[] constant(0)", "1", "s32[] constant(5)", "LT", 5),
        ("s32[] constant(2)", "3", "s32[] constant(9)", "LT", 3),
        ("s32[] constant(2)", "3", "s32[] constant(8)", "LE", 3),
        ("s32[] constant(5)", "1", "s32[] constant(5)", "LT", 0),
        ("s32[] constant(7)", "-2", "s32[] constant(0)", "GT", 4),
        ("s32[] constant(7)", "-2", "s32[] constant(1)", "GE", 4),
        ("s32[] constant(0)", "2", "s32[] constant(6)", "NE", 3),
        ("s32[] constant(0)", "2", "s32[] constant(5)", "NE", None),
        ("s32[] constant(0)", "0", "s32[] constant(5)", "LT", None),
        ("s32[] constant(0)", "-1", "s32[] constant(5)", "LT", None),
        ("s32[] copy(%i)", "1", "s32[] constant(5)", "LT", None),
        ("s32[] constant(0)", "1", "s32[] copy(%i)", "LT", None),
        ("s32[] constant(0)", "1", "s32[] copy(%start)", "LT", 0),
    ],
)
def test_trips(start: str, step: str, limit: str, direction: str, trips: int | None) -> None:
    assert [one.trips for one in collectives(loop(start, step, limit, direction), 2)] == [trips]


@pytest.mark.parametrize(
    ("after", "compared", "direction", "trips"),
    [
        ("add(%c, %j)", "%j, %l", "LT", 4),
        ("add(%j, %c)", "%l, %j", "GT", 4),
        ("add(%j, %c)", "%l, %j", "GE", 5),
        ("subtract(%j, %c)", "%j, %l", "LT", None),
        ("subtract(%c, %j)", "%j, %l", "LT", None),
        ("add(%l, %c)", "%j, %l", "LT", None),
        ("multiply(%j, %c)", "%j, %l", "LT", None),
        ("add(%j, %c)", "%j, %l", "EQ", None),
    ],
)
def test_ways_to_write_a_loop(after: str, compared: str, direction: str, trips: int | None) -> None:
    text = loop("s32[] constant(1)", "2", "s32[] constant(9)", direction, after, compared)
    assert [one.trips for one in collectives(text, 2)] == [trips]


def test_counting_down() -> None:
    text = loop("s32[] constant(9)", "2", "s32[] constant(1)", "GT", "subtract(%j, %c)")
    assert [one.trips for one in collectives(text, 2)] == [4]


def test_a_limit_that_another_loop_only_passes_on() -> None:
    text = loop("s32[] constant(0)", "1", "s32[] constant(5)").replace(
        "  ROOT %w",
        "  %before = (s32[], f32[64], s32[]) while(%init), condition=%more, body=%body\n"
        "  %same = s32[] get-tuple-element(%before), index=2\n"
        "  %moved = s32[] get-tuple-element(%before), index=0\n"
        "  %next_init = (s32[], f32[64], s32[]) tuple(%start, %x, %same)\n"
        "  ROOT %w",
    )
    text = text.replace(
        "while(%init), condition=%more, body=%body\n}",
        "while(%next_init), condition=%more, body=%body\n}",
    )
    assert [one.trips for one in collectives(text, 2)] == [5, 5]
    text = text.replace("tuple(%start, %x, %same)", "tuple(%start, %x, %moved)")
    assert [one.trips for one in collectives(text, 2)] == [5, None]


def test_a_limit_that_comes_into_a_branch() -> None:
    text = loop("s32[] parameter(0)", "1", "s32[] parameter(1)")
    header, entry = text.split("ENTRY %main (x: f32[64], y: s4[9], i: s32[])")
    branch = entry.replace("%x = f32[64]{0} parameter(0)", "%b = (f32[64], s32[]) parameter(0)")
    branch = branch.replace("%y = s4[9]{0:E(4)} parameter(1)", "%zero = s32[] constant(0)")
    branch = branch.replace(
        "%i = s32[] parameter(2)", "%x = f32[64] get-tuple-element(%b), index=0"
    )
    branch = branch.replace("s32[] parameter(0)", "s32[] copy(%zero)")
    branch = branch.replace("s32[] parameter(1)", "s32[] get-tuple-element(%b), index=1")
    text = by_hand(
        "%five = s32[] constant(5)",
        "%three = s32[] constant(3)",
        "%first = (f32[64], s32[]) tuple(%x, %five)",
        "%second = (f32[64], s32[]) tuple(%x, %three)",
        "ROOT %c = f32[64] conditional(%i, %first, %second), branch_computations={%one, %two}",
        before=header.split("ROOT %s = f32[] add(%a, %b)\n}\n")[1]
        + f"%one (b: (f32[64], s32[])){branch}\n%two (b: (f32[64], s32[])){branch}",
    )
    assert [(one.trips, one.conditional) for one in collectives(text, 2)] == [(5, 1), (3, 1)]


def test_operands_printed_with_their_types() -> None:
    text = by_hand(
        "%t = (f32[64]{0:T(128)}, s32[]{:S(2)}) tuple(f32[64]{0:T(128)} %x, s32[]{:S(2)} %i)",
        "%v = f32[64]{0:T(128)} get-tuple-element((f32[64]{0:T(128)}, s32[]{:S(2)}) %t), index=0",
        "%r = (f32[64], f32[64]) all-reduce(f32[64]{0:T(128)} %v, f32[64]{0:T(128)} %x), "
        "replica_groups={}",
    )
    assert [(one.elements, one.combined) for one in collectives(text, 8)] == [(64, 2), (64, 2)]


def test_a_loop_whose_limit_changes_has_no_known_count() -> None:
    text = loop("s32[] constant(0)", "1", "s32[] constant(5)").replace(
        "tuple(%next, %r, %l)", "tuple(%next, %r, %next)"
    )
    assert [one.trips for one in collectives(text, 2)] == [None]


def test_a_condition_is_evaluated_once_more_than_the_body() -> None:
    text = loop("s32[] constant(0)", "1", "s32[] constant(5)").replace(
        "  ROOT %go",
        "  %v = f32[64]{0} get-tuple-element(%p), index=1\n"
        "  %q = f32[64]{0} all-reduce(%v), replica_groups={{0,1}}, to_apply=%sum\n"
        "  ROOT %go",
    )
    assert sorted(one.trips or 0 for one in collectives(text, 2)) == [5, 6]


def test_a_long_chain_of_integers_is_given_up_on_not_crashed_on() -> None:
    chain = ["%one = s32[] constant(1)", "%c0 = s32[] copy(%one)"]
    chain += [f"%c{n + 1} = s32[] add(%c{n}, %one)" for n in range(5000)]
    text = loop("s32[] copy(%c5000)", "1", "s32[] constant(9)")
    text = text.replace("  %start =", "  " + "\n  ".join(chain) + "\n  %start =")
    assert [one.trips for one in collectives(text, 2)] == [None]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("module @jit_f {}", "no ENTRY computation"),
        (by_hand("%r = f32[64]{0} all-reduce(%gone), replica_groups={}"), "no 'gone'"),
        (by_hand("%r = f32[64]{0} all-reduce(%x), replica_groups={{0,9}}"), "names device 9"),
        (by_hand("%r = f32[64]{0} all-reduce(%x), replica_groups=<new>"), "unknown form: rep"),
        (by_hand("%r = f32[64]{0} no opcode here"), "can't read this line"),
        (
            hlo_samples.TPU_PADDED_REDUCE_SCATTER.replace("calls=%all-", "does=%all-"),
            "collectives in computations that are called in a way .*: all-reduce-scatter",
        ),
    ],
)
def test_what_cannot_be_read_is_an_error(text: str, message: str) -> None:
    with pytest.raises(RunError, match=message):
        collectives(text, 8)


@pytest.mark.parametrize(
    ("dtype", "bits"),
    {"f32": 32, "bf16": 16, "f8e4m3fn": 8, "f4e2m1fn": 4, "s4": 4, "c64": 64, "pred": 8}.items(),
)
def test_element_bits(dtype: str, bits: int) -> None:
    assert element_bits(dtype) == bits


def test_an_unknown_element_type_is_an_error() -> None:
    with pytest.raises(RunError, match="element type 'token'"):
        element_bits("token")


# --- compiled for CPU ---

Step = Callable[[jax.Array, jax.Array], Any]


def compiled_text(step: Step, rows: int = 64, allow: frozenset[str] = frozenset()) -> str:
    """Compile a rank's step on (rows, 8) f32 and a token, on a mesh e=2, d=4."""
    mesh = jax.make_mesh(
        (2, 4), ("e", "d"), axis_types=(AxisType.Auto,) * 2, devices=jax.devices()[:8]
    )
    both = PartitionSpec(("e", "d"))
    mapped = jax.shard_map(step, mesh=mesh, in_specs=(both, both), out_specs=both, check_vma=False)
    shapes = [jax.ShapeDtypeStruct((8 * n, 8), jnp.float32) for n in (rows, 1)]
    options = compiler_options("cpu", allow)
    return jax.jit(mapped).lower(*shapes).compile(compiler_options={**options}).as_text() or ""


def touch(value: jax.Array, token: jax.Array) -> jax.Array:
    return value.at[0, 0].set(jnp.where(token[0, 0] > 1e30, 0, value[0, 0]))


def read(token: jax.Array, value: jax.Array) -> jax.Array:
    return token + (value.reshape(-1)[0] > 1e30)


def test_nested_loops_and_conditionals_compiled() -> None:
    def step(x: jax.Array, token: jax.Array) -> tuple[jax.Array, jax.Array]:
        def reduce(token: jax.Array) -> jax.Array:
            return read(token, lax.psum(touch(x, token), "d"))

        def inner(j: jax.Array, token: jax.Array) -> jax.Array:
            return lax.cond(lax.axis_index("e") <= j, reduce, lambda t: t, token)

        def outer(i: jax.Array, token: jax.Array) -> jax.Array:
            token = read(token, lax.ppermute(touch(x, token), "d", [(0, 1), (3, 0)]))
            return lax.fori_loop(2, 7, inner, token)

        return x, lax.fori_loop(0, 3, outer, token)

    pairs = ((0, 1), (3, 0), (4, 5), (7, 4))
    assert sorted(shorts(compiled_text(step))) == [
        ("all_reduce", 512, "f32", ROWS, 15, 1),
        ("permute", 512, "f32", pairs, 3, 0),
    ]


def test_a_loop_that_ends_on_data_has_no_known_count() -> None:
    def step(x: jax.Array, token: jax.Array) -> tuple[jax.Array, jax.Array]:
        def again(token: jax.Array) -> jax.Array:
            return token + 1 + lax.psum(touch(x, token), "d")[0, 0]

        return x, lax.while_loop(lambda token: token[0, 0] < 9, again, token)

    assert shorts(compiled_text(step)) == [("all_reduce", 512, "f32", ROWS, None, 0)]


def test_a_loop_whose_bound_an_outer_loop_moves_has_no_known_count() -> None:
    def step(x: jax.Array, token: jax.Array) -> tuple[jax.Array, jax.Array]:
        def body(i: jax.Array, token: jax.Array) -> jax.Array:
            return read(token, lax.all_gather(touch(x, token), "d"))

        def outer(i: jax.Array, token: jax.Array) -> jax.Array:
            return lax.fori_loop(0, i, body, token)

        return x, lax.fori_loop(0, 3, outer, token)

    assert shorts(compiled_text(step)) == [("all_gather", 2048, "f32", ROWS, None, 0)]


@pytest.mark.parametrize("axes", ["d", "e", ("e", "d"), ("d", "e")])
def test_groups_compiled(axes: str | tuple[str, str]) -> None:
    """The order in which a gather over several axes joins shards is the order of its groups."""

    def step(x: jax.Array, token: jax.Array) -> jax.Array:
        return lax.all_gather(x, axes, tiled=True)

    (found,) = collectives(compiled_text(step), 8)
    ranks = np.arange(8).reshape(2, 4)
    expected = {
        "d": ranks,
        "e": ranks.T,
        ("e", "d"): ranks.reshape(1, 8),
        ("d", "e"): ranks.T.reshape(1, 8),
    }[axes]
    assert found.groups == tuple(map(tuple, expected.tolist()))
    assert found.elements == 512 * expected.shape[1]
