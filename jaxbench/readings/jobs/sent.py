"""What a step sends over the network in all, by class: collectives that load the same links."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jax.extend.core import ClosedJaxpr

from jaxbench.costs.interface import Costs
from jaxbench.costs.links import Floats, Ints
from jaxbench.readings.jobs.flows import RankFlows, collective_flows, join
from jaxbench.readings.jobs.slowed import crosses
from jaxbench.readings.ranks import Ranks
from jaxbench.readings.simulate import Use
from jaxbench.readings.sites import find_sites
from jaxbench.readings.walker import Path
from jaxbench.topology.placement import Placement


@dataclass(frozen=True, eq=False)
class Sent:
    """`classes` has the bytes of a whole step, `class_of` the class of the collectives at a path.

    `crossing` ([R] by path) tells whose group leaves its domain there, `transfer_s` ([R]) how long
    each rank transfers over the network in a step.
    """

    classes: tuple[RankFlows, ...]
    class_of: Mapping[Path, int]
    transfer_of: Mapping[Path, Floats]
    latency_of: Mapping[Path, Floats]
    transfer_s: Floats


def find_sent(
    closed: ClosedJaxpr, ranks: Ranks, costs: Costs, placement: Placement, uses: Sequence[Use]
) -> Sent:
    """Find the traffic of all collectives that a simulation used."""
    pairs = {
        site.path: np.array(site.pairs)
        for site in find_sites(closed, ranks)
        if site.kind == "permute" and site.pairs
    }
    parts: dict[tuple[object, ...], list[RankFlows]] = {}
    keys: dict[Path, tuple[object, ...]] = {}
    transfer_of: dict[Path, Floats] = {}
    latency_of: dict[Path, Floats] = {}
    transfer_s = np.zeros(ranks.count)
    for use in uses:
        groups: Ints = pairs[use.path] if use.kind == "permute" else ranks.groups(use.axes)
        leaves = crosses(groups, placement.domain)
        if not leaves.any():
            continue
        answer = costs.collective(use.kind, use.nbytes, use.dtype, groups, use.axes)
        algorithms = [answer.costs[number].algorithm for number in answer.which]
        nbytes = use.nbytes * use.executions[groups[:, 0]].astype(float)
        latency = np.array([c.latency_s for c in answer.costs])[answer.which] * leaves
        transfer = answer.seconds * leaves - latency
        for table, seconds in ((transfer_of, transfer), (latency_of, latency)):
            longest = table.setdefault(use.path, np.zeros(ranks.count))
            np.maximum.at(longest, groups, seconds[:, None])
        transfer_s += transfer_of[use.path] * use.executions
        key = (use.kind, use.axes, groups.tobytes(), tuple(algorithms))
        keys.setdefault(use.path, key)
        flows = collective_flows(
            use.kind, algorithms, groups, nbytes, placement.domain, placement.leaf
        )
        parts.setdefault(keys[use.path], []).append(flows)
    number = {key: n for n, key in enumerate(parts)}
    return Sent(
        classes=tuple(join(some) for some in parts.values()),
        class_of={path: number[key] for path, key in keys.items()},
        transfer_of=transfer_of,
        latency_of=latency_of,
        transfer_s=transfer_s,
    )
