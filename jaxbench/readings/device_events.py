"""What happened on each device, in the same form whichever backend recorded it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from jaxbench.errors import InputError, RunError
from jaxbench.readings.operations import Operations
from jaxbench.readings.xspace import Space


@dataclass(frozen=True, slots=True)
class Event:
    """One execution of an operation, or one of several kernels that execute it.

    `name` is the collective's (`HloCollective.name`) or the payload operation's; times are
    nanoseconds from the start of the profile. `step` is None where a backend doesn't say.
    """

    rank: int
    step: int | None
    name: str
    start_ns: float
    end_ns: float


@dataclass(frozen=True)
class Request:
    """What to look for: operations, on devices (a backend's number -> rank), in how many steps."""

    operations: Operations
    ranks: Mapping[int, int]
    steps: int


@dataclass
class Events:
    """All that a reading needs of a profile; `nameless` counts what carried no operation's name."""

    collectives: list[Event] = field(default_factory=list)
    compute: list[Event] = field(default_factory=list)
    nameless: int = 0


def no_events(space: Space, platform: str, wanted: str) -> InputError:
    """Return the error for a profile in which no device did anything."""
    return InputError(
        f"the profile {space.path} has no {wanted}, which {platform} devices leave; "
        f"it has: {space.describe()}; was it recorded while the program ran on them?"
    )


def unknown_layout(space: Space, platform: str, fault: str) -> RunError:
    """Return the error for events that this version of jaxbench can't read."""
    return RunError(
        f"the profile {space.path} is laid out in a way this version of jaxbench doesn't know "
        f"for {platform}: {fault}; it has: {space.describe()}"
    )


def other_program(space: Space, wanted: str, found: Iterable[str]) -> InputError:
    """Return the error for a profile of something else."""
    return InputError(
        f"the profile {space.path} has no events of the program '{wanted}'; "
        f"it has those of {', '.join(sorted(found)) or 'none'}"
    )


def with_steps(events: list[Event], steps: int, path: str) -> list[Event]:
    """Return the events with the step of each, where the backend didn't say, found by counting.

    Every step executes an operation equally often on one device, and one step after the other: of
    n events the first n/steps are those of step 0.
    """
    known = [event for event in events if event.step is not None]
    unknown: dict[tuple[int, str], list[Event]] = defaultdict(list)
    for event in events:
        if event.step is None:
            unknown[event.rank, event.name].append(event)
    for (rank, name), found in unknown.items():
        if len(found) % steps:
            raise RunError(
                f"the profile {path} has {len(found)} events of '{name}' on rank {rank}, which "
                f"{steps} equal steps can't have left: some were dropped; record fewer steps"
            )
        found.sort(key=lambda event: event.start_ns)
        each = len(found) // steps
        known += [replace(event, step=number // each) for number, event in enumerate(found)]
    return known
