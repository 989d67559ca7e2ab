"""Three job steps at once in one job, which must have nothing to do with each other.

They share nodes, or have their own. Each runs another program, so that what one gets of another
shows: in the plan, in the values, in the ranks of the record.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from tests.cluster.cluster import Cluster

ROOT = Path(__file__).parents[2]
STEPS = (1, 2, 3)  # of which step k has k buckets
STEP_LIMIT_S = 240
RUN = (
    "run --strategy=dp --model=tiny --dtype=float32 --payload=none --steps=2 --warmup=2 "
    "--nodecompose --size_scale=0.1"
)


def script(nodes: tuple[str, ...], tries: int, out: Path) -> str:
    """Return the batch script: `tries` times three steps at once, of two processes each.

    With six nodes every step has two of its own; with two, all share them.
    """
    lines = [
        "#!/bin/bash",
        f"#SBATCH --nodes={len(nodes)} --nodelist={','.join(nodes)}",
        f"#SBATCH --ntasks-per-node={6 // len(nodes)}",
        f"#SBATCH --output={out}/job.out",
        f"export PYTHONPATH={ROOT} JAX_PLATFORMS=cpu",
        f"for try in $(seq {tries}); do",
    ]
    for k in STEPS:
        own = nodes if len(nodes) == 2 else nodes[2 * k - 2 : 2 * k]
        lines.append(
            f"    timeout {STEP_LIMIT_S} srun --exact --nodes=2 --ntasks=2 --ntasks-per-node=1 "
            f"--nodelist={','.join(own)} {sys.executable} -m jaxbench {RUN} --devices=2 "
            f"--buckets={k} --seed={k} --out={out}/$try/{k} >{out}/$try.{k}.out 2>&1 || "
            f'echo "try $try: step {k} ended with $?" &'
        )
    return "\n".join([*lines, "    wait", "done", ""])


def run_tries(cluster: Cluster, shared: bool, tries: int, out: Path) -> list[str]:
    """Run them, and return everything that is wrong; nothing if all is right."""
    names = cluster.layout.names
    nodes = names[:2] if shared else names[:6]
    out.mkdir(parents=True)
    done = cluster.run(["sbatch", "--parsable"], timeout=20, stdin=script(nodes, tries, out))
    if done.returncode:
        return [done.stderr]
    state = cluster.wait_for(done.stdout.strip(), tries * (STEP_LIMIT_S + 20))
    said = (out / "job.out").read_text()
    faults = [] if state == "COMPLETED" and not said else [f"{state}: {said}"]
    for number in range(1, tries + 1):
        for k in STEPS:
            own = nodes if shared else nodes[2 * k - 2 : 2 * k]
            found = step_faults(out / f"{number}" / f"{k}" / "runs.jsonl", k, own)
            printed = (out / f"{number}.{k}.out").read_text()
            faults += [f"try {number}, step {k}: {fault}\n{printed}" for fault in found]
    return faults


def step_faults(path: Path, k: int, nodes: tuple[str, ...]) -> list[str]:
    """Return what is wrong with the record of step k, which had these nodes."""
    try:
        records: list[dict[str, Any]] = [json.loads(line) for line in path.read_text().splitlines()]
    except OSError as error:
        return [str(error)]
    if len(records) != 1:
        return [f"{len(records)} records"]
    (record,) = records
    told = {
        "partial": (record["partial"], False),
        "values": (record["checks"]["values_ok"], True),
        "plan": (record["checks"]["plan_equals_compiled"], True),
        "buckets": (sum(row["count"] for row in record["plan"] if row["axis"] == "data"), k),
        "seed": (record["seed"], k),
        "processes": (record["environment"]["processes"], 2),
        "hosts": (sorted(r["host"] for r in record["ranks"]), sorted(nodes)),
    }
    return [f"{what} is {is_!r}, not {must!r}" for what, (is_, must) in told.items() if is_ != must]
