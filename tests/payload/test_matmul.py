from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from jaxbench.errors import RunError
from jaxbench.payload.matmul import Matmul, MatmulFit, dense, fit, orthogonal

TRIPS = 3
WORK = Matmul(TRIPS, 32, "float32")


@dataclass(frozen=True)
class Naive:
    """What not to do: the loop knows nothing of the token, the token next to nothing of it."""

    trips: int

    def apply(self, token):
        start = jnp.ones((32, 32)) / 32
        product = lax.fori_loop(0, self.trips, lambda _, x: lax.dot(x, x), start)
        return token + 0 * product[0, 0]


def chained(payload):
    def program(token):
        for _ in range(4):
            token = payload.apply(token)
        return token

    return program


def scanned(payload):
    return lambda token: lax.fori_loop(0, 5, lambda _, token: payload.apply(token), token)


def branched(payload):
    def program(token):
        return lax.cond(token[0] > 0, payload.apply, lambda token: token, token)

    return program


# --- it is executed as often as it is written ---------------------------------------------------


@pytest.mark.parametrize(
    ("arrange", "computes"),
    [(chained, 4), (scanned, 5), (branched, 1)],
    ids=lambda x: getattr(x, "__name__", None),
)
def test_every_compute_runs_all_its_products(executions, arrange, computes):
    assert executions(arrange(WORK), "dot") == computes * TRIPS


def test_the_same_count_shows_merged_loops(executions):
    assert executions(chained(Naive(TRIPS)), "dot") < 4 * TRIPS


def test_the_same_count_shows_a_hoisted_product(executions):
    assert executions(scanned(Naive(1)), "dot") < 5


def test_a_result_that_depends_on_nothing_of_the_work_drops_it(executions):
    def forgetful(token):
        Matmul(TRIPS, 32, "float32").apply(token)
        return token

    assert executions(forgetful, "dot") == 0


def test_no_product_is_reduced_to_the_part_that_is_looked_at():
    text = jax.jit(Matmul(1, 32, "float32").apply).lower(jnp.ones(1)).compile().as_text()
    assert text is not None and "f32[32,32]{1,0} dot(" in text


# --- zero trips ---------------------------------------------------------------------------------


def test_zero_trips_multiply_nothing_and_stay_loops():
    """Four loops whose trip count XLA can't know: they order the program as real ones do."""
    idle = jax.jit(chained(Matmul(0, 32, "float32")))
    text = idle.lower(jax.ShapeDtypeStruct((1,), np.float32)).compile().as_text() or ""
    assert " dot(" not in text and "known_trip_count" not in text
    assert text.count(" while(") == 4


# --- values -------------------------------------------------------------------------------------


@pytest.mark.parametrize("trips", [0, 1, 7])
def test_the_token_is_unchanged_bit_for_bit(token, trips):
    result = np.asarray(jax.jit(Matmul(trips, 32, "float32").apply)(token))
    assert result.tobytes() == token.tobytes()


@pytest.mark.parametrize(
    ("size", "dtype", "tolerance"),
    [(32, "float32", 1e-6), (64, "float32", 0), (64, "bfloat16", 0), (64, "float16", 0)],
)
def test_the_rotation_is_its_own_inverse(size, dtype, tolerance):
    rotation = np.asarray(orthogonal(size, dtype, jnp.int32(0)), np.float64)
    assert np.all(rotation != 0)
    np.testing.assert_allclose(rotation @ rotation, np.eye(size), atol=tolerance)


@pytest.mark.parametrize(("size", "dtype"), [(32, "float32"), (64, "bfloat16")])
def test_numbers_neither_grow_nor_vanish_in_thousands_of_products(size, dtype):
    rotation, start = orthogonal(size, dtype, jnp.int32(0)), dense(size, dtype, jnp.int32(0))
    end = jax.jit(lambda x: lax.fori_loop(0, 5001, lambda _, x: lax.dot(x, rotation), x))(start)
    end, start = np.asarray(end, np.float64), np.asarray(start, np.float64)
    assert np.mean(end != 0) > 0.99
    assert np.linalg.norm(end) == pytest.approx(np.linalg.norm(start), rel=0.1)


def test_the_start_is_dense_and_without_structure():
    start = np.asarray(dense(64, "float32", jnp.int32(0)), np.float64)
    assert np.mean(start != 0) > 0.99
    assert abs(start.mean()) < 0.02 and start.std() == pytest.approx(12**-0.5, rel=0.05)
    assert np.linalg.matrix_rank(start) == 64


