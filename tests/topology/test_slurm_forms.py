"""A hierarchy is the same from every form of file that Slurm has for it."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxbench.errors import InputError
from jaxbench.topology.hierarchy import Topology, of_slurm
from jaxbench.topology.hostlist import folded
from jaxbench.topology.slurm_topology import read_leaves
from tests.topology.made_topologies import (
    DATA,
    LEONARDO,
    NAMED_TOPOLOGIES,
    conf_text,
    slurm_text,
    yaml_text,
)

TREES: dict[str, Callable[[Topology], str]] = {
    "scontrol": slurm_text,
    "topology.conf": conf_text,
    "topology.yaml": yaml_text,
}


def same(one: Topology, other: Topology) -> bool:
    return (
        one.names == other.names
        and one.leaf_names == other.leaf_names
        and one.group_names == other.group_names
        and np.array_equal(one.leaf, other.leaf)
        and np.array_equal(one.group, other.group)
    )


@pytest.mark.parametrize("form", TREES)
@given(NAMED_TOPOLOGIES)
def test_a_tree_is_read_back(form: str, topology: Topology) -> None:
    assert same(of_slurm(TREES[form](topology)), topology)


@pytest.mark.parametrize("path", [DATA / "three_cells.txt", LEONARDO], ids=lambda path: path.name)
def test_real_forms_agree(path) -> None:
    if not path.exists():
        pytest.skip(f"{path.name} isn't here")
    printed = of_slurm(path.read_text())
    for text in (conf_text(printed), yaml_text(printed)):
        read = of_slurm(text)
        assert read.leaf_names == printed.leaf_names and read.group_names == printed.group_names
        for leaf in range(len(printed.leaf_names)):  # a hostlist doesn't keep their order
            nodes = np.array(printed.names)[printed.leaf == leaf]
            assert set(nodes) == set(np.array(read.names)[read.leaf == leaf])


@st.composite
def blocks(draw: st.DrawFn) -> tuple[list[int], list[int]]:
    """Return nodes of each block, and block sizes in blocks: 1 and powers of two."""
    nodes = draw(st.lists(st.integers(1, 4), min_size=1, max_size=11))
    return nodes, sorted({1, *draw(st.lists(st.sampled_from([2, 4, 8, 16]), max_size=3))})


def named(nodes: list[int]) -> dict[str, list[str]]:
    counter = itertools.count(1)
    return {f"b{i:02d}": [f"n{next(counter)}" for _ in range(n)] for i, n in enumerate(nodes)}


def aggregated(names: list[str], sizes: list[int]) -> list[list[str]]:
    """Return the blocks of each aggregated one, as src/plugins/topology/block makes them."""
    found: list[list[str]] = []
    for level in range(1, len(sizes)):
        for first in range(0, len(names), sizes[level]):
            remaining = len(names) - first
            if not (sizes[level] > remaining and sizes[level - 1] >= remaining):
                found.append(names[first : first + sizes[level]])
        if sizes[level] >= len(names):
            break
    return found


def printed_blocks(of: dict[str, list[str]], sizes: list[int]) -> str:
    lines = [
        f"BlockName={name} BlockIndex={i} Nodes={folded(nodes)} BlockSize=4"
        for i, (name, nodes) in enumerate(of.items())
    ]
    for i, names in enumerate(aggregated(list(of), sizes), start=len(of)):
        nodes = folded([node for name in names for node in of[name]])
        lines.append(f"AggregatedBlock={folded(names)} BlockIndex={i} Nodes={nodes} BlockSize=8")
    return "\n".join(lines)


def conf_blocks(of: dict[str, list[str]], sizes: list[int]) -> str:
    lines = [f"BlockName={name} Nodes={folded(nodes)}" for name, nodes in of.items()]
    return "\n".join([*lines, "BlockSizes=" + ",".join(str(4 * size) for size in sizes)])


def yaml_blocks(of: dict[str, list[str]], sizes: list[int]) -> str:
    entries = [{"block": name, "nodes": folded(nodes)} for name, nodes in of.items()]
    content = {"block_sizes": [4 * size for size in sizes], "blocks": entries}
    return json.dumps([{"topology": "racks", "block": content}])  # JSON is YAML


@given(blocks())
def test_blocks_are_read_back(made: tuple[list[int], list[int]]) -> None:
    """A block is a leaf, in the smallest aggregated block around it."""
    nodes, sizes = made
    of = named(nodes)
    around = {
        name: min(
            (row for row in aggregated(list(of), sizes) if name in row), key=len, default=None
        )
        for name in of
    }
    expected = [
        (name, folded(row) if row else name, tuple(of[name])) for name, row in around.items()
    ]
    for form in (printed_blocks, conf_blocks, yaml_blocks):
        _, leaves = read_leaves(form(of, sizes))
        assert [tuple(leaf) for leaf in leaves] == expected, form.__name__


def test_blocks_without_sizes_are_groups() -> None:
    topology = of_slurm("BlockName=b1 Nodes=n[1-2]\nBlockName=b2 Nodes=n[3-4]\n")
    assert topology.group_names == topology.leaf_names == ("b1", "b2")


def test_blocks_may_have_any_name_in_yaml() -> None:
    text = """
