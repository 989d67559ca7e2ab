#!/bin/bash
# jaxbench on JUPITER Booster (Forschungszentrum Juelich): 64 devices, 16 nodes
# Written by: jaxbench slurm --system=jupiter --flagfile=flags/paper_fsdp_llama3_8b.flags --devices=64
#SBATCH --job-name=jaxbench-jupiter
#SBATCH --account=FILL_IN_ACCOUNT
#SBATCH --partition=booster
#SBATCH --nodes=16
# one process per device
#SBATCH --ntasks-per-node=4
#SBATCH --cpus-per-task=72
# source of what follows: unverified
# all GPUs of each node
#SBATCH --gres=gpu:4
#SBATCH --time=00:30:00
# SIGTERM 60 s before that: what was measured until then is kept
#SBATCH --signal=TERM@60
#SBATCH --output=jaxbench-%j.out

set -euo pipefail
# What jaxbench needs; sbatch hands on the environment in which it is called, too.
# module load Stages/2025 GCC Python CUDA  # take what `module avail` shows
# source "$HOME/jaxbench/bin/activate"
if ! command -v jaxbench >/dev/null; then
    echo "jaxbench is not on the PATH: load it in the lines above this one" >&2
    exit 1
fi

# source of what follows: docs.jax.dev, configuration options
# fail without GPUs: JAX alone would go on with the CPU
export JAX_PLATFORMS=cuda
# source of what follows: unverified
# each process sees all GPUs of its node and takes its own: by default it gets one, and NVLink is
# lost
export CUDA_VISIBLE_DEVICES=0,1,2,3
# source of what follows: github interTwin-eu/itwinai src/itwinai/slurm (for JUWELS Booster)
# processes meet over InfiniBand: other addresses don't reach every cell
export NCCL_SOCKET_IFNAME=ib0
# source of what follows: docs.nvidia.com NCCL user guide, environment variables
# fail without InfiniBand: NCCL alone would go on with slow TCP
export NCCL_NET=IB
# say why, where communication fails
export NCCL_DEBUG=WARN

# source of what follows: sbatch(1), srun(1)
# --kill-on-bad-exit: a process that fails ends its run: the others would wait for it
# --cpu-bind: a process stays on its cores
# source of what follows: docs.coreweave.com: CPU binding and NUMA affinity
# --distribution: neighbouring processes on neighbouring cores, in the order of the GPUs; Slurm's
# default deals them out to the sockets in turn
srun --nodes=16 --ntasks=64 --ntasks-per-node=4 --cpus-per-task=72 --kill-on-bad-exit=1 \
    --cpu-bind=cores --distribution=block:block jaxbench run \
    --flagfile=flags/paper_fsdp_llama3_8b.flags --system=jupiter --devices=64 \
    --expect_devices=64 --out=results
