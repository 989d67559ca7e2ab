import jax
import numpy as np

from jaxbench.payload.none import NoPayload, fit


def test_the_token_is_unchanged_bit_for_bit(token):
    result = np.asarray(jax.jit(NoPayload().apply)(token))
    assert result.tobytes() == token.tobytes()


def test_each_compute_stays_a_step_of_its_own(executions):
    def chain(token):
        for _ in range(3):
            token = NoPayload().apply(token)
        return jax.lax.fori_loop(0, 4, lambda _, token: NoPayload().apply(token), token)

    assert executions(chain, "select") == 7


def test_a_transparent_step_would_vanish(executions):
    assert executions(lambda token: token + 0 * token[0], "select") == 0


def test_every_length_becomes_none():
    found = fit(lambda payloads: [1.0], "cpu", "float32")
    assert found.payload(0.5) == NoPayload()
