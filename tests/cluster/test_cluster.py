"""The test cluster itself: it boots, runs, is what its layout says, and leaves nothing behind."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from tests.cluster import cluster as module
from tests.cluster import layout as files
from tests.cluster.cluster import Cluster, free_ports, missing, processes_of
from tests.cluster.fixtures import require
from tests.cluster.layout import Layout

HERE = Path(__file__).parent
MODES = pytest.mark.parametrize("spaces", [False, True], ids=["loopback", "namespaces"])

# A task that hides from its step: another session, another parent, deaf to SIGTERM.
HIDING = (
    "import os, signal, time\n"
    "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    "if os.fork() == 0:\n"
    "    os.setsid()\n"
    "    if os.fork():\n"
    "        os._exit(0)\n"
    "print('hidden', flush=True)\n"
    "time.sleep(600)\n"
)


def traces() -> tuple[set[str], str]:
    """Return the network namespaces that processes are in, and the mounts."""
    spaces = set()
    for process in Path("/proc").glob("[0-9]*"):
        try:
            spaces.add(os.readlink(process / "ns" / "net"))
        except OSError:
            continue
    return spaces, Path("/proc/self/mounts").read_text()


def gone(folder: Path, within_s: float = 15) -> bool:
    """Tell whether a cluster's folder and processes vanish in time."""
    deadline = time.monotonic() + within_s
    while folder.exists() or processes_of(folder):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def test_layouts() -> None:
    layout = Layout(namespaces=True, nodes=7, nodes_per_leaf=2, leaves_per_group=2)
    assert layout.names == ("n1", "n2", "n3", "n4", "n5", "n6", "n7")
    assert layout.leaves == {
        "g0s0": ("n1", "n2"),
        "g0s1": ("n3", "n4"),
        "g1s0": ("n5", "n6"),
        "g1s1": ("n7",),
    }
    assert layout.groups == {"g0": ("g0s0", "g0s1"), "g1": ("g1s0", "g1s1")}
    assert files.topology_conf(layout).splitlines()[-2:] == [
        "SwitchName=g1 Switches=g1s0,g1s1",
        "SwitchName=core Switches=g0,g1",
    ]
    assert Layout().name(3) == "127.0.0.3"
    slow = Layout(namespaces=True, leaf_Bps=2e6, group_Bps=1e6)
    rates = {lower: rate for lower, _, rate in files.links(slow)}
    assert rates == {"g0s0": 2e6, "g0s1": 2e6, "g1s0": 2e6, "g1s1": 2e6, "g0": 1e6, "g1": 1e6}


def test_a_loopback_cluster(loopback: Cluster) -> None:
    names = loopback.run(["srun", "-N8", "printenv", "SLURMD_NODENAME"], timeout=20)
    assert sorted(names.stdout.split()) == [f"127.0.0.{k}" for k in range(1, 9)]
    assert not names.returncode


def test_every_host_is_its_own_in_namespaces(namespaces: Cluster) -> None:
    command = ["srun", "-N8", "sh", "-c", 'echo "$(hostname) $SLURM_TOPOLOGY_ADDR"; ip -o -4 addr']
    said = namespaces.run(command, timeout=20).stdout
    for k, leaf in zip(range(1, 9), ("g0s0", "g0s1", "g1s0", "g1s1"), strict=False):
        assert f"10.77.0.{k}/24" in said
        assert f"n{2 * k} core.{leaf[:2]}.{leaf}.n{2 * k}\n" in said
    assert namespaces.run(["hostname"], timeout=5).stdout == "head\n"
    assert namespaces.run(["hostname"], timeout=5, on="n3").stdout == "n3\n"
    assert namespaces.run(["getent", "hosts", "n8"], timeout=5, on="n1").stdout.split()[0] == (
        "10.77.0.8"
    )


@MODES
def test_it_listens_where_it_should_only(spaces: bool, request: pytest.FixtureRequest) -> None:
    """No daemon can be reached from another machine."""
    cluster: Cluster = request.getfixturevalue("namespaces" if spaces else "loopback")
    ours = {
        pid: {os.readlink(fd) for fd in Path(f"/proc/{pid}/fd").iterdir()}
        for pid in cluster.pids.values()
    }
    addresses = set()
    for pid, sockets in ours.items():
        for table in ("tcp", "tcp6"):
            for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
                fields = line.split()
                if fields[3] == "0A" and f"socket:[{fields[9]}]" in sockets:  # it listens
                    addresses.add(fields[1].partition(":")[0])
    # In hexadecimal, the last byte first.
    if spaces:
        assert addresses == {f"{k:02X}004D0A" for k in (*range(1, 9), 254)}
    else:
        assert addresses == {"0100007F"}


