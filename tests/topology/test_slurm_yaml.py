"""topology.yaml: which of its topologies is taken, and what is said of a faulty one."""

from __future__ import annotations

import pytest

from jaxbench.errors import InputError
from jaxbench.topology.hierarchy import Topology, of_slurm
from tests.topology.made_topologies import MANUAL


def faults(text: str, topology: str = "") -> list[str]:
    with pytest.raises(InputError) as caught:
        of_slurm(text, source="t.yaml", topology=topology)
    return list(caught.value.faults)


def sizes(topology: Topology) -> tuple[list[int], list[int]]:
    return list(topology.leaf_sizes), list(topology.group_sizes)


def test_the_default_is_taken_and_named() -> None:
    topology = of_slurm(MANUAL, source="t.yaml")
    assert topology.source == "t.yaml:topo1"
    assert topology.leaf_names == ("s1", "s2") and topology.group_names == ("sw_root",)
    assert sizes(topology) == ([2, 2], [4])


def test_another_one_is_taken_by_name() -> None:
    topology = of_slurm(MANUAL, source="t.yaml", topology="topo2")
    assert topology.source == "t.yaml:topo2"
    assert topology.leaf_names == ("b1", "b2", "b3", "b4")
    assert topology.group_names == ("b[1-4]",)
    assert sizes(topology) == ([4] * 4, [16])


def test_a_flat_one_says_nothing_of_where_nodes_are() -> None:
    assert faults(MANUAL, "topo3") == [
        "t.yaml, line 28: topology topo3 is flat, which has no switches or blocks; with a tree or "
        "blocks: topo1, topo2 (--topology=FILE:NAME names one)"
    ]


def test_an_unknown_one_is_told_with_the_known() -> None:
    assert faults(MANUAL, "topo11") == [
        "t.yaml, unknown topology 'topo11'; did you mean 'topo1'? known: topo1, topo2, topo3"
    ]


def test_without_a_default_there_must_be_a_name() -> None:
    text = MANUAL.replace("cluster_default: True", "cluster_default: no")
    (fault,) = faults(text)
    assert "none of its topologies has cluster_default: true" in fault
    assert fault.endswith("expected --topology=FILE:NAME; known: topo1, topo2, topo3")
    assert of_slurm(text, topology="topo1").nodes == 4


def test_the_first_of_two_defaults_is_taken() -> None:
    text = MANUAL.replace("cluster_default: False", "cluster_default: yes")
    assert of_slurm(text, source="t").source == "t:topo1"


def test_the_only_one_needs_no_default() -> None:
    text = "- topology: a\n  flat: false\n  tree: {switches: [{switch: 1, nodes: 01}]}\n"
    topology = of_slurm(text)
    assert topology.names == ("01",) and topology.leaf_names == ("1",)  # as written


def test_partition_nodes_and_their_faults_go_with_the_chosen_one() -> None:
    topology = of_slurm(MANUAL, "node[02-03]", "t.yaml")
    assert topology.names == ("node02", "node03")
    with pytest.raises(InputError, match="is under no leaf switch of t.yaml:topo1, which has"):
        of_slurm(MANUAL, "node05", "t.yaml")


