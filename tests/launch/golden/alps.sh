#!/bin/bash
# jaxbench on Alps, GH200 partition (CSCS): 64 devices, 16 nodes
# Written by: jaxbench slurm --system=alps --flagfile=flags/quickstart.flags --devices=64 --account=g123
#SBATCH --job-name=jaxbench-alps
#SBATCH --account=g123
#SBATCH --partition=normal
#SBATCH --nodes=16
# one process per device
#SBATCH --ntasks-per-node=4
#SBATCH --cpus-per-task=72
# source of what follows: sbatch(1), srun(1)
# all GPUs of each node
#SBATCH --gpus-per-node=4
# source of what follows: github eth-cscs/cscs-docs docs/software/communication/nccl.md, version
# unverified
# has NCCL's plugin for Slingshot; take one that `uenv image ls` shows
#SBATCH --uenv=prgenv-gnu/24.11:v2
# source of what follows: github eth-cscs/cscs-docs docs/software/communication/nccl.md
# puts the plugin on the library path
#SBATCH --view=default
#SBATCH --time=00:30:00
# SIGTERM 60 s before that: what was measured until then is kept
#SBATCH --signal=TERM@60
#SBATCH --output=jaxbench-%j.out

set -euo pipefail
# What jaxbench needs; sbatch hands on the environment in which it is called, too.
# source "$HOME/jaxbench/bin/activate"  # made inside the same uenv
if ! command -v jaxbench >/dev/null; then
    echo "jaxbench is not on the PATH: load it in the lines above this one" >&2
    exit 1
fi

# source of what follows: docs.jax.dev, configuration options
# fail without GPUs: JAX alone would go on with the CPU
export JAX_PLATFORMS=cuda
# source of what follows: github eth-cscs/cscs-docs docs/software/communication/nccl_env_vars
# fail without the Slingshot plugin: NCCL alone would go on with slow TCP
export NCCL_NET="AWS Libfabric"
# network cards read GPU memory of their own NUMA node
export NCCL_NET_GDR_LEVEL=PHB
# rings and trees may use several network cards
export NCCL_CROSS_NIC=1
# from NCCL 2.27 on its default, and slower on Slingshot
export NCCL_PROTO=^LL128
# completion queues long enough for many ranks
export FI_CXI_DEFAULT_CQ_SIZE=131072
# transmit queues long enough for many ranks
export FI_CXI_DEFAULT_TX_SIZE=32768
# host memory is not registered with CUDA by libfabric
export FI_CXI_DISABLE_HOST_REGISTER=1
# hardware matching runs out of entries at scale
export FI_CXI_RX_MATCH_MODE=software
# the default monitor can deadlock with NCCL
export FI_MR_CACHE_MONITOR=userfaultfd
# source of what follows: github eth-cscs/cscs-docs docs/software/communication/nccl.md
# GPU-aware MPI beside NCCL can deadlock
export MPICH_GPU_SUPPORT_ENABLED=0
# source of what follows: docs.nvidia.com NCCL user guide, environment variables
# say why, where communication fails
export NCCL_DEBUG=WARN

# source of what follows: sbatch(1), srun(1)
# --kill-on-bad-exit: a process that fails ends its run: the others would wait for it
# source of what follows: unverified
# --gpu-bind: each process sees all GPUs of its node and takes its own: hidden ones can't be
# reached over NVLink or shared memory
# source of what follows: sbatch(1), srun(1)
# --cpu-bind: a process stays on its cores
# source of what follows: docs.coreweave.com: CPU binding and NUMA affinity
# --distribution: neighbouring processes on neighbouring cores, in the order of the GPUs; Slurm's
# default deals them out to the sockets in turn
srun --nodes=16 --ntasks=64 --ntasks-per-node=4 --cpus-per-task=72 --kill-on-bad-exit=1 \
    --gpu-bind=none --cpu-bind=cores --distribution=block:block jaxbench run \
    --flagfile=flags/quickstart.flags --system=alps --devices=64 --expect_devices=64 \
    --out=results
