"""The strategies: each file holds the order of its collectives and computes, and its source."""

from __future__ import annotations

from collections.abc import Callable

from jaxbench.program import Program
from jaxbench.strategies import dp, dp_pp, dp_pp_ep, dp_pp_tp, fsdp
from jaxbench.workload import Workload

STRATEGIES: dict[str, Callable[[Workload], Program]] = {
    "dp": dp.build,
    "fsdp": fsdp.build,
    "dp_pp": dp_pp.build,
    "dp_pp_tp": dp_pp_tp.build,
    "dp_pp_ep": dp_pp_ep.build,
}
