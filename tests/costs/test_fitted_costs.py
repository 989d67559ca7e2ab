"""Which measured series a collective takes, and what is said where there is none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jaxbench.costs.fitted_costs import FittedCosts
from jaxbench.costs.interface import Cost, Costs, GroupCosts
from jaxbench.costs.tier_costs import TierCosts
from jaxbench.errors import InputError
from jaxbench.measure.collectives.fit import fit_fields, fit_line
from jaxbench.measure.collectives.fit_file import fits_document, read_fits, write_fits
from jaxbench.topology.hierarchy import of_system
from jaxbench.topology.placement import place
from tests.costs.fits_file import SIZES, document, fit_of
from tests.costs.small_systems import small_system

MESH = (("data", 2), ("tensor", 4))
TENSOR = np.arange(8).reshape(2, 4)
DATA = TENSOR.T.copy()


def asked(costs: Costs, kind: str, axis: str, dtype: str = "float32", nbytes: float = 8) -> Cost:
    groups = TENSOR if axis == "tensor" else DATA
    if kind == "permute":
        groups = np.stack([groups, np.roll(groups, -1, axis=1)], axis=-1).reshape(-1, 2)
    found = costs.collective(kind, nbytes, dtype, groups, (axis,))
    assert len(found.costs) == 1 and found.which.tolist() == [0] * len(groups)
    return found.costs[0]


def chosen(*fits: dict[str, Any], kind: str = "all_reduce", axis: str = "tensor") -> int:
    """Return which of the fits was taken; each gets a latency that tells."""
    named = [{**fit, "latency_s": 1e-3 * (n + 1)} for n, fit in enumerate(fits)]
    cost = asked(FittedCosts(document(*named), MESH), kind, axis, nbytes=0)
    return round(cost.seconds * 1e3) - 1


def slow(**fields: Any) -> dict[str, Any]:
    """Return a fit of sizes that all take a second, so that no latency is cut."""
    return fit_of(**fields, time_s=[1.0] * len(SIZES))


@pytest.mark.parametrize(
    ("fits", "taken"),
    [
        ([slow(kind="all_gather"), slow()], 1),
        ([slow(group_size=2), slow(group_size=4)], 1),
        ([slow(group_size=8), slow(group_size=3)], 1),
        ([slow(axis="data"), slow(axis="tensor")], 1),
        ([slow(axis="tensor", group_size=2), slow(axis="data", group_size=4)], 1),
        ([slow(groups=1), slow(groups=2)], 1),
        ([slow(groups=2, axis="data"), slow(groups=1, axis="tensor")], 1),
        ([slow(dtype="bfloat16"), slow(dtype="float32")], 1),
        ([slow(dtype="bfloat16", groups=2), slow(dtype="float32", groups=8)], 0),
    ],
)
def test_the_nearest_series_is_taken(fits: list[dict[str, Any]], taken: int) -> None:
    assert chosen(*fits) == taken
    assert chosen(*reversed(fits)) == len(fits) - 1 - taken


def test_a_permutes_ring_is_as_long_as_its_axis() -> None:
    """Its pairs don't tell."""
    fits = [slow(kind="permute", group_size=2, groups=4), slow(kind="permute")]
    assert chosen(*fits, kind="permute", axis="tensor") == 1
    assert chosen(*fits, kind="permute", axis="data") == 0


def test_costs_are_what_was_measured() -> None:
    costs = FittedCosts(document(fit_of(axis="tensor")), MESH)
    cost = asked(costs, "all_reduce", "tensor", nbytes=1e6)
    assert cost.seconds == pytest.approx(50e-6 + 1e6 / 2e9)
    assert (cost.latency_s, cost.algorithm, cost.bound) == (50e-6, "measured", "measured")
    other = asked(costs, "all_reduce", "data", nbytes=1e6)
    assert other.algorithm == "measured over 4 ranks"


def test_one_rank_costs_nothing() -> None:
    costs = FittedCosts(document(fit_of()), (("data", 1), ("tensor", 4)))
    found = costs.collective("all_gather", 1e9, "float32", np.arange(4)[:, None], ("data",))
    assert found.seconds.tolist() == [0.0] * 4


