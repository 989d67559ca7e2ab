"""The decomposition of steps whose parts are known beforehand: run as a user would, and timed.

Nothing else may run meanwhile: `scripts/test` runs these by themselves, after all others.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from jaxbench.launch.environment import additions
from jaxbench.measure.record import read_records

# Another process can disturb a measurement; what is wrong stays wrong.
pytestmark = [pytest.mark.timed, pytest.mark.flaky(reruns=5)]

ROOT = Path(__file__).parents[2]


@pytest.fixture
def run(tmp_path: Path) -> Any:
    """Return a function: run a flagfile with more flags, and return what it measured by name."""

    def measure(flagfile: str, *flags: str) -> dict[str, float]:
        command = [sys.executable, "-m", "jaxbench", "run", f"--flagfile=flags/{flagfile}.flags"]
        done = subprocess.run(
            [*command, "--steps=12", *flags, f"--out={tmp_path}"],
            env={**os.environ, "PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"},
            capture_output=True,
            text=True,
            timeout=180,
        )
        assert done.returncode == 0, done.stderr[-3000:]
        records, _ = read_records(tmp_path)
        metrics = records[-1]["metrics"]
        low = {f"{name}_low": m["ci_low"] for name, m in metrics.items()}
        return {name: m["value"] for name, m in metrics.items()} | low

    return measure


def test_a_straggler_is_skew(run: Any) -> None:
    found = run("tiny_dp", "--inject_delay=3:8000")
    assert found["skew_s"] == pytest.approx(0.008, rel=0.10)
    assert found["compute_s"] == pytest.approx(0.060, rel=0.05)


@pytest.mark.parametrize(
    ("schedule", "share"),
    [(("--schedule=gpipe",), 3 / 7), (("--schedule=interleaved", "--chunks=2"), 3 / 11)],
)
def test_a_pipeline_without_messages_shows_its_bubble(
    run: Any, schedule: tuple[str, ...], share: float
) -> None:
    # Long enough that what starting 36 collectives takes is little beside the bubble.
    long = ("--forward_s=0.5", "--backward_s=1.0", "--steps=3")
    flags = ("--size_scale=0.0001", *long, *schedule)
    found = run("tiny_dp_pp", *flags)
    idle = 1 - (found["compute_s"] + found["skew_s"]) / found["step_s"]
    assert idle == pytest.approx(share, abs=0.03)
    assert found["bubble_s"] / found["step_s"] == pytest.approx(share, abs=0.03)
    assert abs(found["transfer_exposed_s"]) < 0.03 * found["step_s"]


def test_communication_hides_behind_long_compute(run: Any) -> None:
    """Three of four buckets travel during the next one's backward, the last can't hide: 75 %."""
    flags = ("--buckets=4", "--forward_s=0.05", "--backward_s=0.2", "--size_scale=8", "--steps=6")
    found = run("tiny_dp", *flags)
    assert found["transfer_hidden_s_low"] > 0
    total = found["transfer_hidden_s"] + found["transfer_exposed_s"]
    assert found["transfer_hidden_s"] > 0.5 * total


def test_one_bucket_costs_what_the_collective_alone_does() -> None:
    """Both are whole executions, so the start of a program is in both or in neither."""
    done = subprocess.run(
        [sys.executable, str(Path(__file__).parent / "one_bucket.py")],
        env={
            **os.environ,
            **additions(os.environ),
            "PYTHONPATH": str(ROOT),
            "JAX_PLATFORMS": "cpu",
        },
        capture_output=True,
        text=True,
        timeout=180,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["transfer_exposed_s"] == pytest.approx(found["alone_s"], rel=0.20)


@pytest.mark.parametrize("flagfile", ["tiny_dp_heavy", "tiny_fsdp_heavy"])
def test_variants_and_profile_agree(run: Any, flagfile: str) -> None:
    found = run(flagfile, "--profile")
    assert found["communication_share"] > 0.4
    one, two = found["transfer_exposed_s"], found["profile_exposed_s"]
    assert two == pytest.approx(one, rel=0.15, abs=1e-3)


def test_larger_messages_are_more_transfer_and_the_same_compute(run: Any) -> None:
    long = ("--forward_s=0.08", "--backward_s=0.16", "--steps=5")
    small, large = (run("tiny_dp_pp_tp", f"--size_scale={scale}", *long) for scale in (4, 16))
    assert large["transfer_exposed_s"] > 2 * small["transfer_exposed_s"]
    assert large["compute_s"] == pytest.approx(small["compute_s"], rel=0.05)
