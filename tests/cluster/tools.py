"""What tests with other people's programs share: where they are, and a jaxbench on their PATH."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from pathlib import Path

import pytest

from tests.cluster.cluster import PATH

ROOT = Path(__file__).parents[2]
SCRIPTS = ROOT / "scripts"


def tool(name: str) -> str:
    """Return the path of a program of the extra [cluster]; skip the test without it, fail in CI."""
    beside = Path(sys.executable).with_name(name)
    if found := str(beside) if beside.exists() else shutil.which(name):
        return found
    missing = f"no {name}: pip install 'jaxbench[cluster]'"
    return (pytest.fail if os.environ.get("CI") else pytest.skip)(missing)


def with_jaxbench(folder: Path) -> dict[str, str]:
    """Return the environment of a user with this jaxbench on the PATH, a script in `folder`/bin."""
    command = folder / "bin" / "jaxbench"
    command.parent.mkdir()
    python = f"PYTHONPATH={shlex.quote(str(ROOT))} exec {shlex.quote(sys.executable)}"
    command.write_text(f'#!/bin/sh\n{python} -m jaxbench "$@"\n')
    command.chmod(0o755)
    return {"PATH": f"{command.parent}:{PATH}", "JAX_PLATFORMS": "cpu"}
