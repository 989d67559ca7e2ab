"""Processes that would not do the same are named, with what differs."""

from __future__ import annotations

from typing import Any

from jaxbench.launch.handshake import MOST_TOLD, differences, identity, odd_ones
from jaxbench.measure.processes import Place

PLACES = [Place(f"n{k}") for k in range(4)]


def runs(**changes: Any) -> dict[str, Any]:
    """Return the identity of two experiments, the second with changes."""
    base = {"steps": 10, "mesh": {"data": 2, "pipeline": 4}, "dtype": "bfloat16"}
    return identity([base, {**base, **changes}])


def test_all_alike() -> None:
    assert odd_ones([runs()] * 4, PLACES) is None


def test_the_odd_ones_are_named_with_what_differs() -> None:
    odd = runs(steps=20, mesh={"data": 8})
    text = odd_ones([runs(), odd, runs(), odd], PLACES)
    assert text == (
        "not all processes run what process 0 runs: processes 1, 3 (n1, n3): "
        "--steps is 20 instead of 10 in experiment 2; "
        "--mesh is data=8 instead of data=2,pipeline=4 in experiment 2"
    )


def test_each_difference_with_its_processes() -> None:
    text = odd_ones([runs(), runs(steps=1), runs(dtype="int8"), runs(steps=1)], PLACES)
    assert text and "processes 1, 3 (n1, n3): --steps is 1 " in text
    assert "process 2 (n2): --dtype is int8 " in text


def test_versions_and_numbers_of_experiments() -> None:
    other = runs()
    other["versions"] = {**other["versions"], "jax": "0.11.0"}
    assert differences(runs(), other) == [f"jax 0.11.0 instead of {runs()['versions']['jax']}"]
    assert differences(runs(), identity([])) == ["0 experiments instead of 2"]
    assert differences(runs(), {**runs(), "machine": "z80"})[0].startswith("machine z80 instead of")


def test_many_differences_are_cut() -> None:
    one, two = ({f"f{k}": k + add for k in range(20)} for add in (0, 1))
    text = odd_ones([identity([one]), identity([two])], PLACES)
    assert text and text.count(" instead of ") == MOST_TOLD and text.endswith("and 14 more")
