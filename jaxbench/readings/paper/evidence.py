"""What the simulator says to a claim."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

REPRODUCED = "reproduced"
WITH = "reproduced only with an effect"
CONTRADICTED = "contradicted"
OUT_OF_REACH = "out of a fluid model's reach"
VERDICTS = (REPRODUCED, WITH, CONTRADICTED, OUT_OF_REACH)


@dataclass(frozen=True)
class Evidence:
    """A verdict with the simulated values behind it, by name, and what it depends on.

    `depends_on` names the effect that has to be put in (WITH), or what the answer hangs on.
    """

    verdict: str
    said: str
    values: dict[str, float]
    depends_on: str = ""


def judge(
    holds: bool, said: str, values: dict[str, float], *, effect: str = "", with_effect: bool = False
) -> Evidence:
    """Return REPRODUCED if the claim holds, WITH if it does with `effect`, else CONTRADICTED."""
    if holds:
        return Evidence(REPRODUCED, said, values)
    if with_effect:
        return Evidence(WITH, said, values, effect)
    return Evidence(CONTRADICTED, said, values, effect)


def span(values: Sequence[float]) -> str:
    """Say a range of shares: '3.1-12.0 %'."""
    low, high = (round(100 * value, 1) + 0.0 for value in (min(values), max(values)))  # no -0.0
    return f"{low:.1f} %" if low == high else f"{low:.1f}-{high:.1f} %"


def ends(name: str, values: Sequence[float]) -> dict[str, float]:
    """Return the smallest and the largest value under names."""
    return {f"{name}_least": min(values), f"{name}_most": max(values)}
