"""What the disabled passes would do, shown by programs that they change when allowed."""

from __future__ import annotations

import functools
from typing import Any

import jax
import pytest
from jax.sharding import AxisType

from jaxbench.errors import InputError
from jaxbench.readings.compiler_options import DISABLED_PASSES, compiler_options
from tests.readings.aot_programs import AXES, compile_all, results

pytestmark = pytest.mark.xdist_group("targets")  # one process compiles each target once

# Disabled because of their source alone: no small program was found that they change.
UNSEEN = {
    "reduce-scatter-creator",
    "all-reduce-simplifier",
    "all-gather-dynamic-slice-simplifier",
    "collective-pipeliner-forward",
    "collective-pipeliner-backward",
}
TARGETS = {"cpu": "cpu", "gpu": "h100", "tpu": "v5e"}
SEEN = [
    (platform, name)
    for platform in TARGETS
    for name in DISABLED_PASSES[platform]
    if name not in UNSEEN
]


@functools.cache
def on_cpu() -> dict[str, Any]:
    mesh = jax.make_mesh(
        tuple(AXES.values()),
        tuple(AXES),
        axis_types=(AxisType.Auto,) * len(AXES),
        devices=jax.devices()[:8],
    )
    return compile_all(mesh, "cpu", passes=True)


def compiled_for(target: str) -> dict[str, Any]:
    return on_cpu() if target == "cpu" else results(target, passes=True)


@pytest.mark.parametrize(("platform", "name"), SEEN)
def test_a_disabled_pass_would_change_a_program(platform: str, name: str) -> None:
    result = compiled_for(TARGETS[platform])["passes"][name]
    assert result["found"] == result["written"]
    assert result["allowed"] != result["written"]


def test_the_programs_stay_as_written_on_cpu() -> None:
    for name, result in on_cpu()["kept"].items():
        assert result["found"] == result["written"], name


def test_options_are_one_comma_separated_string() -> None:
    options = compiler_options("cpu")
    assert options == {"xla_disable_hlo_passes": ",".join(DISABLED_PASSES["cpu"])}
    left = compiler_options("cpu", frozenset({"cse"}))["xla_disable_hlo_passes"]
    assert left.split(",") == [name for name in DISABLED_PASSES["cpu"] if name != "cse"]
    assert compiler_options("cpu", frozenset(DISABLED_PASSES["cpu"])) == {}


@pytest.mark.parametrize("platform", ["cuda", "rocm"])
def test_gpu_platforms_share_a_list(platform: str) -> None:
    assert compiler_options(platform) == compiler_options("gpu")


def test_unknown_platforms_and_passes_are_errors() -> None:
    with pytest.raises(InputError, match="unknown platform 'gpus'; did you mean 'gpu'"):
        compiler_options("gpus")
    with pytest.raises(InputError) as error:
        compiler_options("tpu", frozenset({"css", "all-reduce-combine"}))
    assert len(error.value.faults) == 2
    assert "did you mean 'all-reduce-combiner'" in error.value.faults[0]
