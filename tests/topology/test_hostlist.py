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
        ("n[3,1,2-3]", ["n3", "n1", "n2", "n3"]),  # in a bracket too, and as often
        ("r[1-2]n[0-1]", ["r1n0", "r1n1", "r2n0", "r2n1"]),
        ("n[1-2][3,1]", ["n13", "n11", "n23", "n21"]),
        ("n[01-02]-ib[0,2]x", ["n01-ib0x", "n01-ib2x", "n02-ib0x", "n02-ib2x"]),
        ("n[099-101]x", ["n099x", "n100x", "n101x"]),
        ("[1-2]", ["1", "2"]),
        ("n[1,2[3-4]]x[2,1]", ["n1x2", "n1x1", "n23x2", "n23x1", "n24x2", "n24x1"]),
        ("n[[1-2],5],m[7[8]]", ["n1", "n2", "n5", "m78"]),
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
        "n[1-010]",
        "n[1-3/2]",
        "n[1,]",
        "n[,1]",
        "n[-1]",
        "n[1-2]]",
        "n[[1-2]",
        "n]1[",
        "n[1,a]",
        "n[" + "1" * 5000 + "]",
        "n" + "[" * 5000 + "1" + "]" * 5000,
        "n[\u0663]",  # a digit, but none of Slurm's
    ],
)
def test_what_is_no_hostlist(hostlist: str) -> None:
    with pytest.raises(InputError, match="is not a "):
        expand(hostlist)


def test_all_faulty_parts_are_told() -> None:
    with pytest.raises(InputError) as caught:
        expand("n],good1,@b,c[1-2],d[2-1],e[x]")
    assert [fault.partition(" ")[0] for fault in caught.value.faults] == [
        "'n]'",
        "'@b'",
        "'d[2-1]'",
        "'e[x]'",
    ]


def test_a_long_part_is_told_in_short() -> None:
    with pytest.raises(InputError) as caught:
        expand("n[" + "1," * 1000)
    assert len(str(caught.value)) < 200


def test_endless_ranges_are_refused_before_they_are_expanded() -> None:
    for hostlist in (
        "n[0-99999999999]",
        "n[0-9999]x[0-9999]",
        "n" + "[[1],[2]]" * 40,
    ):
        with pytest.raises(InputError, match="more than 1,000,000 nodes"):
            expand(hostlist)


def test_the_limit_is_that_of_the_whole_list(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jaxbench.topology.hostlist.MOST_NODES", 6)
    assert len(expand("n[0-2],m[0-1],o")) == 6
    for hostlist in ("n[0-2],m[0-1],o,p", "n[0-2],m[0-3]", "n[0-2,4-7]", "n[1[0-2],2[0-3]]"):
        with pytest.raises(InputError, match="makes it more than"):
            expand(hostlist)


@st.composite
def hostlists(draw: st.DrawFn, deep: int = 1) -> tuple[str, list[str]]:
    """Return a name with brackets, padded and with suffixes, and what it stands for in order."""
    text, names = "", [""]
    for _ in range(draw(st.integers(1, 2))):
        literal = draw(st.from_regex(r"[a-c]{1,2}[-.]?[0-9]?", fullmatch=True))
        bracket, inside = draw(brackets(deep))
        text += literal + bracket
        names = [name + literal + one for name in names for one in inside]
    suffix = draw(st.sampled_from(["", "x", "-ib0", ".site.org"]))
    return text + suffix, [name + suffix for name in names]


@st.composite
def brackets(draw: st.DrawFn, deep: int) -> tuple[str, list[str]]:
    items, inside = [], []
    for _ in range(draw(st.integers(1, 2))):
        if deep and draw(st.booleans()):
            text, names = draw(hostlists(deep - 1))
        else:
            first, count, width = draw(st.tuples(st.integers(0, 99), st.integers(1, 3), WIDTHS))
            names = [f"{number:0{width}d}" for number in range(first, first + count)]
            text = names[0] if len(names) == 1 else f"{names[0]}-{names[-1]}"
        items.append(text)
        inside += names
    return f"[{','.join(items)}]", inside


WIDTHS = st.sampled_from([1, 2, 3, 5])


@given(st.lists(hostlists(), min_size=1, max_size=3))
def test_names_come_in_the_order_given(parts: list[tuple[str, list[str]]]) -> None:
    names = [name for _, names in parts for name in names]
    assert expand(",".join(text for text, _ in parts)) == names


NAMES = st.from_regex(r"[a-c]{1,2}(0{0,2}[1-9]){0,2}(-ib0?[1-3])?x?", fullmatch=True)


@given(st.lists(NAMES, min_size=1, max_size=9))
def test_folding_loses_nothing(names: list[str]) -> None:
    assert sorted(expand(folded(names))) == sorted(set(names))


def test_long_lists_are_cut() -> None:
    text = folded([f"n{number}" for number in range(0, 2000, 2)])
    assert len(text) < 250 and text.endswith("... (1000 nodes)")
