#!/bin/bash
# jaxbench on LUMI-G (CSC): 64 devices, 8 nodes
# Written by: jaxbench slurm --system=lumi_g --strategy=dp --model=tiny --devices=64 '--buckets=1|8' --array
#SBATCH --job-name=jaxbench-lumi_g
#SBATCH --account=FILL_IN_ACCOUNT
#SBATCH --partition=standard-g
#SBATCH --nodes=8
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
#SBATCH --array=0-1
#SBATCH --output=jaxbench-%A_%a.out

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
step() { # number of devices, then the flags of one run
    local devices=$1 nodes=$(($1 / 8))
    shift
    srun --nodes="$nodes" --ntasks="$devices" --ntasks-per-node=8 --cpus-per-task=7 \
        --kill-on-bad-exit=1 --gpu-bind=none \
        --cpu-bind=mask_cpu:7e000000000000,7e00000000000000,7e0000,7e000000,7e,7e00,7e00000000,7e0000000000 \
        jaxbench run "$@"
}

# every task has a folder of its own: not all shared file systems lock files
out=results/"$SLURM_ARRAY_TASK_ID"
case "$SLURM_ARRAY_TASK_ID" in
    0) step 64 --buckets=8 --devices=64 --model=tiny --strategy=dp --system=lumi_g --out="$out" ;;
    1) step 64 --buckets=1 --devices=64 --model=tiny --strategy=dp --system=lumi_g --out="$out" ;;
    *)
        echo "there is no task $SLURM_ARRAY_TASK_ID" >&2
        exit 2
        ;;
esac
