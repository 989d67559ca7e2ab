"""A job's traffic on the links that its flows take, and how it fares there alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from jaxbench.costs.links import Floats, Ints, Links
from jaxbench.costs.max_min import SLACK
from jaxbench.costs.routing import Flows, adaptive_capacity, route
from jaxbench.readings.jobs.flows import RankFlows
from jaxbench.readings.jobs.profile import Phase, TrafficProfile
from jaxbench.readings.jobs.rates import RoutedPhase
from jaxbench.topology.placement import Placement


@dataclass(frozen=True)
class RoutedJob:
    """A job's step on the network when it is alone: the phases take what they take then.

    Where a job's own flows overload a link (two on one hashed link, say), `isolated_s` is more than
    the `predicted_s` of its profile.
    """

    phases: tuple[RoutedPhase, ...]
    predicted_s: float

    @property
    def isolated_s(self) -> float:
        """Seconds of a step alone on the network."""
        return sum(phase.isolated_s for phase in self.phases)


def route_job(
    profile: TrafficProfile, placement: Placement, links: Links | None, adaptive: bool, seed: int
) -> RoutedJob:
    """Route the flows of every phase; without links (no network) nothing is shared."""
    phases = []
    for phase in profile.phases:
        link, Bps = _NO_LINKS, _NO_LOADS
        if links is not None and phase.transfer_s > 0 and len(phase.flows.source):
            link, load = route(flows_of(phase.flows, placement), links, seed)
            Bps = load / phase.transfer_s
        phases.append(_alone(phase, link, Bps, links, adaptive))
    return RoutedJob(tuple(phases), profile.step_s)


def flows_of(flows: RankFlows, placement: Placement) -> Flows:
    """Return flows between nodes from flows between the ranks that are on them."""
    return Flows(
        placement.node[flows.source],
        placement.local[flows.source],
        placement.node[flows.target],
        placement.local[flows.target],
        flows.amount,
        flows.rails,
        flows.outside,
    )


def _alone(
    phase: Phase, link: Ints, Bps: Floats, links: Links | None, adaptive: bool
) -> RoutedPhase:
    """Return the phase as fast as the links let it be when nothing else uses them."""
    if links is None or not len(link):
        return RoutedPhase(phase.fixed_s, phase.transfer_s, phase.latency_s, link, Bps, 1.0)
    transfer_s = phase.transfer_s
    while True:  # what adaptive routing lends depends on what is wanted
        capacity = _lent(link, Bps, links) if adaptive else links.capacity_Bps[link]
        fullest = float((Bps / capacity).max())
        if fullest <= 1 + SLACK:
            break
        transfer_s, Bps = transfer_s * fullest, Bps / fullest
    cards = link < links.starts[2]
    flow = Bps[cards].max() if cards.any() else Bps.max()
    return RoutedPhase(phase.fixed_s, transfer_s, phase.latency_s, link, Bps, float(flow))


def _lent(link: Ints, Bps: Floats, links: Links) -> Floats:
    """Return what adaptive routing lets pass on each of `link` if nobody else wants anything."""
    wanted = np.zeros(links.count)
    wanted[link] = Bps
    capacity = links.capacity_Bps.copy()
    table, between = (links.groups, links.groups), links.global_links
    lent = adaptive_capacity(wanted[between].reshape(table), capacity[between].reshape(table))
    capacity[between] = lent.ravel()
    return capacity[link]


def used_links(job: RoutedJob) -> Ints:
    """Return the links that a job uses in any phase, rising."""
    return np.unique(np.concatenate([_NO_LINKS, *(phase.link for phase in job.phases)]))


def contended(jobs: Sequence[RoutedJob], capacity_Bps: Floats) -> Ints:
    """Return the links that could be full if all jobs were in their worst phase at once."""
    worst = np.zeros(len(capacity_Bps))
    for job in jobs:
        own = np.zeros(len(capacity_Bps))
        for phase in job.phases:
            own[phase.link] = np.maximum(own[phase.link], phase.Bps)
        worst += own
    return np.flatnonzero(worst > capacity_Bps * (1 + SLACK))


_NO_LINKS: Ints = np.empty(0, np.int64)
_NO_LOADS: Floats = np.empty(0)
