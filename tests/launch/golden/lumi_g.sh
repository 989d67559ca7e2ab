#!/bin/bash
# jaxbench on LUMI-G (CSC): 128 devices, 16 nodes
# Written by: jaxbench slurm --system=lumi_g --flagfile=flags/quickstart.flags --devices=128
#SBATCH --job-name=jaxbench-lumi_g
#SBATCH --account=FILL_IN_ACCOUNT
#SBATCH --partition=standard-g
#SBATCH --nodes=16
# one process per device
#SBATCH --ntasks-per-node=8
#SBATCH --cpus-per-task=7
# source of what follows: github Lumi-supercomputer/lumi-userguide
# docs/runjobs/scheduled-jobs/lumig-job.md
# all 8 GCDs of each node
#SBATCH --gpus-per-node=8
#SBATCH --time=00:30:00
# SIGTERM 60 s before that: what was measured until then is kept
#SBATCH --signal=TERM@60
#SBATCH --output=jaxbench-%j.out

set -euo pipefail
# What jaxbench needs; sbatch hands on the environment in which it is called, too.
# module load LUMI partition/G rocm aws-ofi-rccl  # RCCL's plugin for Slingshot
# source "$HOME/jaxbench/bin/activate"
if ! command -v jaxbench >/dev/null; then
    echo "jaxbench is not on the PATH: load it in the lines above this one" >&2
    exit 1
fi

# source of what follows: docs.jax.dev, configuration options
# fail without GPUs: JAX alone would go on with the CPU
export JAX_PLATFORMS=rocm
# source of what follows: github Lumi-supercomputer LUMI-AI-Guide, RCCL environment variables
# RCCL meets over Slingshot: it can't use the first interface that it finds
export NCCL_SOCKET_IFNAME=hsn0,hsn1,hsn2,hsn3
# network cards read GPU memory; the default before ROCm 6.2 is slower
export NCCL_NET_GDR_LEVEL=PHB
# source of what follows: unverified
# completion queues long enough for many ranks
export FI_CXI_DEFAULT_CQ_SIZE=131072
# the default monitor can deadlock with RCCL
export FI_MR_CACHE_MONITOR=userfaultfd
# source of what follows: docs.nvidia.com NCCL user guide, environment variables
# say why, where communication fails
export NCCL_DEBUG=WARN

# source of what follows: sbatch(1), srun(1)
# --kill-on-bad-exit: a process that fails ends its run: the others would wait for it
# source of what follows: unverified
# --gpu-bind: each process sees all GPUs of its node and takes its own: hidden ones can't be
# reached over NVLink or shared memory
# source of what follows: github Lumi-supercomputer/lumi-userguide
# docs/runjobs/scheduled-jobs/lumig-job.md
# --cpu-bind: the cores next to GCD 0, 1, ...: six of each eight, as the system keeps some
srun --nodes=16 --ntasks=128 --ntasks-per-node=8 --cpus-per-task=7 --kill-on-bad-exit=1 \
    --gpu-bind=none \
    --cpu-bind=mask_cpu:7e000000000000,7e00000000000000,7e0000,7e000000,7e,7e00,7e00000000,7e0000000000 \
    jaxbench run --flagfile=flags/quickstart.flags --system=lumi_g --devices=128 \
    --expect_devices=128 --out=results
