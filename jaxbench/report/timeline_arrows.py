"""Who is waited for: from the work that makes a rank the last of its group to those who wait.

Only what both ends of are drawn has an arrow, and only where the wait is for that rank: where it
is for a stream that is still busy, or for a rank that isn't drawn, there is none.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass

from jax.extend.core import ClosedJaxpr, Jaxpr

from jaxbench.jaxprs import bodies
from jaxbench.readings.ranks import Ranks
from jaxbench.readings.sites import KINDS, collective_axes
from jaxbench.readings.walker import Path
from jaxbench.report.timeline_slices import ROUNDING_NS, Slice


@dataclass(frozen=True)
class Arrow:
    """From the end of `cause` to `waiter`, at `end_ns`: it may have begun to send before that."""

    cause: Slice
    waiter: Slice
    end_ns: int


def find_arrows(slices: Sequence[Slice], ranks: Ranks, closed: ClosedJaxpr) -> Iterator[Arrow]:
    """Yield the arrows between slices, which come in the order of the program."""
    sources = {
        path: ranks.sources(axis, perm).tolist() for path, axis, perm in _permutes(closed.jaxpr)
    }
    met: dict[Hashable, dict[int, Slice]] = defaultdict(dict)  # what is done together, by rank
    passed: Counter[Hashable] = Counter()
    finished: dict[int, list[Slice]] = defaultdict(list)
    places = {rank: _place(rank, ranks) for rank in {piece.event.rank for piece in slices}}
    for piece in slices:
        event = piece.event
        finished[event.rank].append(piece)
        if event.cost is not None:
            turn = passed[event.rank, event.path]
            passed[event.rank, event.path] += 1
            group = tuple(i for axis, i in places[event.rank].items() if axis not in event.axes)
            met[event.path, turn, group][event.rank] = piece
    for pieces in finished.values():
        pieces.sort(key=lambda piece: (piece.end_ns, piece.start_ns))
    for members in met.values():
        for rank, waiter in members.items():
            peers = members.values()
            if waiter.event.path in sources:
                peers = [members[s] for s in (sources[waiter.event.path][rank],) if s in members]
            last = max(peers, key=lambda piece: piece.ready_ns, default=waiter)
            cause = _work_until(last.ready_ns, finished[last.event.rank])
            if cause is not None and _waits_for(waiter, last):
                yield Arrow(cause, waiter, max(waiter.start_ns, last.ready_ns))


def _permutes(
    jaxpr: Jaxpr, path: Path = ()
) -> Iterator[tuple[Path, str, Sequence[tuple[int, int]]]]:
    """Yield path, axis and pairs of every permute; paths are those of `sites` and the walker."""
    for number, eqn in enumerate(jaxpr.eqns):
        here = (*path, number)
        if KINDS.get(eqn.primitive.name) == "permute":
            yield here, collective_axes(eqn)[0], eqn.params["perm"]
        branches = eqn.primitive.name == "cond"
        for branch, body in enumerate(bodies(eqn)):
            yield from _permutes(body, (*here, branch) if branches else here)


def _place(rank: int, ranks: Ranks) -> dict[str, int]:
    """Return a rank's coordinates."""
    return {axis: int(ranks.coordinate(axis)[rank]) for axis in ranks.sizes}


def _waits_for(waiter: Slice, last: Slice) -> bool:
    """Whether an event could start when another rank came to it, and not before."""
    longer = last.ready_ns > waiter.ready_ns + ROUNDING_NS
    begins = waiter.start_ns - ROUNDING_NS <= last.ready_ns < waiter.end_ns
    return longer and begins


def _work_until(ns: int, finished: Sequence[Slice]) -> Slice | None:
    """Return what a rank did until `ns`, None where it came to that without doing anything."""
    after = bisect_right(finished, ns + ROUNDING_NS, key=lambda piece: piece.end_ns)
    for piece in reversed(finished[:after]):
        if piece.end_ns < ns - ROUNDING_NS:
            return None
        if piece.end_ns > piece.start_ns:  # an arrow can't be tied to an instant
            return piece
    return None
