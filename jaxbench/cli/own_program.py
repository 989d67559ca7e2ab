"""`plan module:function` and `simulate module:function`: a user's own shard_map function.

What a module has to have, for a function `step`:

  step             a jax.shard_map, or a jax.jit of one; its mesh may be an AbstractMesh
  step_arguments   the arguments it is called with, as a tuple of arrays or ShapeDtypeStructs
                   (or a function of nothing that returns them)

Or a function of one parameter named `mesh` that returns such a function: then --mesh gives its
axes and sizes, and `step_arguments` is a function of the mesh. No device is needed either way.
The module is imported, from the current folder first; nothing else of it is run.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from jaxbench.catalog.hardware import HARDWARE, Hardware
from jaxbench.catalog.systems import find_system
from jaxbench.cli.command import read_call
from jaxbench.cli.fits import read_fits_flag
from jaxbench.cli.flags import WHERE_FLAGS, split_arguments
from jaxbench.cli.own_program_load import ARGUMENT, load, read_axes, traced
from jaxbench.errors import InputError, unknown

if TYPE_CHECKING:  # JAX is imported when it is needed
    from jaxbench.readings.own_program import OwnProgram
    from jaxbench.readings.own_program_roofline import Roofline

FLAGS = ("mesh", "hardware", "system", "mfu", "memory_efficiency", "format", "flagfile")
SIMULATE_FLAGS = (*FLAGS, *WHERE_FLAGS, "fits", "timeline", "chakra")
FORMATS = ("text", "json")
DEFAULT_HARDWARE = "h100"  # as of an experiment


class OwnCall(NamedTuple):
    """A call about a user's function: its flags, the program, what prices it, or what is wrong."""

    values: dict[str, str]
    program: OwnProgram | None
    roofline: Roofline | None
    faults: list[str]

    def checked(self) -> tuple[OwnProgram, Roofline]:
        """Return program and roofline; InputError if anything is wrong."""
        if self.faults or self.program is None or self.roofline is None:
            raise InputError(self.faults)
        return self.program, self.roofline


def is_own_program(words: Sequence[str]) -> bool:
    """Whether a call is about a user's function: a word with a colon stands alone."""
    return any(":" in word for word in split_arguments(words)[1])


def plan_own_program(words: Sequence[str]) -> int:
    """Print the plan of a user's function."""
    call = read_own_program("plan", words, FLAGS)
    if call.program and call.roofline:
        call.faults.extend(_size_faults(call.program, call.values["system"]))
    program, roofline = call.checked()
    from jaxbench.readings.own_program_plan import plan_program
    from jaxbench.report.own_program_table import render_own

    plan = plan_program(program, roofline)
    if call.values["format"] == "json":
        print(json.dumps(plan.to_json()))
    else:
        print(render_own(plan, roofline))
    return 0


def simulate_own_program(words: Sequence[str]) -> int:
    """Print what a call of a user's function takes on a system."""
    call = read_own_program("simulate", words, SIMULATE_FLAGS)
    values, faults = call.values, list(call.faults)

    from jaxbench.readings.own_program_predict import OwnJob, predict_program
    from jaxbench.readings.ranks import Ranks
    from jaxbench.readings.simulate.system import price
    from jaxbench.report.chakra import chakra_faults, write_chakra
    from jaxbench.report.own_program_table import print_own_prediction
    from jaxbench.report.timeline import representative_ranks, timeline_faults, write_timeline

    fits, fit_faults = read_fits_flag(values["fits"])
    faults += fit_faults
    faults += timeline_faults(values["timeline"]) if values["timeline"] else []
    faults += chakra_faults(values["chakra"]) if values["chakra"] else []
    priced = None
    if call.program and call.roofline and not fit_faults:
        axes = call.program.axes
        job = OwnJob(axes, call.program.ranks.count, call.roofline.hardware.name)
        try:
            where = {name: values[name] for name in WHERE_FLAGS}
            priced = price(job, values["system"] or None, fits=fits, **where)
        except InputError as error:
            faults += error.faults
    program, roofline = call._replace(faults=faults).checked()
    assert priced is not None

    ranks = Ranks(program.axes)
    record = representative_ranks(ranks) if values["timeline"] else ()
    prediction = predict_program(
        program,
        roofline,
        priced.costs,
        priced.semantics,
        record=record,
        described=priced.described,
    )
    if values["timeline"]:
        write_timeline(
            values["timeline"],
            prediction.simulation,
            ranks,
            priced.semantics,
            prediction.closed,
            title=program.name,
        )
    if values["chakra"]:
        write_chakra(values["chakra"], program.name, prediction.closed, ranks)
    if values["format"] == "json":
        print(json.dumps(prediction.to_json()))
    else:
        print_own_prediction(prediction, roofline)
    return 0


