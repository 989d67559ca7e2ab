"""The costs of collectives from what was measured: a file that `jaxbench collectives --fit` wrote.

costs = FittedCosts(read_fits("fits.json"), (("data", 2), ("tensor", 4)))
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from jaxbench.costs.fitted_series import Series, read_series
from jaxbench.costs.interface import Cost, GroupCosts
from jaxbench.errors import InputError


class FittedCosts:
    """Costs that don't know of links: all groups of a collective take what was measured nearest.

    `document` is a parsed file of fits, `mesh` has the axes of the program with their sizes. Of
    the series of a kind the one is taken whose group size is nearest, then the one over the same
    axis, then the nearest number of groups at once, then the same dtype.
    Errors: InputError with everything that is wrong in the document; when a kind is asked for that
    wasn't measured, InputError with what was.
    """

    def __init__(self, document: Mapping[str, Any], mesh: Iterable[tuple[str, int]]):
        self.mesh = dict(mesh)
        fits = document.get("fits")
        if not isinstance(fits, list) or not all(isinstance(fit, dict) for fit in fits):
            raise InputError("a file of fits must have a list of objects called 'fits'")
        read = [read_series(fit, f"fit {number}") for number, fit in enumerate(fits, start=1)]
        faults = [fault for _, found in read for fault in found]
        if faults:
            raise InputError(faults)
        self.series = tuple(series for series, _ in read if series)
        self._nearest: dict[tuple[Any, ...], list[Series]] = {}

    def missing(self, kinds: Iterable[str]) -> list[str]:
        """Return a fault for each of `kinds` that wasn't measured, with what was."""
        measured = {series.kind for series in self.series}
        known = "; ".join(series.describe() for series in self.series) or "nothing"
        return [
            f"the fits have no {kind}, but {known}; measure it with "
            f"jaxbench collectives --kinds={kind} --fit=FILE"
            for kind in dict.fromkeys(kinds)
            if kind not in measured
        ]

    def collective(
        self, kind: str, nbytes: float, dtype: str, groups: np.ndarray, axes: tuple[str, ...]
    ) -> GroupCosts:
        """Return the same cost for each of `groups`; one rank alone costs nothing."""
        size, count = self._sizes(kind, groups, axes)
        which = np.zeros(len(groups), np.int64)
        if size == 1:
            return GroupCosts((Cost(0.0, 0.0, "none", "measured"),), which)
        key = (kind, size, count, "+".join(axes), dtype)
        if key not in self._nearest:
            self._nearest[key] = self._find(*key)
        found = self._nearest[key]
        counts = [series.groups for series in found]
        seconds = float(np.interp(count, counts, [series.seconds(nbytes) for series in found]))
        base_s = float(np.interp(count, counts, [series.base_s for series in found]))
        name = "measured"
        if found[0].group_size != size:
            name = f"measured over {found[0].group_size} ranks"
        return GroupCosts((Cost(seconds, min(base_s, seconds), name, "measured"),), which)

    def _sizes(self, kind: str, groups: np.ndarray, axes: tuple[str, ...]) -> tuple[int, int]:
        """Return the ranks of a group and how many communicate at once.

        A permute's pairs don't tell, so the axes do.
        """
        if kind != "permute":
            return groups.shape[1], len(groups)
        size = math.prod(self.mesh[axis] for axis in axes)
        return size, math.prod(self.mesh.values()) // size

    def _find(self, kind: str, size: int, count: int, axis: str, dtype: str) -> list[Series]:
        """Return the nearest series, and those that differ from it in the number of groups."""
        of_kind = [series for series in self.series if series.kind == kind]
        if not of_kind:
            raise InputError(self.missing([kind]))

        def distance(series: Series) -> tuple[float, ...]:
            return (
                abs(math.log(series.group_size / size)),
                series.axis != axis,
                abs(math.log(series.groups / count)),
                series.dtype != dtype,
            )

        nearest = min(of_kind, key=distance)
        same = nearest.group_size, nearest.axis, nearest.dtype
        alike = {
            series.groups: series
            for series in of_kind
            if (series.group_size, series.axis, series.dtype) == same
        }
        return [alike[groups] for groups in sorted(alike)]
