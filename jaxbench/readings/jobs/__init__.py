"""What jobs that run at once on a system do to each other through the network they share.

outcome = simulate_jobs([Job("a", experiment, placement_a), Job("b", other, placement_b)], system)

Each job's step is cut into a few phases with what they send (`traffic`); then all jobs repeat
their steps, with links shared max-min fairly between flows (`fluid`), from many random phase
offsets. In a fluid nothing is lost, queues or times out: slowdowns of tens of times, as are
measured now and then, can only be put in, as a `Stall`.
"""

from __future__ import annotations

from jaxbench.readings.jobs.at_once import Job, simulate_jobs, traffic_profiles
from jaxbench.readings.jobs.outcome import JobOutcome, JobsOutcome
from jaxbench.readings.jobs.profile import TrafficProfile
from jaxbench.readings.jobs.stall import Stall

__all__ = [
    "Job",
    "JobOutcome",
    "JobsOutcome",
    "Stall",
    "TrafficProfile",
    "simulate_jobs",
    "traffic_profiles",
]
