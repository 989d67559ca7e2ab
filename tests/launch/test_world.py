"""Which processes there are: by flags and by what launchers set, in one order of precedence."""

from __future__ import annotations

import platform
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxbench.errors import InputError
from jaxbench.launch.given_world import split_address
from jaxbench.launch.slurm_world import nearness
from jaxbench.launch.world import (
    FIRST_PORT,
    PORTS,
    TRIES,
    World,
    find_world,
    first_of_launched,
    ports_of,
)

STEP = {
    "SLURM_CLUSTER_NAME": "lab",
    "SLURM_JOB_ID": "17",
    "SLURM_STEP_ID": "2",
    "SLURM_PROCID": "5",
    "SLURM_STEP_NUM_TASKS": "8",
    "SLURM_STEP_NUM_NODES": "4",
    "SLURM_STEP_NODELIST": "n[3,5-7]",
    "SLURMD_NODENAME": "n6",
    "SLURM_TOPOLOGY_ADDR": "core.g0.g0s1.n6",
    "SLURM_TOPOLOGY_ADDR_PATTERN": "switch.switch.switch.node",
}
OPEN_MPI_4 = {
    "OMPI_COMM_WORLD_RANK": "1",
    "OMPI_COMM_WORLD_SIZE": "4",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
    "OMPI_MCA_orte_hnp_uri": "1531576320.0;tcp://10.96.0.1,10.148.0.1:34911;tcp6://[fd00::2]:409",
    "PMIX_NAMESPACE": "1531576321",
}
OPEN_MPI_5 = {
    "OMPI_COMM_WORLD_RANK": "1",
    "OMPI_COMM_WORLD_SIZE": "4",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
    "PMIX_NAMESPACE": "prterun-login-1-4242@1",
    "PMIX_SERVER_URI41": "prterun-login-1-4242@0.0;tcp4://127.0.0.1:37913",
}
MPICH = {"PMI_RANK": "1", "PMI_SIZE": "4"}
MVAPICH = {"MV2_COMM_WORLD_RANK": "1", "MV2_COMM_WORLD_SIZE": "4"}
PALS = {"PALS_RANKID": "1", "PALS_SIZE": "4"}
EXPLICIT = {"coordinator": "n1:4000", "num_processes": "8", "process_id": "3"}


def test_otherwise_there_is_one_process() -> None:
    assert find_world({}, {}) == World("one process", host=platform.node())
    assert find_world({"processes": "1"}, {}).count == 1
    assert find_world({"processes": "1"}, {}).starts == 0


def test_a_job_step() -> None:
    world = find_world({}, STEP)
    assert (world.source, world.index, world.count) == ("srun", 5, 8)
    assert (world.hosts, world.nodes, world.local) == (("n3",), ("n3", "n5", "n6", "n7"), False)
    assert (world.host, world.switches, world.group) == ("n6", ("core", "g0", "g0s1"), "g0")
    assert world.ports == ports_of("slurm", "17", "2")
    assert world.notes == ()
    assert find_world({"coordinator_port": "4711"}, STEP).ports == (4711,)


def test_a_job_step_on_one_node_is_local() -> None:
    assert find_world({}, {**STEP, "SLURM_STEP_NODELIST": "n6"}).local


def test_process_0_of_a_job_step_is_where_the_list_says(tmp_path) -> None:
    listed = {**STEP, "SLURM_DISTRIBUTION": "arbitrary", "SLURM_ARBITRARY_NODELIST": "n7,n3,n5"}
    assert find_world({}, listed).hosts == ("n7",)
    folded = {**listed, "SLURM_ARBITRARY_NODELIST": "n[7,3,5]"}
    assert find_world({}, folded).hosts == ("n7",)
    hosts = tmp_path / "hosts"
    hosts.write_text("n5\nn3\n")
    by_file = {**STEP, "SLURM_DISTRIBUTION": "arbitrary", "SLURM_HOSTFILE": str(hosts)}
    assert find_world({}, by_file).hosts == ("n5",)
    assert find_world({}, {**by_file, "SLURM_HOSTFILE": "/nowhere"}).hosts == ("n3",)
    assert find_world({}, {**by_file, "SLURM_DISTRIBUTION": "block"}).hosts == ("n3",)


