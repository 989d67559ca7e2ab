"""Where files are: `flags/` and `meshes/`, which travel with the package, and the user's cache.

A wheel holds them at `jaxbench/_data/`; a checkout, and an editable install of it,
has them beside the package. Nothing else in jaxbench knows about the two places.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent


def data_folder(kind: str) -> Path:
    """Return the folder of `kind` ('flags' or 'meshes').

    Raises FileNotFoundError, naming both places, where the installation is incomplete.
    """
    installed = _PACKAGE / "_data" / kind
    checkout = _PACKAGE.parent / kind
    if installed.is_dir():
        return installed
    # Beside an installed package anything may be called `flags`: only a checkout has a pyproject.
    if checkout.is_dir() and (_PACKAGE.parent / "pyproject.toml").is_file():
        return checkout
    raise FileNotFoundError(f"the {kind} folder is neither at {installed} nor at {checkout}")


def data_names(kind: str, suffix: str) -> list[str]:
    """Return the names, without `suffix`, of the files of a kind, sorted."""
    return sorted(path.stem for path in data_folder(kind).glob(f"*{suffix}"))


def cache_folder(env: Mapping[str, str] = os.environ) -> Path:
    """Return the folder of what is built once: JAXBENCH_CACHE, else jaxbench in the user's cache.

    RuntimeError where the user has no home.
    """
    if own := env.get("JAXBENCH_CACHE"):
        return Path(own)
    base = env.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "jaxbench"
