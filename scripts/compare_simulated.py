#!/usr/bin/env python3
"""Predicted steps against measured ones, on 8 virtual devices of this machine.

For each tiny workload and its communication-heavy twin, the collectives of its mesh are timed
(`jaxbench collectives --fit`) before and after the workload is measured, since the machine's speed
drifts, and its step is simulated with the mean of those times and nothing else: no number comes
from the measurement that it is compared with. The collectives are timed in the manner in which they
follow each other in a step (`--pause_s`, `--messages`): after the compute that there is for each of
them by the plan, and with buffers that caches hold only if the step sends them repeatedly, which on
CPUs makes up to a factor of three. Prints the errors, and beside them those of a predictor that
knows compute and bubble only; exits 1 unless

- every predicted step is within 15 % of the measured median,
- the exposed communication of every heavy twin is within 30 %,
- the predictor that knows no communication misses both.

    python scripts/compare_simulated.py
    python scripts/compare_simulated.py dp fsdp
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import tempfile
from functools import reduce
from pathlib import Path
from typing import Any

from jaxbench.measure.collectives.fit_file import join_fits, read_fits

ROOT = Path(__file__).resolve().parent.parent

STEP, EXPOSED = 0.15, 0.30

# What is measured of the collectives that a strategy sends: mesh, kinds, axes ('' for all), and
# buffers that take turns. What a step sends once (gradients, units) comes from memory, what it
# sends over and over from caches. While a pipeline fills and drains, fewer stages are at it at once
# and share the processors.
ONCE, REPEATED = 4, 1
MEASURED = {
    "dp": [("data=8", "all_reduce", "", ONCE)],
    "fsdp": [("data=2,fsdp=4", "all_reduce,all_gather,reduce_scatter", "", ONCE)],
    "dp_pp": [
        ("data=2,pipeline=4", "all_reduce", "data", ONCE),
        ("data=2,pipeline=4", "permute", "pipeline", REPEATED),
    ],
    "dp_pp_tp": [
        ("pipeline=4,tensor=2", "permute", "pipeline", ONCE),  # what an all-reduce has just written
        ("pipeline=4,tensor=2", "all_reduce", "tensor", REPEATED),
        ("pipeline=2,tensor=2", "all_reduce", "tensor", REPEATED),
        ("pipeline=1,tensor=2", "all_reduce", "tensor", REPEATED),
    ],
    "dp_pp_ep": [
        ("data=2,pipeline=2,expert=2", "all_reduce", "data,expert", ONCE),
        ("data=2,pipeline=2,expert=2", "permute", "pipeline", REPEATED),
        ("data=2,pipeline=2,expert=2", "all_to_all", "expert", REPEATED),
        ("data=2,pipeline=1,expert=2", "all_to_all", "expert", REPEATED),
    ],
}

COLUMNS = (
    "workload               step: measured predicted  error  blind   "
    "exposed: measured predicted  error  blind"
)


def main(strategies: list[str]) -> int:
    """Measure and predict, print a row per workload, and return the exit code."""
    print(COLUMNS)
    missed, blind = 0, []
    for strategy in strategies or MEASURED:
        for workload, measured, predicted in compare(strategy):
            row = errors(measured, predicted)
            blind.append((row["blind_step"], row["blind_exposed"], workload))
            failed = abs(row["step"]) > STEP
            failed |= workload.endswith("_heavy") and abs(row["exposed"]) > EXPOSED
            missed += failed
            print(
                f"{workload:22} {ms(measured['step_s'])} {ms(predicted['step_s'])} "
                f"{row['step']:+7.1%} {row['blind_step']:+7.1%}   {ms(exposed(measured))} "
                f"{ms(exposed(predicted))} {row['exposed']:+7.1%} {row['blind_exposed']:+7.1%}"
                f"{'  MISSED' if failed else ''}",
                flush=True,
            )
    sees_nothing = any(abs(step) > STEP for step, _, _ in blind)
    print(f"{missed} missed; compute and bubble alone {'miss' if sees_nothing else 'PASS'} too")
    return 0 if not missed and sees_nothing else 1


def compare(strategy: str) -> list[tuple[str, dict[str, float], dict[str, float]]]:
    """Return (workload, measured, predicted metrics) of a strategy's workload and its twin."""
    names = [f"tiny_{strategy}", f"tiny_{strategy}_heavy"]
    pause = pause_s(names)
    with tempfile.TemporaryDirectory() as out:
        before = fits_of(strategy, pause, f"{out}/before")
        jaxbench("run", f"--runs={','.join(names)}", "--devices=8", "--steps=20", f"--out={out}")
        fits = Path(out) / "fits.json"
        fits.write_text(json.dumps(mean(before, fits_of(strategy, pause, f"{out}/after"))))
        lines = (Path(out) / "runs.jsonl").read_text().splitlines()
        measured = [
            {name: metric["value"] for name, metric in json.loads(line)["metrics"].items()}
            for line in lines
        ]
        text = jaxbench(
            "simulate",
            f"--runs={','.join(names)}",
            "--devices=8",
            f"--fits={fits}",
            "--format=json",
        )
        predicted = [json.loads(line)["metrics"] for line in text.splitlines()]
    return list(zip(names, measured, predicted, strict=True))


