"""Variants of every case: compiled as planned, with the same work in the same order."""

from __future__ import annotations

import numpy as np
import pytest
from jax.extend.core import ClosedJaxpr

from jaxbench.jaxprs import equations
from jaxbench.payload.matmul import Matmul
from jaxbench.payload.none import NoPayload
from jaxbench.primitives import compute_p
from jaxbench.program import Traced, abstract_mesh, trace
from jaxbench.readings.build import compile_step, make_buffers
from jaxbench.readings.compiled import compare
from jaxbench.readings.compiler_options import compiler_options
from jaxbench.readings.counting import Counting
from jaxbench.readings.hlo import collectives
from jaxbench.readings.plan import build_program
from jaxbench.readings.ranks import Ranks
from jaxbench.readings.sites import KINDS, find_sites
from jaxbench.readings.variants import VARIANTS, payloads, variant, variant_fault
from tests.cases import CASES, case, cpu_mesh

# The full program is compiled by the contract; the other variants in cases unlike each other.
COMPILED = ("dp-8", "fsdp-2x4", "fsdp-keep", "pp-uneven", "pp-interleaved", "tp-sequence", "ep-3x4")


def traced_case(name: str) -> tuple[Traced, Ranks]:
    e = case(name)
    return trace(build_program(e)[1], abstract_mesh(e.mesh)), Ranks(e.mesh)


def story(closed: ClosedJaxpr) -> list[str]:
    """What the program does, in the order of its text: computes and collectives by label."""
    told = []
    for eqn in equations(closed.jaxpr):
        if eqn.primitive is compute_p:
            told.append(eqn.params["label"])
        elif eqn.primitive.name in KINDS:
            told.append(f"{eqn.primitive.name} {str(eqn.source_info.name_stack).split('/')[-1]}")
    return told


@pytest.mark.parametrize("name", CASES)
def test_a_variant_does_the_same_in_the_same_order(name: str) -> None:
    traced, ranks = traced_case(name)
    full = Counting(ranks).count(traced.closed)
    for kind, meaning in VARIANTS.items():
        changed = variant(traced, kind)
        counted = Counting(ranks).count(changed.closed)
        assert counted.compute_s.keys() == full.compute_s.keys()
        for label, seconds in full.compute_s.items():
            assert np.array_equal(counted.compute_s[label], seconds)
        told = story(traced.closed)
        if meaning.collectives == "none":
            told = [label for label in told if label in full.compute_s]
        else:
            executed = sorted(map(tuple, full.counts.values()))
            assert sorted(map(tuple, counted.counts.values())) == executed
        assert story(changed.closed) == told
        assert variant_fault(kind, find_sites(changed.closed, ranks)) is None


@pytest.mark.parametrize("name", COMPILED)
def test_a_variant_is_compiled_as_written_and_without_large_copies(name: str) -> None:
    e = case(name)
    mesh = cpu_mesh(e)
    program = build_program(e)[1]
    traced = trace(program, mesh)
    state = make_buffers(program, mesh)
    largest = max(b.size.padded for b in program.buffers.values()) * 4
    full_bytes = None
    for kind in VARIANTS:
        changed = variant(traced, kind)
        choose = payloads(kind, lambda s, label: Matmul(2 if s else 0, 32, "float32"))
        step = compile_step(changed, mesh, choose, compiler_options("cpu"))
        sites = find_sites(changed.closed, Ranks(e.mesh))
        comparison = compare(sites, collectives(step.text, mesh.size))
        assert comparison.equal, f"{kind}: {comparison}"
        *state, _ = step.compiled(*state)  # all variants share one state
        assert step.temporary_bytes is not None
        if kind == "full":
            full_bytes = step.temporary_bytes
        elif kind == "comm_only":  # the same program: nothing moved, so nothing else is live
            assert step.temporary_bytes == pytest.approx(full_bytes, rel=0.05)
        else:
            assert step.temporary_bytes < largest / 4


@pytest.mark.parametrize("kind", ["sync_only", "latency_only"])
def test_full_messages_in_a_variant_that_must_have_none_are_refused(kind: str) -> None:
    traced, ranks = traced_case("tp-2x2x2")
    fault = variant_fault(kind, find_sites(traced.closed, ranks))
    assert fault is not None and "must send one to a peer" in fault


def test_a_collective_kept_in_compute_only_is_refused() -> None:
    traced, ranks = traced_case("fsdp-2x4")
    sites = find_sites(variant(traced, "sync_only").closed, ranks)
    fault = variant_fault("compute_only", sites)
    assert fault is not None and "must have none" in fault


def test_comm_only_without_its_payload_is_another_program() -> None:
    """Deleting compute instead of giving it zero trips: all units are gathered at once."""
    e = case("fsdp-2x4")
    mesh = cpu_mesh(e)
    traced = trace(build_program(e)[1], mesh)
    options = compiler_options("cpu")

    def temporary(work: Matmul | NoPayload) -> int:
        step = compile_step(traced, mesh, lambda s, label: work, options)
        assert step.temporary_bytes is not None
        return step.temporary_bytes

    full = temporary(Matmul(2, 32, "float32"))
    assert temporary(Matmul(0, 32, "float32")) == pytest.approx(full, rel=0.05)
    assert temporary(NoPayload()) > 1.5 * full
