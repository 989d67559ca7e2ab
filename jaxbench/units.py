"""SI inside, readable outside: every quantity is formatted here and nowhere else."""

from __future__ import annotations

_TIMES = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns"))
_SIZES = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"))


def format_seconds(seconds: float | None) -> str:
    """Format a duration with three significant digits; None is shown as '-'."""
    if seconds is None:
        return "-"
    for factor, unit in _TIMES:
        if abs(seconds) >= factor:
            return f"{seconds / factor:.3g} {unit}" if seconds < 1000 else f"{seconds:.0f} s"
    return "0 s" if seconds == 0 else f"{seconds * 1e9:.3g} ns"


def format_bytes(count: float | None) -> str:
    """Format a size in decimal units (1 MB = 1e6 bytes); None is shown as '-'."""
    if count is None:
        return "-"
    for factor, unit in _SIZES:
        if abs(count) >= factor:
            return f"{count / factor:.3g} {unit}"
    return f"{count:.0f} B"


def format_count(count: float | None) -> str:
    """Format a count with thousands separators, never rounded; None is shown as '-'."""
    if count is None:
        return "-"
    return f"{count:,}"


def format_rate(per_second: float | None, unit: str) -> str:
    """Format a rate such as samples per second with four significant digits."""
    return "-" if per_second is None else f"{per_second:,.4g} {unit}/s"


def format_share(fraction: float | None) -> str:
    """Format a fraction as a percentage with one decimal; None is shown as '-'."""
    return "-" if fraction is None else f"{fraction * 100:.1f} %"
