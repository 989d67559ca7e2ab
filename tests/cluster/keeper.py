"""The process that keeps a test cluster: starts its daemons, and ends everything they started.

It runs by itself (`python keeper.py FOLDER`), so that a cluster goes when the tests that use it
end, however they end: it is told by the end of its standard input. What a daemon starts (job
steps leave their parents) stays its descendant, because orphans come to it. Network namespaces
have no names and mounts are private, so both go with the processes in them.

FOLDER/plan.json says what to start. It answers with one line of JSON.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import select
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWNET = 0x00020000, 0x04000000, 0x40000000
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
BOOT_S, END_S = 20.0, 20.0
BURST_S, LARGEST_PACKET = 0.004, 80_000

_libc = ctypes.CDLL(None, use_errno=True)


def main(folder: Path) -> None:
    """Start what the plan says, wait for the end of standard input, end everything."""
    _checked(_libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0), "prctl")
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for name in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # the tests' end is told by stdin
        signal.signal(name, signal.SIG_IGN)
    try:
        try:
            answer = start(folder)
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)
        wait_for_the_end()  # after an error too: the logs are read meanwhile
    finally:
        end_all(folder)
        shutil.rmtree(folder, ignore_errors=True)


def start(folder: Path) -> dict[str, Any]:
    """Start the daemons of the plan, each when the one before is there; return their pids."""
    plan = json.loads((folder / "plan.json").read_text())
    hosts: dict[str, int] = {}
    if plan["network"]:
        hosts = make_network(plan["network"], folder)
    pids: dict[str, int] = {}
    deadline = time.monotonic() + BOOT_S
    for daemon in plan["daemons"]:
        enter = entering(hosts[daemon["host"]]) if hosts else []
        log = folder / "log" / f"{daemon['name']}.out"
        with open(log, "ab") as output:
            process = subprocess.Popen(
                [*enter, *daemon["command"]],
                env=plan["env"],
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                preexec_fn=_die_with_parent,
            )
        pids[daemon["name"]] = process.pid
        while not is_there(daemon["ready"], hosts.get(daemon["host"])):
            if process.poll() is not None:
                raise RuntimeError(f"{daemon['name']} ended with code {process.returncode}")
            if time.monotonic() > deadline:
                raise RuntimeError(f"{daemon['name']} isn't there after {BOOT_S:g} s")
            time.sleep(0.01)
    return {"pids": pids, "hosts": hosts}


def is_there(ready: list[Any], host: int | None) -> bool:
    """Tell whether a daemon can be used: its socket's file, or the port that it listens on."""
    if not ready:
        return True
    if ready[0] == "file":
        return Path(ready[1]).exists()
    if host is not None:  # listening, by the table of that network: state 0A
        table = Path(f"/proc/{host}/net/tcp").read_text()
        return any(f":{ready[2]:04X} 00000000:0000 0A " in line for line in table.splitlines())
    with socket.socket() as probe:
        return probe.connect_ex((ready[1], ready[2])) == 0


def entering(pid: int) -> list[str]:
    """Return the command that runs another one on the host whose process is `pid`."""
    return ["nsenter", f"--target={pid}", "--net", "--uts", "--mount"]