- topology: t
  block:
    block_sizes: [1, 2]
    blocks:
      - {block: 'rack [1', nodes: n1}
      - {block: 'rack 2', nodes: n2}
"""
    assert of_slurm(text).group_names == ("rack [1,rack 2",)


@pytest.mark.parametrize(
    ("text", "faults"),
    [
        ("BlockName=b1\n", ["line 1: no Nodes=; expected a line such as"]),
        ("BlockName=b1 Nodes=n[\n", ["line 1: Nodes=: 'n[' is not a node name"]),
        ("RingName=r Nodes=n1\n", ["line 1: no SwitchName= or BlockName=; expected"]),
        (
            "BlockName=b1 Nodes=n1\nBlockName=b1 Nodes=n2\n",
            ["line 2: block b1 has line 1 already"],
        ),
        (
            "BlockName=b1 Nodes=n1\nBlockName=b2 Nodes=n1\n",
            ["line 2: n1 is under b1 already (line 1); expected one leaf switch or block"],
        ),
        (
            "SwitchName=s Nodes=n1\n\nBlockName=b Nodes=n1\n",
            ["line 3: a block, but line 1 has a switch; expected one kind"],
        ),
        ("BlockSizes=4,x\nBlockName=b Nodes=n1\n", ["line 1: BlockSizes=4,x; expected numbers of"]),
        ("BlockSizes=0\nBlockName=b Nodes=n1\n", ["line 1: BlockSizes=0; expected numbers of"]),
        ("BlockSizes=4,12\nBlockName=b Nodes=n1\n", ["line 1: BlockSizes=12 is not 4, the first"]),
        ("BlockSizes=4,10\nBlockName=b Nodes=n1\n", ["line 1: BlockSizes=10 is not 4, the first"]),
        ("BlockSizes=4,4\nBlockName=b Nodes=n1\n", ["line 1: BlockSizes=4 is not larger than 4"]),
        (
            "BlockName=b1 Nodes=n1\nAggregatedBlock=b[1-2] Nodes=n[1-2]\n",
            ["line 2: switch b2 has no line of its own"],
        ),
        ("BlockName=b1 \\\n  Nodes=n1 Nodes\n", ["line 1: 'Nodes' is no KEY=VALUE"]),
    ],
)
def test_faulty_blocks(text: str, faults: list[str]) -> None:
    with pytest.raises(InputError) as caught:
        read_leaves(text)
    assert len(caught.value.faults) == len(faults)
    for told, fault in zip(caught.value.faults, faults, strict=True):
        assert fault in told


def test_an_empty_leaf_as_slurm_prints_it() -> None:
    text = "SwitchName=s0 Level=0 LinkSpeed=1\nSwitchName=s1 Level=0 LinkSpeed=1 Nodes=n1\n"
    assert of_slurm(text).leaf_names == ("s1",)
    with pytest.raises(InputError, match="neither Nodes= nor Switches="):
        of_slurm("SwitchName=s0 Level=0 Node=n1\n")


def test_lines_have_no_names_to_choose_by() -> None:
    with pytest.raises(InputError, match="no topology of the name fabric"):
        read_leaves("SwitchName=s1 Nodes=n1\n", "fabric")
