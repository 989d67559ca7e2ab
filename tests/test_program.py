"""The verbs of a rank and the primitives under them."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxbench.fills import device_fill, fill_value, modulus
from jaxbench.jaxprs import equations, replace_equations
from jaxbench.primitives import compute, compute_p, mark, tie, tie_by_element
from jaxbench.rank import probe, probe_positions

DTYPES = ["float32", "bfloat16", "float16", "float8_e4m3fn", "float8_e5m2"]


@given(st.integers(1, 500), st.sampled_from([2, 3, 8, 64]))
def test_a_probe_is_of_first_last_and_spread_elements(total: int, count: int) -> None:
    positions = probe_positions(total, count)
    assert positions[0] == 0 and positions[-1] == total - 1
    assert len(positions) == min(total, count) and positions == sorted(set(positions))


@pytest.mark.parametrize("count", [2, 8, 64])
@pytest.mark.parametrize("total", [1, 2, 3, 9, 64, 65, 127, 500])
def test_a_probe_reads_its_positions(total: int, count: int) -> None:
    positions = probe_positions(total, count)
    value = jnp.arange(total, dtype=jnp.float32)
    assert probe(value, count).tolist() == positions


def test_a_probe_of_an_array_beyond_32_bits_is_traced_with_its_real_bounds() -> None:
    big = jax.ShapeDtypeStruct((3 << 31,), jnp.bfloat16)
    closed = jax.make_jaxpr(lambda x: probe(x, 64))(big)
    slices = [e for e in equations(closed.jaxpr) if e.primitive.name == "slice"]
    assert slices[-1].params["limit_indices"] == (3 << 31,)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("elements", [1, 2, 63, 1000])
def test_device_and_reference_fill_alike(dtype: str, elements: int) -> None:
    for rank in (0, 1, 7, 200):
        m = modulus([dtype], 8)
        made = device_fill(jnp.int32(rank), elements, dtype, m)
        assert made.dtype == dtype and made.shape == (elements,)
        wanted = fill_value(np.array(rank), np.arange(elements), m)
        assert np.asarray(made).astype(np.float64).tolist() == wanted.tolist()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("ranks", [1, 8, 200, 2048])
def test_fills_are_exact_never_zero_and_so_are_their_sums(dtype: str, ranks: int) -> None:
    m = modulus([dtype, "float32"], ranks)
    values = fill_value(np.array(3), np.arange(2 * m), m)
    assert values.min() >= 1
    assert np.asarray(jnp.asarray(values, dtype)).astype(np.float64).tolist() == values.tolist()
    largest = np.asarray(jnp.asarray(float(m * min(ranks, 448)), dtype)).astype(np.float64)
    assert np.isfinite(largest)
    assert m > 1 or m * ranks > 100


@pytest.mark.parametrize("dtype", [*DTYPES, "int8"])
@pytest.mark.parametrize("first", [0.0, -0.0, 1.5])
def test_a_tie_changes_no_bit(dtype: str, first: float) -> None:
    value = jnp.full(5, first, jnp.float32).astype(dtype)
    after = jnp.asarray([float("nan"), 2.0])
    for tied in (jax.jit(tie)(value, after), jax.jit(tie_by_element)(value, after)):
        assert np.asarray(tied).tobytes() == np.asarray(value).tobytes()


def test_a_tie_into_a_donated_buffer_is_in_place() -> None:
    tied = jax.jit(lambda x, t: tie(x, t), donate_argnums=0)
    shapes = jax.ShapeDtypeStruct((1 << 20,), jnp.float32), jax.ShapeDtypeStruct((1,), jnp.float32)
    compiled = tied.lower(*shapes).compile()
    analysis = compiled.memory_analysis()
    assert analysis is not None
    assert analysis.temp_size_in_bytes < 1 << 12 and analysis.alias_size_in_bytes >= 4 << 20


def test_a_compute_is_one_equation_with_label_and_seconds() -> None:
    closed = jax.make_jaxpr(lambda t: compute(t, 0.25, "attention"))(jnp.zeros(1))
    (eqn,) = closed.jaxpr.eqns
    assert eqn.primitive is compute_p
    assert eqn.params == {"seconds": 0.25, "label": "attention", "payload": None}


def test_a_compute_without_payload_says_so() -> None:
    with pytest.raises(ValueError, match="compute 'attention' .* has no payload"):
        jax.jit(lambda t: compute(t, 0.25, "attention")).lower(jnp.zeros(1))


def test_marks_and_unset_parameters_survive_a_rewrite() -> None:
    def body(t: jax.Array) -> jax.Array:
        inner = jax.lax.fori_loop(0, 3, lambda _, c: mark(compute(c, 1.0, "a"), c[0] > 0), t)
        return jax.lax.cond(t[0] > 0, lambda c: compute(c, 2.0, "b"), lambda c: c, inner)

    closed = jax.make_jaxpr(jax.jit(body))(jnp.zeros(1))

    def change(eqn: Any) -> Any:
        if eqn.primitive is not compute_p:
            return eqn
        return eqn.replace(params={**eqn.params, "payload": eqn.params["label"]})

    changed = replace_equations(closed, change)
    before = [e.primitive.name for e in equations(closed.jaxpr)]
    assert [e.primitive.name for e in equations(changed.jaxpr)] == before
    payloads = [e.params["payload"] for e in equations(changed.jaxpr) if e.primitive is compute_p]
    assert sorted(payloads) == ["a", "b"]
    assert all(
        e.params["payload"] is None for e in equations(closed.jaxpr) if e.primitive is compute_p
    )
