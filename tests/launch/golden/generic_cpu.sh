#!/bin/bash
# jaxbench on a cluster without accelerators: 8 devices, 4 nodes
# Written by: jaxbench slurm --system=generic_cpu --flagfile=flags/quickstart.flags --devices=8
#SBATCH --job-name=jaxbench-generic_cpu
#SBATCH --nodes=4
# one process per device
#SBATCH --ntasks-per-node=2
#SBATCH --cpus-per-task=4
# source of what follows: sbatch(1), srun(1)
# jobs of others on the same nodes would be measured too
#SBATCH --exclusive
#SBATCH --time=00:30:00
# SIGTERM 60 s before that: what was measured until then is kept
#SBATCH --signal=TERM@60
#SBATCH --output=jaxbench-%j.out

set -euo pipefail
# What jaxbench needs; sbatch hands on the environment in which it is called, too.
# source "$HOME/jaxbench/bin/activate"
if ! command -v jaxbench >/dev/null; then
    echo "jaxbench is not on the PATH: load it in the lines above this one" >&2
    exit 1
fi

# source of what follows: docs.jax.dev, configuration options
# the CPUs are the devices, whatever else a node may have
export JAX_PLATFORMS=cpu

# source of what follows: sbatch(1), srun(1)
# --kill-on-bad-exit: a process that fails ends its run: the others would wait for it
# --cpu-bind: a process stays on its cores
# source of what follows: docs.coreweave.com: CPU binding and NUMA affinity
# --distribution: neighbouring processes on neighbouring cores, in the order of the GPUs; Slurm's
# default deals them out to the sockets in turn
srun --nodes=4 --ntasks=8 --ntasks-per-node=2 --cpus-per-task=4 --kill-on-bad-exit=1 \
    --cpu-bind=cores --distribution=block:block jaxbench run --flagfile=flags/quickstart.flags \
    --devices=8 --expect_devices=8 --out=results
