"""Latency and bandwidth of a collective, fitted to its times over sizes.

    time = latency + bytes / bandwidth

What is minimised is the relative error, so that 8 bytes count as much as 1 GB, by iteratively
reweighted least squares with Huber's weights, so that a size that was disturbed counts less. A
parameter that can't be told from zero (within its 95 % confidence interval) is None, and the other
one is fitted alone: sizes that are all large say nothing about latency, small ones nothing about
bandwidth.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

FEWEST_SIZES = 3  # two points have a line through them, and nothing is left to judge it by

_HUBER = 1.345  # 95 % efficient on normal errors (Huber 1981)
_ROUNDS = 100

# Student's t, two-sided 95 %, by degrees of freedom from 1 on; 2.0 from 30 on is near enough.
_T95 = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23, 2.20, 2.18, 2.16, 2.14, 2.13)


@dataclass(frozen=True)
class Fit:
    """A line through times over sizes; see the module for its fields."""

    latency_s: float | None
    bandwidth_Bps: float | None
    latency_se_s: float | None
    seconds_per_byte_se: float | None
    fitted_s: tuple[float, ...]
    residuals: tuple[float, ...]
    r_squared: float | None
    note: str | None

    def predict(self, nbytes: float) -> float | None:
        """Return the seconds for a size; None if nothing could be fitted."""
        if self.latency_s is None and self.bandwidth_Bps is None:
            return None
        moving = nbytes / self.bandwidth_Bps if self.bandwidth_Bps else 0.0
        return (self.latency_s or 0.0) + moving


def fit_line(sizes: Sequence[float], times: Sequence[float]) -> Fit:
    """Fit seconds over bytes; both positive. Needs three different sizes."""
    x, t = np.asarray(sizes, float), np.asarray(times, float)
    if len(set(sizes)) < FEWEST_SIZES:
        text = f"{FEWEST_SIZES} different sizes are needed, there are {len(set(sizes))}"
        return Fit(None, None, None, None, (), (), None, text)
    both, errors = _robust(np.stack([np.ones_like(x), x], axis=1), t)
    shown = both > _t95(len(x) - 2) * errors
    if shown.all():
        return _finish(x, t, both, errors, None)
    # Zero is as good for one of them: the other is fitted alone, the better one if both.
    unknown = np.array([np.nan])
    alone = {
        "latency": _robust(np.ones((len(x), 1)), t),
        "bandwidth": _robust(x[:, None], t),
    }
    if shown.any():
        kept = "latency" if shown[0] else "bandwidth"
    else:
        designs = {"latency": np.ones_like(x), "bandwidth": x}
        kept = min(alone, key=lambda k: _spread(t, designs[k] * alone[k][0][0]))
    value, error = alone[kept]
    if kept == "latency":
        note = "times don't grow with these sizes: no bandwidth; add larger ones"
        return _finish(x, t, np.append(value, 0.0), np.append(error, unknown), note)
    note = "latency can't be told from zero with these sizes; add smaller ones"
    return _finish(x, t, np.append(0.0, value), np.append(unknown, error), note)


def _robust(design: np.ndarray, t: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return parameters and standard errors that minimise Huber's loss of (t - fit) / fit.

    The size of a fit weighs its error, and is itself that of the round before.
    """
    scale_of = t.copy()
    huber = np.ones_like(t)
    parameters = np.zeros(design.shape[1])
    for _ in range(_ROUNDS):
        rows = design * (np.sqrt(huber) / scale_of)[:, None]
        # Columns differ by many orders of magnitude (1 and bytes): solve in units of their norms.
        norms = np.linalg.norm(rows, axis=0)
        solved = np.linalg.lstsq(rows / norms, np.sqrt(huber) * t / scale_of, rcond=None)[0] / norms
        fitted = design @ solved
        done = np.allclose(solved, parameters, rtol=1e-12, atol=0)
        parameters = solved
        scale_of = np.where(fitted > 0, fitted, t)
        relative = (t - fitted) / scale_of
        spread = 1.4826 * float(np.median(np.abs(relative)))
        if done or spread < 1e-12:
            break
        huber = np.minimum(1.0, _HUBER * spread / np.maximum(np.abs(relative), 1e-300))
    freedom = len(t) - design.shape[1]
    relative = (t - design @ parameters) / scale_of
    variance = float((huber * relative**2).sum()) / freedom
    rows = design * (np.sqrt(huber) / scale_of)[:, None]
    norms = np.linalg.norm(rows, axis=0)
    unit = rows / norms
    covariance = np.linalg.pinv(unit.T @ unit) * variance
    return parameters, np.sqrt(np.maximum(np.diag(covariance), 0.0)) / norms


def _finish(
    x: np.ndarray, t: np.ndarray, line: np.ndarray, errors: np.ndarray, note: str | None
) -> Fit:
    fitted = line[0] + line[1] * x
    level = line[1] == 0  # a line that says nothing of the variation explains none of it
    spread = float(((np.log(t) - np.log(t).mean()) ** 2).sum())
    unexplained = float(((np.log(t) - np.log(fitted)) ** 2).sum())
    known = [None if np.isnan(e) else float(e) for e in errors]
    return Fit(
        latency_s=float(line[0]) or None,
        bandwidth_Bps=float(1 / line[1]) if line[1] else None,
        latency_se_s=known[0],
        seconds_per_byte_se=known[1],
        fitted_s=tuple(fitted.tolist()),
        residuals=tuple(((t - fitted) / fitted).tolist()),
        r_squared=1 - unexplained / spread if spread > 0 and not level else None,
        note=note,
    )


def _spread(t: np.ndarray, fitted: np.ndarray) -> float:
    return float(np.median(np.abs(t - fitted) / fitted))


def _t95(freedom: int) -> float:
    return _T95[freedom - 1] if freedom <= len(_T95) else 2.13 if freedom < 30 else 2.0


def fit_fields(fit: Fit) -> dict[str, Any]:
    """Return a fit's own fields for the file."""
    fields = asdict(fit)
    return {name: list(v) if isinstance(v, tuple) else v for name, v in fields.items()}
