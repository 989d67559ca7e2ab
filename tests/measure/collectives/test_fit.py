"""The fit finds a line it is given, says what the data can't tell, and its file can be trusted."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxbench.errors import InputError
from jaxbench.measure.collectives.bench import Measured
from jaxbench.measure.collectives.cells import make_cell
from jaxbench.measure.collectives.fit import fit_fields, fit_line
from jaxbench.measure.collectives.fit_file import (
    FORMAT,
    VERSION,
    fits_document,
    join_fits,
    read_fits,
    writable_fault,
    write_fits,
)
from jaxbench.measure.collectives.job import fit_series
from jaxbench.measure.collectives.request import read_request

SIZES = [8 * 2**k for k in range(25)]  # 8 B to 128 MiB

LATENCY_S, BANDWIDTH_BPS = 20e-6, 10e9


def noisy(sizes: list[int], seed: int, noise: float, latency_s: float = LATENCY_S) -> list[float]:
    draws = np.random.default_rng(seed).normal(0.0, noise, len(sizes))
    return [(latency_s + x / BANDWIDTH_BPS) * np.exp(d) for x, d in zip(sizes, draws, strict=True)]


@pytest.mark.parametrize("seed", range(20))
def test_latency_and_bandwidth_are_recovered_within_1_percent(seed: int) -> None:
    fit = fit_line(SIZES, noisy(SIZES, seed, noise=0.01))
    assert fit.latency_s == pytest.approx(LATENCY_S, rel=0.01)
    assert fit.bandwidth_Bps == pytest.approx(BANDWIDTH_BPS, rel=0.01)
    assert fit.note is None
    assert fit.r_squared is not None and fit.r_squared > 0.999
    assert max(map(abs, fit.residuals)) < 0.05
    assert fit.predict(1e6) == pytest.approx(120e-6, rel=0.01)


@given(
    latency_s=st.floats(1e-7, 1e-3),
    bandwidth_Bps=st.floats(1e8, 1e12),
)
def test_without_noise_it_is_exact(latency_s: float, bandwidth_Bps: float) -> None:
    """Where both can be seen: the sizes span from far below to far above latency * bandwidth."""
    knee = latency_s * bandwidth_Bps
    sizes = [knee * 10.0**k for k in (-2, -1, 0, 1, 2)]
    fit = fit_line(sizes, [latency_s + x / bandwidth_Bps for x in sizes])
    assert fit.latency_s == pytest.approx(latency_s, rel=1e-6)
    assert fit.bandwidth_Bps == pytest.approx(bandwidth_Bps, rel=1e-6)


def test_a_disturbed_size_counts_little_and_shows() -> None:
    times = noisy(SIZES, 1, noise=0.01)
    times[10] *= 20
    fit = fit_line(SIZES, times)
    assert fit.latency_s == pytest.approx(LATENCY_S, rel=0.02)
    assert fit.bandwidth_Bps == pytest.approx(BANDWIDTH_BPS, rel=0.02)
    assert fit.residuals[10] == pytest.approx(19, rel=0.05)


def test_standard_errors_are_of_the_right_size() -> None:
    fits = [fit_line(SIZES, noisy(SIZES, seed, noise=0.05)) for seed in range(200)]
    latencies = [f.latency_s or np.nan for f in fits]
    slopes = [1 / (f.bandwidth_Bps or np.nan) for f in fits]
    stated = np.array([[f.latency_se_s, f.seconds_per_byte_se] for f in fits], float).mean(axis=0)
    assert stated == pytest.approx([np.std(latencies), np.std(slopes)], rel=0.2)


def test_small_sizes_say_nothing_about_bandwidth() -> None:
    fit = fit_line(SIZES[:6], noisy(SIZES[:6], 3, noise=0.02))
    assert fit.bandwidth_Bps is None and fit.r_squared is None
    assert fit.latency_s == pytest.approx(LATENCY_S, rel=0.03)
    assert fit.note is not None and "add larger ones" in fit.note
    assert fit.predict(8) == fit.latency_s


def test_large_sizes_say_nothing_about_latency() -> None:
    large = [x * 2**20 for x in (64, 128, 256, 512, 1024)]
    fit = fit_line(large, noisy(large, 4, noise=0.02))
    assert fit.latency_s is None
    assert fit.bandwidth_Bps == pytest.approx(BANDWIDTH_BPS, rel=0.03)
    assert fit.note is not None and "add smaller ones" in fit.note
    assert fit.predict(2e9) == pytest.approx(0.2, rel=0.03)


def test_times_that_fall_give_no_bandwidth() -> None:
    fit = fit_line([1, 2, 3, 4], [4.0, 3.0, 2.0, 1.0])
    assert fit.bandwidth_Bps is None and fit.latency_s is not None


@pytest.mark.parametrize("sizes", [[8], [8, 16], [8, 8, 16, 16]])
def test_two_sizes_are_too_few(sizes: list[int]) -> None:
    fit = fit_line(sizes, [1.0] * len(sizes))
    assert (fit.latency_s, fit.bandwidth_Bps, fit.residuals) == (None, None, ())
    assert fit.predict(8) is None
    assert fit.note == "3 different sizes are needed, there are " + str(len(set(sizes)))


# --- the file ---------------------------------------------------------------------------------


def series() -> list[Measured]:
    """Return two kinds over sizes, with exact times, in mixed order."""
    cells = [make_cell("all_reduce", "data", 4, "float32", 8 * 8**k) for k in range(6)]
    cells += [make_cell("all_gather", "data", 4, "float32", 64 * 8**k) for k in range(6)]
    found = []
    for cell in reversed(cells):
        m = Measured(cell, executions=2, wire_dtypes=("f32",), complete=True)
        seconds = LATENCY_S + cell.bytes / BANDWIDTH_BPS
        m.samples_s = {"full": [[1.0]], "chained": [[1.0 + seconds]]}
        found.append(m)
    return found


def test_a_fit_for_every_series(tmp_path: Path) -> None:
    request = read_request({"devices": "8", "mesh": "data=4,tensor=2", "axis": "data"})
    fits = fit_series(series(), request)
    assert [(f["kind"], f["axis"], f["group_size"], f["dtype"]) for f in fits] == [
        ("all_gather", "data", 4, "float32"),
        ("all_reduce", "data", 4, "float32"),
    ]
    for fit in fits:
        assert fit["bytes"] == sorted(fit["bytes"]) and len(fit["bytes"]) == 6
        assert fit["latency_s"] == pytest.approx(LATENCY_S, rel=1e-4)
        assert fit["bandwidth_Bps"] == pytest.approx(BANDWIDTH_BPS, rel=1e-4)
        assert (fit["groups"], fit["mesh"]["tensor"], fit["ranks"]) == (2, 2, None)
    assert fits[1]["bus_factor"] == 1.5

    path = tmp_path / "new" / "fits.json"
    write_fits(path, fits_document(fits, {"platform": "cpu"}, "2026-01-01T00:00:00+00:00"))
    document = read_fits(path)
    assert (document["format"], document["version"]) == (FORMAT, VERSION)
    assert document["fits"] == json.loads(json.dumps(fits))
    assert [p.name for p in path.parent.iterdir()] == ["fits.json"]


def test_the_documented_fields_are_those_written() -> None:
    from jaxbench.measure.collectives import fit_file

    request = read_request({"devices": "4"})
    (fit, *_) = fit_series(series(), request)
    documented = (fit_file.__doc__ or "").split("fits         ")[1]
    assert all(name in documented for name in fit)
    assert set(fit_fields(fit_line([1], [1.0]))) <= set(fit)


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (None, "can't read fits"),
        ("", "isn't JSON"),
        ("[1, 2]", "isn't a file of fits"),
        ('{"format": "other", "version": 1}', "isn't a file of fits"),
        (json.dumps({"format": FORMAT, "version": VERSION + 1}), "1 is the newest known"),
        (json.dumps({"format": FORMAT}), "version None"),
    ],
)
def test_foreign_files_are_refused(tmp_path: Path, content: str | None, text: str) -> None:
    path = tmp_path / "fits.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(InputError, match=text):
        read_fits(path)


@pytest.mark.parametrize(
    ("place", "writable"),
    [
        (lambda folder: folder / "fits.json", True),
        (lambda folder: folder / "a" / "b" / "fits.json", True),
        (lambda folder: folder, False),
        (lambda folder: Path("/proc/fits.json"), False),
    ],
)
def test_where_the_file_can_be_written(
    tmp_path: Path, place: Callable[[Path], Path], writable: bool
) -> None:
    assert (writable_fault(str(place(tmp_path))) is None) == writable
    assert list(tmp_path.iterdir()) == []


def test_files_of_one_platform_are_taken_together() -> None:
    cpu, more, gpu = (
        fits_document([{"kind": kind}], {"platform": platform}, "2026-01-01T00:00:00+00:00")
        for kind, platform in (("permute", "cpu"), ("all_reduce", "cpu"), ("permute", "gpu"))
    )
    joined = join_fits(cpu, more)
    assert [fit["kind"] for fit in joined["fits"]] == ["permute", "all_reduce"]
    assert joined["environment"] == {"platform": "cpu"} and len(cpu["fits"]) == 1
    with pytest.raises(InputError, match="measured on cpu and on gpu can't be joined"):
        join_fits(cpu, gpu)
    broken = {**more, "fits": {}}
    assert join_fits(cpu, broken)["fits"] == join_fits(broken, cpu)["fits"] == {}
