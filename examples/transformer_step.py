"""A training step of a small Transformer on a data x tensor mesh, every collective written out.

Megatron's split (Shoeybi et al. 2019, arXiv 1909.08053): heads and feed-forward over `tensor`,
samples over `data`. Per layer two all-reduces over `tensor` forward and two backward; at the end
one all-reduce of all gradients over `data`.

    python examples/transformer_step.py                      runs it on 8 (virtual) devices

    cd examples                                              reads it, on none:
    jaxbench plan transformer_step:step
    jaxbench simulate transformer_step:step --system=alps
    jaxbench plan transformer_step:make_step --mesh=data=256,tensor=4

`step` has its mesh in it, `make_step` is given one; `<name>_arguments` says what it is called with.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import AbstractMesh, AxisType, Mesh, PartitionSpec

LAYERS, HIDDEN, HEADS, WIDE, VOCAB = 4, 256, 8, 1024, 1024
SEQUENCE, SAMPLES = 128, 4  # tokens a sample, samples a data-parallel rank
DTYPE = jnp.bfloat16
LEARNING_RATE = 0.5

Arrays = dict[str, jax.Array]

# How the parameters lie: attention by head, feed-forward by column and row, the rest everywhere.
SPECS = {
    "embedding": PartitionSpec(),
    "query_key_value": PartitionSpec(None, None, None, "tensor"),
    "output": PartitionSpec(None, "tensor"),
    "up": PartitionSpec(None, None, "tensor"),
    "down": PartitionSpec(None, "tensor"),
    "norms": PartitionSpec(),
}


@jax.custom_vjp
def enter_tensor(x: jax.Array) -> jax.Array:
    """Go into what is split over `tensor`: nothing forward, a sum of the gradients backward."""
    return x


def _sum_gradient(_: None, gradient: jax.Array) -> tuple[jax.Array]:
    with jax.named_scope("block backward"):
        return (lax.psum(gradient, "tensor"),)


enter_tensor.defvjp(lambda x: (x, None), _sum_gradient)


@jax.custom_vjp
def leave_tensor(x: jax.Array) -> jax.Array:
    """Come out of it: a sum of the partial results forward, nothing backward."""
    with jax.named_scope("block forward"):
        return lax.psum(x, "tensor")


leave_tensor.defvjp(lambda x: (leave_tensor(x), None), lambda _, gradient: (gradient,))


def norm(x: jax.Array, scale: jax.Array) -> jax.Array:
    """Return the root-mean-square norm of every token."""
    mean = jnp.mean(jnp.square(x.astype(jnp.float32)), axis=-1, keepdims=True)
    return (x * lax.rsqrt(mean + 1e-6)).astype(x.dtype) * scale


def attention(x: jax.Array, query_key_value: jax.Array, output: jax.Array) -> jax.Array:
    """Causal attention of this rank's heads: [samples, tokens, hidden] in and (partial) out."""
    query, key, value = jnp.einsum("bsd,dcn->cbsn", x, query_key_value).reshape(
        3, *x.shape[:2], -1, HIDDEN // HEADS
    )
    scores = jnp.einsum("bqhn,bkhn->bhqk", query, key) * (HIDDEN // HEADS) ** -0.5
    tokens = jnp.arange(x.shape[1])
    scores = jnp.where(tokens[:, None] >= tokens[None, :], scores, -jnp.inf)
    weights = jax.nn.softmax(scores.astype(jnp.float32)).astype(x.dtype)
    mixed = jnp.einsum("bhqk,bkhn->bqhn", weights, value)
    return mixed.reshape(*x.shape[:2], -1) @ output


def layer(x: jax.Array, weights: Arrays) -> tuple[jax.Array, None]:
    """One Transformer layer, as the body of a scan."""
    inner = enter_tensor(norm(x, weights["norms"][0]))
    x = x + leave_tensor(attention(inner, weights["query_key_value"], weights["output"]))
    inner = enter_tensor(norm(x, weights["norms"][1]))
    return x + leave_tensor(jax.nn.gelu(inner @ weights["up"]) @ weights["down"]), None


def loss(parameters: Arrays, tokens: jax.Array, targets: jax.Array) -> jax.Array:
    """Return the mean cross entropy of this rank's samples; the head is the embedding."""
    embedding, layers = parameters["embedding"], dict(parameters)
    del layers["embedding"]
    x, _ = lax.scan(layer, embedding[tokens], layers)
    logits = jnp.einsum("bsd,vd->bsv", x, embedding).astype(jnp.float32)
    chosen = jnp.take_along_axis(jax.nn.log_softmax(logits), targets[..., None], axis=-1)
    return -chosen.mean()


def train(parameters: Arrays, tokens: jax.Array, targets: jax.Array) -> tuple[Arrays, jax.Array]:
    """One step of one rank: gradients, their mean over `data`, and plain gradient descent."""
    value, gradients = jax.value_and_grad(loss)(parameters, tokens, targets)
    replicas = lax.axis_size("data")
    with jax.named_scope("gradients"):
        gradients = lax.psum(gradients, "data")
    with jax.named_scope("loss"):
        value = lax.psum(value, "data")
    updated = jax.tree.map(lambda p, g: p - (LEARNING_RATE / replicas) * g, parameters, gradients)
    return updated, value / replicas


def make_step(mesh: Mesh | AbstractMesh) -> Any:
    """Return the step on a mesh with the axes `data` and `tensor`."""
    batch = PartitionSpec("data")
    return jax.jit(
        jax.shard_map(
            train,
            mesh=mesh,
            in_specs=(SPECS, batch, batch),
            out_specs=(SPECS, PartitionSpec()),
            check_vma=False,  # the gradients' sums are written out above
        )
    )


def make_step_arguments(mesh: Mesh | AbstractMesh) -> tuple[Any, ...]:
    """Return the shapes that the step is called with."""
    shapes = {
        "embedding": (VOCAB, HIDDEN),
        "query_key_value": (LAYERS, HIDDEN, 3, HIDDEN),
        "output": (LAYERS, HIDDEN, HIDDEN),
        "up": (LAYERS, HIDDEN, WIDE),
        "down": (LAYERS, WIDE, HIDDEN),
        "norms": (LAYERS, 2, HIDDEN),
    }
    parameters = {name: jax.ShapeDtypeStruct(shape, DTYPE) for name, shape in shapes.items()}
    batch = jax.ShapeDtypeStruct((SAMPLES * mesh.shape["data"], SEQUENCE), jnp.int32)
    return parameters, batch, batch


MESH = AbstractMesh((2, 4), ("data", "tensor"), axis_types=(AxisType.Auto,) * 2)
step = make_step(MESH)
step_arguments = make_step_arguments(MESH)


def main() -> None:
    """Run ten steps on 8 devices and show that it learns."""
    if jax.default_backend() == "cpu":
        assert jax.device_count() == 8, "start it fresh: the number of virtual devices is fixed"
    mesh = jax.make_mesh((2, 4), ("data", "tensor"), axis_types=(AxisType.Auto,) * 2)
    run = make_step(mesh)
    shapes, batch, _ = make_step_arguments(mesh)
    keys = dict(zip(shapes, jax.random.split(jax.random.key(0), len(shapes)), strict=True))
    parameters = {
        name: jnp.ones(s.shape, s.dtype)
        if name == "norms"
        else (0.02 * jax.random.normal(keys[name], s.shape)).astype(s.dtype)
        for name, s in shapes.items()
    }
    tokens = jax.random.randint(jax.random.key(1), batch.shape, 0, VOCAB)
    for number in range(10):
        parameters, value = run(parameters, tokens, jnp.roll(tokens, -1, axis=1))
        print(f"step {number}: loss {float(value):.4f}")


if __name__ == "__main__":
    jax.config.update("jax_num_cpu_devices", 8)
    main()
