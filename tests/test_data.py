"""The folders that travel with the package."""

from __future__ import annotations

from pathlib import Path

import pytest

from jaxbench import data


def test_a_checkout_has_both() -> None:
    for kind, suffix in (("flags", ".flags"), ("meshes", ".toml")):
        files = sorted(path.name for path in data.data_folder(kind).iterdir())
        assert files == [name + suffix for name in data.data_names(kind, suffix)]


def test_an_installed_folder_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "jaxbench"
    (package / "_data" / "flags").mkdir(parents=True)
    (tmp_path / "flags").mkdir()
    monkeypatch.setattr(data, "_PACKAGE", package)
    assert data.data_folder("flags") == package / "_data" / "flags"


def test_a_stranger_s_folder_beside_the_package_is_not_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "flags").mkdir()
    monkeypatch.setattr(data, "_PACKAGE", tmp_path / "jaxbench")
    with pytest.raises(FileNotFoundError, match="neither at .*_data/flags nor at"):
        data.data_folder("flags")
    (tmp_path / "pyproject.toml").touch()
    assert data.data_folder("flags") == tmp_path / "flags"


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"JAXBENCH_CACHE": "/a", "XDG_CACHE_HOME": "/b"}, "/a"),
        ({"XDG_CACHE_HOME": "/b"}, "/b/jaxbench"),
        ({"HOME": "/home/x"}, "/home/x/.cache/jaxbench"),
    ],
)
def test_the_cache_folder(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], expected: str
) -> None:
    for name in ("JAXBENCH_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert data.cache_folder() == Path(expected)
