"""Laws that hold for every system, placement, kind and size."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxbench.catalog.links import NodeLinks
from jaxbench.catalog.systems import System
from jaxbench.costs.algorithms import ALGORITHMS
from jaxbench.costs.system_costs import SystemCosts
from jaxbench.topology.hierarchy import of_system
from jaxbench.topology.placement import place
from tests.costs.small_systems import small_system

RATES = ("device_Bps", "peer_Bps", "nic_Bps", "leaf_up_Bps", "global_Bps")
LATENCIES = ("latency_s", "leaf_latency_s", "group_latency_s", "global_latency_s")
ROUNDING = 1 + 1e-6

systems = st.builds(
    lambda groups, hardware, node, rates, seconds, cards, **flags: replace(
        small_system(
            groups,
            node={
                "kind": node,
                "device_Bps": 3 * rates[0],
                "peer_Bps": rates[0] if node == "peer" else None,
                "latency_s": seconds[0],
                "in_switch": node == "crossbar",
            },
            nic_Bps=rates[1],
            leaf_up_Bps=rates[2],
            global_Bps=rates[3],
            leaf_latency_s=seconds[1],
            group_latency_s=seconds[2],
            global_latency_s=seconds[3],
            nics_per_node=cards,
            **flags,
        ),
        hardware=hardware,
    ),
    st.integers(1, 3),
    st.sampled_from(["a100", "h100", "mi250x_gcd", "cpu"]),
    st.sampled_from(["crossbar", "peer"]),
    st.tuples(*[st.floats(1e8, 1e12)] * 4),
    st.tuples(*[st.floats(1e-7, 1e-4)] * 4),
    cards=st.sampled_from([1, 2, 4]),
    adaptive=st.booleans(),
    in_switch=st.booleans(),
)


class Job(NamedTuple):
    """A collective of some groups of a mesh."""

    system: System
    devices: int
    kind: str
    groups: np.ndarray

    def seconds(self, nbytes: float, algorithm: str = "auto", **changes: float) -> np.ndarray:
        system = self.system
        assert system.network
        inside = {k: v for k, v in changes.items() if k in ("device_Bps", "peer_Bps", "latency_s")}
        outside = {k: v for k, v in changes.items() if k not in inside}
        system = replace(
            system,
            node=replace(system.node, **inside),
            network=replace(system.network, **outside),
        )
        placement = place(of_system(system), system, self.devices)
        costs = SystemCosts(system, placement, algorithm)
        return costs.collective(self.kind, nbytes, "float32", self.groups, ("data",)).seconds

    def value(self, name: str) -> float | None:
        owner: Any = self.system.node
        return getattr(owner if hasattr(owner, name) else self.system.network, name)


@st.composite
def jobs(draw: st.DrawFn) -> Job:
    system = draw(systems)
    devices = draw(st.sampled_from([n for n in (4, 8, 12, 16, 32, 48) if n <= system.devices]))
    ranks = np.arange(devices)
    size = draw(st.sampled_from([n for n in range(2, devices + 1) if devices % n == 0]))
    stride = draw(st.sampled_from([n for n in range(1, devices) if (devices // size) % n == 0]))
    groups = ranks.reshape(-1, size, stride).swapaxes(1, 2).reshape(-1, size)
    kind = draw(st.sampled_from(sorted(ALGORITHMS)))
    if kind == "permute":
        groups = np.stack([groups, np.roll(groups, -1, axis=1)], axis=-1).reshape(-1, 2)
    return Job(system, devices, kind, groups)


sizes = st.floats(1, 1e10)
algorithms = st.sampled_from(["auto", "ring", "tree", "hierarchical", "nvls", "sharp", "bruck"])
more = st.floats(1, 100)


@settings(deadline=None, max_examples=100)
@given(jobs(), sizes, algorithms, st.sampled_from(RATES), more)
def test_more_bandwidth_is_never_slower(
    job: Job, nbytes: float, algorithm: str, rate: str, factor: float
) -> None:
    value = job.value(rate)
    if value is None:
        return
    changed = job.seconds(nbytes, algorithm, **{rate: value * factor})
    assert np.all(changed <= job.seconds(nbytes, algorithm) * ROUNDING)


@settings(deadline=None, max_examples=100)
@given(jobs(), sizes, algorithms, st.sampled_from(LATENCIES), more)
def test_more_latency_is_never_faster(
    job: Job, nbytes: float, algorithm: str, latency: str, factor: float
) -> None:
    value = job.value(latency)
    assert value is not None
    changed = job.seconds(nbytes, algorithm, **{latency: value * factor})
    assert np.all(changed >= job.seconds(nbytes, algorithm) / ROUNDING)


@settings(deadline=None, max_examples=100)
@given(jobs(), sizes, algorithms, more)
def test_more_bytes_are_never_faster(
    job: Job, nbytes: float, algorithm: str, factor: float
) -> None:
    changed = job.seconds(nbytes * factor, algorithm)
    assert np.all(changed >= job.seconds(nbytes, algorithm) / ROUNDING)


@settings(deadline=None, max_examples=100)
@given(jobs(), sizes)
def test_auto_is_never_dearer_than_any_algorithm_of_the_library(job: Job, nbytes: float) -> None:
    auto = job.seconds(nbytes)
    system = job.system
    library = SystemCosts(system, place(of_system(system), system, job.devices)).library
    for name in ALGORITHMS[job.kind]:
        if not library.algorithms or name in library.algorithms:
            assert np.all(auto <= job.seconds(nbytes, name))


@settings(deadline=None, max_examples=100)
@given(jobs(), sizes, algorithms)
def test_fewer_groups_at_once_are_never_slower(job: Job, nbytes: float, algorithm: str) -> None:
    if job.kind == "permute" or job.system.network and job.system.network.adaptive:
        return
    alone = job._replace(groups=job.groups[:1]).seconds(nbytes, algorithm)
    assert alone[0] <= job.seconds(nbytes, algorithm)[0] * ROUNDING


@settings(deadline=None, max_examples=100)
@given(jobs(), sizes, st.randoms(use_true_random=False))
def test_the_order_of_groups_and_of_ranks_in_them_changes_nothing(
    job: Job, nbytes: float, random: Any
) -> None:
    rng = np.random.default_rng(random.randrange(2**32))
    order = rng.permutation(len(job.groups))
    groups = job.groups[order]
    if job.kind != "permute":
        groups = rng.permuted(groups, axis=1)
    changed = job._replace(groups=groups).seconds(nbytes)
    np.testing.assert_allclose(changed, job.seconds(nbytes)[order], rtol=1e-9)


def test_the_laws_see_systems_of_every_kind() -> None:
    """What the strategies above draw is not all of one kind."""
    seen: set[Any] = set()

    @settings(deadline=None, max_examples=200, database=None)
    @given(jobs())
    def look(job: Job) -> None:
        costs = job.seconds(1e6)
        seen.update({job.kind, job.system.hardware, job.system.node.kind})
        assert len(costs) == len(job.groups) and np.all(costs > 0)

    look()
    assert set(ALGORITHMS) | {"a100", "h100", "cpu", "crossbar", "peer"} <= seen
    assert isinstance(small_system().node, NodeLinks)
