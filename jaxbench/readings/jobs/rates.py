"""How fast each of several jobs communicates at the moment, kept up to date as they come and go."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from jaxbench.costs.links import Floats, Ints
from jaxbench.costs.max_min import SLACK, UNBOUND, Loads, max_min
from jaxbench.costs.routing import adaptive_capacity


@dataclass(frozen=True, eq=False)
class RoutedPhase:
    """A piece of a job's step: `fixed_s` of its own, beside it `transfer_s` on the network.

    The phase is over when the fixed part is and, `latency_s` after its end, the transfer. While it
    transfers undisturbed, it puts `Bps[i]` on `link[i]` and each of its flows has `flow_Bps`.
    """

    fixed_s: float
    transfer_s: float
    latency_s: float
    link: Ints
    Bps: Floats
    flow_Bps: float

    @property
    def isolated_s(self) -> float:
        """What the phase takes undisturbed."""
        return max(self.fixed_s, self.transfer_s + self.latency_s)


class Rates:
    """The rates of J jobs, of which each transfers in one of its phases at a time, or doesn't.

    `links` are the links that matter, by rising number in the phases; all others are never full.
    `groups`, for adaptive routing, is where among them all the links between groups are.
    `rate` ([J], 0 to 1) and `bound` ([J], index into `links`) are kept by `change`.
    """

    def __init__(
        self,
        jobs: Sequence[Sequence[RoutedPhase]],
        links: Ints,
        capacity_Bps: Floats,
        groups: slice | None = None,
    ):
        self.links = links
        self.rate = np.ones(len(jobs))
        self.bound = np.full(len(jobs), UNBOUND)
        self._groups = groups
        self._capacity_Bps = capacity_Bps
        self._entries = [_entries(phases, links) for phases in jobs]
        self._phase = np.full(len(jobs), -1)
        self._load = np.zeros((len(jobs), len(links)))
        self._total = np.zeros(len(links))
        self._flow_Bps = np.ones(len(jobs))
        self._lent_Bps = capacity_Bps  # what the links carry now: adaptive routing lends them
        self._over = np.zeros(len(links), bool)

    def change(self, job: int, phase: int) -> bool:
        """Let `job` transfer in `phase` (-1: not at all); return whether any rate may differ."""
        before, after = self._of(job, int(self._phase[job])), self._of(job, phase)
        self._phase[job] = phase
        if before is after or not (len(before[0]) or len(after[0])):
            return False
        self._load[job, before[0]] = 0.0
        self._load[job, after[0]] = after[1]
        self._flow_Bps[job] = after[2]
        touched = np.concatenate([before[0], after[0]])
        self._total[touched] = self._load[:, touched].sum(axis=0)
        lent, was_over = self._lent_Bps, self._over
        self._lent_Bps = self._lend()
        self._over = self._total > self._lent_Bps * (1 + SLACK)
        if lent is self._lent_Bps and not (was_over[touched].any() or self._over[touched].any()):
            return False
        self._share()
        return True

    def _of(self, job: int, phase: int) -> Entry:
        return self._entries[job][phase] if phase >= 0 else _NOTHING

    def _lend(self) -> Floats:
        """Return what the links carry when `_total` is wanted of them."""
        if self._groups is None:
            return self._capacity_Bps
        between = self._capacity_Bps[self._groups]
        side = round(len(between) ** 0.5)
        plain = between.reshape(side, side)
        lent = adaptive_capacity(self._total[self._groups].reshape(side, side), plain)
        if lent is plain:
            return self._capacity_Bps
        capacity = self._capacity_Bps.copy()
        capacity[self._groups] = lent.ravel()
        return capacity

    def _share(self) -> None:
        """Share the full links anew among the jobs that use them; all others are undisturbed."""
        self.rate.fill(1.0)
        self.bound.fill(UNBOUND)
        full = np.flatnonzero(self._over)
        load = self._load[:, full]
        jobs = np.flatnonzero(load.any(axis=1))
        load = load[jobs]
        job, link = np.nonzero(load)
        loads = Loads(job, link, load[job, link])
        shares = max_min(loads, self._lent_Bps[full], self._flow_Bps[jobs])
        self.rate[jobs] = shares.rate
        self.bound[jobs] = np.append(full, UNBOUND)[shares.bound]  # UNBOUND is -1: the last


Entry = tuple[Ints, Floats, float]  # links (index), loads on them, and of one flow

_NOTHING: Entry = (np.empty(0, np.int64), np.empty(0), 1.0)

ALIKE = 1e-9  # loads that differ less are the same


def _entries(phases: Sequence[RoutedPhase], links: Ints) -> list[Entry]:
    """Return the loads of each phase on `links` (rising numbers); equal ones are one object."""
    entries: list[Entry] = []
    for phase in phases:
        place = np.searchsorted(links, phase.link)
        there = place < len(links)
        there[there] = links[place[there]] == phase.link[there]
        entry = place[there], phase.Bps[there], phase.flow_Bps
        if not len(entry[0]):
            entry = _NOTHING
        entries.append(next((known for known in entries if _alike(known, entry)), entry))
    return entries


def _alike(one: Entry, other: Entry) -> bool:
    return np.array_equal(one[0], other[0]) and bool(
        np.allclose(one[1], other[1], rtol=ALIKE, atol=0)
        and abs(one[2] - other[2]) <= ALIKE * one[2]
    )
