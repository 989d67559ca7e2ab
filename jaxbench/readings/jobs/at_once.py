"""Jobs at once on a system: their traffic, each alone and all together, and the slowdowns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from jaxbench.catalog.systems import System
from jaxbench.costs.links import Links
from jaxbench.costs.routing import ROUTINGS
from jaxbench.costs.system_costs import SystemCosts
from jaxbench.errors import InputError, unknown
from jaxbench.experiment import Experiment
from jaxbench.program import Traced, abstract_mesh, trace
from jaxbench.readings.jobs.outcome import JobsOutcome
from jaxbench.readings.jobs.profile import TrafficProfile
from jaxbench.readings.jobs.stall import Stall
from jaxbench.readings.jobs.together import Together
from jaxbench.readings.jobs.traffic import traffic_profile
from jaxbench.readings.plan import build_program
from jaxbench.readings.predict import Prediction
from jaxbench.readings.ranks import Ranks
from jaxbench.readings.simulate import semantics_of
from jaxbench.topology.hierarchy import Topology, of_system
from jaxbench.topology.placement import Placement


@dataclass(frozen=True, eq=False)
class Job:
    """A job on the system: what it runs, and on which devices.

    Of a prediction the program and the semantics are used; its collectives are priced anew where
    the job is placed.
    """

    name: str
    work: Experiment | Prediction | TrafficProfile
    placement: Placement


def simulate_jobs(
    jobs: Sequence[Job],
    system: System,
    *,
    topology: Topology | None = None,
    routing: str = "minimal",
    foreign_load: float = 0.0,
    seeds: Sequence[int] = range(5),
    stall: Stall | None = None,
    steps: int = 1,
    most_events: int = 50,
    algorithm: str = "auto",
    comm_streams: str = "",
) -> JobsOutcome:
    """Run `jobs` at once on `system` and return what that does to their steps.

    `topology` (the system's own if not given) is the one they were placed on. `routing` is one of
    ROUTINGS; `foreign_load` is the share that others take of every link outside of nodes. A seed
    draws where in its step each job is at the start, the hashes of static routing, and stalls;
    with each, all jobs run until every one has done `steps` complete steps, or for `most_events`
    events (phases begun or ended) times the number of jobs: a job of long steps among jobs of short
    ones may then see a part of its step only. `algorithm` and `comm_streams` are those of the
    prediction of one job. Everything that is wrong is told in one InputError.
    """
    topology = of_system(system) if topology is None else topology
    topology = of_system(system) if topology is None else topology
    seeds = tuple(seeds)
    faults = _setting_faults(routing, foreign_load, seeds, stall)
    for name, count in (("steps", steps), ("most_events", most_events)):
        if count < 1:
            faults.append(f"{name} is {count}; it must be at least 1")
    faults += _job_faults(jobs, system, topology)
    if faults:
        raise InputError(faults)
    links = None if system.network is None else Links(system, topology, ROUTINGS[routing])
    together = Together(
        names=[job.name for job in jobs],
        profiles=traffic_profiles(jobs, system, algorithm, comm_streams),
        placements=[job.placement for job in jobs],
        links=links,
        adaptive=routing == "adaptive",
        foreign_load=foreign_load,
        stall=stall,
        steps=steps,
        most_events=most_events,
    )
    for seed in seeds:
        together.run(seed)
    return JobsOutcome(
        jobs=together.outcomes(),
        system=system.name,
        routing=routing,
        foreign_load=foreign_load,
        seeds=seeds,
        stall=stall,
        events=together.events,
    )


def traffic_profiles(
    jobs: Sequence[Job], system: System, algorithm: str = "auto", comm_streams: str = ""
) -> list[TrafficProfile]:
    """Return the profile of each job; an experiment that several run is traced once.

    Jobs with these as their work needn't be simulated alone again under another routing or load.
    """
    traced: dict[Experiment, Traced] = {}
    known: dict[tuple[object, ...], TrafficProfile] = {}
    profiles = []
    for job in jobs:
        if isinstance(job.work, TrafficProfile):
            profiles.append(job.work)
            continue
        if isinstance(job.work, Prediction):
            experiment, semantics, program = (
                job.work.experiment,
                job.work.semantics,
                job.work.traced,
            )
        else:
            experiment = job.work
            semantics = semantics_of(experiment.hardware, comm_streams)
            if experiment not in traced:
                _, built = build_program(experiment)
                traced[experiment] = trace(built, abstract_mesh(experiment.mesh))
            program = traced[experiment]
        key = (id(program), semantics, *_pattern(job.placement))
        if key not in known:
            ranks, costs = Ranks(experiment.mesh), SystemCosts(system, job.placement, algorithm)
            closed = program.closed
            known[key] = traffic_profile(closed, ranks, costs, semantics, job.placement)
        profiles.append(known[key])
    return profiles


def _pattern(placement: Placement) -> tuple[object, ...]:
    """Return what costs and flows depend on: which ranks share what, and in which order."""
    places = (placement.node, placement.leaf, placement.group, placement.domain)
    same = [np.unique(place, return_inverse=True)[1].tobytes() for place in places]
    return (*same, placement.local.tobytes(), placement.torus)


def _setting_faults(
    routing: str, foreign_load: float, seeds: Sequence[int], stall: Stall | None
) -> list[str]:
    faults = [] if routing in ROUTINGS else [unknown("routing", routing, ROUTINGS)]
    if not 0 <= foreign_load < 1:
        faults.append(f"foreign_load is {foreign_load}; it must be at least 0 and less than 1")
    if not seeds or min(seeds) < 0:
        faults.append(f"seeds are {list(seeds)}; give at least one, all whole and at least 0")
    return faults + ([] if stall is None else stall.faults())


def _job_faults(jobs: Sequence[Job], system: System, topology: Topology) -> list[str]:
    faults = [] if jobs else ["there are no jobs; give at least one"]
    for name, count in Counter(job.name for job in jobs).items():
        if count > 1:
            faults.append(f"{count} jobs are called '{name}'; give each a name of its own")
    if system.node.kind == "memory" and len(jobs) > 1:
        faults.append(
            f"devices of {system.name} share the memory of their host, and how jobs share that "
            "isn't modelled; give one job, or another system"
        )
    taken: dict[tuple[int, int], str] = {}
    for job in jobs:
        of_job = [*_placement_faults(job.placement, system, topology), *_work_faults(job)]
        faults += [f"job '{job.name}': {fault}" for fault in of_job]
        devices = list(zip(job.placement.node.tolist(), job.placement.local.tolist(), strict=True))
        others = Counter(taken[device] for device in devices if device in taken)
        for other, count in others.items():
            faults.append(
                f"jobs '{other}' and '{job.name}' are both placed on {count} devices; place one "
                "of them elsewhere"
            )
        taken.update(dict.fromkeys(devices, job.name))
    return faults


def _placement_faults(placement: Placement, system: System, topology: Topology) -> list[str]:
    node, local = placement.node, placement.local
    if not len(node):
        return ["its placement has no devices"]
    if node.min() < 0 or node.max() >= topology.nodes:
        return [f"its placement has nodes outside of 0 to {topology.nodes - 1}, {topology.source}"]
    if local.min() < 0 or local.max() >= system.devices_per_node:
        return [
            f"its placement has devices outside of 0 to {system.devices_per_node - 1} of a node"
        ]
    same = (topology.leaf[node] == placement.leaf) & (topology.group[node] == placement.group)
    if not same.all():
        return [f"it was placed on another topology than {topology.source}; give that as topology"]
    return []


def _work_faults(job: Job) -> list[str]:
    ranks = job.placement.ranks
    if isinstance(job.work, TrafficProfile):
        return job.work.faults(ranks)
    experiment = job.work if isinstance(job.work, Experiment) else job.work.experiment
    if experiment.devices != ranks:
        return [f"it runs on {experiment.devices} devices, but is placed on {ranks}"]
    return []
