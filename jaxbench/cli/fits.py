"""What --fits names: files of measured fits, each for all collectives or for a tier's."""

from __future__ import annotations

from typing import Any

from jaxbench.errors import InputError


def read_fits_flag(text: str) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """Read 'FILE,FILE' or 'node:FILE,global:FILE'; return documents by tier ('': all), and faults.

    Files of one tier are taken together.
    """
    from jaxbench.measure.collectives.fit_file import join_fits, read_fits

    fits: dict[str, dict[str, Any]] = {}
    faults: list[str] = []
    for part in filter(None, text.split(",")):
        before, colon, after = part.partition(":")
        tier, path = (before, after) if colon else ("", part)
        try:
            read = read_fits(path)
            fits[tier] = join_fits(fits[tier], read) if tier in fits else read
        except InputError as error:
            faults += error.faults
    return fits, faults