def pause_s(names: list[str]) -> float:
    """Return the seconds of compute for each collective of these workloads, by their plans."""
    text = jaxbench("plan", f"--runs={','.join(names)}", "--devices=8", "--format=json")
    rows = [row for line in text.splitlines() for row in json.loads(line)]
    compute = sum(row["seconds"] for row in rows if row["kind"] == "compute")
    return compute / sum(row["count"] for row in rows if row["axis"])


def fits_of(strategy: str, pause: float, out: str) -> dict[str, Any]:
    """Time the collectives of a strategy and return what was fitted, in one document."""
    measured = enumerate(MEASURED[strategy])
    return reduce(join_fits, [fit(*of, pause, f"{out}{number}") for number, of in measured])


def fit(mesh: str, kinds: str, axis: str, messages: int, pause: float, out: str) -> dict[str, Any]:
    """Time the collectives of a mesh and return what was fitted."""
    Path(out).mkdir()
    ranks = math.prod(int(part.partition("=")[2]) for part in mesh.split(","))
    jaxbench(
        "collectives",
        f"--mesh={mesh}",
        f"--devices={ranks}",
        f"--kinds={kinds}",
        *([f"--axis={axis}"] if axis else []),
        "--min_bytes=1K",
        "--max_bytes=32M",
        "--factor=4",
        "--dtype=float32",
        "--steps=12",
        f"--messages={messages}",
        f"--pause_s={pause:.6f}",
        f"--fit={out}/fits.json",
        f"--out={out}",
    )
    return read_fits(f"{out}/fits.json")


def mean(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    """Return `before` with each series holding the sizes and times of both."""
    for one, other in zip(before["fits"], after["fits"], strict=True):
        one["bytes"] += other["bytes"]
        one["time_s"] += other["time_s"]
        one["latency_s"] = average(one["latency_s"], other["latency_s"])
        one["bandwidth_Bps"] = average(one["bandwidth_Bps"], other["bandwidth_Bps"])
    return before


def average(one: float | None, other: float | None) -> float | None:
    """Return the mean of two numbers, or the one that there is."""
    known = [value for value in (one, other) if value is not None]
    return sum(known) / len(known) if known else None


def exposed(metrics: dict[str, float]) -> float:
    """Return what communication adds to a step: latency and transfer."""
    return metrics["transfer_exposed_s"] + metrics["latency_s"]


def errors(measured: dict[str, float], predicted: dict[str, float]) -> dict[str, float]:
    """Return relative errors of the prediction, and of compute and bubble alone."""
    blind = predicted["compute_s"] + predicted["bubble_s"]
    return {
        "step": predicted["step_s"] / measured["step_s"] - 1,
        "exposed": exposed(predicted) / exposed(measured) - 1,
        "blind_step": blind / measured["step_s"] - 1,
        "blind_exposed": -1.0,
    }


def ms(seconds: float) -> str:
    """Format seconds as milliseconds of fixed width."""
    return f"{seconds * 1e3:9.2f}"


def jaxbench(*words: Any) -> str:
    """Run a command of jaxbench and return what it printed."""
    done = subprocess.run(
        [sys.executable, "-m", "jaxbench", *words],
        cwd=ROOT,
        env={**os.environ, "JAX_PLATFORMS": "cpu"},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        check=True,
        timeout=900,
    )
    return done.stdout


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