TREE = "- topology: a\n  tree:\n    switches:\n"
BLOCK = "- topology: a\n  block:\n"
ONE_BLOCK = "    blocks: [{block: b, nodes: n1}]\n"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("---\n", ["no topology in it; expected a list of entries with 'topology: NAME'"]),
        ("topology: a\n", ["line 1: the file is a mapping; expected a list"]),
        ("- a\n", ["line 1: a topology is a value; expected a mapping with topology, cluster"]),
        ("- flat: true\n", ["line 1: a topology without a name; expected 'topology: NAME'"]),
        ("- topology: a\n", ["line 1: topology a has nothing; expected one of tree, block"]),
        ("- topology: a\n  flat: off\n", ["line 1: topology a has nothing; expected one of tree"]),
        (
            "\n- topology: a\n  tree: {}\n  block: {}\n",
            ["line 2: topology a has tree, block; expected one of"],
        ),
        ("- topology: a\n  tre: {}\n", ["line 2: unknown key of a topology 'tre'; did", "nothing"]),
        (
            "- topology: a\n  cluster_default: 7\n  tree: {switches: [{switch: s, nodes: n}]}\n",
            ["line 2: cluster_default is 7; expected true or false"],
        ),
        ("- topology: a\n  ring: {}\n", ["line 1: topology a is ring, which has no switches"]),
        (
            "- {topology: a, flat: true, cluster_default: true}\n- topology: a\n  flat: true\n",
            ["line 2: topology a has line 1 already", "line 1: topology a is flat"],
        ),
        ("- topology: a\n  tree: [1]\n", ["line 2: tree is a list; expected a mapping with swit"]),
        ("- topology: a\n  tree: {}\n", ["line 2: no switches; expected a list of them"]),
        ("- topology: a\n  block: {}\n", ["line 2: no blocks; expected a list of them"]),
        (TREE + "      s1\n", ["line 4: switches is a value; expected a list"]),
        (TREE + "    - nodes: n1\n", ["line 4: a switch without a name; expected 'switch: NAME'"]),
        (TREE + "    - {}\n    - {}\n", ["line 4: a switch without a name", "line 5: a switch wi"]),
        (
            TREE + "    - switch: s1\n      nodes: n1\n      node: n2\n",
            ["line 6: unknown key of a switch 'node'; did you mean 'nodes'?"],
        ),
        (
            TREE + "    - switch: s1\n      nodes: n1\n      nodes: n2\n",
            ["line 6: nodes is in a switch twice"],
        ),
        (
            TREE + "    - switch: s1\n      nodes: [n1]\n",
            ["line 5: nodes is a list; expected a value"],
        ),
        (
            TREE + "    - switch: s1\n      nodes: n[1-\n    - switch: s2\n      children: s[3\n",
            ["line 5: nodes: 'n[1-' is not a node name", "line 7: children: 's[3' is not a node"],
        ),
        (TREE + "    - switch: s1\n      nodes: n1,n1\n", ["line 5: nodes: n1 is named twice"]),
        (
            TREE + "    - {switch: s1, nodes: n1}\n    - {switch: s1, nodes: n2}\n",
            ["line 5: switch s1 has line 4 already"],
        ),
        (
            TREE + "    - {switch: s1, nodes: n1}\n    - {switch: r, children: s1, nodes: n2}\n",
            ["line 5: switch r has children and nodes; expected one of them"],
        ),
        (
            TREE + "    - {switch: r, children: s1}\n    - {switch: s2, nodes: n2}\n",
            ["line 4: switch s1 has no line of its own"],
        ),
        (
            TREE + "    - {switch: s1, nodes: n1}\n    - {switch: s2, nodes: n1}\n",
            ["line 5: n1 is under s1 already (line 4)"],
        ),
        (TREE + "    - {switch: s1, nodes: }\n", ["there is no leaf"]),
        (
            BLOCK + "    block_sizes: [4, 12, 8]\n" + ONE_BLOCK,
            ["line 3: block_sizes: 12 is not 4, the first", "line 3: block_sizes: 8 is not larger"],
        ),
        (BLOCK + "    block_sizes: 4\n" + ONE_BLOCK, ["line 3: block_sizes is a value; expected"]),
        (BLOCK + "    block_sizes: [4, -8]\n" + ONE_BLOCK, ["line 3: block_sizes: 4,-8; expected"]),
        (
            BLOCK + ONE_BLOCK.replace("}]", "}, {block: b, nodes: n2}]"),
            ["line 3: block b has line 3 already"],
        ),
        (TREE + "    - {switch: s1\n", ["line 5: this is no YAML: "]),
        ("- topology: a\n\tflat: true\n", ["line 2: this is no YAML: "]),
        ("- *a\n", ["line 1: this is no YAML: found undefined alias 'a'"]),
        ("- &a [*a]\n", ["line 1: a topology is a list; expected a mapping"]),
        ("---\n- {topology: a, flat: true}\n---\n- b\n", ["line 3: this is no YAML: "]),
        ("- topology: a\n  \0", ["line 2: this is no YAML: special characters"]),
        ("[" * 2000, ["nested too deep"]),
    ],
)
def test_faulty_files(text: str, told: list[str]) -> None:
    found = faults(text)
    assert len(found) == len(told), found
    for fault, start in zip(found, told, strict=True):
        assert fault.startswith("t.yaml, ") and start in fault


def test_all_faults_of_the_list_and_the_chosen_one_are_told() -> None:
    text = MANUAL.replace("False", "maybe").replace("node[03-04]", "node[03-").replace("s1", "''")
    assert [fault.partition(": ")[0] for fault in faults(text)] == [
        "t.yaml, line 14",
        "t.yaml, line 29",
        "t.yaml, line 9",
        "t.yaml, line 12",
    ]


def test_what_is_wrong_with_others_does_not_matter() -> None:
    assert of_slurm(MANUAL.replace("node[13-16]", "node[13-")).nodes == 4
