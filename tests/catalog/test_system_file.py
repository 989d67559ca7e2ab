"""A faulty system file tells all its faults at once, each with its line."""

from __future__ import annotations

import copy
import tomllib
from pathlib import Path
from typing import Any

import pytest

from jaxbench.catalog.system_keys import KINDS, NETWORK_REQUIRED, REQUIRED
from jaxbench.catalog.systems import read_system, read_system_file
from jaxbench.catalog.toml_lines import key_lines
from jaxbench.data import data_folder
from jaxbench.errors import InputError
from jaxbench.experiment import Experiment

GOOD = """\
description = "d"
source = "s"
hardware = "h100"
nodes = 11
devices_per_node = 4

[node]
kind = "peer"
device_Bps = 450e9
peer_Bps = 150e9
latency_s = 1e-6
efficiency = 0.9

[network]  # two groups of four nodes and one of three
kind = "dragonfly+"
nic_Bps = 50_000_000_000
nics_per_node = 4
nodes_per_leaf = 2
leaves_per_group = 2
nodes_per_group = 4
groups = 3
odd_groups = [3]
leaf_up_Bps = 1e12
global_Bps = 1e12
leaf_latency_s = 1e-6
group_latency_s = 2e-6
global_latency_s = 3e-6
efficiency = 0.9
loss = [[4, 0.9], [8, 0.75]]
adaptive = false

[slurm]
partition = "gpu"

[sources]
nodes = "x"
"devices_per_node" = "x"
node.device_Bps = "x"
node.peer_Bps = "x"
node.latency_s = "x"
node.efficiency = "x"

[sources.network]
nic_Bps = "x"
nics_per_node = "x"
nodes_per_leaf = "x"
leaves_per_group = "x"
nodes_per_group = "x"
groups = "x"
odd_groups = "x"
leaf_up_Bps = "x"
global_Bps = "x"
leaf_latency_s = "x"
group_latency_s = "x"
global_latency_s = "x"
efficiency = "x"
loss = "x"
"""


def faults_of(text: str, tmp_path: Path) -> tuple[str, ...]:
    path = tmp_path / "mine.toml"
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        read_system_file(path)
    return caught.value.faults


def test_a_good_file_is_read_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(GOOD)
    system = read_system_file(path)
    assert (system.name, system.devices, system.node.peer_Bps) == ("mine", 44, 150e9)
    assert system.network is not None
    assert system.network.group_sizes() == (4, 4, 3)
    assert system.network.loss == ((4, 0.9), (8, 0.75))
    assert not system.network.adaptive and not system.network.in_switch
    assert system.slurm == {"partition": "gpu"}
    assert system.sources["network.loss"] == "x"


def test_an_experiment_may_name_a_users_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    flags = {"strategy": "dp", "model": "vit_b16", "mesh": "data=44", "system": str(path)}
    path.write_text(GOOD)
    assert Experiment.from_flags(flags).hardware == "h100"
    with pytest.raises(InputError, match="has 44 devices, but the mesh takes 45"):
        Experiment.from_flags({**flags, "mesh": "data=45"})
    path.write_text(GOOD.replace("nodes = 11", "nodes = 0").replace("450e9", "0"))
    with pytest.raises(InputError) as caught:
        Experiment.from_flags(flags)
    assert len([fault for fault in caught.value.faults if "'mine', line" in fault]) == 2
    with pytest.raises(InputError, match="other.toml can't be read"):
        Experiment.from_flags({**flags, "system": str(tmp_path / "other.toml")})


def line_of(text: str, start: str) -> int:
    return next(n for n, line in enumerate(text.splitlines(), 1) if line.startswith(start))


