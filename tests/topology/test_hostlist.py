"""Hostlists are read as Slurm means them; what is none is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxbench.errors import InputError
from jaxbench.topology.hostlist import expand, folded


@pytest.mark.parametrize(
    ("hostlist", "names"),
    [
        ("n1", ["n1"]),
        ("n[1-3]", ["n1", "n2", "n3"]),
        ("n[08-11]", ["n08", "n09", "n10", "n11"]),
        ("n9,n[1-2],a", ["n9", "n1", "n2", "a"]),  # the order given
        ("n[1,3-4],m[2]", ["n1", "n3", "n4", "m2"]),
        ("r[1-2]n[0-1]", ["r1n0", "r1n1", "r2n0", "r2n1"]),
        ("nid[001-002]-gpu.site.org", ["nid001-gpu.site.org", "nid002-gpu.site.org"]),
        ("127.0.0.[1-2]", ["127.0.0.1", "127.0.0.2"]),
        (" n1 ", ["n1"]),
    ],
)
def test_names_and_ranges(hostlist: str, names: list[str]) -> None:
    assert expand(hostlist) == names


@pytest.mark.parametrize(
    "hostlist",
    [
        "",
        "n1,,n2",
        "n[1-",
        "n1]",
        "n[a-b]",
        "n[]",
        "n 1",
        "@all",
        "n[1-3]!n2",
        "n1 n2",
        "*",
        "n[2-1]",
    ],
)
def test_what_is_no_hostlist(hostlist: str) -> None:
    with pytest.raises(InputError, match="is not a "):
        expand(hostlist)


def test_all_faulty_parts_are_told() -> None:
    with pytest.raises(InputError) as caught:
        expand("n[,good1,@b,c[1-2]")
    assert len(caught.value.faults) == 2


def test_endless_ranges_are_refused_before_they_are_expanded() -> None:
    for hostlist in ("n[0-99999999999]", "n[0-9999]x[0-9999]"):
        with pytest.raises(InputError, match="more than 1,000,000 nodes"):
            expand(hostlist)


@given(st.lists(st.from_regex(r"[a-c]{1,2}(0?[1-9]){0,2}", fullmatch=True), min_size=1, max_size=9))
def test_folding_loses_nothing(names: list[str]) -> None:
    assert sorted(expand(folded(names))) == sorted(set(names))


def test_long_lists_are_cut() -> None:
    text = folded([f"n{number}" for number in range(0, 2000, 2)])
    assert len(text) < 250 and text.endswith("... (1000 nodes)")
