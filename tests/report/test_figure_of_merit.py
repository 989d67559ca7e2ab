"""The line for other programs: its text is a promise, so it is pinned here."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import pytest

from jaxbench.report.figure_of_merit import figure_of_merit

README = Path(__file__).parents[2] / "README.md"

# Other people's programs read it: a change here breaks them.
GOLDEN = (
    "FOM status=ok strategy=dp_pp model=tiny mesh=data=2,pipeline=4 ranks=8 processes=4 "
    "time_scale=1.0 size_scale=0.001 values_ok=true plan_equals_compiled=true n=20 "
    "step_s=0.06612345678901234 step_low_s=0.06 step_high_s=7.1e-05 throughput=1877.0 "
    "exposed_s=0.006 communication_share=null communication_relevance=0.25 id=4f0c12"
)


def record(**changes: Any) -> dict[str, Any]:
    """Return the record behind GOLDEN, as far as the line needs it, with changes."""
    values = {"throughput": 1877.0, "exposed_s": 0.006, "communication_relevance": 0.25}
    metrics: dict[str, Any] = {name: {"value": value} for name, value in values.items()}
    metrics["communication_share"] = {"value": None}
    metrics["step_s"] = {
        **{"value": 0.06612345678901234, "unit": "s"},
        **{"ci_low": 0.06, "ci_high": 7.1e-05, "n": 20},
    }
    base = {
        "id": "4f0c12",
        "experiment": {
            "strategy": "dp_pp",
            "model": "tiny",
            "mesh": {"data": 2, "fsdp": 1, "pipeline": 4, "expert": 1, "tensor": 1},
            "devices": 8,
        },
        "environment": {"processes": 4},
        "scales": {"time_scale": 1.0, "size_scale": 0.001},
        "checks": {"values_ok": True, "plan_equals_compiled": True, "values": {}},
        "metrics": metrics,
        "partial": False,
    }
    return {**base, **changes}


def words(line: str) -> dict[str, str]:
    """Return the words of a line by their keys, as any reader may find them."""
    return {key: value for key, _, value in (w.partition("=") for w in line.split(" ")[1:])}


def test_the_line() -> None:
    assert figure_of_merit(record()) == GOLDEN


def test_every_word_is_found_by_a_simple_pattern() -> None:
    line = figure_of_merit(record())
    found = words(line)
    assert len(found) == line.count(" ") and found["mesh"] == "data=2,pipeline=4"
    for key, value in found.items():
        assert re.findall(rf"^FOM .*?\b{key}=(\S+)", line) == [value]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, "ok"),
        ({"partial": True}, "partial"),
        ({"partial": True, "values_ok": None}, "partial"),
        ({"values_ok": None}, "partial"),
        ({"partial": True, "values_ok": False}, "failed"),
        ({"values_ok": False}, "failed"),
        ({"plan_equals_compiled": False}, "failed"),
        ({"partial": True, "n": 0}, "failed"),
        ({"n": 0}, "failed"),
    ],
)
def test_status(changes: dict[str, Any], expected: str) -> None:
    made = record(partial=changes.get("partial", False))
    made["metrics"]["step_s"]["n"] = changes.get("n", 20)
    made["checks"] |= {name: changes[name] for name in made["checks"] if name in changes}
    found = words(figure_of_merit(made))
    assert found["status"] == expected
    for name in ("values_ok", "plan_equals_compiled"):
        assert found[name] == {True: "true", False: "false", None: "null"}[made["checks"][name]]


def test_what_is_not_known_is_null() -> None:
    made = record()
    nothing = {"value": None, "ci_low": None, "ci_high": None, "n": 0}
    made["metrics"] = dict.fromkeys(made["metrics"], nothing)
    made["metrics"]["throughput"] = {"value": math.nan}
    found = words(figure_of_merit(made))
    unknown = [key for key, value in found.items() if value == "null"]
    assert unknown == [
        *("step_s", "step_low_s", "step_high_s", "throughput", "exposed_s"),
        *("communication_share", "communication_relevance"),
    ]


def test_the_readme_shows_it() -> None:
    (shown,) = re.findall(r"^(FOM .*?)\n```$", README.read_text(), re.MULTILINE | re.DOTALL)
    keys = [word.partition("=")[0] for word in shown.split()[1:] if word != "..."]
    promised = [*words(GOLDEN)]
    assert keys[:-1] == promised[: len(keys) - 1] and keys[-1] == promised[-1] == "id"
