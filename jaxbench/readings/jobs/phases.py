"""Cuts one rank's timeline into a few phases, conserving seconds and bytes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from jaxbench.costs.links import Floats, Ints
from jaxbench.readings.jobs.flows import RankFlows, join
from jaxbench.readings.jobs.profile import Phase, TrafficProfile

# Phases of a step at most. More would show finer alternations, but cost time in proportion.
MOST_PHASES = 32


@dataclass(frozen=True, eq=False)
class Timeline:
    """One rank's step, cut where something begins or ends: I intervals of `seconds`.

    `working` says in which it computes, `communicating` in which a collective of its own goes on,
    `transfers` ([classes, I]) which classes of traffic it is in then. `window` numbers the
    stretches between the computes that wait for transfers once these are slow.
    """

    seconds: Floats
    working: NDArray[np.bool_]
    communicating: NDArray[np.bool_]
    transfers: NDArray[np.bool_]
    window: Ints


Classes = frozenset[int]  # of traffic, under way together; none: what others transfer meanwhile
OTHERS: Classes = frozenset()


@dataclass
class Piece:
    """Some windows together: what is alone, what hides transfers, and what they alone take.

    `hidden_latency_s` is what the hidden ones take besides their transfer.
    """

    alone_s: float = 0.0
    beside_s: float = 0.0
    hidden_latency_s: float = 0.0
    hidden_s: dict[Classes, float] = field(default_factory=lambda: defaultdict(float))
    exposed_s: dict[Classes, float] = field(default_factory=lambda: defaultdict(float))


def cut_phases(
    timeline: Timeline, exposed_s: float, classes: Sequence[RankFlows]
) -> TrafficProfile:
    """Return a step's phases: at most MOST_PHASES, with `classes` (a step's bytes) spread on them.

    `exposed_s` is how much of the step is transfer that nothing hides, on whichever rank. Windows
    are put together into pieces of about equal length, each with its time without transfers first,
    then what goes beside transfers, then the transfers that nothing hides.
    """
    active = np.asarray(timeline.transfers.any(axis=0))
    own_s = float(timeline.seconds[active & ~timeline.working].sum())
    waiting_s = float(timeline.seconds[~(timeline.working | timeline.communicating)].sum())
    # of this rank's waiting, what is others' transfer; of its own transfers, what isn't hidden
    lacking = min(max(exposed_s - own_s, 0.0) / waiting_s, 1.0) if waiting_s > 0 else 0.0
    critical = min(exposed_s / own_s, 1.0) if own_s > 0 else 1.0
    kinds = {OTHERS, *_kinds(timeline, active)}
    most = max(1, MOST_PHASES // (2 + len(kinds)))
    pieces = _pieces(timeline, active, lacking, critical, most)
    spread = _shares(pieces, classes)
    phases: list[Phase] = []

    def flows(seconds: dict[Classes, float]) -> RankFlows:
        parts = []
        for number, flow in enumerate(classes):
            part = sum(spread[number].get(kind, 0.0) * s for kind, s in seconds.items())
            parts += [flow.times(part)] if part > 0 else []
        return join(parts)

    for piece in pieces:
        phases.append(Phase(piece.alone_s))
        hidden_s, sent = sum(piece.hidden_s.values()), flows(piece.hidden_s)
        phases.append(Phase(piece.beside_s, hidden_s, sent, piece.hidden_latency_s))
        for kind, seconds in piece.exposed_s.items():
            phases.append(Phase(0.0, seconds, flows({kind: seconds})))
    return TrafficProfile(tuple(phase for phase in phases if phase.seconds() > 0))


def _kinds(timeline: Timeline, active: np.ndarray) -> set[Classes]:
    columns = np.unique(timeline.transfers[:, active], axis=1)
    return {frozenset(np.flatnonzero(column).tolist()) for column in columns.T}


def _pieces(
    timeline: Timeline,
    active: np.ndarray,
    lacking: float,
    critical: float,
    most: int,
) -> list[Piece]:
    """Put the windows together into at most `most` pieces."""
    ends = np.cumsum(timeline.seconds)
    pieces = [Piece() for _ in range(most)]
    window, hiding, piece = -1, False, pieces[0]
    for i, seconds in enumerate(timeline.seconds.tolist()):
        if timeline.window[i] != window:
            window, hiding = int(timeline.window[i]), False
            piece = pieces[min(int(most * (ends[i] - seconds / 2) / ends[-1]), most - 1)]
        kind: Classes = frozenset(np.flatnonzero(timeline.transfers[:, i]).tolist())
        if active[i] and timeline.working[i]:
            hiding = True
            piece.beside_s += seconds
            piece.hidden_s[kind] += seconds
        elif active[i]:
            piece.exposed_s[kind] += seconds * critical
            if critical < 1:
                piece.beside_s += seconds * (1 - critical)
                piece.hidden_s[kind] += seconds * (1 - critical)
        elif timeline.working[i] and timeline.communicating[i]:
            hiding = True
            piece.beside_s += seconds
            piece.hidden_latency_s += seconds
        elif timeline.working[i] and hiding:  # a late transfer may go on here
            piece.beside_s += seconds
        elif timeline.working[i] or timeline.communicating[i] or lacking == 0:
            piece.alone_s += seconds
        else:
            piece.alone_s += seconds * (1 - lacking)
            piece.exposed_s[OTHERS] += seconds * lacking
    return pieces


def _shares(pieces: Sequence[Piece], classes: Sequence[RankFlows]) -> list[dict[Classes, float]]:
    """Return for each class of traffic which part of its bytes a second of each kind carries.

    What others transfer while the rank waits is a mixture of all classes, with as much a second as
    the rank's own timeline has on average.
    """
    totals: dict[Classes, float] = defaultdict(float)
    for piece in pieces:
        for seconds in (piece.hidden_s, piece.exposed_s):
            for kind, amount in seconds.items():
                totals[kind] += amount
    others = totals.pop(OTHERS, 0.0)
    own = sum(totals.values())
    shares = []
    for number in range(len(classes)):
        mine = sum(seconds for kind, seconds in totals.items() if number in kind)
        if mine == 0:  # this rank has no part in it
            even = dict.fromkeys(totals, 1.0 / own) if others == 0 else {OTHERS: 1.0 / others}
            shares.append(even)
            continue
        kept = own / (own + others)
        share = {kind: kept / mine for kind in totals if number in kind}
        if others:
            share[OTHERS] = (1 - kept) / others
        shares.append(share)
    return shares
