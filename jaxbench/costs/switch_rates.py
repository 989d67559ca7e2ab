"""How fast the switches of NVLink reduce (NVLS), as a share of a device's link.

    rate = share * link, bytes of the vector per second

Hopper: 8xH100 reach a bus bandwidth of 430-480 GB/s, so 455 / (2*7/8) of 450 GB/s
(github NVIDIA/nccl issue 1221). Blackwell: that times .74 / .85, since NCCL's tuner counts on .85
of the link on Hopper and .74 on Blackwell (NVIDIA/nccl src/graph/tuning.cc).

Both are about the switches of one node. How in-switch reduction behaves for the 72 devices of a
rack isn't published: with NCCL's 25 us the measured 586 GB/s at 512 MiB would be 49 % more, while a
ring's 142 hops explain it. So domains with more ranks than were measured use rings here.
"""

from __future__ import annotations

MOST_RANKS = 8

_HOPPER = 455 / (2 * 7 / 8) / 450
_BLACKWELL = _HOPPER * 0.74 / 0.85

# By the start of a device's name in HARDWARE; the others don't reduce in switches.
SHARES: dict[str, float] = {
    "h100": _HOPPER,
    "h200": _HOPPER,
    "gh200": _HOPPER,
    "b200": _BLACKWELL,
    "gb200": _BLACKWELL,
    "gb300": _BLACKWELL,
}


def switch_Bps(hardware: str, device_Bps: float) -> float | None:
    """Return the rate of reductions in a node's switches; None where the device can't."""
    share = SHARES.get(hardware.partition("_")[0])
    return None if share is None else share * device_Bps
