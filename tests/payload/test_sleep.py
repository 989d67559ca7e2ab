import subprocess
import sys

import jax
import numpy as np
import pytest
from jax import lax
from jax.sharding import AxisType, PartitionSpec

from jaxbench.errors import InputError, RunError
from jaxbench.payload import native, sleep
from jaxbench.payload.native import Native
from jaxbench.payload.sleep import Sleep, SleepFit

MICROSECOND = 1000
RANKS = 4

needs_compiler = pytest.mark.skipif(
    not native.load().available, reason=f"nothing native to test: {native.load()}"
)


@pytest.fixture(params=[pytest.param("native", marks=needs_compiler), "callback"])
def short(request, monkeypatch):
    """Return a short sleep and a function that tells how many were executed so far."""
    if request.param == "native":
        library = native.load().library
        assert library is not None
        return Sleep(20 * MICROSECOND), library.jaxbench_sleep_calls

    called = []
    wait = sleep._wait
    monkeypatch.setattr(sleep, "_wait", lambda *args: called.append(1) or wait(*args))
    return Sleep(20 * MICROSECOND, native=False), lambda: len(called)


def chained(payload):
    def program(token):
        for _ in range(3):
            token = payload.apply(token)
        return token

    return program


def scanned(payload):
    return lambda token: lax.fori_loop(0, 5, lambda _, token: payload.apply(token), token)


def only_rank_1(payload):
    def program(token):
        here = lax.axis_index("data") == 1
        return lax.cond(here, payload.apply, lambda token: token, token)

    return program


def on_ranks(program):
    mesh = jax.make_mesh((RANKS,), ("data",), axis_types=(AxisType.Auto,))
    spec = PartitionSpec("data")
    return jax.jit(
        jax.shard_map(program, mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False)
    )


@pytest.mark.parametrize(
    ("arrange", "calls"), [(chained, 3 * RANKS), (scanned, 5 * RANKS), (only_rank_1, 1)]
)
def test_every_compute_is_executed_once(short, arrange, calls):
    payload, executed = short
    run = on_ranks(arrange(payload))
    tokens = np.arange(RANKS, dtype=np.float32)
    before = executed()
    result = jax.block_until_ready(run(tokens))
    assert executed() - before == calls
    np.testing.assert_array_equal(np.asarray(result), tokens)


@needs_compiler
def test_the_same_count_shows_merged_sleeps():
    library = native.load().library
    assert library is not None

    def merged(token):
        return Sleep(MICROSECOND).apply(token) + Sleep(MICROSECOND).apply(token)

    before = library.jaxbench_sleep_calls()
    jax.block_until_ready(jax.jit(merged)(np.ones(1, np.float32)))
    assert library.jaxbench_sleep_calls() - before == 1


def test_the_token_is_unchanged_bit_for_bit(short, token):
    payload, _ = short
    result = np.asarray(jax.jit(payload.apply)(token))
    assert result.tobytes() == token.tobytes()


@pytest.mark.parametrize("idle", [Sleep(0), Sleep(500, 500), Sleep(0, native=False)])
def test_no_wait_is_no_call_and_stays_opaque(executions, idle):
    assert executions(idle.apply, "custom-call") == 0
    assert executions(chained(idle), "select") == 3


def test_a_sleep_is_a_call(executions, short):
    payload, _ = short
    assert executions(chained(payload), "custom-call") == 3


CONCURRENT = """
import jax, numpy as np
jax.config.update("jax_num_cpu_devices", 4)
from jax.sharding import AxisType, PartitionSpec as P
from jaxbench.payload import native
from jaxbench.payload.sleep import Sleep
library = native.load().library
mesh = jax.make_mesh((4,), ("data",), axis_types=(AxisType.Auto,))
run = jax.jit(jax.shard_map(
    Sleep(SECONDS * 10**9).apply, mesh=mesh, in_specs=P("data"), out_specs=P("data"),
    check_vma=False))
result = run(np.arange(4, dtype=np.float32))
"""


def run_python(script: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@needs_compiler
def test_all_devices_sleep_at_the_same_time():
    script = CONCURRENT.replace("SECONDS", "1") + (
        "before = library.jaxbench_sleep_most_at_once()\n"
        "print(np.asarray(result).tolist(), library.jaxbench_sleep_most_at_once())"
    )
    assert run_python(script).strip() == "[0.0, 1.0, 2.0, 3.0] 4"


@needs_compiler
def test_a_process_that_ends_in_the_middle_of_a_sleep_ends_well():
    # An hour-long sleep must neither hold up the end nor complete into an XLA that is gone.
    assert run_python(CONCURRENT.replace("SECONDS", "3600") + "print('left')").strip() == "left"


@pytest.mark.parametrize("payload", [Sleep(1000), Sleep(0), Sleep(1000, native=False)])
def test_accelerators_are_refused_when_a_program_is_lowered_for_them(payload):
    with pytest.raises(InputError, match="payload 'sleep' on platform 'cuda'.*--payload=matmul"):
        jax.export.export(jax.jit(payload.apply), platforms=["cuda"])(np.ones(1, np.float32))


def test_a_native_sleep_without_handler_is_an_error_not_a_callback(monkeypatch):
    monkeypatch.setattr(native, "load", lambda: Native(None, "no native sleep: no compiler"))
    with pytest.raises(RunError, match="no compiler"):
        jax.jit(Sleep(1000).apply).lower(np.ones(1, np.float32))


# --- fit ----------------------------------------------------------------------------------------


class LateBy:
    """A clock of a mesh whose sleeps end late; `others` is what other processes can do."""

    def __init__(self, seconds, others=True):
        self.seconds, self.others, self.asked = seconds, others, []

    def __call__(self, payloads):
        self.asked += payloads
        return [p.nanoseconds * 1e-9 + self.seconds for p in payloads]

    def everywhere(self, ok):
        return ok and self.others


def test_the_overhead_is_what_a_sleep_is_late(monkeypatch):
    monkeypatch.setattr(native, "load", lambda: Native(None, "no compiler"))
    found = sleep.fit(LateBy(3e-4), "cpu", "float32")
    assert found.overhead_s == pytest.approx(3e-4)
    assert found.payload(0.02) == Sleep(20_000_000, 300_000, native=False)
    assert found.to_dict() == {
        "implementation": "callback",
        "reason": "no compiler",
        "overhead_s": found.overhead_s,
    }


@needs_compiler
def test_the_record_says_native():
    found = sleep.fit(LateBy(-1e-4), "cpu", "float32")
    assert found == SleepFit(0.0, True, "")
    assert found.to_dict()["implementation"] == "native"
    assert found.to_dict()["reason"] is None


@needs_compiler
def test_all_use_the_callback_if_one_process_must():
    clock = LateBy(0.0, others=False)
    found = sleep.fit(clock, "cpu", "float32")
    assert found.to_dict()["implementation"] == "callback"
    assert found.reason == "another process has no native sleep"
    assert [payload.native for payload in (*clock.asked, found.payload(0.02))] == [False, False]


@pytest.mark.parametrize("platform", ["gpu", "tpu"])
def test_accelerators_are_refused_before_anything_is_measured(platform):
    clock = LateBy(0.0)
    with pytest.raises(InputError, match=f"on platform '{platform}'"):
        sleep.fit(clock, platform, "bfloat16")
    assert clock.asked == []
