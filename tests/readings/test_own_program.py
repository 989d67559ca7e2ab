"""A user's function: its FLOPs against XLA and by hand, its traffic by hand, what can't be read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax import lax
from jax.extend.core import jaxpr_as_fun
from jax.sharding import AbstractMesh, AxisType, PartitionSpec

from jaxbench.catalog.hardware import HARDWARE
from jaxbench.costs.interface import Cost, GroupCosts
from jaxbench.errors import InputError
from jaxbench.readings.own_program import OwnProgram, read_program
from jaxbench.readings.own_program_inline import CALLS, inline_calls
from jaxbench.readings.own_program_plan import OwnPlan, plan_program, priced
from jaxbench.readings.own_program_predict import predict_program
from jaxbench.readings.own_program_roofline import Roofline, equation_flops
from jaxbench.readings.own_program_traffic import structured_equations, traffic
from jaxbench.readings.simulate import semantics_of

H100 = Roofline(HARDWARE["h100"], mfu=0.5, memory_efficiency=0.8)
P = PartitionSpec


def f32(*shape: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, jnp.float32)


def plan(
    body: Callable[..., Any], *arguments: Any, mesh: Any = (("x", 4),), **options: Any
) -> OwnPlan:
    """Return the plan of `body` on every rank of a mesh, its arguments the same on all."""
    names = tuple(name for name, _ in mesh)
    abstract = AbstractMesh(
        tuple(size for _, size in mesh), names, axis_types=(AxisType.Auto,) * len(names)
    )
    specs = {"in_specs": (P(),) * len(arguments), "out_specs": P(), "check_vma": False, **options}
    function = jax.shard_map(body, mesh=abstract, **specs)
    return plan_program(read_program("test:f", jax.jit(function).trace(*arguments).jaxpr), H100)


def moved(function: Callable[..., Any], *arguments: Any) -> int:
    """Return the bytes that a function moves."""
    jaxpr = inline_calls(jax.make_jaxpr(function)(*arguments)).jaxpr
    return sum(traffic(jaxpr).values())


# --- FLOPs --------------------------------------------------------------------------------------

PRODUCTS: dict[str, tuple[Callable[..., Any], tuple[Any, ...], int]] = {
    "matrices": (lambda a, b: a @ b, (f32(8, 16), f32(16, 4)), 2 * 8 * 16 * 4),
    "batched": (
        lambda a, b: jnp.einsum("bhqd,bhkd->bhqk", a, b),
        (f32(2, 3, 8, 16), f32(2, 3, 4, 16)),
        2 * 2 * 3 * 8 * 4 * 16,
    ),
    "two contracted": (
        lambda a, b: jnp.tensordot(a, b, 2),
        (f32(5, 6, 7), f32(6, 7, 3)),
        2 * 5 * 6 * 7 * 3,
    ),
    "vectors": (jnp.dot, (f32(64), f32(64)), 2 * 64),
    "convolution": (
        lambda x, k: lax.conv(x, k, (1, 1), "VALID"),
        (f32(2, 3, 9, 9), f32(5, 3, 4, 4)),
        2 * (2 * 5 * 6 * 6) * (3 * 4 * 4),
    ),
    "depthwise": (
        lambda x, k: lax.conv_general_dilated(
            x, k, (2,), "VALID", feature_group_count=6, dimension_numbers=("NCH", "OIH", "NCH")
        ),
        (f32(2, 6, 11), f32(6, 1, 3)),
        2 * (2 * 6 * 5) * 3,
    ),
}


def flops_of(function: Callable[..., Any], *arguments: Any) -> int:
    jaxpr = inline_calls(jax.make_jaxpr(function)(*arguments)).jaxpr
    return sum(map(equation_flops, structured_equations(jaxpr)))


@pytest.mark.parametrize("name", PRODUCTS)
def test_flops_by_hand_and_as_xla_counts_them(name: str) -> None:
    function, arguments, flops = PRODUCTS[name]
    assert flops_of(function, *arguments) == flops
    counted: Any = jax.jit(function).lower(*arguments).cost_analysis()
    assert counted["flops"] == pytest.approx(flops, rel=0.02)  # XLA leaves the first sum out


@pytest.mark.parametrize("name", ["matrices", "batched", "convolution"])
def test_a_backward_pass_is_two_forward_passes(name: str) -> None:
    """A product's gradients are two products of the same FLOPs (a convolution's with padding)."""
    function, arguments, flops = PRODUCTS[name]
    gradients = jax.grad(lambda *a: function(*a).sum(), argnums=(0, 1))
    found = flops_of(gradients, *arguments)
    assert found == 2 * flops if name != "convolution" else found >= 2 * flops


def test_a_ragged_product_meets_one_matrix_a_row() -> None:
    sizes = jax.ShapeDtypeStruct((3,), jnp.int32)
    arguments = (f32(12, 8), f32(3, 8, 5))
    flops = flops_of(lax.ragged_dot, *arguments, sizes)
    assert flops == 2 * 12 * 8 * 5
    gradients = jax.grad(lambda a, b, g: lax.ragged_dot(a, b, g).sum(), argnums=(0, 1))
    assert flops_of(gradients, *arguments, sizes) == 2 * flops


def test_loops_and_branches_count_as_executed() -> None:
    """Five turns of a scan, three of a while, and a branch that ranks 2 and 3 take."""

    def body(a: jax.Array) -> jax.Array:
        a, _ = lax.scan(lambda c, _: (c @ c, None), a, None, length=5)
        a = lax.fori_loop(0, 3, lambda i, c: c @ c, a)
        return lax.cond(lax.axis_index("x") >= 2, lambda c: c @ c, lambda c: c, a)

    found = plan(body, f32(16, 16))
    one = 2 * 16**3
    assert found.flops == {"float32": 9 * one}
    low, high = found.rank_compute_s[0], found.rank_compute_s[3]
    assert found.rank_compute_s[1] == low and found.rank_compute_s[2] == high
    assert high == pytest.approx(low * 9 / 8)


def test_a_scan_over_layers_counts_each() -> None:
    def body(x: jax.Array, weights: jax.Array) -> jax.Array:
        return lax.scan(lambda c, w: (lax.psum(c @ w, "x"), None), x, weights)[0]

    found = plan(body, f32(8, 16), f32(7, 16, 16))
    assert found.flops == {"float32": 7 * 2 * 8 * 16 * 16}
    assert [(row.kind, row.count, row.elements) for row in found.rows] == [("all_reduce", 7, 128)]


def test_the_roofline_is_of_the_dtype() -> None:
    """64 MiFLOP of bfloat16 at half the peak; the bytes are few."""
    a = jax.ShapeDtypeStruct((4096, 4096), jnp.bfloat16)
    found = plan(lambda x: x @ x, a)
    assert found.compute_s == {"matrix products": 2 * 4096**3 / (989e12 * 0.5)}
    small = plan(lambda x: x @ x, f32(8, 8))  # memory bound: two operands read, one written
    assert small.compute_s["matrix products"] == pytest.approx(3 * 256 / (3.35e12 * 0.8))


def test_a_dtype_without_a_peak_is_refused() -> None:
    a = jax.ShapeDtypeStruct((8, 8), jnp.int8)
    with pytest.raises(
        InputError, match=r"int8, which hardware 'h100' has no known peak.*bfloat16"
    ):
        plan(lambda x: x @ x, a)


# --- traffic ------------------------------------------------------------------------------------

N = 1000
VECTOR = 4 * N


def test_a_chain_reads_once_and_writes_once() -> None:
    assert moved(lambda x: jnp.tanh(x * 2 + 1) * x, f32(N)) == 2 * VECTOR
    assert moved(lambda x, y: (x + y) * (x - y), f32(N), f32(N)) == 3 * VECTOR


def test_what_a_product_reads_is_written() -> None:
    """x * 2 is written for the product; the product is written, and read for the tanh."""
    size = 4 * 50 * 50
    found = moved(lambda x: jnp.tanh((x * 2) @ x), f32(50, 50))
    assert found == (size + size) + (2 * size + size) + (size + size)


def test_a_value_with_two_kinds_of_readers_is_written() -> None:
    """exp: read, written. + 1: read again, written. The product: two read, one written."""

    def function(x: jax.Array) -> jax.Array:
        e = jnp.exp(x)
        return (e + 1) @ e

    assert moved(function, f32(50, 50)) == 7 * 4 * 50 * 50


def test_a_reduction_takes_its_input_from_the_kernel() -> None:
    assert moved(lambda x: jnp.sum(x * x), f32(N)) == VECTOR + 4
    softmax = moved(lambda x: jax.nn.softmax(x), f32(10, N))
    whole = 10 * VECTOR  # read for the maxima, read for the exponentials, written
    assert 3 * whole <= softmax <= 3 * whole + 10 * 4 * 8  # a row's maximum and sum are few bytes


def test_names_cost_nothing_and_slices_what_they_return() -> None:
    assert moved(lambda x: x.reshape(10, -1), f32(N)) == 0
    assert moved(lambda x: x[:10] + 1, f32(N)) == 2 * 4 * 10
    assert moved(lambda x: x.reshape(10, -1) + 1, f32(N)) == 2 * VECTOR


def test_gathers_and_scatters_move_what_they_pick() -> None:
    table, index = f32(N, 16), jax.ShapeDtypeStruct((4,), jnp.int32)
    picked = 4 * 16 * 4
    assert moved(lambda t, i: t.at[i].get(mode="promise_in_bounds"), table, index) < N * 16 * 4
    found = moved(lambda t, i: t.at[i].get(mode="promise_in_bounds"), table, index)
    assert 2 * picked <= found <= 2 * picked + 100
    update = moved(lambda t, u: lax.dynamic_update_slice(t, u, (0, 0)), table, f32(2, 16))
    assert update == 2 * 2 * 16 * 4
    scatter = moved(lambda t, i, u: t.at[i].add(u), table, index, f32(4, 16))
    assert 3 * picked <= scatter <= 3 * picked + 200


@given(st.integers(1, 6), st.integers(1, 6))
def test_a_longer_chain_moves_no_more(before: int, after: int) -> None:
    def chain(x: jax.Array, length: int) -> jax.Array:
        for _ in range(length):
            x = jnp.sin(x) + 1
        return x

    assert moved(lambda x: chain(x, before), f32(N)) == moved(lambda x: chain(x, after), f32(N))


def test_an_unknown_primitive_is_memory_traffic_and_listed() -> None:
    found = plan(lambda x: lax.linalg.cholesky(jnp.fft.fft(x).real), f32(16, 16))
    assert {"cholesky", "fft"} <= set(found.unknown)
    assert found.compute_s["memory traffic"] > 0 and not found.flops


# --- calls --------------------------------------------------------------------------------------


@jax.custom_vjp
def doubled(x: jax.Array) -> jax.Array:
    return jnp.sin(x)


doubled.defvjp(lambda x: (doubled(x), x), lambda x, g: (2 * g * jnp.cos(x),))

TABLE = np.arange(6.0, dtype=np.float32)


def calls(x: jax.Array) -> jax.Array:
    """Call a function twice, nested ones, one with a constant, one with its own derivative."""
    inner = jax.jit(lambda v: jnp.where(v > 0, v, 0.0) * TABLE)
    y = inner(x) + inner(inner(x))
    y = jax.checkpoint(lambda v: jnp.sin(jax.jit(jnp.cos)(v)))(y)
    y = lax.fori_loop(0, 3, lambda i, v: inner(v) + 1, y)
    return doubled(y) + jax.nn.relu(y) + jax.grad(lambda v: doubled(v).sum())(y)


def test_inlining_changes_no_value_and_leaves_no_call() -> None:
    x = jnp.arange(-2.0, 4.0)
    closed = jax.make_jaxpr(calls)(x)
    flat = inline_calls(closed)
    assert {e.primitive.name for e in structured_equations(closed.jaxpr)} & set(CALLS)
    assert not {e.primitive.name for e in structured_equations(flat.jaxpr)} & set(CALLS)
    np.testing.assert_array_equal(jaxpr_as_fun(flat)(x)[0], jaxpr_as_fun(closed)(x)[0])
    assert inline_calls(flat).jaxpr.pretty_print() == flat.jaxpr.pretty_print()


def test_fusion_sees_through_calls() -> None:
    inner = jax.jit(lambda v: v * 2)
    assert moved(lambda x: inner(inner(x) + 1) + 1, f32(N)) == 2 * VECTOR


# --- collectives, and what can't be read ----------------------------------------------------------


def test_every_kind_of_collective_is_found() -> None:
    def body(x: jax.Array) -> jax.Array:
        y = lax.all_gather(x, "x", tiled=True)
        y = lax.psum_scatter(y, "x", tiled=True)
        y = lax.all_to_all(y, "x", 0, 0, tiled=True)
        y = lax.ppermute(y, "x", [(0, 1), (1, 2)])
        return lax.psum(lax.pmax(y, "y"), ("x", "y"))

    found = plan(body, f32(8), mesh=(("y", 3), ("x", 4)))
    rows = [(row.kind, row.axis, row.group_size, row.elements, row.count) for row in found.rows]
    assert rows == [
        ("all_gather", "x", 4, 32, 1),
        ("reduce_scatter", "x", 4, 32, 1),
        ("all_to_all", "x", 4, 8, 1),
        ("permute", "x", 4, 8, 1),
        ("all_reduce", "y", 3, 8, 1),
        ("all_reduce", "x+y", 12, 8, 1),
    ]


def test_with_checked_replication_too() -> None:
    """jax.shard_map's default writes psum_invariant and pvary: the plan is the same."""

    def body(x: jax.Array) -> jax.Array:
        return lax.psum(x * 2, "x")

    options = {"in_specs": (P("x"),), "out_specs": P()}
    checked = plan(body, f32(8), check_vma=True, **options)
    unchecked = plan(body, f32(8), check_vma=False, **options)
    assert checked.rows[0].kind == "all_reduce" and checked.rows[0].elements == 2
    assert checked.traffic_bytes == unchecked.traffic_bytes
    assert not checked.unknown and not checked.program.notes


