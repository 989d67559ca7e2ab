"""Profiles as CUPTI leaves them: kernels on streams, named by the operation that launched them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from jaxbench.errors import InputError, RunError
from jaxbench.readings.plan import Plan
from jaxbench.readings.profile import read_profile
from jaxbench.readings.profile_reading import ProfileReading
from tests.readings.profile_inputs import (
    MODULE,
    E,
    Lines,
    make_plan,
    program_text,
    scope,
    write_profile,
)

COMPUTE, COPY = "Stream #13(Compute)", "Stream #20(Compute,MemcpyD2D)"


@pytest.fixture(scope="module")
def plan() -> Plan:
    return make_plan(strategy="dp", mesh="data=2", buckets=2)


@pytest.fixture(scope="module")
def text(plan: Plan) -> str:
    """A program with a matrix product for a payload, and two asynchronous all-reduces."""
    lines = [
        "%gemm_fusion_dot.1 = f32[64,64]{1,0} fusion(%x), kind=kCustom, calls=%dot, "
        + scope("compute backward 1", "while/body/dot_general"),
    ]
    for number, site in enumerate(plan.sites):
        name, size = f"all-reduce-start.{number}", f"f32[{site.elements}]{{0}}"
        about = f"replica_groups={{{{0,1}}}}, {scope(site.label, 'psum')}"
        lines += [
            f"%buffer.{number} = {size} parameter({number + 1})",
            f"%{name} = {size} all-reduce-start(%buffer.{number}), channel_id=1, {about}",
            f"%all-reduce-done.{number} = {size} all-reduce-done(%{name})",
        ]
    return program_text(lines)


def op(name: str, start: int, end: int, kernel: str = "kernel", module: str = MODULE) -> E:
    return E(kernel, start, end, {"hlo_op": name, "hlo_module": module, "correlation_id": start})


def reduce(number: int, start: int, end: int, kernel: str = "ncclDevKernel_AllReduce_Sum_f32") -> E:
    return op(f"all-reduce-start.{number}", start, end, kernel)


def gpu(*collectives: E) -> Lines:
    """A device that computes in [0, 100) and [1000, 1100): two steps."""
    work = [op("gemm_fusion_dot.1", 0, 100), op("gemm_fusion_dot.1", 1000, 1100)]
    return {COMPUTE: work, COPY: list(collectives), "Stream #1(MemcpyH2D)": [E("copy", 3, 4)]}


FIRST = gpu(reduce(0, 50, 150), reduce(1, 150, 170), reduce(0, 1050, 1150), reduce(1, 1150, 1170))
SECOND = gpu(reduce(0, 90, 150), reduce(1, 150, 170), reduce(0, 1090, 1150), reduce(1, 1150, 1170))


def read(folder: Path, plan: Plan, text: str, planes: dict[str, Lines]) -> ProfileReading:
    return read_profile(
        write_profile(folder, planes),
        text=text,
        plan=plan,
        platform="gpu",
        ranks={0: 0, 1: 1},
        steps=2,
    )


def test_what_is_hidden_exposed_waited_for_and_transferred(
    tmp_path: Path, plan: Plan, text: str
) -> None:
    found = read(tmp_path, plan, text, {"/device:GPU:0": FIRST, "/device:GPU:1": SECOND})
    expected = {
        "total_s": [120, 80],
        "exposed_s": [70, 70],
        "hidden_s": [50, 10],
        "waiting_s": [0, 0],
        "transfer_s": [70, 70],
    }
    for name, per_rank in expected.items():
        actual = found.shares.named()[name]
        np.testing.assert_allclose(actual, [[ns * 1e-9 for ns in per_rank]] * 2, atol=1e-15)
    np.testing.assert_allclose(found.compute_s, 100e-9)
    np.testing.assert_allclose(found.rest_s, 0, atol=1e-15)
    assert found.per_step("exposed_s") == pytest.approx([70e-9, 70e-9])
    late, even = found.labels
    assert late.labels == (plan.sites[0].label,) and late.count == (1, 1)
    assert late.execution_s == pytest.approx(60e-9)  # from 90, when the second has begun
    assert late.skew_s == late.skew_max_s == pytest.approx(40e-9)
    assert late.algorithmic_Bps == pytest.approx(4 * plan.sites[0].elements / 60e-9)
    assert late.bus_Bps == pytest.approx(late.algorithmic_Bps)  # 2 (n-1)/n of 2 ranks
    assert even.skew_s == 0 and even.execution_s == pytest.approx(20e-9)
    assert found.warnings == ("2 events of the profile don't say which operation they are",)


def test_ranks_follow_the_mesh_not_the_device_numbers(
    tmp_path: Path, plan: Plan, text: str
) -> None:
    path = write_profile(tmp_path, {"/device:GPU:0": FIRST, "/device:GPU:1": SECOND})
    found = read_profile(path, text=text, plan=plan, platform="gpu", ranks={0: 1, 1: 0}, steps=2)
    np.testing.assert_allclose(found.shares.total_s, [[80e-9, 120e-9]] * 2)


def test_a_kernel_needs_no_name_that_starts_with_nccl(
    tmp_path: Path, plan: Plan, text: str
) -> None:
    one_shot = gpu(
        *(reduce(n, s + a, s + b, "all_reduce_kernel") for s in (0, 1000) for n, a, b in BOTH)
    )
    found = read(tmp_path, plan, text, {"/device:GPU:0": one_shot, "/device:GPU:1": one_shot})
    np.testing.assert_allclose(found.shares.exposed_s, 70e-9)


BOTH = ((0, 50, 150), (1, 150, 170))


def test_an_execution_may_be_several_kernels(tmp_path: Path, plan: Plan, text: str) -> None:
    pieces = [
        reduce(number, step + start, step + end, "MemcpyP2P")
        for step in (0, 1000)
        for number, start, middle, end in ((0, 50, 120, 150), (1, 150, 160, 170))
        for start, end in ((start, middle), (middle, end))
    ]
    found = read(tmp_path, plan, text, {"/device:GPU:0": gpu(*pieces), "/device:GPU:1": FIRST})
    assert found.labels[0].execution_s == pytest.approx(100e-9)


def test_a_dropped_kernel_is_told(tmp_path: Path, plan: Plan, text: str) -> None:
    less = {**FIRST, COPY: FIRST[COPY][:-1]}
    with pytest.raises(RunError, match=r"1 events of 'all-reduce-start.1' on rank 0.*dropped"):
        read(tmp_path, plan, text, {"/device:GPU:0": less, "/device:GPU:1": SECOND})
    without = {**FIRST, COPY: [e for e in FIRST[COPY] if not e.stats["hlo_op"].endswith(".1")]}
    with pytest.raises(RunError, match=r"0 events of all_reduce .* the plan has 1"):
        read(tmp_path, plan, text, {"/device:GPU:0": without, "/device:GPU:1": SECOND})


def test_command_buffers_are_told(tmp_path: Path, plan: Plan, text: str) -> None:
    graph = {**FIRST, COPY: [E("ncclDevKernel_AllReduce", 50, 150)]}
    with pytest.raises(RunError, match="xla_enable_command_buffers_during_profiling=false"):
        read(tmp_path, plan, text, {"/device:GPU:0": graph, "/device:GPU:1": SECOND})


def test_an_unknown_layout_is_told_with_what_was_found(
    tmp_path: Path, plan: Plan, text: str
) -> None:
    renamed = {"Queue 7": FIRST[COPY]}
    with pytest.raises(RunError, match=r"no line 'Stream #k'.*'/device:GPU:1' \(Queue 7\)"):
        read(tmp_path, plan, text, {"/device:GPU:0": FIRST, "/device:GPU:1": renamed})


def test_a_profile_without_the_devices_is_bad_input(tmp_path: Path, plan: Plan, text: str) -> None:
    with pytest.raises(InputError, match="no plane '/device:GPU:n' with events"):
        read(tmp_path, plan, text, {"/host:CPU": {"python": [E("step", 0, 9)]}})
    with pytest.raises(InputError, match=r"no plane '/device:GPU:1' \(of rank 1\)"):
        read(tmp_path, plan, text, {"/device:GPU:0": FIRST})


def test_a_profile_of_another_program_is_bad_input(tmp_path: Path, plan: Plan, text: str) -> None:
    other = {COMPUTE: [op("gemm_fusion_dot.1", 0, 9, module="jit_other")]}
    with pytest.raises(InputError, match=f"no events of the program '{MODULE}'.*jit_other"):
        read(tmp_path, plan, text, {"/device:GPU:0": other, "/device:GPU:1": other})
