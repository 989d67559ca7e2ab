"""What every process measured, on process 0; no file system need be shared for it."""

from __future__ import annotations

from collections.abc import Sequence

from jaxbench.measure.agree import all_processes


def gather(values: Sequence[float]) -> list[list[float]]:
    """Return [processes][values] on process 0, only this process's row elsewhere.

    Every process must call it, with equally many values.
    """
    return all_processes().to_first(list(values))


def total(count: int) -> int:
    """Return the sum of a count over all processes, on process 0; this one's elsewhere."""
    return int(sum(all_processes().to_first(count)))