def test_a_thousand_ranks_need_no_device() -> None:
    found = plan(lambda x: lax.psum(x, "data"), f32(64), mesh=(("data", 1024), ("tensor", 4)))
    assert (found.rows[0].group_size, found.rows[0].groups) == (1024, 4)


def test_large_whole_numbers_are_data() -> None:
    """A causal mask that depends on the rank isn't worked out for 4,096 ranks."""

    def body(x: jax.Array) -> jax.Array:
        row = jnp.arange(2048)[:, None] + lax.axis_index("x")
        return jnp.where(row >= jnp.arange(2048)[None, :], x, 0.0)

    found = plan(body, f32(2048, 2048), mesh=(("x", 4096),))
    assert found.traffic_bytes == pytest.approx(2 * 4 * 2048**2, rel=0.01)
    equations = structured_equations(priced(mapped(body, f32(2048, 2048)), H100).jaxpr)
    names = {e.primitive.name for e in equations}
    assert "axis_index" in names and not {"ge", "iota"} & names  # they are computes


def test_what_is_outside_is_told() -> None:
    mesh = AbstractMesh((4,), ("x",), axis_types=(AxisType.Auto,))
    inside = jax.shard_map(lambda v: v, mesh=mesh, in_specs=P("x"), out_specs=P("x"))
    closed = jax.jit(lambda x: inside(x * 2) + x @ x).trace(f32(4, 4)).jaxpr
    (note,) = read_program("m:f", closed).notes
    assert note == "outside of shard_map, and not counted: add x 1, dot_general x 1, mul x 1"


