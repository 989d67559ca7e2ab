"""Which instruction of a compiled program is what, by its opcode and scope."""

from __future__ import annotations

import pytest

from jaxbench.errors import RunError
from jaxbench.readings.hlo import collectives
from jaxbench.readings.operations import Sleep, read_operations
from tests.readings.hlo_samples import TPU_OVERLAPPED
from tests.readings.profile_inputs import MODULE, program_text, scope

MATMUL = f"""%body (p: f32[64,64]) -> f32[64,64] {{
  %p = f32[64,64]{{1,0}} parameter(0)
  ROOT %dot.1 = f32[64,64]{{1,0}} dot(%p, %p), {scope("compute forward", "while/body/dot_general")}
}}"""


def test_a_payload_is_known_by_its_scope_with_all_it_calls() -> None:
    text = program_text(
        [
            f"%while.1 = f32[64,64]{{1,0}} while(%x), condition=%c, body=%body, "
            f"{scope('compute forward', 'while')}",
            f"%while.2 = f32[1]{{0}} while(%x), condition=%c, body=%c, {scope('loop', 'while')}",
            f"%tie.1 = f32[1]{{0}} fusion(%x), kind=kLoop, calls=%f, {scope('computer', 'add')}",
        ],
        [MATMUL],
    )
    operations = read_operations(text, [])
    assert operations.module == MODULE
    assert operations.compute == {"while.1", "dot.1"}
    assert operations.outermost == {"while.1"}


def test_a_sleep_says_how_long_it_takes() -> None:
    call = 'custom-call(%x), custom_call_target="jaxbench_sleep"'
    config = "backend_config={nanoseconds = 20000 : i64, overhead_ns = 30 : i64}"
    text = program_text([f"%ffi_call.1 = f32[1]{{0}} {call}, {config}"])
    assert read_operations(text, []).sleeps == {"ffi_call.1": Sleep(20000, 19970)}
    with pytest.raises(RunError, match="how long 'ffi_call.1' sleeps"):
        read_operations(text.replace("nanoseconds", "ns"), [])


def test_an_end_leads_back_to_its_start() -> None:
    text = program_text(
        [
            "%all-gather-start.3 = (f32[1], f32[4]) all-gather-start(%x), replica_groups={{0,1}}",
            "%all-gather-done.7 = f32[4]{0} all-gather-done(%all-gather-start.3)",
            "%async-start = ((f32[4]), f32[2]) async-start(%x), calls=%scatter",
            "%async-update = ((f32[4]), f32[2]) async-update(%async-start)",
            "%async-done = f32[2]{0} async-done(%async-update)",
            "%copy-start = (f32[4], f32[4]) copy-start(%all-gather-start.3)",
            "%copy-done = f32[4]{0} copy-done(%copy-start)",
        ],
        ["%scatter (y: f32[4]) -> f32[2] {\n  %reduce-scatter.1 = f32[2] reduce-scatter(%y)\n}"],
    )
    operations = read_operations(text, ["all-gather-start.3", "reduce-scatter.1"])
    assert operations.begins == {
        "all-gather-start.3": "all-gather-start.3",
        "reduce-scatter.1": "reduce-scatter.1",
        "async-start": "reduce-scatter.1",
    }
    assert operations.ends == {
        "all-gather-done.7": "all-gather-start.3",
        "async-done": "reduce-scatter.1",
    }


def test_what_a_tpu_overlaps_is_known_by_its_fusions() -> None:
    found = [collective.name for collective in collectives(TPU_OVERLAPPED, 8)]
    operations = read_operations(TPU_OVERLAPPED, found)
    assert operations.begins["async-collective-start"] == "all-gather.7"
    assert operations.ends == {"async-collective-done": "all-gather.7"}
    assert "fusion.7" not in operations.begins  # the computation it overlaps


def test_text_that_is_no_program_is_told() -> None:
    with pytest.raises(RunError, match="is it HLO"):
        read_operations("module @jit_step {}", [])
