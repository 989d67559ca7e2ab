"""From a recorded profile to where the communication of a step went.

    reading = read_profile(path, text=hlo, plan=plan, platform="cpu", ranks={0: 0, 1: 1}, steps=5)

The events of a backend are matched with the plan: an event names an instruction, the instruction's
scope holds the plan's label. The plan also says how often each rank executes it; if the profile
has another number, events are missing and nothing is reported.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from jaxbench.errors import InputError, RunError, unknown
from jaxbench.readings.counting import Counting
from jaxbench.readings.device_events import Event, Events, Request, with_steps
from jaxbench.readings.hlo import HloCollective, collectives
from jaxbench.readings.intervals import Interval, Union, subtract, total, union
from jaxbench.readings.operations import read_operations
from jaxbench.readings.plan import Plan, Row
from jaxbench.readings.profile_cpu import read_cpu
from jaxbench.readings.profile_gpu import read_gpu
from jaxbench.readings.profile_reading import CollectiveReading, ProfileReading, Shares
from jaxbench.readings.profile_tpu import read_tpu
from jaxbench.readings.ranks import Ranks
from jaxbench.readings.sites import Groups, Site
from jaxbench.readings.xspace import Space, read_space

READERS: dict[str, Callable[[Space, Request], Events]] = {
    "cpu": read_cpu,
    "gpu": read_gpu,
    "tpu": read_tpu,
}

NS = 1e-9

Spans = dict[tuple[int, int], list[Interval]]  # by step and rank, nanoseconds
Key = tuple[str, int, str, Groups]


def read_profile(
    path: str,
    *,
    text: str,
    plan: Plan,
    platform: str,
    ranks: Mapping[int, int],
    steps: int,
    step_s: Sequence[float] = (),
) -> ProfileReading:
    """Read the profile at `path` of `steps` steps of the program `text`, whose plan is `plan`.

    `ranks` maps the number by which the backend knows a device to its rank; only these devices
    are read. InputError: not a profile, or of nothing that ran on them. RunError: a layout that
    isn't known (with what was found), or events that were dropped.
    """
    if platform not in READERS:
        raise InputError(unknown("platform", platform, READERS))
    space, mesh = read_space(path), Ranks(plan.experiment.mesh)
    compiled = collectives(text, mesh.count)
    request = Request(read_operations(text, {c.name for c in compiled}), ranks, steps)
    events = READERS[platform](space, request)
    local = tuple(sorted(ranks.values()))
    groups = _groups(plan, mesh, compiled, everyone=platform == "cpu")
    _collect(groups, with_steps(events.collectives, steps, space.path), local, steps, platform)

    compute: Spans = defaultdict(list)
    for event in with_steps(events.compute, steps, space.path):
        compute[event.step or 0, event.rank].append((event.start_ns, event.end_ns))
    busy = {at: union(spans) for at, spans in compute.items()}

    def shares(of: Iterable[_Group]) -> Shares:
        return _shares(list(of), busy, local, steps)

    by_row: dict[int, list[_Group]] = defaultdict(list)
    for group in groups:
        by_row[plan.rows.index(group.row)].append(group)
    return ProfileReading(
        path=space.path,
        platform=platform,
        ranks=local,
        shares=shares(groups),
        compute_s=_array(lambda at: total(busy.get(at, [])), local, steps),
        rest_s=_array(_rest(groups, busy), local, steps),
        rows=tuple(_reading(members, shares(members), local) for members in by_row.values()),
        labels=tuple(_reading([group], shares([group]), local) for group in groups),
        step_s=tuple(step_s),
        warnings=(*space.warnings, *_warnings(plan, events)),
    )


@dataclass(frozen=True)
class _Clique:
    """Ranks that wait for each other: `owners` are done when all `members` have taken part."""

    owners: tuple[int, ...]
    members: tuple[int, ...]


@dataclass
class _Group:
    """The collectives of one label, kind and size, and what the profile has of them.

    `expected` is the number of executions a rank and step; `spans` are the executions, `moving`
    their part after the last member had begun; `executions_ns` and `skews_ns` are per execution.
    """

    row: Row
    label: str
    expected: np.ndarray
    cliques: tuple[_Clique, ...]
    names: set[str] = field(default_factory=set)
    spans: Spans = field(default_factory=lambda: defaultdict(list))
    moving: Spans = field(default_factory=lambda: defaultdict(list))
    executions_ns: list[float] = field(default_factory=list)
    skews_ns: list[float] = field(default_factory=list)


def _groups(
    plan: Plan, mesh: Ranks, compiled: Iterable[HloCollective], *, everyone: bool
) -> list[_Group]:
    """Return the plan's collectives by label, with the instructions that execute them."""
    counts = Counting(mesh).count(plan.traced.closed).counts
    groups: dict[Key, _Group] = {}
    for site in plan.sites:
        key = (site.kind, site.elements, site.label, _who(site.kind, site.groups, site.pairs))
        if key not in groups:
            nothing = np.zeros(mesh.count, np.int64)
            groups[key] = _Group(
                _row(plan, site), site.label, nothing, _cliques(site, mesh.count, everyone)
            )
        if site.path in counts:
            groups[key].expected = groups[key].expected + counts[site.path]
    labels = {site.label for site in plan.sites}
    for found in compiled:
        scopes = [scope for scope in found.op_name.split("/") if scope in labels]
        label = scopes[-1] if scopes else ""
        key = (found.kind, found.elements, label, _who(found.kind, found.groups, found.pairs))
        if key not in groups:
            raise RunError(
                f"the plan has no {found.kind} of {found.elements:,} elements for '{found.name}' "
                f"(scope '{found.op_name}') of the compiled program: its profile can't be read"
            )
        groups[key].names.add(found.name)
    return list(groups.values())


