"""Meshes as text; their resolution with devices is in test_experiment.py."""

from __future__ import annotations

from jaxbench.axes import AXES, STRATEGY_AXES, mesh_text, parse_mesh


def test_blanks_don_t_matter() -> None:
    assert parse_mesh(" data = 2 , tensor=4 ") == ({"data": 2, "tensor": 4}, [])


def test_what_is_right_is_kept_beside_what_is_wrong() -> None:
    sizes, faults = parse_mesh("data=2,tensor=-1,pipeline=1e3,expert=²,fsdp=" + "9" * 30)
    assert sizes == {"data": 2}
    assert len(faults) == 4


def test_text_leaves_out_unused_axes() -> None:
    assert mesh_text((("data", 2), ("fsdp", 1), ("tensor", 4))) == "data=2,tensor=4"
    assert mesh_text((("data", 1), ("fsdp", 1))) == "data=1"


def test_strategies_name_known_axes() -> None:
    assert {axis for axes in STRATEGY_AXES.values() for axis in axes} == set(AXES)
