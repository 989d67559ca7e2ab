"""The constants of libraries, and which hardware has which library."""

from __future__ import annotations

import pytest

from jaxbench.catalog.hardware import HARDWARE
from jaxbench.costs.protocols import LIBRARIES, NCCL, PLAIN, RCCL, library_of
from jaxbench.costs.switch_rates import SHARES, switch_Bps

# NVIDIA/nccl src/graph/tuning.cc, us: base, hop over NVLink, hop over the network.
RING = {"LL": (6.6, 0.6, 2.7), "LL128": (14, 1.9, 4), "Simple": (8.4, 3.4, 14)}
TREE = {"LL": (6.8, 0.6, 5), "LL128": (14, 1.25, 8.5), "Simple": (8.4, 4, 14)}
SHARE = {"LL": 0.5, "LL128": 0.92, "Simple": 1.0}


def test_the_constants_are_those_of_nccl() -> None:
    assert [protocol.name for protocol in NCCL.protocols] == list(RING)
    for protocol in NCCL.protocols:
        assert [s * 1e6 for s in protocol.ring] == pytest.approx(RING[protocol.name])
        assert [s * 1e6 for s in protocol.tree] == pytest.approx(TREE[protocol.name])
        assert protocol.share == SHARE[protocol.name]


@pytest.mark.parametrize("name", HARDWARE)
def test_every_device_has_the_library_that_is_known(name: str) -> None:
    nvidia = {"nvidia", "a100", "h100", "h200", "gh200", "b200", "gb200", "gb300"}
    start = name.partition("_")[0]
    expected = NCCL if start in nvidia else RCCL if start == "mi250x" else PLAIN
    assert library_of(name) is expected


def test_what_is_assumed_of_rccl_is_said() -> None:
    assert RCCL.source.startswith("assumed") and RCCL.protocols == NCCL.protocols


def test_registries_name_devices_that_there_are() -> None:
    starts = {name.partition("_")[0] for name in HARDWARE}
    assert set(LIBRARIES) <= starts and set(SHARES) <= starts


def test_switches_reduce_as_fast_as_one_node_did() -> None:
    hopper = switch_Bps("h100", 450e9)
    assert hopper is not None
    assert 430e9 <= hopper * 2 * 7 / 8 <= 480e9  # bus bandwidth of 8xH100, nccl#1221
    assert switch_Bps("gb200", 450e9) == pytest.approx(hopper * 0.74 / 0.85)
    assert switch_Bps("a100_80", 300e9) is None
