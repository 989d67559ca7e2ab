"""Profiles that can't be read, aren't profiles, or aren't complete."""

from __future__ import annotations

from pathlib import Path

import pytest

from jaxbench.errors import InputError, RunError
from jaxbench.readings.xspace import read_space
from tests.readings.profile_inputs import E, write_profile

PLANES = {
    "/device:GPU:1": {"Stream #1(Compute)": [E("gemm", 5, 9)], "Stream #2/3": []},
    "/host:CPU": {},
}


def test_planes_are_found_by_number_and_described(tmp_path: Path) -> None:
    space = read_space(write_profile(tmp_path, PLANES, warnings=["clock is off"]))
    assert list(space.numbered("/device:GPU:")) == [1]
    assert space.numbered("/device:TPU:") == {}
    assert space.warnings == ("clock is off",)
    assert space.describe() == (
        "'/device:GPU:1' (Stream #1(Compute), Stream #2); '/host:CPU' (no lines)"
    )


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ({"warnings": ["Detected GPU events dropped on a: 7"]}, "events dropped on a: 7"),
        ({"errors": ["no CUPTI"]}, "no CUPTI"),
        ({"stats": {"dropped_traces": 12}}, "/device:GPU:1 dropped 12 events"),
    ],
)
def test_dropped_events_are_no_measurement(tmp_path: Path, said: dict, told: str) -> None:
    with pytest.raises(RunError, match=told):
        read_space(write_profile(tmp_path, PLANES, **said))


def test_no_dropped_events_are_fine(tmp_path: Path) -> None:
    assert read_space(write_profile(tmp_path, PLANES, stats={"dropped_traces": 0})).planes


@pytest.mark.parametrize("content", [b"# notes\n\nnot a profile\n", b"\x00" * 50, b'{"a": 1}'])
def test_a_foreign_file_is_told(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "some.xplane.pb"
    path.write_bytes(content)
    with pytest.raises(InputError, match="isn't a profile"):
        read_space(path)


def test_a_file_cut_off_is_told(tmp_path: Path) -> None:
    path = Path(write_profile(tmp_path, PLANES, warnings=["w" * 300]))
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(InputError, match="cut off"):
        read_space(path)


def test_a_missing_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="No such file"):
        read_space(tmp_path / "none.xplane.pb")
