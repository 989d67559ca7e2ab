"""What `jaxbench doctor` says: a row per check."""

from __future__ import annotations

from typing import Literal, NamedTuple

State = Literal["ok", "warning", "wrong"]


class Finding(NamedTuple):
    """One check: whether all is well, what was found, and what to do ('' where nothing is)."""

    check: str
    state: State
    found: str
    remedy: str = ""


def worst(check: str, findings: list[Finding], otherwise: str) -> list[Finding]:
    """Return the findings, or that all is well: `otherwise` says what was found then."""
    return findings or [Finding(check, "ok", otherwise)]
