"""Built-in topologies have the published sizes; those of Slurm's lines are read as they are."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from jaxbench.catalog.systems import find_system, system_names
from jaxbench.errors import InputError
from jaxbench.topology.hierarchy import Topology, of_slurm, of_system
from jaxbench.topology.slurm_lines import read_lines
from tests.topology.made_topologies import DATA, LEONARDO


def assert_well_formed(topology: Topology) -> None:
    """Nodes come group by group and leaf by leaf, and nothing is empty or shared."""
    assert len(set(topology.names)) == topology.nodes
    assert len(topology.leaf) == len(topology.group) == topology.nodes
    for numbers, names in (
        (topology.leaf, topology.leaf_names),
        (topology.group, topology.group_names),
    ):
        assert numbers[0] == 0 and numbers[-1] == len(names) - 1
        assert set(np.diff(numbers)) <= {0, 1}
    assert (topology.leaf_group[topology.leaf] == topology.group).all()
    assert topology.leaf_sizes.sum() == topology.group_sizes.sum() == topology.nodes
    assert topology.leaf_sizes.min() > 0


@pytest.mark.parametrize("name", system_names())
def test_built_in_topologies(name: str) -> None:
    system = find_system(name)
    topology = of_system(system)
    assert_well_formed(topology)
    assert topology.nodes == system.nodes
    network = system.network
    if network is None:
        assert len(topology.leaf_names) == len(topology.group_names) == 1
        return
    assert tuple(topology.group_sizes) == network.group_sizes()
    assert topology.leaf_sizes.max() == network.nodes_per_leaf
    leaves = np.bincount(topology.leaf_group)
    assert leaves.max() == network.leaves_per_group
    # leaves are full but for the last of a group
    short = np.flatnonzero(topology.leaf_sizes < network.nodes_per_leaf)
    assert len(set(topology.leaf_group[short])) == len(short)


def test_generated_names() -> None:
    assert of_system(find_system("jupiter")).names[::5883] == ("n0001", "n5884")
    assert of_system(find_system("dgx_a100")).names == ("n1",)


def test_a_file_with_oddities() -> None:
    """The example has nodes out of order, a half cell, a service switch and an empty one."""
    text = (DATA / "three_cells.txt").read_text()
    everything = of_slurm(text)
    assert_well_formed(everything)
    assert everything.group_names == ("cell-1", "cell-2", "cell-3", "srv")
    assert list(everything.group_sizes) == [16, 16, 6, 4]
    assert list(everything.leaf_sizes) == [4] * 8 + [4, 2] + [4]
    assert everything.names[:8] == tuple(f"gpu{n:02d}" for n in (1, 2, 7, 8, 3, 4, 5, 6))

    kept = of_slurm(text, "gpu[01-38]", source="here")
    assert kept.nodes == 38 and kept.group_names == ("cell-1", "cell-2", "cell-3")
    assert kept.source == "here"
    some = of_slurm(text, "gpu[38,03]")
    assert some.names == ("gpu03", "gpu38")  # the order of the file
    assert some.leaf_names == ("sw1-02", "sw3-02") and some.group_names == ("cell-1", "cell-3")
    assert_well_formed(some)


def test_topology_conf_has_no_levels_and_no_case() -> None:
    text = """
    # as in topology.conf
    switchname=s0 nodes=a[1-2]   # a comment
    SwitchName=s1 Nodes=a[3-4]
    SwitchName=top Switches=s[0-1]
    """
    topology = of_slurm(text)
    assert topology.names == ("a1", "a2", "a3", "a4")
    assert topology.group_names == ("top",) and topology.leaf_names == ("s0", "s1")


def test_nodes_come_group_by_group_whatever_the_order_of_the_file() -> None:
    text = """
    SwitchName=s0 Nodes=n0
    SwitchName=s1 Nodes=n1
    SwitchName=s2 Nodes=n2
    SwitchName=odd Switches=s1
    SwitchName=even Switches=s0,s2
    """
    topology = of_slurm(text)
    assert_well_formed(topology)
    assert topology.names == ("n1", "n0", "n2") and topology.group_names == ("odd", "even")


def test_leaves_without_a_switch_above_are_groups() -> None:
    topology = of_slurm("SwitchName=s0 Nodes=a1\nSwitchName=s1 Nodes=b1\n")
    assert list(topology.group) == [0, 1] and topology.group_names == ("s0", "s1")


@pytest.mark.skipif(not LEONARDO.exists(), reason="Leonardo's topology file isn't here")
def test_leonardo() -> None:
    text = LEONARDO.read_text()
    assert_well_formed(of_slurm(text))
    assert of_slurm(text).nodes == 4992 + 16 + 16
    booster = of_slurm(text, "lrdn[0001-3456]")
    built_in = of_system(find_system("leonardo"))
    assert (booster.group == built_in.group).all()
    assert (booster.leaf_sizes[: 19 * 18] == 10).all()
    assert booster.group_names[0] == "isw-L2-CELLG1"


ROOT = "SwitchName=r Level=1 Switches=s0,s1\n"
S0, S1 = "SwitchName=s0 Level=0 Nodes=a[1-2]\n", "SwitchName=s1 Level=0 Nodes=a[3-4]\n"


@pytest.mark.parametrize(
    ("text", "faults"),
    [
        ("", ["no switch in it; expected a line such as 'SwitchName="]),
        ("default\n", ["line 1: 'default' is no KEY=VALUE; expected a line such as"]),
        ("\nSwitchName= Nodes=a1\n", ["line 2: no SwitchName= or BlockName=; expected"]),
        (S0 + "SwitchName=s1 Node=a3\n", ["line 2: neither Nodes= nor Switches=; expected"]),
        (S0 + S0, ["line 2: switch s0 has line 1 already"]),
        ("SwitchName=s0 Level=x Nodes=a1\n", ["line 1: Level=x; expected a whole number"]),
        ("SwitchName=s0 Level=² Nodes=a1\n", ["line 1: Level=²; expected a whole number"]),
        (f"SwitchName=s0 Level={'1' * 5000} Nodes=a1\n", ["expected a whole number"]),
        ("SwitchName=s0 Level=1 Nodes=a1\n", ["line 1: Level=1, but it has no Switches="]),
        (S0 + "SwitchName=r Level=0 Switches=s0\n", ["line 2: Level=0, but it has Switches="]),
        ("SwitchName=s0 Nodes=a[1-\n", ["line 1: Nodes=: 'a[1-' is not a node name or range"]),
        (ROOT + S0, ["line 1: switch s1 has no line of its own"]),
        (
            ROOT + S0 + S1 + "SwitchName=q Level=1 Switches=s1\n",
            ["line 4: switch s1 is below r already (line 1); expected a tree"],
        ),
        (
            ROOT + S0 + "SwitchName=s1 Level=0 Nodes=a[2-3]\n",
            ["line 3: a2 is under s0 already (line 2); expected one leaf switch"],
        ),
        ("SwitchName=s0 Nodes=a1,a1\n", ["line 1: Nodes=: a1 is named twice"]),
        (
            "SwitchName=a Switches=b\nSwitchName=b Switches=a\n",
            ["line 1: switch a is above itself", "line 2: switch b is above", "there is no leaf"],
        ),
        ("SwitchName=s0 Level=0 Nodes=(null)\n", ["there is no leaf"]),
    ],
)
def test_faulty_files(text: str, faults: list[str]) -> None:
    with pytest.raises(InputError) as caught:
        of_slurm(text, source="f.txt")
    assert len(caught.value.faults) == len(faults)
    for told, fault in zip(caught.value.faults, faults, strict=True):
        assert told.startswith("f.txt, ") and fault in told


def test_all_faults_of_file_and_partition_are_told() -> None:
    with pytest.raises(InputError) as caught:
        of_slurm("x\n" + S0 + "SwitchName=s1 Level=y Nodes=b[\n", "c[")
    assert len(caught.value.faults) == 4


def test_nodes_that_the_file_does_not_have() -> None:
    with pytest.raises(InputError) as caught:
        of_slurm(S0, "a[1-9]", source="f.txt")
    assert caught.value.faults == (
        "--partition_nodes: a[3-9] is under no leaf switch of f.txt, which has a[1-2]",
    )


def test_the_example_is_as_slurm_prints_it() -> None:
    """Each switch above the leaves repeats the nodes of those below it."""
    switches = {s.name: s for s in read_lines((DATA / "three_cells.txt").read_text())}
    for switch in switches.values():
        if switch.below:
            union = {node for name in switch.below for node in switches[name].nodes}
            assert set(switch.nodes) == union


def test_the_data_is_small() -> None:
    assert all(path.stat().st_size < 10_000 for path in Path(DATA).glob("*.txt"))
