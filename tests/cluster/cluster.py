"""A private Slurm of several nodes on this machine, for tests: up in a second, gone without trace.

with Cluster(Layout()) as cluster:
    done = cluster.run(["srun", "-N4", "hostname"], timeout=20)

Loopback mode works for any user. Namespace mode needs root; there every node has its own
network and host name, and uplinks can be slow.
"""

from __future__ import annotations

import getpass
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType

from tests.cluster import layout as files
from tests.cluster.keeper import entering
from tests.cluster.layout import HEAD, HEAD_ADDRESS, Layout

PROGRAMS = ("slurmctld", "slurmd", "srun", "munged")
NAMESPACE_PROGRAMS = ("ip", "tc", "nsenter", "mount")
PACKAGES = "slurmctld slurmd slurm-client munge iproute2"
PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"

# Outside the usual ephemeral ports, 32768 and up.
FIRST_PORT, LAST_PORT = 17000, 22000
BOOT_S, TERM_S = 30.0, 5.0
GRACE_S = 4.0  # after scancel; tasks are killed by Slurm KillWait = 3 s after SIGTERM
LIVING = "PENDING,RUNNING,SUSPENDED,CONFIGURING"

# Of every slurmd here: Slurm's nodes aren't what this machine is, and PMIx isn't installed.
NO_FAULT = ("pmix", "differs from hardware", "CPU frequency", "CPUs=", "started", "state/")


def missing(namespaces: bool = False) -> str:
    """Return why there can't be a cluster here, '' if there can."""
    needed = PROGRAMS + (NAMESPACE_PROGRAMS if namespaces else ())
    lacking = [program for program in needed if not shutil.which(program, path=PATH)]
    if lacking:
        return f"no {', '.join(lacking)}: apt-get install --no-install-recommends {PACKAGES}"
    if namespaces and os.geteuid():
        return "network namespaces need root"
    return ""


