"""How collectives cost and behave on a system, from what a user says of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, Protocol

from jax.extend.core import ClosedJaxpr

from jaxbench.axes import Mesh
from jaxbench.catalog.systems import System, find_system, system_names
from jaxbench.costs.algorithms import NAMES
from jaxbench.costs.fitted_costs import FittedCosts
from jaxbench.costs.interface import Costs
from jaxbench.costs.system_costs import SystemCosts
from jaxbench.costs.tier_costs import TierCosts
from jaxbench.errors import InputError, unknown
from jaxbench.jaxprs import equations
from jaxbench.readings.simulate.streams import Semantics, semantics_of
from jaxbench.readings.sites import KINDS
from jaxbench.topology.build import placed
from jaxbench.topology.placement import Placement
from jaxbench.topology.shape import TIERS

STREAMS = ("axis", "one")

Fits = Mapping[str, Mapping[str, Any]]


class Job(Protocol):
    """What placing ranks on a system depends on; an Experiment has it."""

    @property
    def mesh(self) -> Mesh: ...
    @property
    def devices(self) -> int: ...
    @property
    def hardware(self) -> str: ...
    @property
    def seed(self) -> int: ...


class Priced(NamedTuple):
    """How collectives cost and behave, and in words where that is from."""

    costs: Costs
    semantics: Semantics
    described: str


def price(
    experiment: Job,
    system_name: str | None,
    *,
    placement: str = "",
    topology: str = "",
    partition_nodes: str = "",
    algorithm: str = "auto",
    comm_streams: str = "",
    fits: Fits | None = None,
    kinds: Iterable[str] = (),
) -> Priced:
    """Return the costs of an experiment's collectives; arguments are as the flags of their names.

    `fits` are parsed files of fits by the tier (one of TIERS) whose formulas they replace; under ''
    is one for all collectives, of which the program has `kinds`, and with it no system is needed.
    Errors: InputError with everything that is wrong.
    """
    fits = fits or {}
    faults = [unknown("tier of --fits", t, TIERS) for t in fits if t and t not in TIERS]
    if comm_streams and comm_streams not in STREAMS:
        faults.append(unknown("--comm_streams", comm_streams, STREAMS))
    if algorithm not in NAMES:
        faults.append(unknown("algorithm", algorithm, NAMES))
    fitted: dict[str, Costs] = {}
    for tier, document in fits.items():
        try:
            model = fitted[tier] = FittedCosts(document, experiment.mesh)
        except InputError as error:
            faults += error.faults
        else:
            faults += [] if tier else model.missing(kinds)
    where: tuple[System, Placement] | None = None
    if "" not in fits:
        try:
            where = _place(experiment, system_name, placement, topology, partition_nodes)
        except InputError as error:
            faults += error.faults
    elif placement or topology or partition_nodes:
        faults.append(
            "--placement and --topology have no effect where --fits replace all costs; name the "
            "tier that they replace, as in --fits=node:FILE"
        )
    if faults:
        raise InputError(faults)
    if where is None:
        measured_on = fits[""].get("environment", {}).get("platform", experiment.hardware)
        return Priced(fitted[""], semantics_of(measured_on, comm_streams), "measured fits")
    system, place = where
    costs: Costs = SystemCosts(system, place, algorithm)
    if fitted:
        costs = TierCosts(place, fitted, costs)
    return Priced(costs, semantics_of(system.hardware, comm_streams), place.description)


def collective_kinds(closed: ClosedJaxpr) -> list[str]:
    """Return the kinds of collectives that a program has, each once."""
    names = [eqn.primitive.name for eqn in equations(closed.jaxpr)]
    return list(dict.fromkeys(KINDS[name] for name in names if name in KINDS))


def _place(
    experiment: Job,
    system_name: str | None,
    placement: str,
    topology: str,
    partition_nodes: str,
) -> tuple[System, Placement]:
    if system_name is None:
        known = ", ".join(system_names())
        raise InputError(f"--system is missing; known: {known} (or give measured --fits)")
    system = find_system(system_name)
    _, place = placed(
        system, experiment.devices, placement, topology, partition_nodes, experiment.seed
    )
    return system, place
