"""Compile the programs of all kinds of collectives for a target; print a line of JSON for each.

    python tests/measure/collectives/compile_collectives.py h100

A process of its own, since JAX must know of the target's platform from its start.
"""

from __future__ import annotations

import json
import sys

from jaxbench.measure.collectives.cells import make_cells
from jaxbench.measure.collectives.kinds import KINDS
from jaxbench.measure.collectives.program import build_program
from jaxbench.payload.none import NoPayload
from jaxbench.program import trace
from jaxbench.readings.build import compile_step
from jaxbench.readings.compiled import compare
from jaxbench.readings.compiler_options import compiler_options
from jaxbench.readings.hlo import collectives
from jaxbench.readings.ranks import Ranks
from jaxbench.readings.sites import find_sites
from jaxbench.readings.targets import target_mesh, target_platform


def main(target: str) -> None:
    platform = target_platform(target)
    mesh = target_mesh(target, {"data": 2, "tensor": 4})
    padding = "tpu" if platform == "tpu" else "exact"
    for cell in make_cells(KINDS, {"tensor": 4}, ["bfloat16"], [8, 1 << 20], padding):
        for executions in (1, 4):
            traced = trace(build_program(cell, executions), mesh)
            step = compile_step(
                traced, mesh, lambda s, label: NoPayload(), compiler_options(platform)
            )
            sites = find_sites(traced.closed, Ranks(tuple(mesh.shape.items())))
            row = {
                "cell": cell.describe(),
                "executions": executions,
                "comparison": str(compare(sites, collectives(step.text, mesh.size))),
                "branches": step.text.count(" conditional("),
            }
            print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
