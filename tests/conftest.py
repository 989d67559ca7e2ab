"""Tests run on 12 virtual CPU devices: enough for 2, 3, 4, 6, 8 and 12 ranks in one process."""

from __future__ import annotations

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import jax

jax.config.update("jax_num_cpu_devices", 12)
jax.config.update("jax_platforms", "cpu")

from hypothesis import settings

# A slow machine isn't a wrong result: no test has a deadline.
settings.register_profile("jaxbench", deadline=None)
settings.load_profile("jaxbench")