def test_large_matrices_are_no_literals():
    lowered = jax.jit(Matmul(2, 4096, "bfloat16").apply).lower(jnp.ones(1))
    assert len(lowered.as_text()) < 20_000


@pytest.mark.parametrize("trips", [0, 2, 8])
def test_the_memory_of_a_compute_is_known_beforehand(trips):
    payload = Matmul(trips, 256, "float32")
    compiled = jax.jit(payload.apply).lower(jnp.ones(1)).compile()
    analysis = compiled.memory_analysis()
    assert analysis is not None
    assert analysis.temp_size_in_bytes == pytest.approx(payload.work_bytes, rel=0.15, abs=1000)


# --- fit ----------------------------------------------------------------------------------------


def steady(trip_s: float, overhead_s: float = 20e-6):
    """Make a clock of a device on which a product of size 64 takes `trip_s`."""
    asked = []

    def clock(payloads):
        asked.extend(payloads)
        return [overhead_s + p.trips * trip_s * (p.size / 64) ** 3 for p in payloads]

    return clock, asked


@pytest.mark.parametrize("platform", ["cpu", "gpu"])
@pytest.mark.parametrize("trip_s", [1e-8, 1e-6, 3e-4])
def test_the_fit_finds_trip_time_and_overhead(platform, trip_s):
    found = fit(steady(trip_s)[0], platform, "bfloat16")
    assert [line.dtype for line in found.lines] == (
        ["float32"] if platform == "cpu" else ["bfloat16"] * len(found.lines)
    )
    for line in found.lines:
        assert line.trip_s == pytest.approx(trip_s * (line.size / 64) ** 3, rel=1e-6)
        assert line.overhead_s == pytest.approx(20e-6, rel=1e-2, abs=1e-12)


@pytest.mark.parametrize(("platform", "trip_s"), [("cpu", 2e-6), ("gpu", 2e-9)])
@pytest.mark.parametrize("seconds", [1e-3, 5e-3, 0.1, 2.0])
def test_a_payload_takes_the_wanted_time(platform, trip_s, seconds):
    clock, _ = steady(trip_s)
    payload = fit(clock, platform, "float32").payload(seconds)
    assert clock([payload])[0] == pytest.approx(seconds, rel=0.011)


@pytest.mark.parametrize("seconds", [2e-3, 1e-2])
def test_that_the_first_trips_of_a_loop_take_longer_is_seen(seconds):
    line, _ = steady(2e-6)

    def clock(payloads):
        times = zip(payloads, line(payloads), strict=True)
        return [s + 100e-6 * (p.trips > 1) for p, s in times]

    payload = fit(clock, "cpu", "float32").payload(seconds)
    assert clock([payload])[0] == pytest.approx(seconds, rel=0.011)


def test_long_computes_use_large_matrices_and_short_ones_small():
    found = fit(steady(2e-9)[0], "gpu", "bfloat16")
    assert (found.payload(1e-3).size, found.payload(1.0).size) == (1024, 4096)


@pytest.mark.parametrize("seconds", [0.0, 1e-6])
def test_nothing_wanted_is_no_trip(seconds):
    assert fit(steady(2e-6)[0], "cpu", "float32").payload(seconds).trips == 0


def test_a_very_slow_device_is_asked_for_few_small_products():
    clock, asked = steady(2e-5)
    found = fit(clock, "gpu", "float32")
    assert {payload.size for payload in asked} == {1024}
    assert found.lines[0].trip_s == pytest.approx(0.08192)
    # The first guess may be far off, but what follows it isn't.
    assert max(payload.trips for payload in asked[1:]) == 2


@pytest.mark.parametrize(
    ("dtype", "used"), [("bfloat16", "bfloat16"), ("float8_e4m3fn", "bfloat16")]
)
def test_accelerators_multiply_in_the_dtype_of_the_run_where_they_can(dtype, used):
    found = fit(steady(1e-10)[0], "gpu", dtype)
    assert [(line.size, line.dtype) for line in found.lines] == [(1024, used), (4096, used)]


def test_noise_larger_than_the_difference_still_gives_a_positive_trip_time():
    found = fit(lambda payloads: [0.004] * len(payloads), "cpu", "float32")
    assert all(line.trip_s > 0 for line in found.lines)
    assert isinstance(found, MatmulFit)


def test_work_that_takes_no_time_was_removed():
    with pytest.raises(RunError, match="compiler removed"):
        fit(lambda payloads: [0.0] * len(payloads), "cpu", "float32")
