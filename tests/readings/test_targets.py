"""Compiling for devices that aren't there: what is needed, and what comes out."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

from jaxbench.axes import AXES as MESH_AXES
from jaxbench.errors import InputError, RunError
from jaxbench.readings import targets
from jaxbench.readings.targets import (
    GPUS,
    TPUS,
    missing_packages,
    target_environment,
    target_mesh,
    target_platform,
)
from tests.readings.aot_programs import AXES, COLUMNS, ROWS, results

pytestmark = pytest.mark.xdist_group("targets")  # one process compiles each target once

# Those that take long for little that is new.
SLOW = ("v5e:2x4", "v6e")
COMPILED = (
    *("h100", "a100", "v5e"),
    *(pytest.param(target, marks=pytest.mark.slow) for target in SLOW),
)
KEPT = (
    "every_kind",
    "flat_shards",
    "gathered_twice",
    "reduced_twice",
    "sharded_training",
    "unchanged_in_a_loop",
    "conditional",
)


@pytest.mark.parametrize("name", KEPT)
@pytest.mark.parametrize("target", COMPILED)
def test_collectives_stay_as_written(target: str, name: str) -> None:
    with_passes = target in ("h100", "v5e")  # compiled once for test_compiler_options too
    result = results(target, with_passes)["kept"][name]
    assert result["found"] == result["written"]


@pytest.mark.parametrize("target", ["h100", "v5e"])
def test_a_target_gives_all_axes_and_memory(target: str) -> None:
    result = results(target, passes=True)
    assert result["mesh"] == {**dict.fromkeys(MESH_AXES, 1), **AXES}
    used = 4 * (ROWS * COLUMNS + 1)  # one buffer is never read, and not kept
    assert used <= result["argument_bytes"] < used + 4 * ROWS * COLUMNS + 4096


@pytest.mark.parametrize(
    ("target", "shape", "hosts"),
    [
        ("h100", {"data": 1}, 1),
        ("h100", {"tensor": 4, "data": 6}, 3),
        ("a100", {"data": 7, "fsdp": 2}, 2),
        ("v5p", {"data": 2, "tensor": 2}, 1),
        ("v6e", {"fsdp": 16}, 4),
    ],
)
def test_meshes(target: str, shape: dict[str, int], hosts: int) -> None:
    if missing_packages(target) and not os.environ.get("CI"):
        pytest.skip(f"compiling for {target} needs {', '.join(missing_packages(target))}")
    code = (
        "from jaxbench.readings.targets import target_mesh\n"
        f"mesh = target_mesh({target!r}, {shape!r})\n"
        "devices = mesh.devices.flat\n"
        "print([*mesh.shape.items()], len({d.id for d in devices}), devices[-1].device_kind,\n"
        "      len({d.process_index for d in devices}))"
    )
    run = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **target_environment(target)},
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert run.returncode == 0, run.stderr[-2000:]
    axes = list({**shape, **{axis: 1 for axis in MESH_AXES if axis not in shape}}.items())
    kind = {"h100": "H100", "a100": "A100", "v5p": "TPU v5", "v6e": "TPU v6 lite"}[target]
    assert run.stdout.startswith(f"{axes} {math.prod(shape.values())} ")
    assert kind in run.stdout
    assert run.stdout.strip().endswith(f" {hosts}")


# --- what doesn't need a compiler ---


@pytest.fixture
def ready(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the packages were installed and the process started with the environment."""
    monkeypatch.setattr(targets, "missing_packages", lambda target: [])
    for target in ("h100", "v5e"):
        for name, value in target_environment(target).items():
            monkeypatch.setenv(name, value)


def test_platforms() -> None:
    assert {target_platform(name) for name in GPUS} == {"cuda"}
    assert {target_platform(name) for name in (*TPUS, "v5e:4x4")} == {"tpu"}


@pytest.mark.parametrize("target", ["h10", "v5", "h100:8", ":2x4", ""])
def test_unknown_targets(target: str) -> None:
    with pytest.raises(InputError, match="unknown target"):
        target_mesh(target, {"data": 8})


@pytest.mark.usefixtures("ready")
@pytest.mark.parametrize(
    ("target", "shape", "message"),
    [
        ("v5e", {"data": 3}, "v5e has no slice of 3 chips; sizes: 1, 4, 8, 16"),
        ("v5e:2x4", {"data": 4}, "'v5e:2x4' has 8 chips, but the mesh 4"),
        ("v5e:big", {"data": 4}, "write it as in v5e:2x4"),
        ("v5e:0x4", {"data": 4}, "write it as in v5e:2x4"),
        ("v5e", {"datum": 8}, "unknown mesh axis 'datum'; did you mean 'data'"),
        ("v5e", {"data": 0}, "axis 'data' has size 0; 1 is the least"),
    ],
)
def test_impossible_meshes(target: str, shape: dict[str, int], message: str) -> None:
    with pytest.raises(InputError, match=message):
        target_mesh(target, shape)


def test_missing_packages_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(targets, "_installed", lambda package: False)
    monkeypatch.setattr(targets, "_has_ptxas", lambda: False)
    with pytest.raises(RunError, match="pip install jax-cuda12-plugin nvidia-cuda-nvcc-cu12$"):
        target_mesh("h100", {"data": 8})
    with pytest.raises(RunError, match="pip install libtpu$"):
        target_mesh("v5e", {"data": 8})


@pytest.mark.usefixtures("ready")
def test_a_process_started_otherwise_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    with pytest.raises(RunError, match="started with JAX_PLATFORMS=cpu,cuda JAX_SKIP_CUDA"):
        target_mesh("h100", {"data": 8})
    monkeypatch.delenv("TPU_WORKER_ID")
    with pytest.raises(RunError, match="started with JAX_PLATFORMS=cpu TPU_SKIP_MDS_QUERY=1"):
        target_mesh("v5e", {"data": 8})


def test_every_gpu_has_its_description() -> None:
    folder = Path(targets.__file__).parent / "gpu_targets"
    assert {path.stem for path in folder.iterdir()} == set(GPUS)
    for gpu in GPUS:
        text = (folder / f"{gpu}.txtpb").read_text()
        assert text.count("{") == text.count("}") > 0
        assert f"NVIDIA {gpu.upper()}" in text


def test_tpu_slices_have_the_chips_they_are_listed_for() -> None:
    for slices in TPUS.values():
        for chips, shape in slices.items():
            assert math.prod(map(int, shape.split("x"))) == chips
