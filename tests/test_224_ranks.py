"""The paper's 224-rank configuration, executed on 224 virtual devices with scaled sizes.

Its compilation, all checks and one timed step; `scripts/full_check` times more, with payload.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from jaxbench.measure.record import read_records

ROOT = Path(__file__).parents[1]


def test_llama3_70b_on_224_virtual_devices(tmp_path: Path) -> None:
    flags = [
        "--flagfile=flags/paper_dp_pp_tp_llama3_70b.flags",
        "--mesh=data=7,pipeline=8,tensor=4",
        "--size_scale=1e-6",
        "--payload=none",
        "--steps=1",
        "--nodecompose",  # variants are timed by scripts/full_check
        f"--out={tmp_path}",
    ]
    done = subprocess.run(
        [sys.executable, "-m", "jaxbench", "run", *flags],
        env={**os.environ, "PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    (record,), warnings = read_records(tmp_path)
    assert not warnings
    checks = record["checks"]
    assert checks["plan_equals_compiled"] is True and checks["values_ok"] is True
    assert checks["values"]["compared"] > 224 and checks["measured_values"]["compared"] > 224 * 64
    assert record["environment"]["devices"] == 224
    (sample,) = record["samples"]["full"]
    assert len(sample) == 1 and sample[0] > 0
    (gradient,) = [row for row in record["plan"] if row.get("axis") == "data"]
    assert gradient["full_elements"] == 2_204_803_328 and gradient["groups"] == 32