@pytest.mark.parametrize("size", ["SLURM_HET_SIZE", "SLURM_PACK_SIZE"])
@pytest.mark.parametrize(
    "group", ["SLURM_JOB_NODELIST_HET_GROUP_", "SLURM_JOB_NODELIST_PACK_GROUP_"]
)
def test_process_0_of_a_heterogeneous_job_is_in_its_first_component(size: str, group: str) -> None:
    """The nodes of the step are sorted by name, those of its second component first."""
    job = {**STEP, size: "3", f"{group}0": "n7", f"{group}1": "n[5-6]", f"{group}2": "n3"}
    assert find_world({}, job).hosts == ("n7",)
    second = {**job, "SLURM_STEP_NODELIST": "n[3,6]"}  # srun --het-group=1,2 on some of the nodes
    assert find_world({}, second).hosts == ("n6",)
    assert find_world({}, {**job, f"{group}0": "n9", f"{group}1": "n8"}).hosts == ("n3",)
    assert find_world({}, {**STEP, size: "2"}).hosts == ("n3",)  # components on the same nodes
    left = {name: text for name, text in job.items() if name != size}
    assert find_world({}, left).hosts == ("n3",)


@pytest.mark.parametrize(
    ("env", "note"),
    [
        ({"SLURM_JOB_ID": "1"}, ""),  # ssh into a job
        ({"SLURM_JOB_ID": "1", "SLURM_NTASKS": "1"}, ""),
        ({"SLURM_JOB_ID": "1", "SLURM_NTASKS": "4"}, "the job has 4 tasks: srun starts them"),
        ({"SLURM_JOB_ID": "1", "SLURM_NTASKS": "4", "SLURM_PROCID": "0"}, "the job has 4 tasks"),
        ({**STEP, "SLURM_STEP_NUM_TASKS": "1", "SLURM_PROCID": "0"}, ""),  # an interactive step
        ({k: v for k, v in STEP.items() if k != "SLURM_PROCID"}, "incomplete (SLURM_PROCID)"),
        ({**STEP, "SLURM_PROCID": "x"}, "incomplete (SLURM_PROCID='x')"),
        ({**STEP, "SLURM_STEP_NODELIST": ""}, "incomplete (SLURM_STEP_NODELIST)"),
    ],
)
def test_what_is_no_job_step_is_one_process(env: dict[str, str], note: str) -> None:
    world = find_world({}, env)
    assert (world.source, world.index, world.count) == ("one process", 0, 1)
    assert note in "".join(world.notes)
    assert bool(world.notes) == bool(note)


@pytest.mark.parametrize(
    ("env", "hosts", "job"),
    [
        (OPEN_MPI_4, ("10.96.0.1", "10.148.0.1"), "1531576321"),
        (OPEN_MPI_5, ("login-1",), "prterun-login-1-4242@1"),
        ({k: v for k, v in OPEN_MPI_4.items() if "PMIX" not in k}, ("10.96.0.1", "10.148.0.1"), ""),
        (
            {**OPEN_MPI_4, "OMPI_MCA_orte_hnp_uri": "13.0;tcp6://[fe80::1,2620:10d::2]:43370"},
            ("fe80::1", "2620:10d::2"),
            "",
        ),
        ({**OPEN_MPI_4, "OMPI_COMM_WORLD_LOCAL_SIZE": "4"}, ("127.0.0.1",), "1531576321"),
    ],
)
def test_mpirun(env: dict[str, str], hosts: tuple[str, ...], job: str) -> None:
    world = find_world({}, env)
    assert (world.source, world.index, world.count, world.hosts) == ("mpirun", 1, 4, hosts)
    assert world.local == (hosts == ("127.0.0.1",))
    if job:
        assert world.ports == ports_of("mpirun", job)
    assert world.key.startswith("mpirun 1") or "prterun" in world.key


