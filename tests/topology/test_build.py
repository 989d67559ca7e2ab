"""From system, file and placement to ranks on devices, or all that is wrong with them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from jaxbench.catalog.systems import find_system
from jaxbench.errors import InputError
from jaxbench.topology.build import placed
from tests.topology.made_topologies import DATA, LEONARDO, MANUAL

CELLS = str(DATA / "three_cells.txt")
JUPITER = find_system("jupiter")


def faults(*args, **kwargs) -> tuple[str, ...]:
    with pytest.raises(InputError) as caught:
        placed(*args, **kwargs)
    return caught.value.faults


def test_without_a_file_the_system_says_it_all() -> None:
    topology, placement = placed(JUPITER, 2400, "inter-group", seed=3)
    assert topology.nodes == 5884
    assert len(set(placement.group)) == 25
    assert placement.description == (
        "system jupiter, inter-group, seed 3: 600 nodes, 368 leaf switches, 25 groups"
    )


def test_a_file_replaces_the_topology() -> None:
    topology, placement = placed(JUPITER, 64, topology_file=CELLS, partition_nodes="gpu[17-38]")
    assert topology.names[0] == "gpu17"
    assert (placement.group == 0).all() and len(set(placement.leaf)) == 4
    _, listed = placed(JUPITER, 8, "nodes:gpu[38,01]", topology_file=CELLS)
    assert [topology.names.index(name) for name in ("gpu38",)] == [21]
    assert listed.description.startswith(CELLS)
    assert list(np.unique(listed.group)) == [0, 2]


def test_one_of_several_topologies_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "topology.yaml"
    path.write_text(MANUAL)
    topology, placement = placed(JUPITER, 16, topology_file=str(path))
    assert topology.source == f"{path}:topo1"
    assert placement.description.startswith(f"{path}:topo1, nodes in order: 4 nodes")
    topology, _ = placed(JUPITER, 16, topology_file=f"{path}:topo2")
    assert topology.leaf_names == ("b1", "b2", "b3", "b4")
    (fault,) = faults(JUPITER, 16, topology_file=f"{path}:topo9")
    assert fault.startswith(f"{path}, unknown topology 'topo9'")
    (fault,) = faults(JUPITER, 16, topology_file=f"{CELLS}:topo1")
    assert fault.startswith(f"{CELLS}, no topology of the name topo1")


def test_a_colon_may_be_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "2026-01-01:topology.yaml"
    path.write_text(MANUAL)
    assert placed(JUPITER, 16, topology_file=str(path))[0].source == f"{path}:topo1"
    assert placed(JUPITER, 16, topology_file=f"{path}:topo2")[0].source == f"{path}:topo2"
    (fault,) = faults(JUPITER, 16, topology_file=":topo1")
    assert "can't be read" in fault
    (fault,) = faults(JUPITER, 16, topology_file="x" * 5000)
    assert "can't be read: File name too long" in fault


@pytest.mark.skipif(not LEONARDO.exists(), reason="Leonardo's topology file isn't here")
def test_leonardo_needs_its_partition() -> None:
    leonardo = find_system("leonardo")
    (fault,) = faults(leonardo, 64, topology_file=str(LEONARDO))
    assert "has 5024 nodes, but system leonardo has 3456; name those that count with" in fault
    topology, placement = placed(
        leonardo,
        1024,
        "inter-group",
        topology_file=str(LEONARDO),
        partition_nodes="lrdn[0001-3456]",
    )
    assert len(set(placement.group)) == len(topology.group_names) == 20


def test_a_system_without_a_network_has_no_topology_file() -> None:
    (fault,) = faults(find_system("dgx_a100"), 8, topology_file=CELLS)
    assert fault.startswith("system dgx_a100 has no network")


def test_a_topology_has_no_more_nodes_than_the_system() -> None:
    cluster = find_system("h100_cluster")
    told = faults(cluster, 8, topology_file=CELLS)
    assert f"{CELLS} has 42 nodes, but system h100_cluster has 8; name those" in told[0]
    placed(cluster, 8, topology_file=CELLS, partition_nodes="gpu[03-06]")


def test_links_that_a_system_does_not_have(tmp_path: Path) -> None:
    path = tmp_path / "t.txt"
    path.write_text(
        "SwitchName=a Switches=s[0-1]\nSwitchName=b Switches=s2\nSwitchName=s0 Nodes=n0\n"
        "SwitchName=s1 Nodes=n1\nSwitchName=s2 Nodes=n2\n"
    )
    told = faults(find_system("h100_cluster"), 8, topology_file=str(path))
    assert len(told) == 2
    assert "has 2 leaf switches in a group, but system h100_cluster only one" in told[0]
    assert "has 2 groups, but system h100_cluster only one" in told[1]


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    (fault,) = faults(JUPITER, 8, topology_file=str(tmp_path / "none.txt"))
    assert "can't be read: No such file" in fault
    path = tmp_path / "binary"
    path.write_bytes(b"\xff\x00")
    (fault,) = faults(JUPITER, 8, topology_file=str(path))
    assert "is no text; expected what `scontrol show topology` prints" in fault


def test_partition_nodes_need_a_file() -> None:
    (fault,) = faults(JUPITER, 8, partition_nodes="n1")
    assert "which is missing" in fault


def test_all_faults_of_all_arguments_are_told(tmp_path: Path) -> None:
    path = tmp_path / "t.txt"
    path.write_text("SwitchName=s0 Nodes=a[1-\nnonsense\n")
    told = faults(JUPITER, 0, "inter-grup", str(path), "b[")
    assert [fault.split(":")[0].split(";")[0] for fault in told] == [
        f"{path}, line 1",
        f"{path}, line 2",
        "--partition_nodes",
        "unknown placement 'inter-grup'",
        "--devices is 0",
    ]
    assert len(faults(JUPITER, 30000, "nodes:x[1-2]")) == 3
