"""Quantities as people read them, at the borders of the units."""

from __future__ import annotations

import pytest

from jaxbench.units import format_bytes, format_rate, format_seconds, format_share


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "-"),
        (0.0, "0 s"),
        (0.0682, "68.2 ms"),
        (0.9996, "1 s"),
        (999.4, "999 s"),
        (999.7, "1000 s"),
        (12345.0, "12345 s"),
        (1.86e-5, "18.6 us"),
        (-0.00034, "-340 us"),
        (2e-10, "0.2 ns"),
    ],
)
def test_seconds(seconds: float | None, text: str) -> None:
    assert format_seconds(seconds) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (None, "-"),
        (0, "0 B"),
        (8, "8 B"),
        (999.6e6, "1 GB"),
        (134217728, "134 MB"),
        (5e15, "5000 TB"),
    ],
)
def test_bytes(count: float | None, text: str) -> None:
    assert format_bytes(count) == text


@pytest.mark.parametrize(
    ("rate", "text"),
    [
        (None, "-"),
        (31.3, "31.3 samples/s"),
        (998.76, "998.8 samples/s"),
        (72980.4, "72,980 samples/s"),
    ],
)
def test_rates(rate: float | None, text: str) -> None:
    assert format_rate(rate, "samples") == text


def test_shares() -> None:
    assert (format_share(None), format_share(0.104)) == ("-", "10.4 %")
