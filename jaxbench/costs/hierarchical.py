"""Hierarchical: inside the nodes first, then between nodes on a part of the vector per rank.

The phases follow each other. With g ranks on each node, every rank of a node takes part in one
collective between nodes, over its own network card.
"""

from __future__ import annotations

from jaxbench.costs.terms import Terms, in_turn


def all_reduce(inside: Terms, between: Terms) -> Terms:
    """Reduce-scatter `inside`, all-reduce of 1/g of the vector `between` nodes, all-gather inside.

    `inside` is a reduce-scatter (as long as an all-gather) of the vector over the g ranks of a
    node, `between` an all-reduce of S/g over the nodes.
    """
    return in_turn(inside, between, inside)


def gather(inside: Terms, between: Terms) -> Terms:
    """All-gather (reduce-scatter: the other way round): S/g `between` nodes, S `inside`."""
    return in_turn(between, inside)
