"""A recorded profile as it lies on disk: planes of lines of events, and what the recorder said.

The format is XSpace (xla/tsl/profiler/protobuf/xplane.proto). `jax.profiler.ProfileData` reads its
planes without TensorFlow, but not the two lists in which a recorder reports what went wrong (the
GPU's says there how many events it dropped), so these are read from the bytes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jax.profiler import ProfileData

from jaxbench.errors import InputError, RunError

# Field numbers of XSpace.
_ERRORS, _WARNINGS = 2, 3
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_DROPPED = re.compile(r"\bdrop", re.IGNORECASE)
_SHOWN_LINES = 8


@dataclass(frozen=True)
class Space:
    """A profile: `planes` as jax.profiler gives them, `warnings` of the recorder."""

    path: str
    planes: tuple[Any, ...]
    warnings: tuple[str, ...]

    def numbered(self, prefix: str) -> dict[int, Any]:
        """Return the planes called `prefix` and a number, by number."""
        names = ((p, p.name.removeprefix(prefix)) for p in self.planes if prefix in p.name)
        return {int(number): plane for plane, number in names if number.isdecimal()}

    def describe(self) -> str:
        """Say which planes and lines there are, for the error about an unknown layout."""
        described = []
        for plane in self.planes:
            lines = list(dict.fromkeys(line.name.split("/")[0] for line in plane.lines))
            shown = ", ".join(lines[:_SHOWN_LINES]) + (", ..." if lines[_SHOWN_LINES:] else "")
            described.append(f"'{plane.name}' ({shown or 'no lines'})")
        return "; ".join(described) or "nothing"


def read_space(path: str | Path) -> Space:
    """Read a profile (*.xplane.pb).

    InputError if it can't be read or isn't one; RunError if the recorder reports an error or
    dropped events, since a sum over what is left would pass for a measurement.
    """
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise InputError(f"can't read the profile {path}: {error.strerror}") from None
    try:
        planes = tuple(ProfileData.from_serialized_xspace(data).planes)
        said = list(_messages(data))
    except (RuntimeError, IndexError, UnicodeDecodeError):
        raise InputError(
            f"{path} isn't a profile of jax.profiler (*.xplane.pb), or it is cut off"
        ) from None
    warnings = tuple(text for field, text in said if field == _WARNINGS)
    wrong = [text for field, text in said if field == _ERRORS or _DROPPED.search(text)]
    wrong += [fault for plane in planes if (fault := _dropped(plane))]
    if wrong:
        raise RunError(f"the profile {path} isn't complete: {'; '.join(wrong)}; record fewer steps")
    return Space(str(path), planes, warnings)


def _dropped(plane: Any) -> str | None:
    """Return how many events a TPU dropped, which it says as a stat of its plane."""
    count = dict(plane.stats).get("dropped_traces", 0)
    return f"{plane.name} dropped {count} events" if count else None


def _messages(data: bytes) -> Iterator[tuple[int, str]]:
    """Yield (field, text) of the errors and warnings in a serialized XSpace."""
    position = 0
    while position < len(data):
        key, position = _varint(data, position)
        field, kind = key >> 3, key & 7
        if kind == _VARINT:
            _, position = _varint(data, position)
        elif kind in (_FIXED64, _FIXED32):
            position += 8 if kind == _FIXED64 else 4
        elif kind == _BYTES:
            size, position = _varint(data, position)
            if field in (_ERRORS, _WARNINGS):
                yield field, data[position : position + size].decode()
            position += size
        else:
            raise IndexError(f"wire type {kind}")


def _varint(data: bytes, position: int) -> tuple[int, int]:
    """Return the number at `position` (seven bits a byte, lowest first) and where it ends."""
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value, position