def refused(closed: Any) -> tuple[str, ...]:
    with pytest.raises(InputError) as caught:
        read_program("m:f", closed)
    return caught.value.faults


def test_no_shard_map_is_refused() -> None:
    (fault,) = refused(jax.jit(lambda x: x).trace(f32(4)).jaxpr)
    assert fault.startswith("m:f isn't a shard_map") and "jax.shard_map(" in fault


def test_axes_left_to_the_compiler_are_refused() -> None:
    mesh = AbstractMesh((4, 2), ("x", "y"), axis_types=(AxisType.Auto,) * 2)
    function = jax.shard_map(
        lambda v: lax.psum(v, "x"), mesh=mesh, in_specs=P("x"), out_specs=P(), axis_names={"x"}
    )
    (fault,) = refused(jax.jit(function).trace(f32(4)).jaxpr)
    assert "leaves the axes y to the compiler" in fault


def test_everything_that_cannot_be_read_is_told_at_once() -> None:
    mesh = AbstractMesh((4, 2), ("x", "y"), axis_types=(AxisType.Auto,) * 2)

    def body(v: jax.Array) -> jax.Array:
        v = lax.psum(v, "x", axis_index_groups=[[0, 1], [2, 3]])
        return lax.ppermute(v, ("x", "y"), [(0, 1)])

    function = jax.shard_map(body, mesh=mesh, in_specs=P(), out_specs=P(), check_vma=False)
    faults = refused(jax.jit(function).trace(f32(4)).jaxpr)
    assert len(faults) == 2
    assert "axis_index_groups in psum" in faults[0] and "over the axes x, y at once" in faults[1]


