"""All kinds of collectives on a torus."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from jaxbench.costs import torus
from jaxbench.costs.interface import Cost
from jaxbench.costs.priced import priced
from jaxbench.costs.protocols import Library
from jaxbench.costs.reach import Reach
from jaxbench.costs.terms import Terms


def torus_all_reduce(nbytes: float, reach: Reach, library: Library) -> Iterator[Cost]:
    """Rings over the dimensions that the group spans."""
    yield from _torus(torus.all_reduce, nbytes, reach)


def torus_gather(nbytes: float, reach: Reach, library: Library) -> Iterator[Cost]:
    """Rings over the dimensions that the group spans."""
    yield from _torus(torus.gather, nbytes, reach)


def torus_all_to_all(nbytes: float, reach: Reach, library: Library) -> Iterator[Cost]:
    """Along one dimension after the other."""
    yield from _torus(torus.all_to_all, nbytes, reach)


def _torus(
    formula: Callable[[torus.Box, float, float, float], Terms], nbytes: float, reach: Reach
) -> Iterator[Cost]:
    if reach.on_torus:
        # A group that is no box is laid out as a line, with the links between its ranks shared.
        box = reach.box or (torus.Side(reach.shape.ranks, reach.shape.hops, False),)
        terms = formula(box, nbytes, reach.latencies.node_s, reach.node_Bps)
        yield priced("torus", None, 0.0, terms, "node")


def torus_permute(nbytes: float, reach: Reach, library: Library) -> Iterator[Cost]:
    """A message over the links in between, which others use as well."""
    if reach.on_torus:
        terms = torus.send(reach.shape.hops, nbytes, reach.latencies.node_s, reach.node_Bps)
        yield priced("torus", None, 0.0, terms, "node")
