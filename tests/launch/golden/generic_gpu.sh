#!/bin/bash
# jaxbench on a cluster with NVIDIA GPUs: 32 devices, 8 nodes
# Written by: jaxbench slurm --system=generic_gpu --flagfile=flags/tiny_dp.flags --devices=32 --per_node=4 --cpus_per_task=12 --partition=gpu --qos=high --account=me --silence_s=60
#SBATCH --job-name=jaxbench-generic_gpu
#SBATCH --account=me
#SBATCH --partition=gpu
#SBATCH --qos=high
#SBATCH --nodes=8
# one process per device
#SBATCH --ntasks-per-node=4
#SBATCH --cpus-per-task=12
# source of what follows: sbatch(1), srun(1)
# all GPUs of each node
#SBATCH --gpus-per-node=4
# jobs of others on the same nodes would be measured too
#SBATCH --exclusive
# all the memory of each node
#SBATCH --mem=0
#SBATCH --time=00:30:00
# SIGTERM 60 s before that: what was measured until then is kept
#SBATCH --signal=TERM@60
#SBATCH --output=jaxbench-%j.out

set -euo pipefail
# What jaxbench needs; sbatch hands on the environment in which it is called, too.
# module load cuda
# source "$HOME/jaxbench/bin/activate"
if ! command -v jaxbench >/dev/null; then
    echo "jaxbench is not on the PATH: load it in the lines above this one" >&2
    exit 1
fi

# source of what follows: docs.jax.dev, configuration options
# fail without GPUs: JAX alone would go on with the CPU
export JAX_PLATFORMS=cuda
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
srun --nodes=8 --ntasks=32 --ntasks-per-node=4 --cpus-per-task=12 --kill-on-bad-exit=1 \
    --gpu-bind=none --cpu-bind=cores --distribution=block:block jaxbench run \
    --flagfile=flags/tiny_dp.flags --devices=32 --silence_s=60 --expect_devices=32 --out=results
