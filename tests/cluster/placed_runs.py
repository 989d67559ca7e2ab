"""jaxbench on chosen nodes of a cluster whose links have known rates, and that cluster as a system.

    with Cluster(SHAPED) as cluster:
        record = run(cluster, PLACEMENTS["inter-group"], ("--strategy=dp", ...), folder)

What a placement does to a step can then be predicted from the rates that the links were given
(`system_file`), and from nothing that was measured in the step.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.cluster.cluster import Cluster
from tests.cluster.layout import Layout

ROOT = Path(__file__).parents[2]

# Slow enough for two cores to be quick beside them. A leaf's uplink is that of two nodes.
SHAPED = Layout(namespaces=True, node_Bps=50e6, leaf_Bps=25e6, group_Bps=6.25e6)

PLACEMENTS = {
    "intra-group": ("n1", "n2", "n3", "n4"),
    "inter-group-same-l1-2": ("n1", "n2", "n5", "n6"),
    "inter-group": ("n1", "n3", "n5", "n7"),
}

# Two nodes whose messages go through the links of each tier, and no farther.
PAIRS = {"leaf": ("n1", "n2"), "group": ("n1", "n3"), "global": ("n1", "n5")}


def run(cluster: Cluster, nodes: Sequence[str], flags: Sequence[str], out: Path) -> dict[str, Any]:
    """Run one experiment with a rank on each of `nodes`; return its record."""
    jaxbench(cluster, nodes, ("run", *flags, f"--out={out}"))
    (line,) = (out / "runs.jsonl").read_text().splitlines()
    return json.loads(line)


def latency_s(cluster: Cluster, nodes: Sequence[str], out: Path) -> float:
    """Return the seconds of a message of a few bytes between two nodes, as XLA and gloo send it."""
    fits = out / "fits.json"
    words = ("--kinds=permute", "--dtype=float32", "--min_bytes=8", "--max_bytes=128")
    more = ("--factor=4", "--steps=20", f"--fit={fits}", f"--out={out}")
    jaxbench(cluster, nodes, ("collectives", *words, *more))
    (fit,) = json.loads(fits.read_text())["fits"]
    return statistics.median(fit["time_s"])


def jaxbench(cluster: Cluster, nodes: Sequence[str], words: Sequence[str]) -> None:
    """Run a command of jaxbench under srun, a process on each of `nodes`, to its end."""
    srun = ("srun", f"--nodes={len(nodes)}", "--ntasks-per-node=1", f"--nodelist={','.join(nodes)}")
    command = [*srun, sys.executable, "-m", "jaxbench", *words, f"--devices={len(nodes)}"]
    env = {"PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"}
    done = cluster.run(command, timeout=600, env=env)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}\nended with {done.returncode}: {done.stderr}")


def place_faults(record: Mapping[str, Any], layout: Layout, nodes: Sequence[str]) -> list[str]:
    """Return which ranks of a record aren't on their node, leaf switch and group."""
    leaf_of = {node: leaf for leaf, of_leaf in layout.leaves.items() for node in of_leaf}
    faults = []
    for rank, node in zip(record["ranks"], nodes, strict=True):
        leaf = leaf_of[node]
        group = leaf.partition("s")[0]
        expected = (node, ["core", group, leaf], group)
        found = (rank["host"], rank["switches"], rank["group"])
        if found != expected:
            faults.append(f"rank {rank['rank']} is at {found}, not at {expected}")
    return faults


def system_file(layout: Layout, latencies_s: Mapping[str, float]) -> str:
    """Return a cluster of two groups as a system, by the rates of its links and these latencies."""
    assert len(layout.groups) == 2, "a group's uplink is all there is between two groups"
    return _SYSTEM.format(
        layout=layout,
        per_group=layout.nodes_per_leaf * layout.leaves_per_group,
        groups=len(layout.groups),
        latency=dict(latencies_s),
    )


_SYSTEM = """\
description = "the test cluster: {layout.nodes} nodes, each a network namespace of one machine"
source = "what tests/cluster makes"
hardware = "cpu"
nodes = {layout.nodes}
devices_per_node = 1

[node]
kind = "crossbar"
device_Bps = 1e9
latency_s = 1e-6
efficiency = 1.0

[network]
kind = "fat_tree"
nic_Bps = {layout.node_Bps}
nics_per_node = 1
nodes_per_leaf = {layout.nodes_per_leaf}
leaves_per_group = {layout.leaves_per_group}
nodes_per_group = {per_group}
groups = {groups}
leaf_up_Bps = {layout.leaf_Bps}
global_Bps = {layout.group_Bps}
leaf_latency_s = {latency[leaf]}
group_latency_s = {latency[group]}
global_latency_s = {latency[global]}
efficiency = 0.956
adaptive = false

[sources]
nodes = "by choice"
devices_per_node = "by choice: a process with one device"
node.device_Bps = "not used: nodes have one device"
node.latency_s = "not used"
node.efficiency = "not used"
network.nic_Bps = "the rate given to tc for the link of a node"
network.nics_per_node = "by choice"
network.nodes_per_leaf = "by choice"
network.leaves_per_group = "by choice"
network.nodes_per_group = "by choice"
network.groups = "by choice"
network.leaf_up_Bps = "the rate given to tc for the uplink of a leaf"
network.global_Bps = "the rate given to tc for the uplink of a group"
network.leaf_latency_s = "measured: a permute of a few bytes between two nodes of a leaf"
network.group_latency_s = "measured: a permute of a few bytes between two leaves of a group"
network.global_latency_s = "measured: a permute of a few bytes between two groups"
network.efficiency = "TCP over Ethernet: 1448 of the 1514 bytes of a frame are data"
"""
