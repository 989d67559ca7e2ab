"""Max-min fair sharing of links, by progressive filling.

Every flow gets the same bandwidth, which grows until a link is full; the flows of a full link stay
where they are and the others grow on (Bertsekas and Gallager, Data Networks, 2nd ed., 6.5.2). Links
that are full before all others that their flows use are settled at once. Here the flows of a job
rise and fall together, as the steps of a collective do.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

# A link that is this close to full is full.
SLACK = 1e-9

UNBOUND = -1


@dataclass(frozen=True)
class Loads:
    """What jobs put on links while they communicate undisturbed, as sparse entries.

    Entry i says that `job[i]` sends `Bps[i]` bytes a second over `link[i]`; a pair of job and link
    is there once at most.
    """

    job: Ints
    link: Ints
    Bps: Floats


@dataclass(frozen=True)
class Shares:
    """`rate` ([J], 0 to 1): each job's speed relative to undisturbed; `bound` ([J]): the link that
    keeps it from more, UNBOUND where it has all it wants.
    """

    rate: Floats
    bound: Ints


def max_min(
    loads: Loads, capacity_Bps: Floats, flow_Bps: Floats, most: Floats | float = 1.0
) -> Shares:
    """Return the max-min fair rates of jobs that share links.

    `capacity_Bps` ([L]) is what a link carries, `flow_Bps` ([J]) what one flow of a job carries
    undisturbed: a job at rate x has flows of x * flow_Bps, and these are made equal. `most` ([J])
    limits the rates. Then no link carries more than it can, and a job below its limit has a full
    link on which no other job's flows are larger.
    """
    jobs, links = len(flow_Bps), len(capacity_Bps)
    limit = np.broadcast_to(np.asarray(most, float), (jobs,))
    wanted = limit * flow_Bps  # by a flow
    flow, bound = wanted.copy(), np.full(jobs, UNBOUND)
    free = capacity_Bps.astype(float)
    order = np.lexsort((wanted[loads.job], loads.link))
    job, link = loads.job[order], loads.link[order]
    count = loads.Bps[order] / flow_Bps[job]  # how many flows of the job the link carries
    while True:
        # What isn't full if all have what they want won't be full later on either.
        tight = np.bincount(link, count * wanted[job], links) > free * (1 + SLACK)
        here = tight[link]
        job, link, count = job[here], link[here], count[here]
        if not len(job):
            break
        first = np.flatnonzero(np.append(True, np.diff(link) > 0))  # entry of each link
        level = np.empty(links)
        level[link[first]] = _levels(wanted[job], count, first, free[link[first]])
        # A link is full first if none of its jobs has another link that is full earlier.
        lowest = np.full(jobs, np.inf)
        np.minimum.at(lowest, job, level[link])
        satisfied = wanted <= lowest
        first_full = (lowest[job] >= level[link] * (1 - SLACK)) | satisfied[job]
        is_first = np.zeros(links, bool)
        is_first[link[first]] = np.logical_and.reduceat(first_full, first)
        held = is_first[link] & ~satisfied[job]
        flow[job[held]] = level[link[held]]
        bound[job[held]] = link[held]
        settled = satisfied
        settled[job[held]] = True
        done = settled[job]
        free -= np.bincount(link[done], count[done] * flow[job[done]], links)
        np.maximum(free, 0.0, out=free)
        job, link, count = job[~done], link[~done], count[~done]
    rate = np.where(bound == UNBOUND, limit, np.minimum(flow / flow_Bps, limit))
    return Shares(rate, bound)


def _levels(wanted: Floats, count: Floats, first: Ints, free: Floats) -> Floats:
    """Return to which bandwidth the flows of each link can rise until it is full, [L].

    Entries are `count` flows that want `wanted` each; those of a link begin at `first` ([L]) and
    rise. Together they want more than is `free` ([L]).
    """
    sizes = np.diff(np.append(first, len(wanted)))
    amount = count * wanted
    below = np.cumsum(amount) - amount  # of entries that want less, those of other links too
    below -= np.repeat(below[first], sizes)
    before = np.cumsum(count) - count
    above = np.repeat(np.add.reduceat(count, first) + before[first], sizes) - before
    filled = below + above * wanted >= np.repeat(free, sizes)
    number = np.where(filled, np.arange(len(wanted)), len(wanted) - 1)
    entry = np.minimum.reduceat(number, first)
    return (free - below[entry]) / above[entry]
