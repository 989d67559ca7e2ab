"""How often the compiled program executes something: what a payload test has to count."""

import re
from collections.abc import Callable

import jax
import numpy as np
import pytest

COMPUTATION = re.compile(r"^(?:ENTRY )?%?([\w.-]+) .*\{$")
CALLED = re.compile(r"(?:calls|body|condition|to_apply)=%?([\w.-]+)")
TRIPS = re.compile(r'"known_trip_count":\{"n":"(\d+)"\}')


def count_executions(hlo: str, opcode: str) -> int:
    """Return how often one run of the HLO module `hlo` executes `opcode`, loops counted.

    Every branch of a conditional is counted as if it ran.
    """
    bodies: dict[str, list[str]] = {}
    entry = current = ""
    for line in hlo.splitlines():
        if found := COMPUTATION.match(line):
            current = found[1]
            bodies[current] = []
            entry = current if line.startswith("ENTRY") else entry
        elif current:
            bodies[current].append(line)

    def executed(computation: str) -> int:
        total = 0
        for line in bodies[computation]:
            total += len(re.findall(rf"[\]\}})] {opcode}\(", line))
            trips = TRIPS.search(line)
            assert " while(" not in line or trips, f"loop without a known trip count: {line}"
            branches = re.search(r"branch_computations=\{([^}]*)\}", line)
            called = CALLED.findall(line)
            called += [name.strip(" %") for name in branches[1].split(",")] if branches else []
            total += sum(executed(name) for name in called) * (int(trips[1]) if trips else 1)
        return total

    return executed(entry)


@pytest.fixture
def executions() -> Callable[..., int]:
    """Return a function: how often a compiled `fn(token)` executes an HLO opcode."""

    def count(fn: Callable[[jax.Array], jax.Array], opcode: str) -> int:
        token = jax.ShapeDtypeStruct((1,), np.float32)
        text = jax.jit(fn).lower(token).compile().as_text()
        assert text is not None
        return count_executions(text, opcode)

    return count


@pytest.fixture(params=[1.5, 0.0, -0.0, 1e-42, -3.25e7, 1e29, float("nan")])
def token(request: pytest.FixtureRequest) -> np.ndarray:
    """Tokens that careless arithmetic would change: signed zero, subnormal, not a number."""
    return np.array([request.param], np.float32)
