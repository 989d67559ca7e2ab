"""The same jobs together on a network, from several seeds: who meets whom, and what comes of it."""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from jaxbench.costs.links import Floats, Ints, Links
from jaxbench.readings.jobs.fluid import Fluid, Start
from jaxbench.readings.jobs.outcome import NEVER_FULL, NO_SHARED_LINK, JobOutcome
from jaxbench.readings.jobs.profile import TrafficProfile
from jaxbench.readings.jobs.rates import Rates
from jaxbench.readings.jobs.routed import RoutedJob, contended, route_job, used_links
from jaxbench.readings.jobs.stall import Stall
from jaxbench.topology.placement import Placement


class Together:
    """Runs jobs from one seed after the other, and keeps what happens to each."""

    def __init__(
        self,
        names: Sequence[str],
        profiles: Sequence[TrafficProfile],
        placements: Sequence[Placement],
        links: Links | None,
        adaptive: bool,
        foreign_load: float,
        stall: Stall | None,
        steps: int,
        most_events: int,
    ):
        self.names = names
        self.profiles, self.placements = profiles, placements
        self.links = links
        self.adaptive = adaptive
        self.stall = stall
        self.steps, self.most_events = steps, most_events
        self.events = 0
        self.capacity_Bps: Floats = np.empty(0)
        if links is not None:
            left = np.where(links.beyond_nodes, 1 - foreign_load, 1.0)
            self.capacity_Bps = links.capacity_Bps * left
        self._routed: list[RoutedJob] = []
        self._isolated_s: list[list[float]] = [[] for _ in names]
        self._slowdowns: list[list[float]] = [[] for _ in names]
        self._whole_steps = [True for _ in names]
        self._delay_s: list[dict[str, float]] = [defaultdict(float) for _ in names]
        self._sharers: list[set[str]] = [set() for _ in names]

    def run(self, seed: int) -> None:
        """Run all jobs from one seed."""
        hashed = self.links is not None and self.links.split
        if hashed or not self._routed:  # else the routes are those of the seed before
            self._routed = [
                route_job(profile, placement, self.links, self.adaptive, seed)
                for profile, placement in zip(self.profiles, self.placements, strict=True)
            ]
        use = [used_links(job) for job in self._routed]
        self._note_sharers(use)
        full = contended(self._routed, self.capacity_Bps)
        lending = self._lending(full)
        full = np.union1d(full, lending)
        for members in connected([np.intersect1d(links, full) for links in use], lending):
            self._run(members, full, lending, seed)

    def outcomes(self) -> tuple[JobOutcome, ...]:
        """Return what happened to each job under all seeds so far."""
        return tuple(self._outcome(number) for number in range(len(self.names)))

    def _outcome(self, number: int) -> JobOutcome:
        link = NEVER_FULL if self._sharers[number] else NO_SHARED_LINK
        if self._delay_s[number]:
            link = max(self._delay_s[number].items(), key=lambda item: item[1])[0]
        return JobOutcome(
            name=self.names[number],
            ranks=self.placements[number].ranks,
            predicted_s=self.profiles[number].step_s,
            isolated_s=float(np.median(self._isolated_s[number])),
            slowdowns=np.array(self._slowdowns[number]),
            whole_steps=self._whole_steps[number],
            link=link,
            sharers=tuple(sorted(self._sharers[number])),
        )

    def _start(self, number: int, seed: int) -> Start:
        key = (seed, zlib.crc32(self.names[number].encode()))  # whoever else there is
        offsets, stalls = (np.random.default_rng((*key, which)) for which in (0, 1))
        return Start(self._routed[number].phases, offsets, self.stall, stalls)

    def _note_sharers(self, use: Sequence[Ints]) -> None:
        jobs = np.repeat(np.arange(len(use)), [len(links) for links in use])
        links = np.concatenate(use) if use else np.empty(0, np.int64)
        for link in np.flatnonzero(np.bincount(links, minlength=1) > 1):
            names = {self.names[number] for number in jobs[links == link]}
            for number in jobs[links == link]:
                self._sharers[number] |= names - {self.names[number]}

    def _lending(self, full: Ints) -> Ints:
        """Return the links between groups, if adaptive routing may lend some; else none."""
        if self.links is None or not self.adaptive:
            return np.empty(0, np.int64)
        between = np.arange(self.links.count)[self.links.global_links]
        return between if np.isin(full, between).any() else between[:0]

    def _run(self, members: Sequence[int], full: Ints, lending: Ints, seed: int) -> None:
        """Run some jobs that no other meets on a link that could be full."""
        phases = [self._routed[number].phases for number in members]
        mine = np.intersect1d(np.concatenate([p.link for job in phases for p in job]), full)
        groups = None
        if np.isin(mine, lending).any():
            mine = np.union1d(mine, lending)
            groups = slice(len(mine) - len(lending), len(mine))  # they have the highest numbers
        rates = Rates(phases, mine, self.capacity_Bps[mine], groups)
        fluid = Fluid([self._start(number, seed) for number in members], rates)
        fluid.run(self.steps, self.most_events * len(members))
        self.events += fluid.events
        for place, number in enumerate(members):
            self._note(number, fluid, place)

    def _note(self, number: int, fluid: Fluid, place: int) -> None:
        run = fluid.runs[place]
        self._isolated_s[number].append(run.isolated_s)
        so_far = None if run.slowdowns else fluid.slowdown_so_far(place)
        if so_far is not None:
            self._whole_steps[number] = False
        self._slowdowns[number] += run.slowdowns if so_far is None else [so_far]
        for link in np.flatnonzero(fluid.delay_s[place]).tolist():
            assert self.links is not None
            name = self.links.bundle(int(fluid.rates.links[link]))
            self._delay_s[number][name] += float(fluid.delay_s[place, link])


def connected(use: Sequence[Ints], lending: Ints) -> list[list[int]]:
    """Return the jobs in sets that don't meet on any of the links that they `use`.

    All jobs that use any of `lending` meet: each of these may carry the traffic of another.
    """
    sets: list[tuple[set[int], set[int]]] = []  # of jobs and of links
    borrowed = set(lending.tolist())
    for number, links in enumerate(use):
        jobs, mine = {number}, set(links.tolist())
        if mine & borrowed:
            mine |= borrowed
        apart = []
        for others, theirs in sets:
            if mine & theirs:
                jobs |= others
                mine |= theirs
            else:
                apart.append((others, theirs))
        sets = [*apart, (jobs, mine)]
    return [sorted(jobs) for jobs, _ in sets]
