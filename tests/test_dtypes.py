"""Widths of the dtypes, against JAX's own."""

import jax.numpy as jnp
import pytest

from jaxbench.catalog.hardware import HARDWARE
from jaxbench.dtypes import DTYPES, find_dtype
from jaxbench.errors import InputError


@pytest.mark.parametrize("name", DTYPES)
def test_width_is_the_one_of_jax(name):
    assert find_dtype(name) == jnp.dtype(name).itemsize


@pytest.mark.parametrize("name", DTYPES)
def test_every_dtype_has_a_peak_somewhere(name):
    assert any(hardware.peak_FLOPs(name) for hardware in HARDWARE.values())


def test_unknown_dtype():
    with pytest.raises(InputError, match=r"unknown dtype 'bf16'; .*known: bfloat16"):
        find_dtype("bf16")
