"""The facts about where a run was, in one form everywhere."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import jax
import pytest

import jaxbench
from jaxbench.measure import host


def test_the_environment_of_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    devices = jax.devices()[:2]
    monkeypatch.setenv("SLURM_JOB_ID", "17")
    monkeypatch.setenv("XLA_FLAGS", "--xla_a=b")  # XLA has read its own by now
    facts = json.loads(json.dumps(host.environment(devices)))
    assert facts["versions"]["jaxbench"] == jaxbench.__version__
    assert facts["versions"]["jax"] == jax.__version__
    assert facts["platform"] == devices[0].platform
    assert (facts["devices"], facts["processes"]) == (len(devices), 1)
    assert facts["slurm"]["SLURM_JOB_ID"] == "17"
    assert facts["variables"]["XLA_FLAGS"] == "--xla_a=b"
    assert facts["cores"] >= 1 and facts["memory_bytes"] > 2**30


def test_the_processor_s_name(tmp_path: Path) -> None:
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text("processor\t: 0\nmodel name\t: Some CPU @ 3 GHz: fast\n")
    assert host.cpu_model(cpuinfo) == "Some CPU @ 3 GHz: fast"


def test_a_package_that_is_not_there_has_no_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "PACKAGES", ("nonesuch-package",))
    assert host.versions()["nonesuch-package"] is None


def test_the_revision_says_if_files_differ(tmp_path: Path) -> None:
    def git(*words: str) -> None:
        identity = ["-c", "user.name=n", "-c", "user.email=e@example.org"]
        subprocess.run(["git", "-C", str(tmp_path), *identity, *words], check=True)

    assert host.git_revision(tmp_path) is None
    git("init", "-q")
    assert host.git_revision(tmp_path) is None  # no commit yet
    git("commit", "-q", "--allow-empty", "-m", "first")
    clean = host.git_revision(tmp_path)
    assert clean is not None and len(clean) == 40
    (tmp_path / "new").touch()
    assert host.git_revision(tmp_path) == clean + "+"
