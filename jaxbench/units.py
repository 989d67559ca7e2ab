"""SI inside, readable outside: every quantity is formatted here and nowhere else."""

from __future__ import annotations

_TIMES = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns"))
_SIZES = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "B"))


def format_seconds(seconds: float | None) -> str:
    """Format a duration with three significant digits; None is shown as '-'."""
    if seconds is None:
        return "-"
    return f"{seconds:.0f} s" if abs(seconds) >= 999.5 else _scaled(seconds, _TIMES, "0 s")


def format_bytes(count: float | None) -> str:
    """Format a size in decimal units (1 MB = 1e6 bytes); None is shown as '-'."""
    return "-" if count is None else _scaled(count, _SIZES, "0 B")


def _scaled(value: float, units: tuple[tuple[float, str], ...], zero: str) -> str:
    """Format with three significant digits in the largest unit that leaves at least 1."""
    for factor, unit in units:
        text = f"{value / factor:.3g}"
        if abs(float(text)) >= 1:
            return f"{float(text):g} {unit}"
    return zero if value == 0 else f"{value / units[-1][0]:.3g} {units[-1][1]}"


def format_count(count: float | None) -> str:
    """Format a count with thousands separators, never rounded; None is shown as '-'."""
    if count is None:
        return "-"
    return f"{count:,}"


def format_rate(per_second: float | None, unit: str) -> str:
    """Format a rate such as samples per second with four significant digits, or all before 1."""
    if per_second is None:
        return "-"
    digits = f"{per_second:,.0f}" if abs(per_second) >= 1000 else f"{per_second:.4g}"
    return f"{digits} {unit}/s"


def format_share(fraction: float | None) -> str:
    """Format a fraction as a percentage with one decimal; None is shown as '-'."""
    return "-" if fraction is None else f"{fraction * 100:.1f} %"
