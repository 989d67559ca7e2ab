"""Every flagfile that comes with jaxbench is a valid experiment, and says what it claims."""

from __future__ import annotations

import pytest

from jaxbench.cli import plan, run
from jaxbench.cli.command import read_command
from jaxbench.data import data_folder, data_names
from jaxbench.experiment import Experiment

TINY = ["tiny_dp", "tiny_fsdp", "tiny_dp_pp", "tiny_dp_pp_tp", "tiny_dp_pp_ep"]

# arXiv 2609.00817: strategy, model, mesh without data, device counts, and what else is stated.
PAPER = {
    "paper_dp_vit_h14": ("dp", "vit_h14", {}, (8, 16, 32, 64), {"buckets": 50}),
    "paper_fsdp_llama3_8b": (
        *("fsdp", "llama3_8b", {"fsdp": 8}),
        (16, 32, 64, 128, 256),
        {"units": 16},
    ),
    "paper_fsdp_minerva_7b": (
        *("fsdp", "minerva_7b", {"fsdp": 8}),
        (16, 32, 64, 128, 256),
        {"units": 16},
    ),
    "paper_dp_pp_llama3_8b": (
        *("dp_pp", "llama3_8b", {"pipeline": 8}),
        (16, 32, 64, 128, 256),
        {"microbatches": 16},
    ),
    "paper_dp_pp_minerva_7b": (
        *("dp_pp", "minerva_7b", {"pipeline": 8}),
        (16, 32, 64, 128, 256),
        {"microbatches": 16},
    ),
    "paper_dp_pp_tp_llama3_70b": (
        *("dp_pp_tp", "llama3_70b", {"pipeline": 8, "tensor": 4}),
        (224, 256, 512, 1024),
        {"microbatches": 16},
    ),
    "paper_dp_pp_ep_mixtral_8x7b": (
        *("dp_pp_ep", "mixtral_8x7b", {"pipeline": 8, "expert": 8}),
        (512, 1024, 2048),
        {"microbatches": 16},
    ),
}


def read(name: str, *words: str) -> list[Experiment]:
    """Return the experiments of a flagfile, without any fault or note."""
    command = read_command("run", [f"--flagfile=flags/{name}.flags", *words], run.FLAGS)
    assert command.faults == []
    assert [experiment.notes for _, experiment in command.experiments] == [()] * len(
        command.experiments
    )
    return [experiment for _, experiment in command.experiments]


# Grids are tested with jaxbench sweep.
@pytest.mark.parametrize(
    "name", [name for name in data_names("flags", ".flags") if not name.startswith("sweep_")]
)
def test_it_is_valid_for_every_command(name: str) -> None:
    assert read(name)
    words = [f"--flagfile=flags/{name}.flags"]
    assert read_command("plan", words, plan.FLAGS).faults == []
    first = (data_folder("flags") / f"{name}.flags").read_text().splitlines()[0]
    assert first.startswith("# ")


@pytest.mark.parametrize("name", PAPER)
def test_the_paper_s_configurations(name: str) -> None:
    strategy, model, sizes, counts, options = PAPER[name]
    (first,) = read(name)
    assert (first.strategy, first.model, first.batch) == (strategy, model, 16)
    assert first.devices == counts[0]
    assert first.convention == "true" and first.time_scale == first.size_scale == 1.0
    assert options.items() <= first.to_dict().items()
    for count in counts:
        (experiment,) = read(name, f"--devices={count}")
        used = {axis: size for axis, size in experiment.mesh if size > 1 and axis != "data"}
        assert (experiment.devices, used) == (count, sizes)
    comment = (data_folder("flags") / f"{name}.flags").read_text()
    assert all(str(count) in comment for count in counts)


def test_the_224_ranks_of_the_paper() -> None:
    (experiment,) = read("paper_dp_pp_tp_llama3_70b", "--mesh=data=7,pipeline=8,tensor=4")
    assert experiment.devices == 224


@pytest.mark.parametrize("name", TINY)
def test_the_tiny_workloads(name: str) -> None:
    (tiny,) = read(name)
    assert tiny.strategy == name.removeprefix("tiny_")
    assert (tiny.devices, tiny.batch, tiny.seq_len) == (8, 16, 128)
    assert (tiny.forward_s, tiny.backward_s) == (0.020, 0.040)
    assert (tiny.dtype, tiny.payload) == ("float32", "auto")


@pytest.mark.parametrize("name", TINY)
def test_heavy_twins_differ_in_compute_and_size_alone(name: str) -> None:
    (tiny,), (heavy,) = read(name), read(f"{name}_heavy")
    changed = {key for key, value in heavy.to_dict().items() if tiny.to_dict()[key] != value}
    assert changed <= {"forward_s", "backward_s", "size_scale"}
    assert heavy.size_scale > 1 or (heavy.forward_s or 0) < 0.020


def test_the_quickstart_is_the_five_tiny_workloads() -> None:
    assert read("quickstart") == [read(name)[0] for name in TINY]