class Cluster:
    """A running cluster; `layout` is what it looks like, `folder` where its files are."""

    def __init__(self, layout: Layout | None = None):
        self.layout = layout or Layout()
        self.folder = Path()
        self.pids: dict[str, int] = {}  # of daemons, by name: munged, slurmctld, slurmd.<node>
        self._hosts: dict[str, int] = {}
        self._keeper: subprocess.Popen[str] | None = None
        self._claim: socket.socket | None = None
        self._started: list[subprocess.Popen[str]] = []

    def __enter__(self) -> Cluster:
        if reason := missing(self.layout.namespaces):
            raise RuntimeError(reason)
        self.folder = Path(tempfile.mkdtemp(prefix="jaxbench-cluster-"))
        try:
            self._boot()
        except BaseException as error:
            error.add_note(self.logs())
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is not None:
            error.add_note(self.logs())
        self.close()

    @property
    def env(self) -> dict[str, str]:
        """The environment in which Slurm's commands find this cluster, without an outer job."""
        outer = {k: v for k, v in os.environ.items() if not k.startswith(("SLURM_", "SBATCH_"))}
        return {**outer, "PATH": PATH, "SLURM_CONF": str(self.folder / "slurm.conf")}

    def run(
        self,
        command: Sequence[str],
        *,
        timeout: float,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        on: str = HEAD,
        stdin: str | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command to its end, as a user logged in to node `on` would.

        `env` is added to `self.env`. After `timeout` seconds it is ended, with all that it
        started here, and TimeoutExpired has what it printed; its job may live on, see `cancel`.
        """
        process = self.start(command, env=env, cwd=cwd, on=on, stdin=stdin is not None)
        try:
            output, errors = process.communicate(stdin, timeout=timeout)
        except subprocess.TimeoutExpired:
            output, errors = self._stop(process)
            raise subprocess.TimeoutExpired(list(command), timeout, output, errors) from None
        except BaseException:
            self._stop(process)
            raise
        finally:
            if process in self._started and process.poll() is not None:
                self._started.remove(process)
        return subprocess.CompletedProcess(list(command), process.returncode, output, errors)

    def start(
        self,
        command: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        on: str = HEAD,
        stdin: bool = False,
    ) -> subprocess.Popen[str]:
        """Start a command as `run` does; it is ended at the latest when the cluster is."""
        enter = entering(self._hosts[on]) if self._hosts else []
        folder = str((cwd or self.folder).resolve())
        shell = ["sh", "-c", 'ulimit -c 0; cd "$0" && exec "$@"', folder]
        process = subprocess.Popen(
            [*enter, *shell, *command],
            env={**self.env, **(env or {})},
            stdin=subprocess.PIPE if stdin else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        self._started.append(process)
        return process

    def ask(self, *command: str) -> str:
        """Return what a command such as scontrol says; CalledProcessError if it fails."""
        done = self.run(command, timeout=20)
        done.check_returncode()
        return done.stdout

    def jobs(self, states: str = LIVING) -> list[str]:
        """Return the ids of the jobs in these states: those that will go on if nothing is done."""
        return self.ask("squeue", "--noheader", "--format=%A", f"--states={states}").split()

    def cancel(self, timeout: float = 30) -> list[str]:
        """Cancel all jobs and wait until nothing is left of any; return the ids of the former."""
        found = sorted({*self.jobs()})
        if found:
            self.run(["scancel", *found], timeout=20)
        begin = time.monotonic()
        while left := self.jobs(f"{LIVING},COMPLETING"):
            waited = time.monotonic() - begin
            if waited > timeout:
                raise RuntimeError(f"jobs {left} are still there {timeout:g} s after scancel")
            if waited > GRACE_S:  # what left its step's tree isn't found by Slurm, here
                for pid in tasks_of(self.folder, left):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.05)
        return found

    def wait_for(self, job: str, timeout: float) -> str:
        """Wait until a batch job has ended; return its state, such as COMPLETED."""
        deadline = time.monotonic() + timeout
        while True:
            state = self.ask("scontrol", "--oneliner", "show", "job", job)
            state = state.partition("JobState=")[2].split()[0]
            if state not in ("PENDING", "RUNNING", "COMPLETING", "CONFIGURING", "SUSPENDED"):
                return state
            if time.monotonic() > deadline:
                raise TimeoutError(f"job {job} is {state} after {timeout:g} s")
            time.sleep(0.05)

    def logs(self, lines: int = 12) -> str:
        """Return the last lines of every daemon's log, without what is no fault."""
        texts: list[str] = []
        if not (self.folder / "log").is_dir():
            return ""
        for path in sorted((self.folder / "log").iterdir()):
            if path.suffix == ".out" and path.with_suffix(".log").exists():
                continue  # it says the same
            said = path.read_text(errors="replace").splitlines()
            said = [line for line in said if not any(word in line for word in NO_FAULT)][-lines:]
            texts += [f"--- {path.name}", *said] if said else []
        return "\n".join(texts)

    def close(self) -> None:
        """End everything of the cluster; RuntimeError if anything is left."""
        for process in self._started:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            for stream in (process.stdin, process.stdout, process.stderr):
                if stream:
                    stream.close()
        self._started.clear()
        keeper, self._keeper = self._keeper, None
        if keeper and keeper.stdin and keeper.stdout:
            keeper.stdin.close()  # tells it
            keeper.wait(timeout=60)
            keeper.stdout.close()
        if self._claim:
            self._claim.close()
            self._claim = None
        shutil.rmtree(self.folder, ignore_errors=True)
        if left := processes_of(self.folder):
            raise RuntimeError(f"left of the cluster in {self.folder}: processes {left}")

    def _boot(self) -> None:
        """Write the files, start the keeper, wait until all nodes are idle."""
        layout, folder = self.layout, self.folder
        os.chmod(folder, 0o755)  # munge wants its socket's folder readable by all
        for name in ("log", "run", "state", "munge", *(f"spool.{n}" for n in layout.names)):
            (folder / name).mkdir(mode=0o755)
        port = 0
        if not layout.namespaces:
            port, self._claim = free_ports(layout.nodes + 1)
        host, user = socket.gethostname().partition(".")[0], getpass.getuser()
        (folder / "slurm.conf").write_text(files.slurm_conf(layout, str(folder), user, host, port))
        (folder / "topology.conf").write_text(files.topology_conf(layout))
        (folder / "gres.conf").write_text(files.gres_conf(layout))
        (folder / "hosts").write_text(files.hosts(layout))
        key = os.open(folder / "munge" / "key", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o400)
        os.write(key, os.urandom(128))
        os.close(key)
        (folder / "plan.json").write_text(json.dumps(self._plan(port)))

        keeper = str(Path(__file__).with_name("keeper.py"))
        self._keeper = subprocess.Popen(
            [sys.executable, "-I", keeper, str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,  # a Ctrl-C at the terminal is for the tests
        )
        assert self._keeper.stdout
        answer = json.loads(self._keeper.stdout.readline() or '{"error": "the keeper died"}')
        if "error" in answer:
            raise RuntimeError(f"the cluster doesn't start: {answer['error']}")
        self.pids, self._hosts = answer["pids"], answer["hosts"]
        deadline = time.monotonic() + BOOT_S
        ask = ("sinfo", "--noheader", "--Node", "--states=idle", "--format=%N")
        while {*self.run(ask, timeout=20).stdout.split()} != {*layout.names}:
            if time.monotonic() > deadline:
                raise RuntimeError(f"not all nodes are idle after {BOOT_S:g} s")
            time.sleep(0.02)

    def _plan(self, port: int) -> dict[str, object]:
        """Return what the keeper is to start."""
        layout, munge = self.layout, self.folder / "munge"
        ours = {
            "socket": munge / "socket",
            "key-file": munge / "key",
            "pid-file": munge / "pid",
            "log-file": self.folder / "log" / "munged.log",
            "seed-file": munge / "seed",
        }
        control = files.CONTROL_PORT if layout.namespaces else port
        daemons = [
            {
                "name": "munged",
                "host": HEAD,
                "command": ["munged", "--foreground", *(f"--{k}={v}" for k, v in ours.items())],
                "ready": ["file", str(munge / "socket")],
            },
            {
                "name": "slurmctld",
                "host": HEAD,
                "command": ["slurmctld", "-D", "-i"],
                "ready": ["port", "127.0.0.1", control],
            },
        ]
        daemons += [
            {
                "name": f"slurmd.{name}",
                "host": name,
                "command": ["slurmd", "-D", "-N", name],
                "ready": [],
            }
            for name in layout.names
        ]
        network = None
        if layout.namespaces:
            leaf_of = {node: leaf for leaf, nodes in layout.leaves.items() for node in nodes}
            hosts: dict[str, tuple[str, str, float | None]]
            hosts = {HEAD: (HEAD_ADDRESS, "core", None)}
            hosts |= {
                name: (layout.address(k), leaf_of[name], layout.node_Bps)
                for k, name in enumerate(layout.names, start=1)
            }
            switches = [*layout.leaves, *layout.groups, "core"]
            network = {"hosts": hosts, "switches": switches, "links": files.links(layout)}
        return {"env": self.env, "daemons": daemons, "network": network}

    def _stop(self, process: subprocess.Popen[str]) -> tuple[str, str]:
        """End a command and its descendants; return what it printed. srun cancels its step."""
        for name, wait_s in ((signal.SIGTERM, TERM_S), (signal.SIGKILL, 60.0)):
            try:
                os.killpg(process.pid, name)
            except ProcessLookupError:
                pass
            try:
                return process.communicate(timeout=wait_s)
            except subprocess.TimeoutExpired:
                continue
        raise RuntimeError(f"{process.args} can't be killed")


def free_ports(count: int) -> tuple[int, socket.socket]:
    """Return the first of `count` free ports, and what keeps other clusters away from them.

    That is an abstract socket's name: the kernel frees it with the process, however that ends.
    """
    blocks = range(FIRST_PORT, LAST_PORT - count, count)
    for block in [*blocks[os.getpid() % len(blocks) :], *blocks]:
        claim = socket.socket(socket.AF_UNIX)
        try:
            claim.bind(f"\0jaxbench-cluster-{block}")
            for port in range(block, block + count):
                with socket.socket() as probe:
                    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                    probe.bind(("", port))
        except OSError:
            claim.close()
        else:
            return block, claim
    raise RuntimeError(f"no {count} ports in a row are free from {FIRST_PORT} to {LAST_PORT}")


def processes_of(folder: Path) -> list[tuple[int, str]]:
    """Return (pid, command) of each process that a cluster in `folder` has, or had, started."""
    return [(pid, command) for pid, command, _ in _started_in(folder)]


def tasks_of(folder: Path, jobs: Sequence[str]) -> list[int]:
    """Return the processes of jobs of the cluster in `folder`, whoever their parents are."""
    names = {f"SLURM_JOB_ID={job}" for job in jobs}
    return [pid for pid, _, env in _started_in(folder) if names & {*env}]


def _started_in(folder: Path) -> Iterator[tuple[int, str, list[str]]]:
    """Yield (pid, command, environment) of processes that the folder's name is in."""
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal() or int(entry.name) == os.getpid():
            continue
        try:
            command = (entry / "cmdline").read_bytes().decode(errors="replace")
            env = (entry / "environ").read_bytes().decode(errors="replace")
        except OSError:  # it has ended, or is another user's
            continue
        if str(folder) in command or str(folder) in env:
            yield int(entry.name), command.replace("\0", " "), env.split("\0")
