"""The reach of every group of a collective, of which only the different ones are kept."""

from __future__ import annotations

import math

import numpy as np

from jaxbench.catalog.systems import System
from jaxbench.costs.reach import Latencies, Reach
from jaxbench.costs.sharing import BOUNDS, Shares, Sharing
from jaxbench.costs.switch_rates import MOST_RANKS, switch_Bps
from jaxbench.costs.torus_box import boxes_of
from jaxbench.topology.placement import Placement
from jaxbench.topology.shape import Shape

DIGITS = 10  # to which rates that differ by rounding only are the same


class Reaches:
    """The links of `system` as the groups of ranks of a job on it see them."""

    def __init__(self, system: System, placement: Placement):
        self.system = system
        self.placement = placement
        network = system.network
        self.sharing = network and Sharing(network, system.devices_per_node, placement)
        known = [0.0]  # a latency that isn't given is that of the next tier inside
        for tier in ("leaf", "group", "global"):
            known.append(getattr(network, f"{tier}_latency_s", None) or known[-1])
        self.latencies = Latencies(system.node.latency_s, *known[1:])

    def of(self, kind: str, groups: np.ndarray) -> tuple[np.ndarray, tuple[Reach, ...]]:
        """Return which reach each of `groups` ([G, n]; a permute's pairs) has, [G], and those."""
        if not len(groups):
            return np.zeros(0, np.int64), ()
        which, shapes = self.placement.shapes(groups)
        columns = [which, self._sharers(kind, groups)]
        boxes: list[tuple] = [()]
        if self.placement.torus is not None and kind != "permute":
            box, boxes = boxes_of(groups, self.placement.torus)
            columns.append(box)
        else:
            columns.append(np.zeros(len(groups), np.int64))
        several = np.array([shape.nodes > 1 for shape in shapes])[which]
        beyond = self._beyond(kind, groups, several)
        rows, of_row = _different_rows([*columns, *beyond])
        # The messages of a permute are one collective, of all nodes they go to and from.
        all_nodes = len(np.unique(self.placement.domain[groups])) if kind == "permute" else None
        reaches = tuple(
            self._reach(shapes[int(row[0])], int(row[1]), boxes[int(row[2])], row[3:], all_nodes)
            for row in rows
        )
        return of_row, reaches

    def _sharers(self, kind: str, groups: np.ndarray) -> np.ndarray:
        """Return, for each group, how many ranks use the memory of its nodes at once; else 1."""
        if self.system.node.kind != "memory":
            return np.ones(len(groups), np.int64)
        users = groups[:, :1] if kind == "permute" else groups  # a message is copied once
        active = np.bincount(self.placement.domain[users.ravel()], minlength=self._domains)
        return active[self.placement.domain[groups]].max(axis=1)

    @property
    def _domains(self) -> int:
        return int(self.placement.domain.max()) + 1

    def _beyond(self, kind: str, groups: np.ndarray, several: np.ndarray) -> list[np.ndarray]:
        """Return what each group has beyond its nodes: 5 columns, see `_reach`."""
        count = len(groups)
        fewest = np.full(count, groups.shape[1], np.int64)
        rates = np.zeros((2, count))
        bounds = np.zeros((2, count), np.int64)
        if self.sharing and several.any():
            crossing = groups[several]

            def put(row: int, shares: Shares) -> None:
                rates[row, several] = _rounded(shares.Bps)
                bounds[row, several] = shares.bound

            if kind == "permute":
                put(0, self.sharing.permute(crossing))
                fewest[several] = 1
            else:
                shares, fewest[several] = self.sharing.ring(crossing)
                put(0, shares)
                if kind == "all_to_all":
                    put(1, self.sharing.all_to_all(crossing))
        return [fewest, rates[0], bounds[0], rates[1], bounds[1]]

    def _reach(
        self, shape: Shape, sharers: int, box: tuple, beyond: np.ndarray, all_nodes: int | None
    ) -> Reach:
        node, network = self.system.node, self.system.network
        fewest, ring, ring_bound, spread, spread_bound = beyond
        net: dict = {}
        if shape.nodes > 1 and network and self.sharing:
            left = loss(network.loss, all_nodes or shape.nodes)
            reached = network.efficiency * left
            net["net_Bps"] = float(ring) * reached
            net["net_bound"] = BOUNDS[int(ring_bound)]
            net["net_reduces"] = network.in_switch
            if spread:  # an all-to-all
                net["spread_Bps"] = float(spread) * reached
                net["spread_bound"] = BOUNDS[int(spread_bound)]
        least = int(fewest)
        return Reach(
            shape=shape,
            latencies=self.latencies,
            least=least,
            node_Bps=self._node_Bps(max(2, least)) / sharers,
            switch_Bps=self._switch_Bps(shape),
            torus=node.kind == "torus",
            box=box,
            **net,
        )

    def _node_Bps(self, ranks: int) -> float:
        """Return what a rank reaches to the others of `ranks` on its node together."""
        node = self.system.node
        if node.kind == "torus":
            return (node.peer_Bps or math.inf) * node.efficiency  # one link
        peers = math.inf if node.peer_Bps is None else (ranks - 1) * node.peer_Bps
        return min(node.device_Bps, peers) * node.efficiency

    def _switch_Bps(self, shape: Shape) -> float | None:
        """Return the rate of reductions in a node's switches, None where there are none."""
        node = self.system.node
        if not node.in_switch or not 1 < shape.per_node <= MOST_RANKS:
            return None
        return switch_Bps(self.system.hardware, node.device_Bps)


def _different_rows(columns: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Return the different rows of a table given by columns [G], and which each of them is, [G].

    Most columns have one value only, and np.unique is much slower on whole rows.
    """
    key = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        if (column != column[0]).any():
            values, number = np.unique(column, return_inverse=True)
            _, key = np.unique(key * len(values) + number, return_inverse=True)
    _, first = np.unique(key, return_index=True)
    return np.column_stack([column[first] for column in columns]), key


def _rounded(values: np.ndarray) -> np.ndarray:
    mantissa, exponent = np.frexp(values)
    return np.ldexp(np.round(mantissa, DIGITS), exponent)


def loss(measured: tuple[tuple[int, float], ...], nodes: int) -> float:
    """Return the share of bandwidth left on `nodes`: that of the last row not beyond them."""
    left = [share for from_nodes, share in measured if from_nodes <= nodes]
    return left[-1] if left else 1.0