def test_two_meshes_are_refused() -> None:
    def on(size: int) -> Any:
        mesh = AbstractMesh((size,), ("x",), axis_types=(AxisType.Auto,))
        return jax.shard_map(lambda v: v, mesh=mesh, in_specs=P("x"), out_specs=P("x"))

    first, second = (jax.jit(on(size)).trace(f32(4)).jaxpr for size in (4, 2))
    joined = first.jaxpr.replace(
        eqns=[*first.jaxpr.eqns, *second.jaxpr.eqns],
        outvars=[*first.jaxpr.outvars, *second.jaxpr.outvars],
    )
    (fault,) = refused(first.replace(jaxpr=joined))
    assert "{'x': 4} and {'x': 2}" in fault


def test_a_predicate_of_data_is_refused_by_name() -> None:
    with pytest.raises(InputError, match="test:f: a predicate of this program depends on"):
        plan(lambda x: lax.cond(x.sum() > 0, lambda v: v + 1, lambda v: v, x), f32(4))


def test_priced_equations_take_their_seconds() -> None:
    """Each compute has what it stands for as its label, and all together the plan's seconds."""
    mesh = AbstractMesh((4,), ("x",), axis_types=(AxisType.Auto,))
    function = jax.shard_map(
        lambda v: lax.psum(jnp.tanh(v @ v), "x"), mesh=mesh, in_specs=P(), out_specs=P()
    )
    program = read_program("m:f", jax.jit(function).trace(f32(64, 64)).jaxpr)
    computes = [
        e
        for e in structured_equations(priced(program, H100).jaxpr)
        if e.primitive.name == "compute"
    ]
    assert [e.params["label"] for e in computes] == ["dot_general", "tanh"]
    total = sum(e.params["seconds"] for e in computes)
    assert total == pytest.approx(plan_program(program, H100).rank_compute_s.max())


