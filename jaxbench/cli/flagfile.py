"""Flagfiles: one flag per line, as absl has them, found from any folder.

Blank lines and lines that start with # or // are comments; a line --flagfile=other.flags
stands for that file's lines. A name that isn't a file where it says, such as
flags/quickstart.flags, is looked for among the files that come with jaxbench.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from jaxbench.axes import parse_mesh
from jaxbench.cli.flags import Parsed, parse_words, split_flagfiles
from jaxbench.data import data_folder, data_names
from jaxbench.errors import InputError, unknown

SUFFIX = ".flags"


def find_flagfile(name: str, folder: Path | None = None) -> Path | None:
    """Return the file that a --flagfile names: in `folder` (default: the current one), else ours.

    None if there is neither.
    """
    path = (folder or Path()) / Path(name).expanduser()
    if path.exists():
        return path
    given = Path(name)
    if given.parent in (Path("flags"), Path()):
        ours = data_folder("flags") / given.name
        return ours if ours.is_file() else None
    return None


def read_flagfile(name: str, folder: Path | None = None, outer: Sequence[Path] = ()) -> Parsed:
    """Read a flagfile and the files it names; `outer` are the files it is read from.

    Raises InputError if a file can't be had; what is wrong inside is in the result.
    """
    path = (find_flagfile(name, folder) or find_flagfile(name)) if name else None
    if path is None:
        known = [f"flags/{stem}{SUFFIX}" for stem in data_names("flags", SUFFIX)]
        raise InputError(unknown("flagfile", name, known))
    if path.resolve() in outer:
        raise InputError(f"flagfile '{name}' includes itself")
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it isn't text"
        raise InputError(f"can't read flagfile '{name}': {reason}") from error
    values: dict[str, str] = {}
    faults: list[str] = []
    for number, line in enumerate(lines, start=1):
        word = line.strip()
        if not word or word.startswith(("#", "//")):
            continue
        words, inner = split_flagfiles([word])
        parsed = [parse_words(words, where=f"{name} line {number}: ")]
        parsed += [read_flagfile(file, path.parent, (*outer, path.resolve())) for file in inner]
        for read in parsed:
            values.update(read.values)
            faults += read.faults
    return Parsed(values, faults)


def read_run(name: str) -> Parsed:
    """Read the flagfile of one of --runs: a name in flags/, or the path of a .flags file."""
    if name.endswith(SUFFIX):
        read = read_flagfile(name)
    elif name in data_names("flags", SUFFIX):
        read = read_flagfile(f"{data_folder('flags') / name}{SUFFIX}")
    else:
        raise InputError(unknown("run", name, data_names("flags", SUFFIX)))
    if "runs" in read.values:
        raise InputError(f"run '{name}' has --runs itself; name the runs it stands for")
    return read


def override(*layers: Mapping[str, str]) -> dict[str, str]:
    """Merge flag values, the weakest layer first.

    A mesh that says all (it has `data`) replaces a weaker layer's mesh and devices, a system
    replaces a weaker layer's hardware: it has its own.
    """
    merged: dict[str, str] = {}
    for layer in layers:
        if layer.get("system") and "hardware" not in layer:
            merged.pop("hardware", None)
        if "data" in parse_mesh(layer.get("mesh", ""))[0] and "devices" not in layer:
            merged.pop("devices", None)
        merged.update(layer)
    return merged
