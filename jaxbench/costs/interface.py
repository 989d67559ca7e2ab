"""What a cost model answers: how long each group of a collective takes, and what bounds it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np


@dataclass(frozen=True)
class Cost:
    """One group's collective: `seconds` from the last member's arrival to the end of all.

    `latency_s` is the part that doesn't depend on bytes, `algorithm` how it is done ('ring', ...),
    `bound` what bounds it ('latency', 'node', 'nic', 'leaf', 'global', 'measured').
    """

    seconds: float
    latency_s: float
    algorithm: str
    bound: str


@dataclass(frozen=True)
class GroupCosts:
    """The costs of all groups of a collective: `which` ([G]) numbers the different `costs`."""

    costs: tuple[Cost, ...]
    which: np.ndarray

    @property
    def seconds(self) -> np.ndarray:
        """Seconds of each group, [G]."""
        return np.array([cost.seconds for cost in self.costs])[self.which]


class Costs(Protocol):
    """A cost model, with ranks placed on the devices of a system.

    `nbytes` counts as a plan's elements do: all_reduce and reduce_scatter the operand, all_gather
    the result, all_to_all the buffer of a rank, permute the message. `groups` are the rank numbers
    of all groups that communicate at once, [G, n]; a permute's are its (source, destination)
    pairs, [P, 2].
    """

    def collective(
        self, kind: str, nbytes: float, dtype: str, groups: np.ndarray, axes: tuple[str, ...]
    ) -> GroupCosts: ...
