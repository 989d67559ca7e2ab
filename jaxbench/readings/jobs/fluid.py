"""Several jobs at once, as a fluid: each repeats its step, and slows where links are full.

From event to event every job is in one phase and transfers at a constant rate; an event is the end
of a transfer, of a phase, or of a stall. From one step to the next nothing is remembered.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from jaxbench.costs.max_min import UNBOUND
from jaxbench.readings.jobs.rates import Rates, RoutedPhase
from jaxbench.readings.jobs.stall import Stall


@dataclass(frozen=True, eq=False)
class Start:
    """A job at the start: its phases, and from where its random numbers come."""

    phases: Sequence[RoutedPhase]
    offsets: np.random.Generator
    stall: Stall | None
    stalls: np.random.Generator


class Run:
    """One job on its way through its steps.

    `lost_s` is by how much its phases so far were late, stalls included; `passed_s` what they take
    undisturbed. `slowdowns` are those of complete steps.
    """

    def __init__(self, start: Start):
        self.phases, self.stall, self._stalls = start.phases, start.stall, start.stalls
        self.isolated = [phase.isolated_s for phase in start.phases]
        self.isolated_s = math.fsum(self.isolated)
        self.offset_s = float(start.offsets.random()) * self.isolated_s
        self.slowdowns: list[float] = []
        self.lost_s = self.passed_s = 0.0
        self._step: list[float] | None = None  # its phases so far; None: began before the start
        self.number = 0
        self.entered_s = self.skipped_s = 0.0  # `skipped_s` of the first phase were over before
        self.stalled = self.late = False

    @property
    def phase(self) -> RoutedPhase:
        """The phase it is in."""
        return self.phases[self.number]

    def leave(self, taken_s: float, stalled: bool = False) -> None:
        """Count a phase that took so long."""
        isolated_s = 0.0 if stalled else self.isolated[self.number]
        self.lost_s += taken_s - isolated_s
        self.passed_s += isolated_s
        if self._step is not None:
            self._step.append(taken_s)

    def end_step(self) -> float:
        """Count a step, if it was a complete one; return for how long the next one stalls."""
        if self._step is not None:
            self.slowdowns.append(math.fsum(self._step) / self.isolated_s)
        self._step = []
        return 0.0 if self.stall is None else self.stall.draw_s(self._stalls)


class Fluid:
    """Jobs that run at once on links that `rates` shares.

    After `run`, `runs` have what became of each job, and `delay_s` ([J, links]) which link held it
    up for how long.
    """

    def __init__(self, starts: Sequence[Start], rates: Rates):
        self.runs = [Run(start) for start in starts]
        self.rates = rates
        self.delay_s = np.zeros((len(starts), len(rates.links)))
        self.events = 0
        self._now = 0.0
        self._transferring = np.zeros(len(starts), bool)
        self._left = np.zeros(len(starts))  # of the transfer, in undisturbed seconds
        self._until = np.zeros(len(starts))  # when what isn't transfer ends
        self._held = np.zeros_like(self.delay_s)  # in this phase
        self._slow = np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0)
        for number, run in enumerate(self.runs):
            passed = run.offset_s
            while passed >= run.phase.isolated_s and run.number + 1 < len(run.phases):
                passed -= run.phase.isolated_s
                run.number += 1
            run.skipped_s = passed
            self._enter(number, passed)
        for number in range(len(self.runs)):
            self._tell(number)

    def run(self, steps: int, most_events: float) -> None:
        """Go on until every job has done `steps` complete steps, or for so many events."""
        waiting = len(self.runs)
        while waiting and self.events < most_events:
            self.events += 1
            with np.errstate(invalid="ignore"):
                transferred = self._now + np.maximum(self._left, 0.0) / self.rates.rate
            when = np.where(self._transferring, transferred, self._until)
            number = int(when.argmin())
            self._advance(max(float(when[number]), self._now))
            run = self.runs[number]
            done = len(run.slowdowns)
            before = run.number if self._transferring[number] else UNBOUND
            self._happen(number, run)
            if before != (run.number if self._transferring[number] else UNBOUND):
                self._tell(number)
            waiting -= done < steps <= len(run.slowdowns)

    def slowdown_so_far(self, number: int) -> float | None:
        """Return the slowdown of a job since the start, wherever it is now; None: too early.

        Where the phase it is in isn't bound by its transfer, it counts as late once it is.
        """
        run = self.runs[number]
        taken_s = self._now - run.entered_s
        if run.stalled:
            late_s = taken_s
        elif run.phase.fixed_s < run.phase.transfer_s + run.phase.latency_s:
            late_s = float(self._held[number].sum())
        else:
            late_s = max(taken_s - run.phase.isolated_s, 0.0)
        passed_s = run.passed_s + taken_s - late_s - run.skipped_s
        return (passed_s + run.lost_s + late_s) / passed_s if passed_s > 0 else None

    def _advance(self, now: float) -> None:
        """Let time pass."""
        passed = now - self._now
        if passed > 0:
            self._left -= passed * self.rates.rate
            jobs, links, lost = self._slow
            self._held[jobs, links] += passed * lost
        self._now = now

    def _happen(self, number: int, run: Run) -> None:
        """The next event of a job: a transfer, a phase or a stall ends."""
        now = self._now
        if self._transferring[number]:
            self._transferring[number] = False
            arrived = now + run.phase.latency_s
            if arrived > self._until[number]:
                self._until[number] = arrived
                run.late = bool(self._held[number].any())
        if self._until[number] > now:
            return
        if run.stalled:
            run.stalled = False
            run.leave(now - run.entered_s, stalled=True)
            self._enter(number)
            return
        # Where the network made nothing late, a phase takes exactly what it takes undisturbed.
        isolated_s = run.isolated[run.number]
        taken_s = max(now - run.entered_s, isolated_s) if run.late else isolated_s
        if taken_s > isolated_s:
            held = self._held[number]
            self.delay_s[number] += held * ((taken_s - isolated_s) / held.sum())
        run.leave(taken_s)
        run.number += 1
        if run.number == len(run.phases):
            run.number = 0
            stalled_s = run.end_step()
            if stalled_s > 0:
                run.stalled, run.entered_s = True, now
                self._until[number] = now + stalled_s
                return
        self._enter(number)

    def _enter(self, number: int, passed: float = 0.0) -> None:
        """Begin the phase that a job has come to, of which `passed` seconds are over."""
        run = self.runs[number]
        phase, run.entered_s, run.late = run.phase, self._now - passed, False
        left = phase.transfer_s - passed
        rest = phase.fixed_s - passed
        if left <= 0 < phase.transfer_s:  # of the transfer only its latency may be left
            rest = max(rest, left + phase.latency_s)
        self._left[number], self._transferring[number] = left, left > 0
        self._until[number] = self._now + max(rest, 0.0)
        self._held[number] = 0.0

    def _tell(self, number: int) -> None:
        """Tell the network in which phase a job transfers now."""
        phase = self.runs[number].number if self._transferring[number] else UNBOUND
        if self.rates.change(number, phase):
            slow = np.flatnonzero(self.rates.rate < 1)
            self._slow = slow, self.rates.bound[slow], 1 - self.rates.rate[slow]
