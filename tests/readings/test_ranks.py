"""Groups as JAX forms them: checked against what collectives over a real mesh deliver."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from jaxbench.readings.ranks import Ranks

AXES = (("a", 2), ("b", 3), ("c", 2))


@pytest.mark.parametrize(
    "axes", ["a", "b", "c", ("a", "c"), ("c", "a"), ("b", "a"), ("a", "b", "c")]
)
def test_groups_are_those_of_all_gather(axes: str | tuple[str, ...]) -> None:
    ranks = Ranks(AXES)
    names, sizes = [name for name, _ in AXES], [size for _, size in AXES]
    mesh = jax.make_mesh(
        sizes, names, axis_types=(AxisType.Auto,) * 3, devices=jax.devices()[: ranks.count]
    )
    spec = PartitionSpec(tuple(names))
    gather = jax.shard_map(
        lambda x: lax.all_gather(x, axes, tiled=True),
        mesh=mesh,
        in_specs=spec,
        out_specs=spec,
        check_vma=False,
    )
    numbers = jax.device_put(jnp.arange(ranks.count), NamedSharding(mesh, spec))
    delivered = np.asarray(jax.jit(gather)(numbers)).reshape(ranks.count, -1)
    assert ranks.peers(axes).tolist() == delivered.tolist()
    place = ranks.position(axes)
    assert ranks.peers(axes)[ranks.all, place].tolist() == ranks.all.tolist()


def test_sources_of_a_chain_and_a_ring() -> None:
    ranks = Ranks((("data", 2), ("pipeline", 3)))
    chain = ranks.sources("pipeline", [(0, 1), (1, 2)])
    assert chain.tolist() == [-1, 0, 1, -1, 3, 4]
    ring = ranks.sources("pipeline", [(0, 1), (1, 2), (2, 0)])
    assert ring.tolist() == [2, 0, 1, 5, 3, 4]


def test_coordinates_are_row_major() -> None:
    ranks = Ranks(AXES)
    flat = ranks.coordinate("a") * 6 + ranks.coordinate("b") * 2 + ranks.coordinate("c")
    assert flat.tolist() == list(range(12))