def test_gpus_and_partitions() -> None:
    require()
    with Cluster(Layout(nodes=2, gpus=4, cpus=288, partitions=("small", "large"))) as cluster:
        command = ["srun", "-N2", "--ntasks-per-node=4", "--gpus-per-task=1"]
        done = cluster.run([*command, "printenv", "CUDA_VISIBLE_DEVICES"], timeout=20)
        assert sorted(done.stdout.split()) == sorted("0123" * 2)
        assert cluster.ask("sinfo", "-h", "-o", "%P").split() == ["small*", "large"]


def test_a_command_that_takes_too_long_is_ended_with_its_job(loopback: Cluster) -> None:
    start = time.monotonic()
    with pytest.raises(subprocess.TimeoutExpired) as raised:
        loopback.run(["srun", "-N8", "sh", "-c", "echo begun; sleep 600"], timeout=3)
    assert time.monotonic() - start < 12
    assert raised.value.output.split() == ["begun"] * 8
    assert loopback.cancel() == []


def test_jobs_are_cancelled_whatever_they_do(loopback: Cluster) -> None:
    process = loopback.start(["srun", "-N2", sys.executable, "-c", HIDING])
    assert process.stdout and "hidden" in process.stdout.readline()
    os.killpg(process.pid, signal.SIGKILL)  # its job runs on
    assert len(loopback.cancel()) == 1
    assert loopback.jobs() == []


def test_batch_jobs(loopback: Cluster, tmp_path: Path) -> None:
    def submit(text: str) -> str:
        done = loopback.run(["sbatch", "--parsable"], timeout=20, cwd=tmp_path, stdin=text)
        assert not done.returncode, done.stderr
        return done.stdout.strip()

    good, bad = submit("#!/bin/sh\nsrun -N1 echo here\n"), submit("#!/bin/sh\nexit 3\n")
    assert loopback.wait_for(good, 20) == "COMPLETED"
    assert loopback.wait_for(bad, 20) == "FAILED"
    assert (tmp_path / f"slurm-{good}.out").read_text() == "here\n"


@MODES
def test_nothing_is_left(spaces: bool) -> None:
    require(spaces)
    before = traces()
    with Cluster(Layout(namespaces=spaces, nodes=4)) as cluster:
        folder = cluster.folder
        assert len(processes_of(folder)) > 5
        process = cluster.start(["srun", "-N2", sys.executable, "-c", HIDING])
        assert process.stdout and "hidden" in process.stdout.readline()
    assert gone(folder, 0)
    assert traces() == before


