"""What the doctor makes of versions, plugins, probes and folders, each as it may be somewhere."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

import jaxbench
from jaxbench.launch import doctor
from jaxbench.launch.doctor import (
    JAX,
    NEEDED,
    check_backend,
    check_data,
    check_plugins,
    check_results,
    check_versions,
    check_virtual,
    installed,
    without_device_count,
)
from jaxbench.launch.findings import Finding
from jaxbench.launch.probe import Probe

GOOD = {"jax": "0.10.2", "jaxlib": "0.10.2", **dict.fromkeys(NEEDED, "1.0")}
IMPORT = {"import": {"version": "0.10.2", "x64": False}}
BACKEND = {**IMPORT, "backend": {"platform": "cpu", "devices": 4, "kinds": ["cpu"]}}
PSUM = {**BACKEND, "psum": {"wanted": 10, "wrong": {}}}
NATIVE = {"compiler": "c++", "missing": "", "available": True, "reason": "", "cache": "/c"}


def states(findings: list[Finding]) -> dict[str, str]:
    assert all((finding.state == "ok") == (finding.remedy == "") for finding in findings)
    return {finding.check: finding.state for finding in findings}


def test_the_supported_jax_is_that_of_the_package() -> None:
    pyproject = Path(__file__).parents[2] / "pyproject.toml"
    project = tomllib.loads(pyproject.read_text())["project"]
    needed = {line.partition(">")[0]: line for line in project["dependencies"]}
    assert needed["jax"] == "jax>={}.{}.{},<{}.{}".format(*JAX[0], *JAX[1])
    assert {"jax", *NEEDED} == {name.lower() for name in needed}
    assert project["requires-python"] == ">=" + ".".join(map(str, doctor.PYTHON))


def test_this_installation_s_versions() -> None:
    assert set(states(check_versions(installed())).values()) == {"ok"}
    assert [finding.check for finding in check_plugins(installed())] == ["plugins"]


@pytest.mark.parametrize(
    ("change", "wrong"),
    [
        ({"jax": "0.9.0", "jaxlib": "0.9.0"}, {"jax": "wrong"}),
        ({"jax": "0.12.0", "jaxlib": "0.12.0"}, {"jax": "wrong"}),
        ({"jax": "0.11.9.dev3", "jaxlib": "0.11.9"}, {}),
        ({"jaxlib": "0.10.3"}, {"jaxlib": "wrong"}),
        ({"jaxlib": "0.10.1"}, {"jaxlib": "warning"}),
        ({"jaxlib": None}, {"jaxlib": "wrong"}),
        ({"jax": None}, {"jax": "wrong"}),
        ({"scipy": None}, {"packages": "wrong"}),
    ],
)
def test_versions(change: dict[str, str | None], wrong: dict[str, str]) -> None:
    packages = {name: v for name, v in {**GOOD, **change}.items() if v is not None}
    found = states(check_versions(packages))
    assert {name: state for name, state in found.items() if state != "ok"} == wrong


def test_an_old_python() -> None:
    assert states(check_versions(GOOD, python=(3, 10, 14)))["python"] == "wrong"


def test_a_plugin_of_another_version_is_left_out_by_jax() -> None:
    assert check_plugins({**GOOD, "libtpu": "0.0.42"})[0].found == "libtpu 0.0.42"
    assert states(check_plugins({**GOOD, "jax-rocm7-plugin": "0.10.2.1"})) == {"plugins": "ok"}
    (finding,) = check_plugins({**GOOD, "jax-cuda12-plugin": "0.10.1"})
    assert finding.state == "warning" and "jax-cuda12-plugin==0.10.2" in finding.remedy


# --- what the children found ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stages", "text"),
    [
        ({}, "jax can't be imported: boom"),
        (IMPORT, "JAX doesn't start: boom"),
        (BACKEND, "a sum over all devices failed: boom"),
    ],
)
def test_a_backend_that_breaks(stages: dict, text: str) -> None:
    findings = check_backend(Probe(stages, "boom"), {}, {})
    assert findings[-1].state == "wrong" and findings[-1].found == text
    assert "wrong" in states(check_virtual(Probe(stages, "boom"))).values()


def test_a_wrong_sum_is_told_with_its_device() -> None:
    wrong = {**PSUM, "psum": {"wanted": 10, "wrong": {"3": 7.0}}}
    finding = check_backend(Probe(wrong, ""), {}, {})[-1]
    assert finding.state == "wrong" and "came out as 7 on device 3" in finding.found


def test_an_accelerator_that_jax_doesn_t_use(tmp_path: Path) -> None:
    probe, there = Probe(PSUM, ""), {str(tmp_path): ("a GPU", "install it")}
    assert check_backend(probe, {}, there)[0].state == "warning"
    assert check_backend(probe, {"JAX_PLATFORMS": "cpu"}, there)[0].state == "ok"
    assert check_backend(probe, {}, {str(tmp_path / "none"): ("a GPU", "")})[0].state == "ok"
    gpu = {**PSUM, "backend": {"platform": "gpu", "devices": 2, "kinds": ["H200"]}}
    assert check_backend(Probe(gpu, ""), {}, there)[0].found == "gpu: 2 x H200"


@pytest.mark.parametrize(
    ("native", "expected"),
    [
        ({}, {"compiler": "ok", "native sleep": "ok"}),
        ({"available": False, "missing": "no C++ compiler"}, {"compiler": "warning"}),
        (
            {"available": False, "reason": "c++ failed"},
            {"compiler": "ok", "native sleep": "warning"},
        ),
    ],
)
def test_native_sleep(native: dict, expected: dict[str, str]) -> None:
    found = states(check_virtual(Probe({**PSUM, "native": {**NATIVE, **native}}, "")))
    assert found == {"virtual devices": "ok", **expected}


def test_a_handler_that_kills_the_process() -> None:
    found = states(check_virtual(Probe(PSUM, "killed by SIGSEGV")))
    assert found == {"virtual devices": "ok", "native sleep": "wrong"}


def test_another_number_of_devices_than_asked_for() -> None:
    one = {**PSUM, "backend": {"platform": "cpu", "devices": 1, "kinds": ["cpu"]}}
    (finding,) = check_virtual(Probe(one, ""))
    assert (finding.state, finding.found) == ("wrong", "asked for 4, got 1")


def test_virtual_devices_are_tried_without_the_user_s_number() -> None:
    flags = "--xla_a=1 --xla_force_host_platform_device_count=3 --xla_b"
    env = without_device_count({"XLA_FLAGS": flags, "JAX_NUM_CPU_DEVICES": "3", "A": "b"})
    assert (env["XLA_FLAGS"].split(), env["A"]) == (["--xla_a=1", "--xla_b"], "b")
    assert "JAX_NUM_CPU_DEVICES" not in env


# --- files ----------------------------------------------------------------------------------------


def test_data_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert check_data()[0].state == "ok"
    monkeypatch.setattr(doctor, "data_folder", lambda kind: tmp_path)
    (finding,) = check_data()
    assert (finding.state, finding.found) == ("wrong", "missing: flags, meshes")

    def none(kind: str) -> Path:
        raise FileNotFoundError(f"the {kind} folder is nowhere")

    monkeypatch.setattr(doctor, "data_folder", none)
    assert check_data()[0].found == "the flags folder is nowhere"


def test_files_of_the_package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(jaxbench, "__file__", str(tmp_path / "__init__.py"))
    assert "payload/sleep.cc" in check_data()[0].found


def test_results_folder(tmp_path: Path) -> None:
    assert check_results(str(tmp_path / "new" / "folder"))[0].state == "ok"
    assert list(tmp_path.iterdir()) == []
    (finding,) = check_results("/proc/results")
    assert finding.state == "wrong" and "--out" in finding.remedy