def read_own_program(command: str, words: Sequence[str], taken: Sequence[str]) -> OwnCall:
    """Return the traced function that a call of `command` names, and all that is wrong with it."""
    from jaxbench.readings.own_program import read_program
    from jaxbench.readings.own_program_roofline import Roofline
    from jaxbench.timing_model import DEFAULT_MEMORY_EFFICIENCY

    call = read_call(f"{command} {ARGUMENT}", words, taken, (ARGUMENT,))
    values, faults = call.values, list(call.faults)
    if values["format"] not in FORMATS:
        faults.append(unknown("format", values["format"], FORMATS))
    hardware, hardware_faults = _read_hardware(values)
    mfu, efficiency = _read_share(values, "mfu"), _read_share(values, "memory_efficiency")
    faults += [*hardware_faults, *mfu.faults, *efficiency.faults]
    mesh, mesh_faults = read_axes(values["mesh"]) if values["mesh"] else (None, [])
    faults += mesh_faults
    program = roofline = None
    if len(call.arguments) == 1:
        name = call.arguments[0]
        loaded = load(name, None if mesh_faults else mesh, bool(values["mesh"]))
        faults += loaded.faults
        try:
            if loaded.function is not None and not loaded.faults:
                program = read_program(name, traced(name, loaded))
        except InputError as error:
            faults += error.faults
    if hardware is not None:
        reached = efficiency.value or DEFAULT_MEMORY_EFFICIENCY
        roofline = Roofline(hardware, mfu.value, reached)
        if program is not None:
            faults += roofline.faults(program.bodies)
    return OwnCall(values, program, roofline, faults)


def _size_faults(program: OwnProgram, system: str) -> list[str]:
    found = find_system(system).devices if system else None
    if found is None or program.ranks.count <= found:
        return []
    return [
        f"system {system} has {found} devices, but the mesh of {program.name} takes "
        f"{program.ranks.count}"
    ]


class _Share(NamedTuple):
    value: float | None
    faults: list[str]


def _read_share(values: dict[str, str], name: str) -> _Share:
    text = values.get(name, "")
    try:
        value = float(text) if text else None
    except ValueError:
        return _Share(None, [f"--{name} is '{text}'; it must be a number"])
    if value is not None and not 0 < value <= 1:
        return _Share(None, [f"--{name} is {value:g}; it must be greater than 0 and at most 1"])
    return _Share(value, [])


def _read_hardware(values: dict[str, str]) -> tuple[Hardware | None, list[str]]:
    """Return the device of --hardware or --system; None with what is wrong."""
    name, faults, implied = values.get("hardware", ""), [], None
    if values.get("system"):
        try:
            implied = find_system(values["system"]).hardware
        except InputError as error:
            faults += error.faults
    if name and name not in HARDWARE:
        faults.append(unknown("hardware", name, HARDWARE))
    elif name and implied and name != implied:
        system = values["system"]
        faults.append(f"system {system} has hardware {implied}, but --hardware is {name}")
    return (None if faults else HARDWARE[name or implied or DEFAULT_HARDWARE]), faults