def make_network(network: dict[str, Any], folder: Path) -> dict[str, int]:
    """Make hosts in namespaces of their own, joined by switches; return a process of each host.

    This process itself goes where the switches are.
    """
    _checked(_libc.unshare(CLONE_NEWNET | CLONE_NEWNS), "unshare")
    _run(["mount", "--make-rprivate", "/"])
    _run(["mount", "--bind", str(folder / "hosts"), "/etc/hosts"])
    hosts = {name: make_host(name) for name in network["hosts"]}
    switches = ["link set lo up"]
    for switch in network["switches"]:
        switches += [f"link add {switch} type bridge", f"link set {switch} up"]
    shaped = []
    for lower, upper, rate_Bps in network["links"]:
        ends = {f"{lower}-u": lower, f"{lower}-d": upper}
        switches.append(f"link add {lower}-u type veth peer name {lower}-d")
        for end, switch in ends.items():
            switches += [f"link set {end} master {switch}", f"link set {end} up"]
            shaped += shaping(end, rate_Bps)
    for name, (_, switch, rate_Bps) in network["hosts"].items():
        port = f"p-{name}"
        shaped += shaping(port, rate_Bps)
        switches += [
            f"link add {port} type veth peer name eth0 netns {hosts[name]}",
            f"link set {port} master {switch}",
            f"link set {port} up",
        ]
    _run(["ip", "-batch", "-"], "\n".join(switches))
    if shaped:
        _run(["tc", "-batch", "-"], "\n".join(shaped))
    for name, (address, _, rate_Bps) in network["hosts"].items():
        lines = ["link set lo up", f"addr add {address}/24 dev eth0", "link set eth0 up"]
        _run([*entering(hosts[name]), "ip", "-batch", "-"], "\n".join(lines))
        if rate_Bps:
            _run([*entering(hosts[name]), "tc", "-batch", "-"], shaping("eth0", rate_Bps)[0])
    return hosts


def shaping(device: str, rate_Bps: float | None) -> list[str]:
    """Return the line for tc that lets a device send at this rate; none for no limit."""
    if not rate_Bps:
        return []
    rate = f"rate {rate_Bps * 8:.0f}bit burst {burst_bytes(rate_Bps)} latency 100ms"
    return [f"qdisc add dev {device} root tbf {rate}"]


def burst_bytes(rate_Bps: float) -> int:
    """Return what a device that rested sends at once, however slow it is.

    It is as much as goes through in BURST_S, in which it may oversleep, and at least the largest
    packet that TCP hands over whole; more would hide the rate from short messages.
    """
    return max(LARGEST_PACKET, round(rate_Bps * BURST_S))


def make_host(name: str) -> int:
    """Start a process with a network and a host name of its own; return its pid."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            _die_with_parent()
            _checked(_libc.unshare(CLONE_NEWNET | CLONE_NEWUTS), "unshare")
            socket.sethostname(name)
            os.write(writer, b"x")
            os.execvp("sleep", ["sleep", "infinity"])
        finally:
            os._exit(1)
    os.close(writer)
    with os.fdopen(reader, "rb") as ready:
        if ready.read(1) != b"x":
            raise RuntimeError(f"host {name} has no namespaces")
    return pid


def wait_for_the_end() -> None:
    """Return when standard input ends; collect children that end meanwhile."""
    while not select.select([sys.stdin], [], [], 0.5)[0] or os.read(0, 1024):
        _collect()


def end_all(folder: Path) -> None:
    """Kill all that was started here, by whomever, until there is nothing left.

    That is also what the tests started: srun would wait for its controller for ever.
    """
    deadline = time.monotonic() + END_S
    while time.monotonic() < deadline:
        left = [*descendants(os.getpid()), *users(folder)]
        if not left:
            return
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        time.sleep(0.01)
        _collect()


def users(folder: Path) -> list[int]:
    """Return the processes whose Slurm is the one in `folder`, but for this one."""
    setting = f"SLURM_CONF={folder}/slurm.conf".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and int(entry.name) != os.getpid():
            try:
                if setting in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
            except OSError:  # it has ended meanwhile, or is another user's
                continue
    return found


def descendants(pid: int) -> list[int]:
    """Return all that descend from a process, by /proc, without what has ended."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                state, parent = (entry / "stat").read_text().rpartition(") ")[2].split()[:2]
            except OSError:  # it has ended meanwhile
                continue
            if state != "Z":
                children.setdefault(int(parent), []).append(int(entry.name))
    found, waiting = [], [pid]
    while waiting:
        of_one = children.get(waiting.pop(), [])
        found += of_one
        waiting += of_one
    return found


def _collect() -> None:
    """Let children that have ended go."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def _die_with_parent() -> None:
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def _run(command: list[str], text: str = "") -> None:
    done = subprocess.run(command, input=text, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")


def _checked(result: int, what: str) -> None:
    if result:
        raise OSError(ctypes.get_errno(), f"{what}: {os.strerror(ctypes.get_errno())}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
