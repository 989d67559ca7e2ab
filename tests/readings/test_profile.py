"""What is made of events whichever backend left them: who waits for whom, labels, the record."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from jaxbench.errors import RunError
from jaxbench.readings.plan import Plan
from jaxbench.readings.profile import read_profile
from jaxbench.readings.profile_reading import ProfileReading
from tests.readings.profile_inputs import MODULE, E, make_plan, program_text, scope, write_profile

STAGES = 3


@pytest.fixture(scope="module")
def plan() -> Plan:
    return make_plan(strategy="dp_pp", mesh=f"pipeline={STAGES}", microbatches=2)


@pytest.fixture(scope="module")
def text(plan: Plan) -> str:
    lines = []
    for number, site in enumerate(plan.sites):
        size = f"f32[{site.elements}]{{0}}"
        pairs = ",".join(f"{{{source},{destination}}}" for source, destination in site.pairs)
        lines += [
            f"%buffer.{number} = {size} parameter({number + 1})",
            f"%hop.{number} = {size} collective-permute(%buffer.{number}), channel_id=1, "
            f"source_target_pairs={{{pairs}}}, {scope(site.label, 'ppermute')}",
        ]
    return program_text(lines)


def hops(rank: int, begins: int) -> list[E]:
    """Four hops each way, which rank `rank` enters late; all end together."""
    return [
        E(
            f"hop.{way}",
            start + begins,
            start + 50,
            {
                "hlo_op": f"hop.{way}",
                "hlo_module": MODULE,
                "run_id": 1,
                "device_ordinal": rank,
                "_p": 1000 * rank + start,
            },
        )
        for way in (0, 1)
        for start in range(500 * way, 500 * way + 400, 100)
    ]


ENTERS = (0, 10, 40)


def read(folder: Path, plan: Plan, text: str, platform: str) -> ProfileReading:
    listed = {rank: hops(rank, begins) for rank, begins in enumerate(ENTERS)}
    planes = {
        "cpu": {"/host:CPU": {f"thread {rank}": events for rank, events in listed.items()}},
        "gpu": {f"/device:GPU:{rank}": {"Stream #1(Compute)": e} for rank, e in listed.items()},
    }
    return read_profile(
        write_profile(folder, planes[platform]),
        text=text,
        plan=plan,
        platform=platform,
        ranks={rank: rank for rank in range(STAGES)},
        steps=1,
    )


@pytest.mark.parametrize(
    ("platform", "waiting", "execution", "skew"),
    # A GPU waits for those it sends to or receives from, a CPU device for all.
    [("gpu", (10, 30, 0), 10, 30), ("cpu", (40, 30, 0), 10, 40)],
)
def test_who_waits_for_whom_in_a_permute(
    tmp_path: Path,
    plan: Plan,
    text: str,
    platform: str,
    waiting: tuple[int, ...],
    execution: int,
    skew: int,
) -> None:
    found = read(tmp_path, plan, text, platform)
    forward, backward = found.labels
    assert forward.labels == ("forward hop",) and forward.count == (4, 4, 4)
    np.testing.assert_allclose(
        forward.shares.waiting_s, [[4 * ns * 1e-9 for ns in waiting]], atol=1e-15
    )
    np.testing.assert_allclose(
        found.shares.total_s, [[8 * (50 - ns) * 1e-9 for ns in ENTERS]], atol=1e-15
    )
    assert backward.execution_s == pytest.approx(execution * 1e-9)
    assert backward.skew_s == pytest.approx(skew * 1e-9)
    (row,) = found.rows
    assert row.labels == ("forward hop", "backward hop") and row.count == (8, 8, 8)
    np.testing.assert_allclose(row.shares.total_s, found.shares.total_s)


def test_the_record_has_every_step_and_rank(tmp_path: Path, plan: Plan, text: str) -> None:
    found = read(tmp_path, plan, text, "cpu")
    record = json.loads(json.dumps(found.to_json(), allow_nan=False))
    assert record["steps"]["exposed_s"] == found.shares.exposed_s.tolist()
    assert record["median"]["transfer_s"] == pytest.approx(80e-9)
    assert record["rows"][0]["count"] == [8, 8, 8]
    assert len(record["rows"][0]["hidden_s"]) == STAGES
    assert record["labels"][1]["labels"] == ["backward hop"]
    assert record["labels"][1]["count"] == 4
    assert record["platform"] == "cpu" and record["path"].endswith(".xplane.pb")


def test_a_collective_without_a_label_of_the_plan_is_told(
    tmp_path: Path, plan: Plan, text: str
) -> None:
    with pytest.raises(RunError, match=r"the plan has no permute .* for 'hop.0' \(scope '.*/other"):
        read(tmp_path, plan, text.replace("forward hop", "other hop"), "cpu")