def test_a_kind_that_is_missing_lists_what_is_there() -> None:
    costs = FittedCosts(document(fit_of(), fit_of(kind="permute", axis="tensor")), MESH)
    with pytest.raises(InputError) as caught:
        asked(costs, "all_to_all", "tensor")
    text = str(caught.value)
    assert "no all_to_all" in text and "--kinds=all_to_all" in text
    assert "all_reduce over data=4 (2 groups, float32)" in text and "permute over tensor=4" in text
    assert costs.missing(["permute", "all_reduce"]) == []
    assert len(costs.missing(["all_gather", "permute", "all_to_all", "all_gather"])) == 2


def test_all_faults_of_a_file_are_told_at_once() -> None:
    bad = document(fit_of(kind=""), fit_of(), fit_of(group_size=0, time_s=[]))
    with pytest.raises(InputError) as caught:
        FittedCosts(bad, MESH)
    assert len(caught.value.faults) == 3
    assert [fault[:5] for fault in caught.value.faults] == ["fit 1", "fit 3", "fit 3"]
    for fits in (None, {}, [1]):
        with pytest.raises(InputError):
            FittedCosts({"fits": fits}, MESH)


def test_a_file_as_it_is_written_can_be_read(tmp_path: Path) -> None:
    times = [60e-6 + nbytes / 1e9 for nbytes in SIZES]
    measured = {
        **{name: fit_of()[name] for name in ("kind", "axis", "group_size", "groups", "dtype")},
        "bytes": SIZES,
        "time_s": times,
        **fit_fields(fit_line(SIZES, times)),
    }
    write_fits(tmp_path / "fits.json", fits_document([measured], {}, "now"))
    costs = FittedCosts(read_fits(tmp_path / "fits.json"), MESH)
    cost = asked(costs, "all_reduce", "tensor", nbytes=1e5)
    assert cost.seconds == pytest.approx(60e-6 + 1e5 / 1e9)
    assert cost.latency_s == pytest.approx(60e-6)


class Constant:
    """Costs that are always the same."""

    def __init__(self, seconds: float):
        self.cost = Cost(seconds, 0.0, "constant", "measured")
        self.asked: list[int] = []

    def collective(
        self, kind: str, nbytes: float, dtype: str, groups: np.ndarray, axes: tuple[str, ...]
    ) -> GroupCosts:
        self.asked.append(len(groups))
        return GroupCosts((self.cost,), np.zeros(len(groups), np.int64))


def test_a_tier_can_have_costs_of_its_own() -> None:
    system = small_system()
    placement = place(of_system(system), system, 32)
    inside, leaf, rest = Constant(1.0), Constant(2.0), Constant(3.0)
    costs = TierCosts(placement, {"node": inside, "leaf": leaf}, rest)
    groups = np.array([[0, 16], [0, 1], [0, 4], [2, 3], [0, 8]])
    found = costs.collective("all_reduce", 1.0, "float32", groups, ("data",))
    assert found.seconds.tolist() == [3, 1, 2, 1, 3]
    assert (inside.asked, leaf.asked, sum(rest.asked)) == ([2], [1], 2)
    only = costs.collective("all_reduce", 1.0, "float32", groups[:1], ("data",))
    assert only.seconds.tolist() == [3]


def test_an_unknown_tier_is_refused() -> None:
    system = small_system()
    placement = place(of_system(system), system, 4)
    with pytest.raises(InputError, match="unknown tier 'rack'"):
        TierCosts(placement, {"rack": Constant(1.0)}, Constant(1.0))


def test_groups_at_once_are_between_those_measured() -> None:
    """One group takes 1 ms, four at once take 4 ms; eight are as the most that were measured."""
    one, four = (slow(groups=groups, axis="tensor", latency_s=1e-3 * groups) for groups in (1, 4))
    costs = FittedCosts(document(four, one), (("data", 8), ("tensor", 4)))
    groups = np.arange(32).reshape(8, 4)
    found = [
        costs.collective("all_reduce", 0, "float32", groups[:count], ("tensor",)).seconds
        for count in (1, 2, 4, 8)
    ]
    assert [seconds.tolist() for seconds in found] == [
        pytest.approx([ms * 1e-3] * count) for count, ms in ((1, 1), (2, 2), (4, 4), (8, 4))
    ]
