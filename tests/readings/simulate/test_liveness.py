"""What the simulation leaves out changes nothing."""

from __future__ import annotations

import numpy as np
import pytest
from jax.extend.core import Jaxpr

from jaxbench.program import abstract_mesh, trace
from jaxbench.readings.plan import build_program
from jaxbench.readings.ranks import Ranks
from jaxbench.readings.simulate import Semantics, simulate
from jaxbench.readings.simulate.liveness import Liveness
from tests.cases import CASES, case
from tests.simple_costs import TwoTiers


@pytest.mark.parametrize("name", CASES)
def test_nothing_that_matters_is_left_out(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    e = case(name)
    closed = trace(build_program(e)[1], abstract_mesh(e.mesh)).closed
    costs, semantics = TwoTiers(per_node=2), Semantics("one")
    short = simulate(closed, Ranks(e.mesh), costs, semantics, fold=False)
    left_out = 0

    def nothing(self: Liveness, jaxpr: Jaxpr) -> set[int]:
        nonlocal left_out
        left_out += len(jaxpr.eqns) - len(self._needed.get(id(jaxpr), ()))
        return set()

    monkeypatch.setattr(Liveness, "unneeded", nothing)
    whole = simulate(closed, Ranks(e.mesh), costs, semantics, fold=False)
    assert left_out > 0
    assert np.array_equal(short.end_s, whole.end_s)
    assert np.array_equal(short.compute_s, whole.compute_s)
    assert short.uses == whole.uses