@MODES
def test_nothing_is_left_when_the_tests_die(spaces: bool) -> None:
    """SIGKILL can't be caught: the keeper sees its standard input end, and ends their srun too."""
    require(spaces)
    before = traces()
    code = (
        "import sys, time\n"
        "from tests.cluster.cluster import Cluster\n"
        "from tests.cluster.layout import Layout\n"
        f"with Cluster(Layout(namespaces={spaces}, nodes=2)) as cluster:\n"
        f"    process = cluster.start(['srun', '-N2', sys.executable, '-c', {HIDING!r}])\n"
        "    assert 'hidden' in process.stdout.readline()\n"
        "    print(cluster.folder, flush=True)\n"
        "    time.sleep(600)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=HERE.parents[1],
        env={**os.environ, "PYTHONPATH": str(HERE.parents[1])},
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout
    folder = Path(process.stdout.readline().strip())
    assert folder.is_dir() and processes_of(folder)
    process.kill()
    process.communicate()
    assert gone(folder)
    assert traces() == before


@MODES
def test_nothing_is_left_when_it_doesn_t_boot(
    spaces: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    require(spaces)
    before = traces()
    folders: list[Path] = []
    right = files.slurm_conf

    def wrong(layout: Layout, folder: str, *rest: object) -> str:
        folders.append(Path(folder))
        return right(layout, folder, *rest) + "NodeName=nonsense Sockets=\n"  # type: ignore[arg-type]

    monkeypatch.setattr(module.files, "slurm_conf", wrong)
    with pytest.raises(RuntimeError, match="slurmctld ended with code 1") as raised:
        Cluster(Layout(namespaces=spaces)).__enter__()
    assert "slurm.conf line" in "".join(raised.value.__notes__)
    assert gone(folders[0], 0)
    assert traces() == before


def test_an_error_of_a_test_comes_with_the_logs() -> None:
    require()
    with pytest.raises(ZeroDivisionError) as raised, Cluster(Layout(nodes=1)):
        _ = 1 / 0
    assert any("--- slurmctld.log" in note for note in raised.value.__notes__)


@MODES
def test_two_at_once_are_strangers(spaces: bool) -> None:
    require(spaces)
    layout = Layout(namespaces=spaces, nodes=2)
    with Cluster(layout) as one, Cluster(layout) as other:
        job = one.run(["sbatch", "--parsable", "--wrap=sleep 600"], timeout=20, cwd=one.folder)
        assert not job.returncode, job.stderr
        assert len(one.jobs()) == 1 and other.jobs() == []
        assert other.run(["srun", "-N2", "true"], timeout=20).returncode == 0
        assert other.cancel() == [] and one.cancel() == [job.stdout.strip()]


def test_ports_are_claimed() -> None:
    first, claim = free_ports(9)
    second, other = free_ports(9)
    assert abs(first - second) >= 9
    claim.close()
    assert free_ports(9)[0] == first
    other.close()


def test_any_user_can_have_one() -> None:
    """Not only root, as whom CI runs."""
    require()
    if os.geteuid():
        return  # the other tests show it
    python = "/usr/bin/python3"  # ours may be where root alone can go
    assert Path(python).exists(), "apt-get install --no-install-recommends python3"
    code = (
        "from tests.cluster.cluster import Cluster\n"
        "with Cluster() as cluster:\n"
        "    done = cluster.run(['srun', '-N8', 'id', '-u'], timeout=20)\n"
        "    print(done.stdout.split(), done.stderr)\n"
    )
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        shutil.copytree(HERE, Path(folder) / "tests" / "cluster")
        done = subprocess.run(
            ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", python, "-c", code],
            env={"PYTHONPATH": folder, "PATH": module.PATH, "HOME": "/"},
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=60,
        )
    assert (done.stderr, done.stdout) == ("", f"{['65534'] * 8} \n")


def test_what_is_missing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PATH", "/nonexistent")
    assert missing() == (
        "no slurmctld, slurmd, srun, munged: apt-get install --no-install-recommends "
        "slurmctld slurmd slurm-client munge iproute2"
    )
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match="no slurmctld"):
        require()
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="in CI this must be there: no slurmctld"):
        require()


SEND = """
import socket, sys, time
peer, count = sys.argv[1], int(float(sys.argv[2]))
with socket.create_connection((peer, 5555)) as wire:
    start = time.perf_counter()
    wire.sendall(bytes(count))
    wire.shutdown(socket.SHUT_WR)
    wire.recv(1)  # all has arrived
    print(count / (time.perf_counter() - start))
"""
RECEIVE = """
import socket
with socket.create_server(("", 5555)) as server:
    print("listening", flush=True)
    wire = server.accept()[0]
    while wire.recv(1 << 20):
        pass
    wire.send(b"x")
"""


@pytest.mark.timed
def test_groups_are_slower_apart() -> None:
    """Links have the rate of the layout, either way: those of nodes another than uplinks."""
    require(namespaces=True)
    rate_Bps = 20e6
    layout = Layout(namespaces=True, node_Bps=10 * rate_Bps, group_Bps=rate_Bps)
    with Cluster(layout) as cluster:

        def measured_Bps(sender: str, receiver: str) -> float:
            server = cluster.start([sys.executable, "-c", RECEIVE], on=receiver)
            assert server.stdout and server.stdout.readline() == "listening\n"
            done = cluster.run(
                [sys.executable, "-c", SEND, receiver, str(rate_Bps / 2)], timeout=30, on=sender
            )
            server.wait(10)
            return float(done.stdout)

        for sender, receiver in (("n1", "n5"), ("n8", "n3")):
            assert 0.75 * rate_Bps < measured_Bps(sender, receiver) < 1.15 * rate_Bps
        for sender, receiver in (("n1", "n2"), ("n1", "n3"), ("n7", "n5")):
            assert 5 * rate_Bps < measured_Bps(sender, receiver) < 11.5 * rate_Bps


@pytest.mark.timed
@MODES
def test_it_is_quick(spaces: bool) -> None:
    require(spaces)
    start = time.monotonic()
    with Cluster(Layout(namespaces=spaces)):
        booted = time.monotonic()
    assert booted - start < 4 and time.monotonic() - booted < 3
