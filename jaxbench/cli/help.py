"""What --help says about the flags of a subcommand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import MISSING, fields

from jaxbench.cli.flags import COMMAND_FLAGS, FLAGS
from jaxbench.experiment import Experiment


def describe_flags(names: Sequence[str]) -> str:
    """Return a line per flag: its spelling, meaning and default."""
    spelled = {name: f"--[no]{name}" if FLAGS[name].boolean else f"--{name}" for name in names}
    width = max(map(len, spelled.values()))
    defaults = {name: default_text(name) for name in names}
    lines = [
        f"  {spelled[name]:<{width}}  {FLAGS[name].help}"
        + (f" [{defaults[name]}]" if defaults[name] else "")
        for name in names
    ]
    return "\n".join(["flags [default]:", *lines])


def default_text(name: str) -> str:
    """Return the default of a flag as one would type it; '' if there is none."""
    if name in COMMAND_FLAGS:
        return FLAGS[name].default or ""
    value = next(f.default for f in fields(Experiment) if f.name == name)
    if value is MISSING or value is None:
        return ""
    if isinstance(value, tuple):
        return ",".join(value)
    return str(value).lower() if isinstance(value, bool) else str(value)
