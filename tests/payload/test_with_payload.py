import jax
import numpy as np
from jax import lax
from jax.extend.core import jaxpr_as_fun

from jaxbench import primitives
from jaxbench.payload import PAYLOADS, with_payload
from jaxbench.payload.matmul import Matmul
from jaxbench.payload.none import NoPayload


def program(token):
    token = primitives.compute(token, 0.5, "outside")

    def body(_, token):
        token = primitives.compute(token, 0.25, "inside")
        return lax.cond(
            token[0] > 0, lambda t: primitives.compute(t, 1.0, "branch"), lambda t: t, token
        )

    return lax.fori_loop(0, 3, body, token)


def test_every_compute_gets_the_payload_chosen_for_its_length_and_label(executions):
    chosen = []

    def choose(seconds, label):
        chosen.append((seconds, label))
        return Matmul({"outside": 1, "inside": 2, "branch": 5}[label], 32, "float32")

    closed = jax.make_jaxpr(program)(np.ones(1, np.float32))
    ready = with_payload(closed, choose)
    assert sorted(set(chosen)) == [(0.25, "inside"), (0.5, "outside"), (1.0, "branch")]
    run = jaxpr_as_fun(ready)
    assert executions(lambda token: run(token)[0], "dot") == 1 + 3 * (2 + 5)


def test_the_given_program_stays_as_it_was():
    closed = jax.make_jaxpr(program)(np.ones(1, np.float32))
    before = str(closed)
    with_payload(closed, lambda seconds, label: NoPayload())
    assert str(closed) == before


def test_the_registry_names_the_three_payloads():
    assert list(PAYLOADS) == ["none", "matmul", "sleep"]
