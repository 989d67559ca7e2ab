"""The algorithms of every kind of collective, and the cheapest of them.

`auto` chooses among those that the library has, as it would itself.
"""

from __future__ import annotations

from dataclasses import replace

from jaxbench.costs.interface import Cost
from jaxbench.costs.message_ways import (
    bruck_all_to_all,
    pairwise_all_to_all,
    point_to_point_permute,
)
from jaxbench.costs.node_and_net_ways import (
    hierarchical_all_reduce,
    hierarchical_gather,
    nvls_all_reduce,
    sharp_all_reduce,
)
from jaxbench.costs.priced import Way
from jaxbench.costs.protocols import Library
from jaxbench.costs.reach import Reach
from jaxbench.costs.ring_and_tree_ways import ring_all_reduce, ring_gather, tree_all_reduce
from jaxbench.costs.torus_ways import (
    torus_all_reduce,
    torus_all_to_all,
    torus_gather,
    torus_permute,
)

_GATHERS: dict[str, Way] = {
    "ring": ring_gather,
    "hierarchical": hierarchical_gather,
    "torus": torus_gather,
}

ALGORITHMS: dict[str, dict[str, Way]] = {
    "all_reduce": {
        "ring": ring_all_reduce,
        "tree": tree_all_reduce,
        "nvls": nvls_all_reduce,
        "sharp": sharp_all_reduce,
        "hierarchical": hierarchical_all_reduce,
        "torus": torus_all_reduce,
    },
    "all_gather": _GATHERS,
    "reduce_scatter": _GATHERS,
    "all_to_all": {
        "pairwise": pairwise_all_to_all,
        "bruck": bruck_all_to_all,
        "torus": torus_all_to_all,
    },
    "permute": {"point_to_point": point_to_point_permute, "torus": torus_permute},
}

NAMES: tuple[str, ...] = ("auto", *dict.fromkeys(n for ways in ALGORITHMS.values() for n in ways))

NOTHING = Cost(0.0, 0.0, "none", "latency")  # one rank has nobody to communicate with


def cheapest(kind: str, nbytes: float, reach: Reach, library: Library, algorithm: str) -> Cost:
    """Return the cost of `algorithm`, or for 'auto' of the cheapest one that the library has.

    Where this kind or this group of ranks doesn't have the algorithm it is the cheapest too, and
    the cost says so. An algorithm that the library doesn't have can be named all the same.
    """
    if reach.shape.ranks == 1 or reach.shape.tier == "self":
        return NOTHING
    ways = ALGORITHMS[kind]
    if algorithm in ways:
        named = list(ways[algorithm](nbytes, reach, library))
        if named:
            return _least(named)
    own = [name for name in ways if not library.algorithms or name in library.algorithms]
    best = _least([cost for name in own for cost in ways[name](nbytes, reach, library)])
    if algorithm == "auto":
        return best
    return replace(best, algorithm=f"{best.algorithm} (no {algorithm})")


def name_of(algorithm: str) -> str:
    """Return the entry of ALGORITHMS in a cost's `algorithm`: 'ring' of 'ring/LL128 (no tree)'."""
    return algorithm.partition(" ")[0].partition("/")[0]


def _least(costs: list[Cost]) -> Cost:
    return min(costs, key=lambda cost: cost.seconds)