def test_mpirun_in_a_job_step_is_mpirun() -> None:
    """Its daemons are a job step themselves, of one task a node."""
    assert find_world({}, {**STEP, **OPEN_MPI_4}).source == "mpirun"
    assert find_world({}, {**STEP, **OPEN_MPI_4}).switches == ("core", "g0", "g0s1")


@pytest.mark.parametrize("env", [MPICH, MVAPICH, PALS])
def test_other_launchers_need_explicit_flags(env: dict[str, str]) -> None:
    """Each of their processes would take itself for the only one."""
    inside = {**STEP, "SLURM_STEP_NUM_TASKS": "1", "SLURM_PROCID": "0", **env}  # its daemon's step
    for flags, launched in (({}, env), ({}, inside), ({"processes": "2"}, env)):
        with pytest.raises(InputError, match="4 processes have been started, by neither") as told:
            find_world(flags, launched)
        assert "give --coordinator, --num_processes and --process_id" in str(told.value)
    assert find_world(EXPLICIT, env).index == 3
    assert find_world({}, {**STEP, **env}).source == "srun"  # whose plugins set them, too
    assert find_world({}, {**OPEN_MPI_4, **env}).source == "mpirun"
    alone = dict(zip(env, ("0", "1"), strict=True))
    assert find_world({}, alone).source == "one process"


def test_explicit_flags_win() -> None:
    for env in ({}, STEP):
        world = find_world(EXPLICIT, env)
        assert (world.source, world.index, world.count) == ("--coordinator", 3, 8)
        assert (world.hosts, world.ports) == (("n1",), (4000,))
    assert find_world(EXPLICIT, STEP).switches == ("core", "g0", "g0s1")
    assert find_world({**EXPLICIT, "coordinator": "localhost:1"}, {}).local
    assert find_world({**EXPLICIT, "coordinator": "[::1]:1"}, {}).hosts == ("::1",)


def test_processes_to_start() -> None:
    world = find_world({"processes": "6"}, {})
    assert (world.starts, world.count) == (6, 1)
    child = find_world({"processes": "6"}, {"JAXBENCH_LOCAL_PROCESS": "4/6/4001/abc"})
    assert (child.index, child.count, child.starts, child.ports) == (4, 6, 0, (4001,))
    assert "abc" in child.key and child.local


@pytest.mark.parametrize(
    ("flags", "env", "text"),
    [
        ({"coordinator": "n1:1"}, {}, "without --num_processes and --process_id: all three"),
        ({"process_id": "1"}, {}, "--process_id without --coordinator and --num_processes"),
        ({**EXPLICIT, "coordinator": "n1"}, {}, "as in node1:23456"),
        ({**EXPLICIT, "coordinator": "n1:70000"}, {}, "as in node1:23456"),
        ({**EXPLICIT, "process_id": "8"}, {}, "--process_id is '8'; it must be .* from 0 to 7"),
        ({**EXPLICIT, "num_processes": "0"}, {}, "--num_processes is '0'"),
        ({**EXPLICIT, "num_processes": "4"}, STEP, "--num_processes is 4, and srun has started 8"),
        ({**EXPLICIT, "processes": "4"}, {}, "give one of them"),
        ({"processes": "4"}, STEP, "--processes=4 starts .* srun has started 8 already"),
        ({"processes": "1"}, OPEN_MPI_4, "--processes=1 .* mpirun has started 4"),
        ({"processes": "many"}, {}, "--processes is 'many'; it must be a whole number from 1"),
        ({"processes": "0"}, {}, "--processes is '0'"),
        ({"coordinator_port": "x"}, STEP, "--coordinator_port is 'x'"),
        ({"coordinator_port": "abc"}, {}, "--coordinator_port is 'abc'"),
        ({"coordinator_port": "0", "processes": "2"}, {}, "--coordinator_port is '0'"),
        ({**EXPLICIT, "coordinator_port": "65536"}, {}, "--coordinator_port is '65536'"),
        ({}, {**STEP, "SLURM_PROCID": "8"}, "SLURM_PROCID is 8 of 8 tasks"),
        ({}, {**OPEN_MPI_4, "OMPI_COMM_WORLD_RANK": "4"}, "make no sense"),
        ({}, {**OPEN_MPI_4, "OMPI_COMM_WORLD_SIZE": "?"}, "OMPI_COMM_WORLD_SIZE='\\?'"),
        (
            {},
            {**OPEN_MPI_4, "OMPI_MCA_orte_hnp_uri": "", "PMIX_NAMESPACE": "3"},
            "don't tell where",
        ),
    ],
)
def test_what_makes_no_sense(flags: dict[str, str], env: dict[str, str], text: str) -> None:
    with pytest.raises(InputError, match=text):
        find_world(flags, env)


