"""In which manner collectives follow each other when they are timed."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Manner:
    """What is between two collectives, beside that the later one waits for the earlier.

    `messages` buffers take turns, so that caches needn't hold the next one; a rank computes for
    `pause_s` seconds before each, so that it finds processors and links idle, as in a step.
    """

    messages: int = 1
    pause_s: float = 0.0


IN_A_ROW = Manner()
