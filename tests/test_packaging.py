"""What is installed works from any folder: as a wheel, from the sdist, and editable."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest

import jaxbench

pytestmark = pytest.mark.xdist_group("packaging")  # one process builds what all look at

ROOT = Path(__file__).resolve().parent.parent
PYPROJECT = ROOT / "pyproject.toml"

# What a distributor has beside the package: how it is used, how it is tested, and what it says.
BESIDE = ("docs", "examples", "scripts", "tests")
FILES = (
    "pyproject.toml",
    "MANIFEST.in",
    "README.md",
    "LICENSE",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
)

BUILD = "from setuptools import build_meta as b; b.build_wheel('dist'); b.build_sdist('dist')"


def call(*command: str | Path, cwd: Path) -> str:
    """Run a command in a folder and return its output."""
    # A checkout on PYTHONPATH would stand before what is installed.
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    env["JAX_PLATFORMS"] = "cpu"
    done = subprocess.run(
        [str(word) for word in command], cwd=cwd, env=env, capture_output=True, text=True
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of the project, with wheel and sdist built in `dist/`."""
    copy = tmp_path_factory.mktemp("project")
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
    for name in ("jaxbench", "flags", "meshes", *BESIDE):
        shutil.copytree(ROOT / name, copy / name, ignore=ignored)
    for name in FILES:
        shutil.copy(ROOT / name, copy)
    call(sys.executable, "-c", BUILD, cwd=copy)
    return copy


def ours(project: Path) -> set[str]:
    """Return the files that an installed package should have, as paths in it."""
    found = {
        str(path.relative_to(project))
        for path in (project / "jaxbench").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    for kind in ("flags", "meshes"):
        found |= {f"jaxbench/_data/{kind}/{path.name}" for path in (project / kind).iterdir()}
    return found


def test_every_package_is_listed() -> None:
    listed = tomllib.loads(PYPROJECT.read_text())["tool"]["setuptools"]["packages"]
    folders = {
        ".".join(path.parent.relative_to(ROOT).parts) for path in (ROOT / "jaxbench").rglob("*.py")
    }
    assert sorted(listed) == sorted({*folders, "jaxbench._data.flags", "jaxbench._data.meshes"})


def test_the_wheel_has_every_file_and_no_other(project: Path) -> None:
    (wheel,) = (project / "dist").glob("*.whl")
    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert names == ours(project)


def test_the_sdist_has_every_file(project: Path) -> None:
    (sdist,) = (project / "dist").glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert names >= {name.replace("jaxbench/_data/", "") for name in ours(project)}
    beside = (path for folder in BESIDE for path in (project / folder).rglob("*") if path.is_file())
    assert names >= {*FILES, *(str(path.relative_to(project)) for path in beside)}
    assert not [name for name in names if "__pycache__" in name]


@pytest.mark.parametrize("form", ["wheel", "sdist", "editable"])
def test_it_works_from_another_folder(project: Path, tmp_path: Path, form: str) -> None:
    place, elsewhere = tmp_path / "venv", tmp_path / "elsewhere"
    elsewhere.mkdir()
    venv.create(place, with_pip=False, symlinks=True)
    python, command = place / "bin" / "python", place / "bin" / "jaxbench"
    site = next((place / "lib").glob("python*")) / "site-packages"
    # What jaxbench needs is taken from here; the environment's own packages come first.
    (site / "needed.pth").write_text(sysconfig.get_path("purelib") + "\n")
    target = {
        "wheel": [next((project / "dist").glob("*.whl"))],
        "sdist": [next((project / "dist").glob("*.tar.gz"))],
        "editable": ["--editable", project],
    }[form]
    pip = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet"]
    call(*pip, "--no-index", "--no-deps", "--no-build-isolation", *target, cwd=elsewhere)

    where = Path(call(python, "-c", "import jaxbench; print(jaxbench.__file__)", cwd=elsewhere))
    assert where.is_relative_to(project if form == "editable" else place)
    assert f"jaxbench {jaxbench.__version__}" in call(command, "--help", cwd=elsewhere)
    plan = call(command, "plan", "--flagfile=flags/tiny_dp.flags", "--format=json", cwd=elsewhere)
    assert json.loads(plan)
    system = ["plan", "--flagfile=flags/tiny_dp.flags", "--system=dgx_a100"]
    assert call(python, "-m", "jaxbench", *system, cwd=elsewhere)
