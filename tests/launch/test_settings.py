"""The doctor's view of any surroundings: variables, scheduler, memory, cores."""

from __future__ import annotations

from pathlib import Path

import pytest

from jaxbench.launch.environment import GUARD, MALLOC, additions
from jaxbench.launch.findings import Finding
from jaxbench.launch.settings import (
    SLURM_STEP,
    check_allocator,
    check_cores,
    check_jax_settings,
    check_memory,
    check_platforms,
    check_settings,
    check_slurm,
    check_xla_flags,
)

PACKAGES = ["jax", "jaxlib", "jax-cuda12-plugin"]
STEP = dict.fromkeys(SLURM_STEP, "1")


def only(findings: list[Finding]) -> Finding:
    (finding,) = findings
    assert (finding.state == "ok") == (finding.remedy == "")
    return finding


def test_nothing_set_is_all_well() -> None:
    findings = check_settings({}, PACKAGES)
    assert {finding.state for finding in findings} == {"ok"}
    assert len({finding.check for finding in findings}) == len(findings) == 5


@pytest.mark.parametrize(
    ("given", "state", "text"),
    [
        ("cpu", "ok", "cpu"),
        ("cuda,cpu", "ok", "cuda,cpu"),
        ("gpu", "ok", "gpu"),
        ("rocm", "wrong", "names 'rocm', for which no package is installed"),
        ("tpu,cpu", "wrong", "names 'tpu'"),
        ("metal", "warning", "names 'metal'"),
    ],
)
def test_platforms(given: str, state: str, text: str) -> None:
    finding = only(check_platforms({"JAX_PLATFORMS": given}, PACKAGES))
    assert finding.state == state and text in finding.found


@pytest.mark.parametrize(
    ("env", "state", "text"),
    [
        ({"XLA_FLAGS": "--xla_a=1 --xla_b"}, "ok", "--xla_a=1 --xla_b"),
        ({"XLA_FLAGS": "xla_a=1"}, "wrong", "starts with 'xla_a=1'"),
        ({"XLA_FLAGS": "--xla_a=1 --xla_a=2"}, "warning", "--xla_a is given as 1 and as 2"),
        ({"XLA_FLAGS": "--xla_disable_hlo_passes=x"}, "warning", "passes"),
        (
            {"XLA_FLAGS": "--xla_force_host_platform_device_count=4"},
            "warning",
            "the number of CPU devices is set, to 4",
        ),
        ({"JAX_NUM_CPU_DEVICES": "4"}, "warning", "set, to 4"),
        (
            {
                "JAX_NUM_CPU_DEVICES": "4",
                "XLA_FLAGS": "--xla_force_host_platform_device_count=8",
            },
            "wrong",
            "disagree: 4, 8",
        ),
    ],
)
def test_xla_flags(env: dict[str, str], state: str, text: str) -> None:
    finding = only(check_xla_flags(env))
    assert finding.state == state and text in finding.found


def test_xla_flags_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "flags"
    path.write_text("--xla_a=1")
    assert only(check_xla_flags({"XLA_FLAGS": str(path)})).state == "ok"


def test_jaxbench_s_own_flags_are_not_yours() -> None:
    assert only(check_xla_flags(additions({}))).found == "none of yours"


def test_settings_of_jax_that_distort() -> None:
    assert only(check_jax_settings({"JAX_DISABLE_JIT": "1"})).state == "wrong"
    assert only(check_jax_settings({"JAX_ENABLE_X64": "True"})).state == "warning"
    assert only(check_jax_settings({"JAX_DEBUG_NANS": "0"})).state == "ok"


def test_allocator() -> None:
    assert only(check_allocator(additions({}))).state == "ok"
    own = only(check_allocator({"MALLOC_ARENA_MAX": "4"}))
    assert own.state == "warning" and MALLOC["MALLOC_ARENA_MAX"] in own.remedy
    assert only(check_allocator({"LD_PRELOAD": "/usr/lib/libtcmalloc.so.4"})).state == "warning"
    assert only(check_allocator({"LD_PRELOAD": "/usr/lib/libfoo.so"})).state == "ok"
    assert GUARD in only(check_allocator({GUARD: "1"})).found
    assert only(check_allocator({GUARD: "1", **additions({})})).state == "ok"


@pytest.mark.parametrize(
    ("env", "state", "text"),
    [
        ({}, "ok", "not in a job"),
        (STEP, "ok", "task 1 of 1 in job 1"),
        ({"SLURM_JOB_ID": "7", "SLURM_NTASKS": "4"}, "wrong", "not as a task of a step"),
        ({"SLURM_JOB_ID": "7"}, "warning", "SLURM_STEP_NODELIST"),
        ({"SLURM_PROCID": "0"}, "warning", "SLURM_JOB_ID"),
        ({n: v for n, v in STEP.items() if n != "SLURM_LOCALID"}, "warning", "SLURM_LOCALID"),
    ],
)
def test_slurm(env: dict[str, str], state: str, text: str) -> None:
    finding = only(check_slurm(env))
    assert finding.state == state and text in finding.found


def machine(root: Path, files: dict[str, str]) -> Path:
    """Make the files of a system's root that tell about it."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


MEMINFO = "MemTotal:       32000000 kB\nMemFree: 1 kB\nMemAvailable:   16000000 kB\nOdd:\n"


def test_memory(tmp_path: Path) -> None:
    assert only(check_memory(tmp_path)).state == "warning"  # not Linux
    machine(tmp_path, {"proc/meminfo": MEMINFO, "sys/fs/cgroup/memory.max": "max\n"})
    assert only(check_memory(tmp_path)) == Finding("memory", "ok", "16.4 GB free of 32.8 GB")
    container = {"memory.max": "8000000000\n", "memory.current": "5000000000\n"}
    machine(tmp_path, {f"sys/fs/cgroup/{name}": text for name, text in container.items()})
    limited = only(check_memory(tmp_path))
    assert limited.state == "warning" and "this container may take 3 GB" in limited.found
    machine(tmp_path, {"sys/fs/cgroup/memory.current": "7500000000"})
    assert [f.found for f in check_memory(tmp_path)][1] == "500 MB free"


def test_cores(tmp_path: Path) -> None:
    assert only(check_cores(tmp_path, load=0.5, cores=8)).state == "ok"
    busy = only(check_cores(tmp_path, load=6.0, cores=8))
    assert busy.state == "warning" and "load of 6.0" in busy.found
    machine(tmp_path, {"sys/fs/cgroup/cpu.max": "max 100000\n"})
    assert only(check_cores(tmp_path, load=0.5, cores=8)).state == "ok"
    machine(tmp_path, {"sys/fs/cgroup/cpu.max": "250000 100000\n"})
    assert "the time of 2.5" in only(check_cores(tmp_path, load=0.5, cores=8)).found
    assert only(check_cores(tmp_path, load=0.5, cores=2)).state == "ok"


def test_this_machine_can_be_looked_at() -> None:
    assert check_memory() and check_cores()