@pytest.mark.parametrize(
    ("env", "first"),
    [
        ({}, True),
        (STEP, False),
        ({**STEP, "SLURM_PROCID": "0"}, True),
        ({"SLURM_PROCID": "3"}, True),  # no step: nobody else would say it
        (OPEN_MPI_4, False),
        ({**OPEN_MPI_4, "OMPI_COMM_WORLD_RANK": "0"}, True),
        ({"JAXBENCH_LOCAL_PROCESS": "1/2/3/x"}, False),
        ({"JAXBENCH_LOCAL_PROCESS": "0/2/3/x", **MPICH}, True),
        (MPICH, False),
        ({**MPICH, "PMI_RANK": "0"}, True),
        (MVAPICH, False),
        (PALS, False),
        ({**STEP, "SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "1", **MPICH}, False),
        # Ranks that make no sense, which is what they have to say; process 0 may not.
        ({**STEP, "SLURM_PROCID": "8"}, True),
        ({**STEP, "SLURM_PROCID": "9"}, True),
        ({**STEP, "SLURM_PROCID": "x"}, True),
        ({**OPEN_MPI_4, "OMPI_COMM_WORLD_RANK": "4"}, True),
        ({**OPEN_MPI_4, "OMPI_COMM_WORLD_SIZE": "?"}, True),
    ],
)
def test_who_prints_what_all_have(env: dict[str, str], first: bool) -> None:
    assert first_of_launched(env) is first


def test_job_steps_have_ports_of_their_own() -> None:
    steps = [ports_of("slurm", str(job), str(step)) for job in range(300) for step in range(3)]
    assert {len(ports) for ports in steps} == {TRIES}
    assert all(FIRST_PORT <= p < FIRST_PORT + PORTS for ports in steps for p in ports)
    counts = Counter(p for ports in steps for p in ports)
    assert max(counts.values()) <= 6  # of 3,600 in 7,000: spread as by chance
    assert all(len(set(a[:2]) & set(b[:2])) < 2 for a, b in zip(steps, steps[1:], strict=False))


@pytest.mark.parametrize(
    ("address", "pattern", "switches", "group"),
    [
        ("core.g0.g0s1.n3", "switch.switch.switch.node", ("core", "g0", "g0s1"), "g0"),
        ("s1.n3", "switch.node", ("s1",), "s1"),
        ("core.s1.127.0.0.3", "switch.switch.node", ("core", "s1"), "core"),
        ("n3", "node", (), None),
        ("", "", (), None),
        ("core.n3", "", (), None),
        ("n3", "switch.node", (), None),
    ],
)
def test_nearness(address: str, pattern: str, switches: tuple[str, ...], group: str | None) -> None:
    env = {"SLURM_TOPOLOGY_ADDR": address, "SLURM_TOPOLOGY_ADDR_PATTERN": pattern}
    assert nearness(env) == (switches, group)


@given(st.sampled_from(["n1", "10.0.0.1", "a.b"]), st.integers(1, 65535))
def test_addresses_are_split(host: str, port: int) -> None:
    assert split_address(f"{host}:{port}") == (host, port)
    assert split_address(f"[::1]:{port}") == ("::1", port)


@pytest.mark.parametrize("text", ["n1", ":1", "n1:", "n1:x", "n1:0", "n1:65536", ""])
def test_what_is_no_address(text: str) -> None:
    assert split_address(text)[1] is None
