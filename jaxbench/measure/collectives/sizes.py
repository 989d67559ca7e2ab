"""Message sizes: read from text, and stepped through from the smallest to the largest."""

from __future__ import annotations

import re
from collections.abc import Iterator

# As nccl-tests has them, and as IEC 80000-13 has them; kB, MB and GB are powers of ten.
_UNITS = {
    "": 1,
    "B": 1,
    "K": 1 << 10,
    "M": 1 << 20,
    "G": 1 << 30,
    "T": 1 << 40,
    "KiB": 1 << 10,
    "MiB": 1 << 20,
    "GiB": 1 << 30,
    "TiB": 1 << 40,
    "kB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
}

LARGEST = 1 << 50  # no device holds more; keeps every count far from 64 bits


def parse_bytes(text: str) -> int:
    """Return the bytes of '8', '64K', '128MiB' (powers of two) or '16MB' (powers of ten).

    Raises ValueError with what is allowed.
    """
    match = re.fullmatch(r"([0-9]{1,18}) ?([A-Za-z]*)", text.strip())
    unit = match and _UNITS.get(match[2], _UNITS.get(match[2].upper(), 0))
    if not match or not unit:
        raise ValueError("whole bytes with a unit or none, as in 8, 64K, 128MiB or 16MB")
    count = int(match[1]) * unit
    if not 1 <= count <= LARGEST:
        raise ValueError("at least 1 byte and at most 1024 TiB")
    return count


def steps(smallest: int, largest: int, factor: int) -> Iterator[int]:
    """Yield smallest, smallest * factor, ... as long as they are at most `largest`."""
    size = smallest
    while size <= largest:
        yield size
        size *= factor
