"""The two ways a command ends badly, and the wording of an unknown name."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence


class InputError(Exception):
    """Everything that is wrong with what the user gave, told at once; exit code 2.

    `faults` holds one sentence each: what was given, what is allowed, what to do.
    """

    def __init__(self, faults: Sequence[str] | str):
        self.faults = (faults,) if isinstance(faults, str) else tuple(faults)
        super().__init__("; ".join(self.faults))


class RunError(Exception):
    """A run that was well asked for and failed (a check, a device, a compiler); exit code 1."""


def unknown(what: str, name: str, known: Iterable[str]) -> str:
    """Return "unknown strategy 'fdsp'; did you mean 'fsdp'? known: dp, ..."."""
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=1)
    hint = f" did you mean '{near[0]}'?" if near else ""
    return f"unknown {what} '{name}';{hint} known: {', '.join(names)}"
