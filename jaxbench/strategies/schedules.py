"""Pipeline schedules: which microbatch a stage works on in which slot, and the hops between.

GPipe (Huang et al. 2019, arXiv 1811.06965): all forward slots, then all backward slots.
1F1B (Narayanan et al. 2019, PipeDream) and interleaved 1F1B (Narayanan et al. 2021, arXiv
2104.04473) are built as *combined slots*: every slot does the forward of one microbatch and the
backward of another one. For stages of equal length it takes the same time as the published order,
(M+p-1)(F+G)/(pM), with bubble (p-1)/(vM+p-1), but keeps 2(p-1-s)+1 microbatches in flight at stage
s instead of p-s, and hops in idle slots too. The published order, one operation a slot, would lose
21-26 % where a permute makes the whole axis wait, since forward and backward then alternate in
anti-phase.

A stage sends the same resident buffer every time, with the number of the microbatch written into
its first element: so it can be checked that each microbatch passed every stage once, in order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax import lax

from jaxbench.rank import PIPELINE, Rank
from jaxbench.workload import Workload

# work(rank, virtual): what a rank does for one microbatch; `virtual` is its place in the model.
Work = Callable[[Rank, jax.Array], None]
Layer = Callable[[Rank, jax.Array], None]


@dataclass(frozen=True)
class Way:
    """One direction of the pipeline: its buffer, and the pairs (source, destination) of a hop."""

    name: str
    buffer: str
    pairs: tuple[tuple[int, int], ...]


def run_schedule(rank: Rank, w: Workload, forward: Work, backward: Work) -> None:
    """Run the schedule of the experiment with the given work of a microbatch in each direction."""
    ring = w.v > 1
    up = [(s, (s + 1) % w.p) for s in range(w.p if ring else w.p - 1)]
    ahead = Way("forward", "activation", tuple(up))
    back = Way("backward", "error", tuple((d, s) for s, d in up))
    for way in (ahead, back):
        rank.buffers[way.buffer] = _write_stamp(rank.buffers[way.buffer], jnp.ones(1))
        rank.buffers[_arrived(way)] = jnp.zeros_like(rank.buffers[way.buffer])
    stage = lax.axis_index(PIPELINE)

    if w.experiment.schedule == "gpipe":
        slots = w.microbatches + w.p - 1
        rank.loop(slots, lambda r, slot: half_slot(r, w, ahead, slot - stage, forward))
        rank.loop(slots, lambda r, slot: half_slot(r, w, back, slot - (w.p - 1 - stage), backward))
        return

    def combined(r: Rank, slot: jax.Array) -> None:
        half_slot(r, w, ahead, slot - stage, forward)
        half_slot(r, w, back, slot - (w.v * w.p - 1) - (w.p - 1 - stage), backward)

    rank.loop(w.microbatches * w.v + w.v * w.p + w.p - 2, combined)


def half_slot(rank: Rank, w: Workload, way: Way, number: jax.Array, work: Work) -> None:
    """Work on the `number`-th (chunk, microbatch) of this stage if there is one, then hop."""
    active = (number >= 0) & (number < w.v * w.microbatches)
    chunk = number % (w.p * w.v) // w.p
    microbatch = number // (w.p * w.v) * w.p + number % w.p
    if way.name == "backward":
        chunk = w.v - 1 - chunk
    virtual = chunk * w.p + lax.axis_index(PIPELINE)
    ends = (0, w.p * w.v - 1)
    first, last = ends if way.name == "forward" else ends[::-1]
    arrived = rank.buffers[_arrived(way)]
    stamp = f"{way.name} stamp"

    def process(r: Rank) -> None:
        r.wait(arrived)
        own = 1 + microbatch % _stamps(arrived.dtype)
        taken = jnp.where(virtual == first, own.astype(jnp.float32), arrived[0].astype(jnp.float32))
        if w.p > 1:
            r.see(f"{way.name} message", arrived)
        _see_stamp(r, way, w.v * w.microbatches, number, taken)
        work(r, virtual)
        r.seen[stamp] = taken.reshape(1)

    rank.when(active, process)
    rank.buffers[way.buffer] = _write_stamp(rank.buffers[way.buffer], rank.seen[stamp])
    useful = active & (virtual != last)
    rank.buffers[_arrived(way)] = rank.permute(
        way.buffer, PIPELINE, way.pairs, f"{way.name} hop", useful
    )


def at_stage(
    rank: Rank,
    virtual: jax.Array,
    amounts: Sequence[float],
    action: Callable[[Rank, float], None],
) -> None:
    """Do `action(rank, amount)` so that virtual stage i has done `amounts[i]` in all.

    What all stages share is done by all, the rest in steps under conditionals: loop counts and
    seconds stay static, which accelerators need.
    """
    done = type(amounts[0])(0)
    for level in sorted(set(amounts)):
        step = level - done
        members = [i for i, amount in enumerate(amounts) if amount >= level]
        if step > 0 and len(members) == len(amounts):
            action(rank, step)
        elif step > 0:
            belongs = jnp.stack([virtual == i for i in members]).any()
            rank.when(belongs, lambda r, step=step: action(r, step))
        done = level


def run_layers(
    rank: Rank,
    w: Workload,
    virtual: jax.Array,
    way: str,
    layer: Callable[[float, bool], Layer],
) -> None:
    """Run the layers of a virtual stage, and what belongs to it outside of layers, in `way`.

    `layer(mlp_s, moe)` makes the loop body of a layer with (`moe`) or without experts, `mlp_s`
    being the forward seconds of its feed-forward part for B samples. Layers without experts come
    first in a model; the backward runs everything in reverse.
    """
    stages = w.stages()

    def outside(seconds: list[float]) -> None:
        amounts = [w.part_s(s, way) for s in seconds]
        at_stage(rank, virtual, amounts, lambda r, s: r.compute(s, f"ends {way}"))

    def layers(counts: list[int], body: Layer) -> None:
        at_stage(rank, virtual, counts, lambda r, n: r.loop(int(n), body))

    parts: list[Callable[[], None]] = [
        lambda: outside([s.before_s for s in stages]),
        lambda: layers([s.dense_layers for s in stages], layer(w.times.dense_mlp_s, False)),
        lambda: layers([s.moe_layers for s in stages], layer(w.times.moe_mlp_s, True)),
        lambda: outside([s.after_s for s in stages]),
    ]
    for part in parts if way == "forward" else reversed(parts):
        part()


def _arrived(way: Way) -> str:
    return f"{way.name} arrived"


def _write_stamp(message: jax.Array, stamp: jax.Array) -> jax.Array:
    """Write the number of a microbatch into the first element, in place."""
    return lax.dynamic_update_slice(message, stamp.astype(message.dtype), (0,))


def _stamps(dtype: jnp.dtype) -> int:
    """How many different microbatch numbers `dtype` tells apart (2^(mantissa+1) whole numbers)."""
    return 2 ** min(jnp.finfo(dtype).nmant + 1, 24) - 1


def _see_stamp(r: Rank, way: Way, count: int, number: jax.Array, stamp: jax.Array) -> None:
    """Add `stamp` at place `number` of what this stage has processed."""
    label = f"{way.name} microbatches"
    row = jnp.where(jnp.arange(count) == number, stamp, 0.0)
    r.seen[label] = r.seen[label] + row if label in r.seen else row
