import jax
import numpy as np
import pytest
from jax.experimental import multihost_utils

from jaxbench.measure.agree import agree

VALUES = [0, 7, -3, 2**40 + 1, 0.1, -2.5e-9, 1e300]


@pytest.mark.parametrize("value", VALUES)
def test_one_process_agrees_with_itself(value):
    assert agree(value) == value
    assert type(agree(value)) is type(value)


@pytest.mark.parametrize("value", VALUES)
def test_the_value_of_process_0_arrives_exactly(monkeypatch, value):
    sent = []

    def broadcast(array):
        sent.append(array)
        assert array.dtype == np.uint32  # a wider type would be rounded on the way
        return np.array(array)

    monkeypatch.setattr(jax, "process_count", lambda: 2)
    monkeypatch.setattr(multihost_utils, "broadcast_one_to_all", broadcast)
    assert agree(value) == value
    assert type(agree(value)) is type(value)
    assert len(sent) == 2
