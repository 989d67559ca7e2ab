"""Every row of the device catalog: units plausible, sources present, unknown told from zero."""

import dataclasses

import pytest

from jaxbench.catalog.hardware import HARDWARE, Hardware, find_hardware
from jaxbench.errors import InputError

ROWS = pytest.mark.parametrize("hardware", HARDWARE.values(), ids=HARDWARE.keys())
NUMBERS = [
    field.name
    for field in dataclasses.fields(Hardware)
    if field.name not in ("name", "source", "unverified")
]


@ROWS
def test_rows_are_named_and_every_number_has_a_source(hardware):
    assert HARDWARE[hardware.name] is hardware
    assert set(hardware.unverified) <= set(NUMBERS)
    assert all(hardware.source_of(number) for number in NUMBERS)


ACCELERATORS = {name: row for name, row in HARDWARE.items() if name != "cpu"}


@pytest.mark.parametrize("hardware", ACCELERATORS.values(), ids=ACCELERATORS.keys())
def test_units_are_si(hardware):
    assert 1e14 < hardware.bfloat16_FLOPs < 1e16
    assert 1e10 < hardware.memory_bytes < 1e12
    assert 1e11 < hardware.memory_Bps < 1e13
    assert 1e11 < hardware.scale_up_Bps < 1e12
    assert hardware.nic_Bps is None or 1e9 < hardware.nic_Bps <= 1e11
    if hardware.scale_up_peer_Bps is not None:
        assert hardware.scale_up_peer_Bps < hardware.scale_up_Bps
    # FP8 runs at twice, TF32 at half the rate of bfloat16, to the rounding of data sheets.
    for rate, factor in ((hardware.float8_FLOPs, 2), (hardware.tf32_FLOPs, 0.5)):
        assert rate is None or rate == pytest.approx(factor * hardware.bfloat16_FLOPs, rel=0.003)


# bfloat16, float8, tf32 in TFLOP/s; memory GB, TB/s; scale-up, NIC in GB/s; MFU
REFERENCE = {
    "a100_40": (312, None, 156, 40, 1.555, 300, 25, (0.40, 0.52)),
    "a100_80": (312, None, 156, 80, 2.04, 300, 25, (0.40, 0.52)),
    "a100_64": (312, None, 156, 64, 1.64, 300, 12.5, (0.35, 0.50)),
    "h100": (989, 1979, 494, 80, 3.35, 450, 50, (0.38, 0.47)),
    "h200": (989, 1979, 494, 141, 4.8, 450, 50, (0.40, 0.47)),
    "gh200": (990, 1979, 494, 96, 4.0, 450, 25, (0.35, 0.45)),
    "mi250x_gcd": (191.5, None, None, 64, 1.6, 200, 12.5, (0.30, 0.38)),
    "b200": (2250, 4500, 1125, 180, 8.0, 900, 50, (0.35, 0.45)),
    "gb200": (2500, 5000, 1250, 186, 8.0, 900, 50, (0.35, 0.45)),
    "gb300": (2500, 5000, 1250, 288, 8.0, 900, 100, None),
    "tpu_v4": (275, None, None, 32, 1.2, 150, None, (0.5, 0.6)),
    "tpu_v5e": (197, None, None, 16, 0.82, 200, None, (0.5, 0.6)),
    "tpu_v5p": (459, None, None, 95, 2.77, 600, 6.25, (0.5, 0.6)),
    "tpu_v6e": (918, None, None, 32, 1.64, 400, None, (0.5, 0.6)),
}


def test_rows_are_those_of_the_reference_table():
    def scaled(value, unit):
        return None if value is None else pytest.approx(value / unit)

    rows = {
        name: (
            scaled(h.bfloat16_FLOPs, 1e12),
            scaled(h.float8_FLOPs, 1e12),
            scaled(h.tf32_FLOPs, 1e12),
            scaled(h.memory_bytes, 1e9),
            scaled(h.memory_Bps, 1e12),
            scaled(h.scale_up_Bps, 1e9),
            scaled(h.nic_Bps, 1e9),
            h.mfu,
        )
        for name, h in ACCELERATORS.items()
    }
    assert rows == REFERENCE


def test_the_cpu_row_is_marked_as_a_guess_and_far_below_accelerators():
    cpu = HARDWARE["cpu"]
    assert {cpu.source_of(number) for number in NUMBERS} >= {"unverified"}
    assert cpu.bfloat16_FLOPs < 1e12
    assert cpu.memory_Bps < 1e11


def test_dlnetbench_peaks():
    peaks = {
        name: (h.dlnetbench_FLOPs / 1e12, h.dlnetbench_memory_Bps / 1e12)
        for name, h in HARDWARE.items()
        if h.dlnetbench_FLOPs and h.dlnetbench_memory_Bps
    }
    assert peaks == {
        "a100_40": (312, 2),
        "a100_80": (312, 2),
        "a100_64": (312, 2),
        "gh200": (990, 4),
        "mi250x_gcd": (192, 1.6),
        "b200": (2250, 8),
        "gb300": (2400, 8),
    }


def test_peaks_by_dtype():
    h100 = HARDWARE["h100"]
    assert h100.peak_FLOPs("bfloat16") == h100.peak_FLOPs("float16") == 989e12
    assert h100.peak_FLOPs("float8_e4m3fn") == h100.peak_FLOPs("float8_e5m2") == 1979e12
    assert h100.peak_FLOPs("float32") == 494e12  # TF32
    assert HARDWARE["a100_40"].dtypes() == ("float32", "bfloat16", "float16")
    assert HARDWARE["mi250x_gcd"].peak_FLOPs("float32") is None
    assert HARDWARE["mi250x_gcd"].dtypes() == ("bfloat16", "float16")


def test_default_mfu_is_the_middle_of_the_range():
    assert HARDWARE["a100_40"].default_mfu == pytest.approx(0.46)
    assert HARDWARE["gb300"].default_mfu == 0.40


def test_general_knowledge_is_marked():
    assert HARDWARE["a100_64"].source_of("memory_Bps") == "unverified"
    assert HARDWARE["a100_64"].source_of("memory_bytes") != "unverified"
    assert HARDWARE["tpu_v4"].source_of("bfloat16_FLOPs") == "unverified"
    assert "DLNetBench" in HARDWARE["gh200"].source_of("dlnetbench_FLOPs")
    assert HARDWARE["gh200"].source_of("mfu") != HARDWARE["gh200"].source


def test_a_row_can_be_found_by_name():
    assert find_hardware("gh200").memory_bytes == 96 * 10**9


def test_unknown_hardware_lists_the_known_ones():
    with pytest.raises(InputError, match=r"unknown hardware 'a100'; .*known: a100_40, a100_64"):
        find_hardware("a100")
