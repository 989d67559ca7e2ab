"""What --fits names: files of measured fits, each for all collectives or for a tier's."""

from __future__ import annotations

from typing import Any

from jaxbench.errors import InputError


def read_fits_flag(text: str) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """Read 'FILE' or 'node:FILE,global:FILE'; return documents by tier ('': all), and faults."""
    from jaxbench.measure.collectives.fit_file import read_fits

    fits: dict[str, dict[str, Any]] = {}
    faults: list[str] = []
    for part in filter(None, text.split(",")):
        tier, colon, path = part.partition(":")
        try:
            fits[tier if colon else ""] = read_fits(path if colon else part)
        except InputError as error:
            faults += error.faults
    return fits, faults
