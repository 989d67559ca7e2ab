"""What processes see of accelerators where no variable tells it, and where one hides all."""

from __future__ import annotations

from importlib import metadata, util
from pathlib import Path

import pytest

from jaxbench.launch.devices import Visible, own_share, uses_accelerators, visible_devices
from tests.launch import many


@pytest.fixture
def nvidia(tmp_path: Path) -> Path:
    """Make device files of a node with four GPUs."""
    for name in ("nvidia0", "nvidia1", "nvidia2", "nvidia3", "nvidiactl"):
        (tmp_path / name).touch()
    return tmp_path


@pytest.fixture
def amd(tmp_path: Path) -> Path:
    """Make what AMD's driver tells of a node with a CPU, two GPUs, and one of another job."""
    nodes = tmp_path / "nodes"
    for number, gpu_id in enumerate(("0", "51234", "4321")):
        (nodes / str(number)).mkdir(parents=True)
        (nodes / str(number) / "gpu_id").write_text(f"{gpu_id}\n")
    (nodes / "3" / "gpu_id").mkdir(parents=True)  # can't be read, as in a control group
    return nodes


def test_slurm_knows_how_many_are_the_job_s(nvidia: Path, amd: Path) -> None:
    """Under --gpu-bind=none it sets no variable of the visible ones."""
    unbound = {"SLURM_GPUS_ON_NODE": "8", "SLURMD_TRES_BIND": "gpu:none"}
    none = nvidia / "none"
    assert visible_devices(unbound, none, none) == Visible(None, 8)
    assert visible_devices({"SLURM_GPUS_ON_NODE": "2"}, nvidia, amd) == Visible(None, 2)
    assert visible_devices({"SLURM_GPUS_ON_NODE": "0"}, nvidia, amd) == Visible(None, None)
    named = {"SLURM_GPUS_ON_NODE": "2", "ROCR_VISIBLE_DEVICES": "0"}
    assert visible_devices(named, none, none) == Visible("0", 1)
    seen = [visible_devices(unbound, none, none)] * 8
    assert [own_share(k, seen) for k in range(8)] == [([k], None) for k in range(8)]


def test_the_drivers_know_how_many_there_are(nvidia: Path, amd: Path) -> None:
    none = nvidia / "none"
    assert visible_devices({}, nvidia, none) == Visible(None, 4)
    assert visible_devices({}, none, amd) == Visible(None, 2)
    assert visible_devices({}, none, none) == Visible(None, None)


@pytest.mark.parametrize(
    ("env", "own"),
    [
        ({"SLURM_GPUS_PER_TASK": "1"}, True),
        ({"SLURM_GPUS_PER_TASK": "1", "SLURMD_TRES_BIND": "gpu:none"}, False),
        ({"SLURM_GPUS_PER_TASK": "1", "SLURMD_TRES_BIND": "gres/gpu:verbose,none"}, False),
        ({"SLURM_GPUS_PER_TASK": "1", "SLURM_GPU_BIND": "none"}, False),
        ({"SLURM_GPUS_PER_TASK": "1", "SLURM_GPU_BIND": "verbose,none"}, False),
        ({"SLURM_GPUS_PER_TASK": "1", "SLURM_GPU_BIND": "quiet,none"}, False),
        ({"SLURM_TRES_PER_TASK": "gres/gpu:1", "SLURMD_TRES_BIND": "gpu:none"}, False),
        ({"SLURM_GPU_BIND": "per_task:1", "SLURMD_TRES_BIND": "gpu:none"}, False),
        ({"SLURM_GPU_BIND": "none", "SLURMD_TRES_BIND": "gpu:per_task:1"}, True),
        ({"SLURM_GPU_BIND": "verbose,per_task:1"}, True),
        ({"SLURM_GPUS_PER_TASK": "1", "SLURMD_TRES_BIND": "gpu:closest"}, True),
        ({"SLURMD_TRES_BIND": "gpu:none+nic:per_task:1"}, False),
        ({}, False),
    ],
)
def test_without_a_binding_no_task_has_its_own(env: dict[str, str], own: bool) -> None:
    assert visible_devices(env).own is own


@pytest.mark.parametrize("name", ["CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"])
@pytest.mark.parametrize("text", ["", "-1", "NoDevFiles"])
def test_a_variable_may_hide_all(nvidia: Path, amd: Path, name: str, text: str) -> None:
    hidden = visible_devices({name: text, "SLURM_GPUS_ON_NODE": "4"}, nvidia, amd)
    assert hidden == Visible(text, 0)
    assert own_share(1, [hidden] * 3) == (None, None)
    assert own_share(1, [hidden, hidden, Visible("0", 1)]) == (None, None)


def test_a_variable_of_another_maker_hides_nothing() -> None:
    env = {"CUDA_VISIBLE_DEVICES": "", "ROCR_VISIBLE_DEVICES": "0,1"}
    assert visible_devices(env) == Visible("0,1", 2)


@pytest.mark.parametrize(
    ("platforms", "plugins", "libtpu", "uses"),
    [
        ("", [], None, False),
        ("", ["a plugin"], None, True),
        ("", [], "libtpu", True),
        ("cuda", ["a plugin"], None, True),
        ("cuda,cpu", ["a plugin"], None, True),
        ("cpu", ["a plugin"], None, False),
        ("cpu,cuda", ["a plugin"], None, False),
    ],
)
def test_accelerators_are_used_if_jax_can(
    monkeypatch: pytest.MonkeyPatch,
    platforms: str,
    plugins: list[str],
    libtpu: str | None,
    uses: bool,
) -> None:
    monkeypatch.setattr(metadata, "entry_points", lambda group: plugins)
    monkeypatch.setattr(util, "find_spec", lambda name: libtpu)
    assert uses_accelerators(platforms) is uses


@pytest.mark.slow
@pytest.mark.parametrize("platforms", ["", "cpu", "cpu,cuda"])
def test_a_gpu_that_jax_can_t_use_is_no_fault(platforms: str, tmp_path: Path) -> None:
    """A node's one GPU can't be shared by two processes, which is nothing to those on its CPU."""
    env = {"JAX_PLATFORMS": platforms, "SLURM_GPUS_ON_NODE": "1"}
    told = many.local("bare", f"--out={tmp_path / 'out'}", processes=2, env=env)
    if uses_accelerators(platforms):
        assert told.codes == (2,)
        assert "2 processes on one host can't share its 1 devices evenly" in told.output
    else:
        assert told.codes == (0,), told.output