def _row(plan: Plan, site: Site) -> Row:
    """Return the row of the plan that a site is part of."""
    axis = "+".join(site.axes)
    return next(
        row
        for row in plan.rows
        if (row.kind, row.axis, row.padded_elements) == (site.kind, axis, site.elements)
        and row.dtype == site.dtype
        and site.label in row.labels
    )


def _who(kind: str, groups: Groups, pairs: Iterable[tuple[int, int]]) -> Groups:
    if kind == "permute":
        return tuple(sorted(pairs))
    return tuple(sorted(tuple(sorted(group)) for group in groups))


def _cliques(site: Site, ranks: int, everyone: bool) -> tuple[_Clique, ...]:
    """Return who waits for whom: the group; in a permute those a rank sends to or receives from.

    With `everyone`, a permute keeps all ranks together, as XLA's CPU backend does.
    """
    if site.kind != "permute":
        return tuple(_Clique(group, group) for group in site.groups)
    if everyone:
        return (_Clique(tuple(range(ranks)), tuple(range(ranks))),)
    peers: dict[int, set[int]] = {rank: {rank} for rank in range(ranks)}
    for source, destination in site.pairs:
        peers[source].add(destination)
        peers[destination].add(source)
    return tuple(_Clique((rank,), tuple(sorted(members))) for rank, members in peers.items())


def _collect(
    groups: Iterable[_Group],
    events: Iterable[Event],
    ranks: Sequence[int],
    steps: int,
    platform: str,
) -> None:
    """Fill the groups with the executions of their instructions; RunError if some are missing."""
    by_name: dict[str, dict[tuple[int, int], list[Event]]] = defaultdict(lambda: defaultdict(list))
    for event in events:
        by_name[event.name][event.step or 0, event.rank].append(event)
    for group in groups:
        found = dict.fromkeys(((s, r) for s in range(steps) for r in ranks), 0)
        for name in group.names:
            for at, listed in by_name[name].items():
                found[at] += len(listed)
        kernels = _kernels(group, found, several=platform == "gpu")
        for name in group.names:
            executions = {
                (step, rank): _merged(listed, kernels[rank], name)
                for (step, rank), listed in by_name[name].items()
            }
            for step in range(steps):
                _add(group, step, {r: executions.get((step, r), []) for r in ranks})


