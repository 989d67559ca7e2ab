"""The world of Open MPI's mpirun, by the variables that versions 4 and 5 set for its processes.

Nothing of MPI is called. Process 0 must be found by the others: where all are on one host that is
loopback, else the host on which mpirun was started, as far as its variables tell.
"""

from __future__ import annotations

import platform
import re
from collections.abc import Mapping

from jaxbench.errors import InputError
from jaxbench.launch.slurm_world import nearness
from jaxbench.launch.world import OPEN_MPI, World, ports_of, read_port

RANK, SIZE = OPEN_MPI
LOCAL_SIZE = "OMPI_COMM_WORLD_LOCAL_SIZE"
HNP = "OMPI_MCA_orte_hnp_uri"  # Open MPI 4: 1531576320.0;tcp://10.96.0.1,10.148.0.1:34911
NAMESPACE = "PMIX_NAMESPACE"  # Open MPI 5: prterun-n1-4242@1; 4: a number


def mpi(env: Mapping[str, str], flags: Mapping[str, str]) -> World | None:
    """Return the world of mpirun; None without it. InputError where process 0 can't be found."""
    if RANK not in env or SIZE not in env:
        return None
    port, faults = read_port(flags)
    wrong = [f"{name}='{env[name]}'" for name in (RANK, SIZE) if not env[name].isdecimal()]
    if wrong or int(env[RANK]) >= int(env[SIZE]):
        what = ", ".join(wrong or [f"{RANK}={env[RANK]} of {SIZE}={env[SIZE]}"])
        faults.append(f"Open MPI's variables make no sense ({what}): unset them")
        raise InputError(faults)
    count = int(env[SIZE])
    local = env.get(LOCAL_SIZE) == env[SIZE]
    hosts = ("127.0.0.1",) if local else launcher_hosts(env)
    if not hosts:
        faults.append(
            "mpirun's variables don't tell where process 0 is: give --coordinator=host:port, "
            "--num_processes and --process_id, or start with srun"
        )
    if faults:
        raise InputError(faults)
    switches, group = nearness(env)
    job = job_of(env)
    return World(
        "mpirun",
        index=int(env[RANK]),
        count=count,
        key=f"mpirun {job}",
        hosts=hosts,
        ports=port or ports_of("mpirun", job),
        host=platform.node(),
        local=local,
        switches=switches,
        group=group,
    )


def launcher_hosts(env: Mapping[str, str]) -> tuple[str, ...]:
    """Return addresses or the name of the host on which mpirun was started; none if unknown."""
    if found := re.search(r"tcp6?://([^;]+):\d+", env.get(HNP, "")):
        return tuple(re.sub(r"[\[\]]", "", found[1]).split(","))
    for name in (NAMESPACE, *sorted(n for n in env if n.startswith("PMIX_SERVER_URI"))):
        if found := re.match(r"(?:prterun|prte)-(.+)-\d+@", env.get(name, "")):
            return (found[1],)
    return ()


def job_of(env: Mapping[str, str]) -> str:
    """Return what names this call of mpirun, the same for all its processes and for no others."""
    hnp = env.get(HNP, "").partition(";")[0]
    server = sorted(n for n in env if n.startswith("PMIX_SERVER_URI"))
    uri = env[server[0]].partition(";")[0] if server else ""
    return env.get(NAMESPACE) or hnp or uri.partition("@")[0]
