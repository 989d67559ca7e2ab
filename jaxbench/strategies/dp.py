"""Data parallelism with bucketed gradients (Li et al. 2020, PyTorch DDP, arXiv 2006.15704).

forward F
for each of n buckets, last layers first:
    backward G/n
    all-reduce the bucket over `data`          free to overlap the next backward
the step ends when all buckets are reduced
"""

from __future__ import annotations

from jaxbench.program import Buffer, Program
from jaxbench.rank import DATA, Rank
from jaxbench.workload import Workload, split


def build(w: Workload) -> Program:
    """Return the dp program of a workload."""
    buckets = w.experiment.buckets
    sizes = split(w.model.parameters, buckets)
    gradients = {
        f"gradient {k}": Buffer(w.size(sizes[k]), w.experiment.grad_dtype) for k in range(buckets)
    }

    def step(rank: Rank) -> None:
        rank.compute(w.forward_s, "forward")
        for k in reversed(range(buckets)):
            rank.compute(w.backward_s / buckets, f"backward {k}")
            rank.all_reduce(f"gradient {k}", DATA, f"gradient {k}")

    return Program("dp", gradients, step)
