"""The examples: what the plan says of them equals what they do, and what they do is right."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AbstractMesh, AxisType, Mesh

from examples import transformer_step as example
from jaxbench.catalog.hardware import HARDWARE
from jaxbench.readings.own_program import OwnProgram, read_program
from jaxbench.readings.own_program_plan import OwnPlan, plan_program
from jaxbench.readings.own_program_roofline import Roofline


def program(data: int, tensor: int) -> OwnProgram:
    mesh = AbstractMesh((data, tensor), ("data", "tensor"), axis_types=(AxisType.Auto,) * 2)
    step, arguments = example.make_step(mesh), example.make_step_arguments(mesh)
    return read_program("example:step", jax.jit(step).trace(*arguments).jaxpr)


def plan(data: int, tensor: int) -> OwnPlan:
    return plan_program(program(data, tensor), Roofline(HARDWARE["h100"]))


def closed_form_flops(tensor: int) -> int:
    """Forward FLOPs of a rank by hand, times three: each product has two in the backward pass."""
    tokens, hidden = example.SAMPLES * example.SEQUENCE, example.HIDDEN
    projections = tokens * hidden * 3 * hidden + tokens * hidden * hidden
    attention = 2 * tokens * example.SEQUENCE * hidden
    feed_forward = 2 * tokens * hidden * example.WIDE
    layer = (projections + attention + feed_forward) // tensor
    head = tokens * hidden * example.VOCAB
    return 3 * 2 * (example.LAYERS * layer + head)


@pytest.mark.parametrize(("data", "tensor"), [(2, 4), (256, 4), (8, 1), (1, 8)])
def test_flops_are_the_closed_form(data: int, tensor: int) -> None:
    assert plan(data, tensor).flops == {"bfloat16": closed_form_flops(tensor)}


@pytest.mark.parametrize(("data", "tensor"), [(2, 4), (256, 4)])
def test_the_plan_finds_exactly_its_collectives(data: int, tensor: int) -> None:
    """Two sums a layer and direction over `tensor`; one of each parameter over `data`; the loss."""
    found = plan(data, tensor)
    assert not found.program.notes and not found.unknown
    executed: dict[tuple[str, str, int], int] = {}
    for row in found.rows:
        assert row.kind == "all_reduce"
        assert (row.group_size, row.groups) == {
            "data": (data, tensor),
            "tensor": (tensor, data),
        }[row.axis]
        for label, count in row.labels.items():
            executed[label, row.axis, row.elements] = count
    D, L, A = example.HIDDEN, example.LAYERS, example.SAMPLES * example.SEQUENCE * example.HIDDEN
    layers = L * D * D // tensor
    assert executed == {
        ("block forward", "tensor", A): 2 * L,
        ("block backward", "tensor", A): 2 * L,
        ("gradients", "data", example.VOCAB * D): 3,  # as large as up and down: 4 D a layer
        ("gradients", "data", 3 * layers): 1,
        ("gradients", "data", layers): 1,
        ("gradients", "data", L * 2 * D): 1,
        ("loss", "data", 1): 1,
    }
    assert example.VOCAB * D == 4 * layers * tensor // tensor == L * D * example.WIDE // tensor


def on_devices(data: int, tensor: int) -> Mesh:
    devices = np.array(jax.devices()[: data * tensor]).reshape(data, tensor)
    return Mesh(devices, ("data", "tensor"), axis_types=(AxisType.Auto,) * 2)


def stepped(mesh: Mesh, samples: int) -> tuple[dict[str, np.ndarray], float]:
    """Return the parameters after a step in float32, and the loss before it."""
    shapes, _, _ = example.make_step_arguments(mesh)
    keys = dict(zip(shapes, jax.random.split(jax.random.key(0), len(shapes)), strict=True))
    parameters = {n: 0.1 * jax.random.normal(keys[n], s.shape) for n, s in shapes.items()}
    tokens = jax.random.randint(jax.random.key(1), (samples, 8), 0, example.VOCAB)
    updated, loss = example.make_step(mesh)(parameters, tokens, jnp.roll(tokens, -1, axis=1))
    return {name: np.asarray(value) for name, value in updated.items()}, float(loss)


@pytest.mark.slow
def test_eight_devices_compute_what_one_does() -> None:
    """Its own collectives are right: gradients and loss don't depend on the mesh."""
    alone, loss = stepped(on_devices(1, 1), samples=4)
    together, same_loss = stepped(on_devices(2, 4), samples=4)
    assert loss == pytest.approx(same_loss, rel=1e-5) and loss > 1
    for name, value in alone.items():
        np.testing.assert_allclose(together[name], value, rtol=1e-3, atol=1e-4, err_msg=name)
    start, _ = stepped(on_devices(1, 1), samples=2)
    assert any(np.abs(start[name] - alone[name]).max() > 1e-3 for name in alone)