# what is replaced, by what, the line that is named, and what is said
CHANGES = [
    ("nodes = 11", "nodes = 0", "nodes = 0", "nodes is 0; it must be a whole number"),
    ("nodes = 11", "nodes = true", "nodes = true", "nodes is True; it must be a whole"),
    ("nodes = 11", 'nodes = "x"', "nodes = ", "nodes is 'x'; it must be a whole"),
    ("nodes = 11", "nodes = 12", "groups = 3", "the groups have 11 nodes, but the system has 12"),
    ('"h100"', '"h10"', "hardware", "unknown hardware 'h10'; did you mean 'h100'"),
    ('"peer"', '"bus"', "kind", "unknown node.kind 'bus'; known: crossbar, memory, peer, torus"),
    ('"peer"', "3", "kind", "node.kind is 3; it must be one of crossbar"),
    ('"peer"', '"crossbar"', None, None),  # a crossbar may have a peer_Bps
    ("peer_Bps = 150e9", "peer_Bps = 451e9", "peer_Bps", "more than node.device_Bps"),
    ('kind = "peer"', 'kind = "torus"', None, "node.torus belongs to node.kind = 'torus'"),
    ("device_Bps = 450e9", "device_Bps = inf", "device_Bps", "must be a number greater than 0"),
    ("device_Bps = 450e9", "device_Bps = nan", "device_Bps", "must be a number greater than 0"),
    ("efficiency = 0.9\n\n", "efficiency = 90\n\n", "efficiency", "at most 1"),
    ("odd_groups = [3]", "odd_groups = [3, 0]", "odd_groups", "a list of whole numbers"),
    ("odd_groups = [3]", "odd_groups = [2, 2, 2, 5]", "odd_groups", "more than the 3 groups"),
    ("odd_groups = [3]", "odd_groups = []", "odd_groups", "a list of whole numbers"),
    ("leaves_per_group = 2", "leaves_per_group = 1", "leaves_per", "4 nodes, but its leaves have"),
    ("leaf_up_Bps = 1e12\n", "", None, "key 'network.leaf_up_Bps' is missing: there are 2 leaves"),
    ("global_latency_s = 3e-6\n", "", None, "'network.global_latency_s' is missing: there are 3"),
    ("[[4, 0.9], [8, 0.75]]", "[[8, 0.9], [4, 0.7]]", "loss", "by rising nodes"),
    ("[[4, 0.9], [8, 0.75]]", "[[4, 1.5]]", "loss", "by rising nodes"),
    ("[[4, 0.9], [8, 0.75]]", "[4, 0.9]", "loss", "by rising nodes"),
    ("adaptive = false", "adaptive = 1", "adaptive", "must be true or false"),
    ("adaptive = false", "adaptiv = true", "adaptiv", "unknown key 'network.adaptiv'; did you"),
    ('node.latency_s = "x"\n', "", "latency_s", "node.latency_s has no source"),
    ('loss = "x"', "loss = 3", "loss = 3", "the source of network.loss is 3"),
    ('loss = "x"', 'loss = "x"\nlos = "x"', "los =", "[sources] has 'network.los', which is no"),
    ('source = "s"\n', "", None, "key 'source' is missing; it must be a text"),
    ('[slurm]\npartition = "gpu"', "", None, None),
]


@pytest.mark.parametrize(("old", "new", "line", "said"), CHANGES)
def test_each_fault(old: str, new: str, line: str | None, said: str | None, tmp_path: Path) -> None:
    assert old in GOOD
    text = GOOD.replace(old, new, 1)
    if said is None:
        (tmp_path / "mine.toml").write_text(text)
        read_system_file(tmp_path / "mine.toml")
        return
    found = [fault for fault in faults_of(text, tmp_path) if said in fault]
    assert len(found) == 1
    where = f"system 'mine', line {line_of(text, line)}: " if line else "system 'mine'"
    assert found[0].startswith(where)


def test_all_faults_are_told_at_once(tmp_path: Path) -> None:
    text = GOOD.replace("nodes = 11", "nodes = 1.5").replace('"peer"', '"bus"')
    text = text.replace("adaptive", "adaptiv").replace('node.latency_s = "x"\n', "")
    text = text.replace('description = "d"\n', "")
    assert len(faults_of(text, tmp_path)) == 5


def test_rules_are_told_together_too(tmp_path: Path) -> None:
    text = GOOD.replace("nodes = 11", "nodes = 12").replace("150e9", "451e9")
    assert len(faults_of(text, tmp_path)) == 2