# --- simulated ------------------------------------------------------------------------------------


class Fixed:
    """Every collective takes a second, and half of that is latency."""

    def collective(
        self, kind: str, nbytes: float, dtype: str, groups: np.ndarray, axes: tuple[str, ...]
    ) -> GroupCosts:
        return GroupCosts((Cost(1.0, 0.5, "fixed", "nothing"),), np.zeros(len(groups), np.int64))


def mapped(body: Callable[..., Any], *arguments: Any) -> OwnProgram:
    mesh = AbstractMesh((4,), ("x",), axis_types=(AxisType.Auto,))
    specs = {"in_specs": (P(),) * len(arguments), "out_specs": P(), "check_vma": False}
    function = jax.shard_map(body, mesh=mesh, **specs)
    return read_program("m:f", jax.jit(function).trace(*arguments).jaxpr)


def test_a_chain_takes_its_compute_and_its_collectives() -> None:
    program = mapped(lambda v: lax.psum(lax.psum(v @ v, "x") @ v, "x"), f32(64, 64))
    found = predict_program(program, H100, Fixed(), semantics_of("h100"))
    compute = plan_program(program, H100).rank_compute_s.max()
    assert found.compute_s == pytest.approx(compute) and compute > 0
    assert found.step_s == pytest.approx(compute + 2)
    assert found.transfer_exposed_s == pytest.approx(1) and found.latency_s == pytest.approx(1)
    assert found.skew_s == found.bubble_s == 0
    assert found.communication_share == pytest.approx(2 / (2 + compute))
    assert found.communication_relevance == pytest.approx(found.communication_share)


def test_what_is_independent_overlaps() -> None:
    """A sum that nobody needs meanwhile hides behind a product that is as long as a second."""

    def body(v: jax.Array, w: jax.Array) -> tuple[jax.Array, jax.Array]:
        return lax.psum(v, "x"), w @ w

    arguments = f32(8), f32(62_800, 62_800)  # 2 n^3 FLOPs at half of 494 TFLOP/s: 2 s
    program = mapped(body, *arguments)
    found = predict_program(program, H100, Fixed(), semantics_of("h100"))
    assert found.compute_s > 1 and found.step_s == pytest.approx(found.compute_s)
    assert found.transfer_exposed_s == 0


def test_ranks_that_do_more_are_skew() -> None:
    def body(v: jax.Array) -> jax.Array:
        v = lax.cond(lax.axis_index("x") == 0, lambda w: (w @ w) @ w, lambda w: w @ w, v)
        return lax.psum(v, "x")

    found = predict_program(mapped(body, f32(64, 64)), H100, Fixed(), semantics_of("h100"))
    assert found.skew_s == pytest.approx(found.compute_s)
    assert found.step_s == pytest.approx(1 + 2 * found.compute_s)
