"""The places in a program where it communicates: what is there once, however often it runs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr

from jaxbench.jaxprs import Equation, bodies
from jaxbench.readings.ranks import Ranks
from jaxbench.readings.walker import Path

KINDS = {
    "psum": "all_reduce",
    "psum_invariant": "all_reduce",
    "pmax": "all_reduce",
    "pmin": "all_reduce",
    "all_gather": "all_gather",
    "all_gather_invariant": "all_gather",
    "reduce_scatter": "reduce_scatter",
    "all_to_all": "all_to_all",
    "ppermute": "permute",
}

Groups = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Site:
    """One collective of the program text.

    `elements` by kind: all_reduce and reduce_scatter the operand, all_gather the result,
    all_to_all a rank's buffer, permute the message. `groups` lists the ranks of every group in
    order, `pairs` (permutes only) every (source, destination) of the mesh. `trips` is the product
    of the loop lengths around it (None under a loop of unknown length), `conditional` whether any
    conditional is around it.
    """

    path: Path
    kind: str
    label: str
    axes: tuple[str, ...]
    elements: int
    dtype: str
    groups: Groups
    pairs: tuple[tuple[int, int], ...]
    trips: int | None
    conditional: bool

    @property
    def group_size(self) -> int:
        """Ranks in a group."""
        return len(self.groups[0])


def find_sites(closed: ClosedJaxpr, ranks: Ranks) -> list[Site]:
    """Return every collective of a program, taken branches or not, in program order."""
    return list(_find(closed.jaxpr, ranks, (), 1, False))


def collective_axes(eqn: Equation) -> tuple[str, ...]:
    """Return the mesh axes of a collective equation, in its order."""
    axes = eqn.params.get("axes", eqn.params.get("axis_name"))
    return (axes,) if isinstance(axes, str) else tuple(axes)


def _find(
    jaxpr: Jaxpr, ranks: Ranks, path: Path, trips: int | None, conditional: bool
) -> Iterator[Site]:
    for number, eqn in enumerate(jaxpr.eqns):
        here = (*path, number)
        name = eqn.primitive.name
        if name in KINDS:
            yield from _sites_of(eqn, ranks, here, trips, conditional)
        elif name == "scan":
            inner = None if trips is None else trips * eqn.params["length"]
            yield from _find(_open(eqn.params["jaxpr"]), ranks, here, inner, conditional)
        elif name == "while":
            yield from _find(_open(eqn.params["body_jaxpr"]), ranks, here, None, conditional)
        elif name == "cond":
            for branch, body in enumerate(eqn.params["branches"]):
                yield from _find(_open(body), ranks, (*here, branch), trips, True)
        else:
            for body in bodies(eqn):
                yield from _find(body, ranks, here, trips, conditional)


def _sites_of(
    eqn: Equation, ranks: Ranks, path: Path, trips: int | None, conditional: bool
) -> Iterator[Site]:
    kind, axes = KINDS[eqn.primitive.name], collective_axes(eqn)
    groups = ranks.groups(axes)
    pairs: tuple[tuple[int, int], ...] = ()
    if kind == "permute":
        sources = ranks.sources(axes[0], eqn.params["perm"])
        pairs = tuple(sorted((int(s), int(d)) for d, s in enumerate(sources) if s >= 0))
    label = str(eqn.source_info.name_stack).rsplit("/", 1)[-1] or eqn.primitive.name
    counted = eqn.outvars if kind == "all_gather" else eqn.invars
    for variable in counted:
        yield Site(
            path=path,
            kind=kind,
            label=label,
            axes=axes,
            elements=int(np.prod(variable.aval.shape, dtype=object)),
            dtype=str(variable.aval.dtype),
            groups=tuple(map(tuple, groups.tolist())),
            pairs=pairs,
            trips=trips,
            conditional=conditional,
        )


def _open(body: Any) -> Jaxpr:
    return body.jaxpr if isinstance(body, ClosedJaxpr) else body