def _kernels(group: _Group, found: Mapping[tuple[int, int], int], several: bool) -> dict[int, int]:
    """Return how many events an execution leaves on each rank: one, or a number of GPU kernels."""
    kernels: dict[int, int] = {}
    for (step, rank), number in found.items():
        planned = int(group.expected[rank])
        each = kernels.setdefault(rank, max(1, number // planned) if several and planned else 1)
        if number != planned * each:
            of = f" of {each} kernels each" if each > 1 else ""
            raise RunError(
                f"step {step} of the profile has {number} events of {group.row.kind} "
                f"'{group.label}' on rank {rank}, where the plan has {planned} executions{of}: "
                "events were dropped, or carry no operation's name; record fewer steps"
            )
    return kernels


def _merged(events: list[Event], kernels: int, name: str) -> list[Interval]:
    """Return when each execution began and ended, in order."""
    events = sorted(events, key=lambda event: event.start_ns)
    if len(events) % kernels:
        raise RunError(f"{len(events)} events of '{name}', which needs {kernels} an execution")
    return [
        (events[i].start_ns, max(event.end_ns for event in events[i : i + kernels]))
        for i in range(0, len(events), kernels)
    ]


def _add(group: _Group, step: int, executions: Mapping[int, list[Interval]]) -> None:
    """Add a step's executions of one instruction; the k-th of one rank is the k-th of its peers."""
    for rank, spans in executions.items():
        group.spans[step, rank].extend(spans)
    for clique in group.cliques:
        members = [rank for rank in clique.members if executions.get(rank)]
        owners = [rank for rank in clique.owners if executions.get(rank)]
        for number in range(min((len(executions[rank]) for rank in members), default=0)):
            starts = [executions[rank][number][0] for rank in members]
            latest = max(starts)
            for rank in owners:
                end = executions[rank][number][1]
                group.moving[step, rank].append((min(latest, end), end))
            if owners:
                ended = max(executions[rank][number][1] for rank in owners)
                group.executions_ns.append(max(0.0, ended - latest))
            group.skews_ns.append(latest - min(starts))


def _shares(
    groups: list[_Group], busy: Mapping[tuple[int, int], Union], ranks: Sequence[int], steps: int
) -> Shares:
    def joined(kind: str, at: tuple[int, int]) -> Union:
        return union(span for group in groups for span in getattr(group, kind).get(at, []))

    def exposed(kind: str) -> Callable[[tuple[int, int]], float]:
        return lambda at: total(subtract(joined(kind, at), busy.get(at, [])))

    return Shares(
        total_s=_array(lambda at: total(joined("spans", at)), ranks, steps),
        exposed_s=_array(exposed("spans"), ranks, steps),
        transfer_s=_array(exposed("moving"), ranks, steps),
    )


def _rest(
    groups: list[_Group], busy: Mapping[tuple[int, int], Union]
) -> Callable[[tuple[int, int]], float]:
    """Return how long a rank neither computed nor communicated while the step lasted anywhere."""
    active: Spans = defaultdict(list)
    for source in (busy, *(group.spans for group in groups)):
        for at, spans in source.items():
            active[at].extend(spans)
    first: dict[int, float] = {}
    last: dict[int, float] = {}
    for (step, _), spans in active.items():
        for start, end in spans:
            first[step] = min(first.get(step, start), start)
            last[step] = max(last.get(step, end), end)

    def rest(at: tuple[int, int]) -> float:
        lasted = last.get(at[0], 0.0) - first.get(at[0], 0.0)
        return lasted - total(union(active.get(at, [])))

    return rest


def _array(ns: Callable[[tuple[int, int]], float], ranks: Sequence[int], steps: int) -> np.ndarray:
    """Return [steps][ranks] seconds of what `ns` gives in nanoseconds."""
    return np.array([[ns((step, rank)) * NS for rank in ranks] for step in range(steps)])


def _reading(groups: list[_Group], shares: Shares, ranks: Sequence[int]) -> CollectiveReading:
    row = groups[0].row
    count = sum((group.expected for group in groups), np.zeros_like(groups[0].expected))
    executions = [ns for group in groups for ns in group.executions_ns]
    skews = [ns for group in groups for ns in group.skews_ns]
    return CollectiveReading(
        id=row.id,
        kind=row.kind,
        axis=row.axis,
        labels=tuple(group.label for group in groups),
        group_size=row.group_size,
        bytes_logical=row.bytes_logical,
        wire_factor=row.wire_factor,
        count=tuple(int(count[rank]) for rank in ranks),
        shares=shares,
        execution_s=float(np.median(executions)) * NS if executions else None,
        skew_s=float(np.median(skews)) * NS if skews else None,
        skew_max_s=max(skews) * NS if skews else None,
    )


def _warnings(plan: Plan, events: Events) -> list[str]:
    found = []
    if not events.compute and plan.compute_s.max() > 0:
        found.append(
            "the profile has no operation of a payload, so all communication counts as exposed"
        )
    if events.nameless:
        found.append(f"{events.nameless} events of the profile don't say which operation they are")
    return found
