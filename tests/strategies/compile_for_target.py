"""Compile contract cases for a target without devices; print a line of JSON for each.

    python tests/strategies/compile_for_target.py h100 dp-8 fsdp-2x4

A process of its own, since JAX must know of the target's platform from its start.
"""

from __future__ import annotations

import dataclasses
import json
import sys

from jaxbench.payload.matmul import Matmul
from jaxbench.program import trace
from jaxbench.readings.build import compile_step
from jaxbench.readings.compiled import compare
from jaxbench.readings.compiler_options import compiler_options
from jaxbench.readings.hlo import collectives
from jaxbench.readings.plan import build_program, plan_traced
from jaxbench.readings.targets import target_mesh, target_platform
from tests.cases import case


def main(target: str, names: list[str]) -> None:
    platform = target_platform(target)
    work = Matmul(2, 1024, "bfloat16")
    for name in names:
        e = case(name)
        if platform == "tpu":
            e = dataclasses.replace(e, padding="tpu")
        mesh = target_mesh(target, dict(e.mesh))
        workload, program = build_program(e)
        traced = trace(program, mesh)
        plan = plan_traced(e, workload, traced, 0.0, platform)
        step = compile_step(traced, mesh, lambda s, label: work, compiler_options(platform))
        found = collectives(step.text, mesh.size)
        print(
            json.dumps(
                {
                    "case": name,
                    "collectives": len(found),
                    "comparison": str(compare(plan.sites, found)),
                    "wire_dtypes": sorted({c.dtype for c in found}),
                    "planned_bytes": plan.memory.total_bytes,
                    "buffer_bytes": plan.memory.buffer_bytes,
                    "temporary_bytes": step.temporary_bytes,
                }
            ),
            flush=True,
        )


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