@pytest.mark.parametrize("key", sorted(REQUIRED | NETWORK_REQUIRED))
def test_every_needed_key_is_missed(key: str) -> None:
    table: dict[str, Any] = copy.deepcopy(tomllib.loads(GOOD))
    *parts, last = key.split(".")
    inner = table
    for part in parts:
        inner = inner[part]
    del inner[last]
    with pytest.raises(InputError) as caught:
        read_system("x", table)
    assert f"system 'x': key '{key}' is missing; it must be {KINDS[key].expected}" in (
        caught.value.faults
    )


@pytest.mark.parametrize("table", ["node", "network", "slurm", "sources"])
def test_a_table_must_be_one(table: str) -> None:
    values = {**tomllib.loads(GOOD), table: 3}
    with pytest.raises(InputError, match=f"system 'x': {table} is 3; it must be a table"):
        read_system("x", values)


def test_without_a_network_there_is_one_domain(tmp_path: Path) -> None:
    start, end = GOOD.index("[network]"), GOOD.index("[slurm]")
    text = GOOD[:start] + GOOD[end:]
    text = text[: text.index("[sources.network]")]
    assert faults_of(text, tmp_path) == (
        "system 'mine': without a [network], node.nodes must be all 11 nodes",
    )


TORUS: dict[str, Any] = {
    "description": "d",
    "source": "s",
    "hardware": "tpu_v5p",
    "nodes": 4,
    "devices_per_node": 4,
    "node": {
        "kind": "torus",
        "device_Bps": 4.0,
        "peer_Bps": 1.0,
        "latency_s": 1e-6,
        "efficiency": 1.0,
        "nodes": 4,
        "torus": [4, 4],
        "wraps": 4,
    },
}
TORUS["sources"] = {
    "nodes": "x",
    "devices_per_node": "x",
    "node": dict.fromkeys(TORUS["node"].keys() - {"kind"}, "x"),
}


def test_a_torus_has_as_many_places_as_devices() -> None:
    assert read_system("x", TORUS).node.torus == (4, 4)
    wrong = copy.deepcopy(TORUS)
    wrong["node"]["torus"] = [4, 5]
    with pytest.raises(InputError, match="node.torus is 4x5, which isn't the 16 devices"):
        read_system("x", wrong)


def test_a_domain_divides_the_nodes() -> None:
    wrong = copy.deepcopy(TORUS)
    wrong["node"]["nodes"] = 3
    with pytest.raises(InputError) as caught:
        read_system("x", wrong)
    assert any("node.nodes is 3, which doesn't divide" in fault for fault in caught.value.faults)


def test_what_is_no_toml_says_where(tmp_path: Path) -> None:
    (fault,) = faults_of('description = "d"\nsource = \n', tmp_path)
    assert "mine.toml is not TOML" in fault
    assert "line 2" in fault


def test_what_is_no_text_or_no_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="is not TOML"):
        read_system_file(path)
    with pytest.raises(InputError, match="can't be read: No such file"):
        read_system_file(tmp_path / "other.toml")


def flat(table: dict[str, Any], prefix: str = "") -> list[str]:
    keys = []
    for key, value in table.items():
        keys.append(prefix + key)
        keys += flat(value, f"{prefix}{key}.") if isinstance(value, dict) else []
    return keys


@pytest.mark.parametrize("path", sorted(data_folder("meshes").glob("*.toml")), ids=lambda p: p.stem)
def test_the_line_of_every_key_is_found(path: Path) -> None:
    text = path.read_text()
    lines, rows = key_lines(text), text.splitlines()
    for key in flat(tomllib.loads(text)):
        if key in lines:  # `node.x = ` in [sources] makes a table without a line of its own
            assert key.rpartition(".")[2] in rows[lines[key] - 1]
        else:
            assert key.startswith("sources.")


def test_lines_of_quoted_and_dotted_keys() -> None:
    text = "# a = 1\na = 1\n[b.'c']\n\"d\" . e = 2  # f = 3\n"
    assert key_lines(text) == {"a": 2, "b.c": 3, "b.c.d.e": 4}
