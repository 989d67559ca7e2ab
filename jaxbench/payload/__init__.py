"""What a compute executes while a program is measured: the payloads, by name.

A new payload is a module with a `fit` and a row of PAYLOADS.
"""

from __future__ import annotations

from collections.abc import Callable

from jax.extend.core import ClosedJaxpr

from jaxbench.jaxprs import Equation, replace_equations
from jaxbench.payload import matmul, none, sleep
from jaxbench.payload.interface import Fitter, Payload
from jaxbench.primitives import compute_p

PAYLOADS: dict[str, Fitter] = {
    "none": none.fit,
    "matmul": matmul.fit,
    "sleep": sleep.fit,
}


def with_payload(closed: ClosedJaxpr, choose: Callable[[float, str], Payload]) -> ClosedJaxpr:
    """Return the program with `choose(seconds, label)` as the payload of every compute."""

    def change(eqn: Equation) -> Equation:
        if eqn.primitive is not compute_p:
            return eqn
        payload = choose(eqn.params["seconds"], eqn.params["label"])
        return eqn.replace(params={**eqn.params, "payload": payload})

    return replace_equations(closed, change)
