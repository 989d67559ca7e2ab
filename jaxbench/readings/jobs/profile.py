"""A step as other jobs on the network see it: a few phases, with what they send.

A phase has `fixed_s` (computing, latency, waiting) and beside it `transfer_s` on the network, and
is over when both are. Contention stretches the transfer only; as long as it fits beside the fixed
part, nobody notices. A transfer may have a latency of its own, which it doesn't stretch.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from jaxbench.readings.jobs.flows import NO_FLOWS, RankFlows


@dataclass(frozen=True, eq=False)
class Phase:
    """`fixed_s`, beside it `transfer_s` of undisturbed transfer of `flows`, then `latency_s`."""

    fixed_s: float
    transfer_s: float = 0.0
    flows: RankFlows = NO_FLOWS
    latency_s: float = 0.0

    def seconds(self, slower: float = 1.0) -> float:
        """Return what the phase takes if its transfer is so many times slower."""
        return max(self.fixed_s, self.transfer_s * slower + self.latency_s)


@dataclass(frozen=True, eq=False)
class TrafficProfile:
    """A step of a job as phases that follow each other, and begin again after the last."""

    phases: tuple[Phase, ...]

    @property
    def step_s(self) -> float:
        """Seconds of an undisturbed step."""
        return self.seconds()

    def seconds(self, slower: float = 1.0) -> float:
        """Return what a step takes if all transfers are so many times slower."""
        return math.fsum(phase.seconds(slower) for phase in self.phases)

    def faults(self, ranks: int) -> list[str]:
        """Return what is wrong with it as the step of a job of so many ranks."""
        faults = []
        for number, phase in enumerate(self.phases):
            seconds = (phase.fixed_s, phase.transfer_s, phase.latency_s)
            if not all(math.isfinite(s) and s >= 0 for s in seconds):
                faults.append(f"phase {number} takes {seconds} s; give numbers of at least 0")
            if not _within(phase.flows, ranks):
                faults.append(f"phase {number} has flows of ranks outside of 0 to {ranks - 1}")
            if len(phase.flows.source) and not phase.transfer_s > 0:
                faults.append(f"phase {number} sends something in no time; give its transfer_s")
        if not faults and not self.step_s > 0:
            faults.append("its step takes no time; give at least one phase that does")
        return faults


def _within(flows: RankFlows, ranks: int) -> bool:
    ends: Sequence[int] = [*flows.source.tolist(), *flows.target.tolist()]
    return all(0 <= end < ranks for end in ends)
