"""Flagfiles: found from anywhere, nested, commented; the command line is stronger."""

from __future__ import annotations

from pathlib import Path

import pytest

from jaxbench.cli.flagfile import find_flagfile, override, read_flagfile, read_run
from jaxbench.data import data_folder
from jaxbench.errors import InputError


def write(path: Path, *lines: str) -> Path:
    """Write a flagfile."""
    path.parent.mkdir(exist_ok=True)
    path.write_text("\n".join(lines))
    return path


def test_comments_blanks_and_nesting(tmp_path: Path) -> None:
    write(tmp_path / "sub" / "base.flags", "--batch=4", "--steps=9")
    outer = write(
        tmp_path / "a.flags",
        "# a comment",
        "// another",
        "",
        "  --flagfile=sub/base.flags  ",
        "--steps=3",
        "--norecompute",
    )
    values = {"batch": "4", "steps": "3", "recompute": "false"}
    assert read_flagfile(str(outer)) == (values, [])


def test_a_nested_file_is_looked_for_beside_the_outer_one_then_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outer = write(tmp_path / "sub" / "a.flags", "--flagfile=base.flags")
    write(tmp_path / "base.flags", "--batch=1")
    monkeypatch.chdir(tmp_path)
    assert read_flagfile(str(outer)).values == {"batch": "1"}
    write(tmp_path / "sub" / "base.flags", "--batch=2")
    assert read_flagfile(str(outer)).values == {"batch": "2"}


def test_ours_are_found_from_any_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    ours = data_folder("flags") / "tiny_dp.flags"
    assert find_flagfile("flags/tiny_dp.flags") == ours
    assert find_flagfile("tiny_dp.flags") == ours
    assert find_flagfile("other/tiny_dp.flags") is None
    mine = write(tmp_path / "flags" / "tiny_dp.flags", "--batch=1")
    found = find_flagfile("flags/tiny_dp.flags")
    assert found is not None and found.resolve() == mine.resolve()


def test_a_wrong_line_is_told_with_its_place(tmp_path: Path) -> None:
    path = write(tmp_path / "a.flags", "--batch=4", "batch 4", "--batch 4", "--mesh")
    assert [fault.split("a.flags ")[1] for fault in read_flagfile(str(path)).faults] == [
        "line 2: unexpected argument 'batch 4'; flags are written --name=value",
        "line 3: unknown flag '--batch 4'; did you mean '--batch'?",
        "line 4: Missing value for --mesh",
    ]


def test_files_that_can_t_be_read(tmp_path: Path) -> None:
    (tmp_path / "binary.flags").write_bytes(b"\xff\xfe")
    write(tmp_path / "loop.flags", "--flagfile=loop.flags")
    for name, reason in {
        "nonesuch.flags": "unknown flagfile '.*nonesuch.flags'; known: ",
        "binary.flags": "it isn't text",
        "loop.flags": "includes itself",
        ".": "Is a directory",
    }.items():
        with pytest.raises(InputError, match=reason):
            read_flagfile(str(tmp_path / name))
    with pytest.raises(InputError, match="did you mean 'flags/quickstart.flags'"):
        read_flagfile("flags/quikstart.flags")


def test_runs(tmp_path: Path) -> None:
    assert read_run("tiny_dp").values["strategy"] == "dp"
    mine = write(tmp_path / "mine.flags", "--batch=1")
    assert read_run(str(mine)).values == {"batch": "1"}
    with pytest.raises(InputError, match="unknown run 'tiny_pd'; did you mean 'tiny_dp'"):
        read_run("tiny_pd")
    with pytest.raises(InputError, match="run 'quickstart' has --runs itself"):
        read_run("quickstart")


def test_the_last_layer_wins() -> None:
    assert override({"a": "1", "b": "1"}, {"b": "2"}, {}) == {"a": "1", "b": "2"}


def test_a_full_mesh_replaces_mesh_and_devices() -> None:
    file = {"mesh": "pipeline=4", "devices": "8"}
    assert override(file, {"mesh": "data=2,pipeline=3"}) == {"mesh": "data=2,pipeline=3"}
    assert override(file, {"mesh": "pipeline=2"}) == {"mesh": "pipeline=2", "devices": "8"}
    assert override(file, {"devices": "12"}) == {"mesh": "pipeline=4", "devices": "12"}
    both = {"mesh": "data=1,pipeline=2", "devices": "2"}
    assert override(file, both) == both
