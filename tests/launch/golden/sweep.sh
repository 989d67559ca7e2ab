#!/bin/bash
# jaxbench on Leonardo Booster (CINECA): 128 devices, 32 nodes
# Written by: jaxbench slurm --system=leonardo --flagfile=flags/tiny_dp.flags '--devices=64|128' --repetitions=2 --account=me --out=/scratch/me/results
#SBATCH --job-name=jaxbench-leonardo
#SBATCH --account=me
#SBATCH --partition=boost_usr_prod
#SBATCH --nodes=32
# one process per device
#SBATCH --ntasks-per-node=4
#SBATCH --cpus-per-task=8
# source of what follows: github HicrestLaboratory/Blink-GPU sbatch/leonardo
# all GPUs of each node
#SBATCH --gres=gpu:4
# source of what follows: sbatch(1), srun(1)
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
# fail without InfiniBand: NCCL alone would go on with slow TCP
export NCCL_NET=IB
# say why, where communication fails
export NCCL_DEBUG=WARN

# source of what follows: sbatch(1), srun(1)
# --kill-on-bad-exit: a process that fails ends its run: the others would wait for it
# source of what follows: unverified
# --gpu-bind: each process sees all GPUs of its node and takes its own: hidden ones can't be
# reached over NVLink or shared memory
# source of what follows: sbatch(1), srun(1)
# --cpu-bind: a process stays on its cores
step() { # number of devices, then the flags of one run
    local devices=$1 nodes=$(($1 / 4))
    shift
    srun --nodes="$nodes" --ntasks="$devices" --ntasks-per-node=4 --cpus-per-task=8 \
        --kill-on-bad-exit=1 --gpu-bind=none --cpu-bind=cores jaxbench run "$@"
}

failed=0
try() { # a run that fails costs itself only, unless the job is being ended
    local code=0
    step "$@" || code=$?
    if [ "$code" = 143 ]; then
        echo "terminated: the runs that are left are not started" >&2
        exit 143
    fi
    if [ "$code" != 0 ]; then
        failed=$((failed + 1))
    fi
}

out=/scratch/me/results
try 128 --backward_s=0.040 --batch=16 --buckets=4 --devices=128 --dtype=float32 --forward_s=0.020 --model=tiny --strategy=dp --system=leonardo --out="$out"
try 64 --backward_s=0.040 --batch=16 --buckets=4 --devices=64 --dtype=float32 --forward_s=0.020 --model=tiny --strategy=dp --system=leonardo --out="$out"
try 64 --backward_s=0.040 --batch=16 --buckets=4 --devices=64 --dtype=float32 --forward_s=0.020 --model=tiny --strategy=dp --system=leonardo --out="$out"
try 128 --backward_s=0.040 --batch=16 --buckets=4 --devices=128 --dtype=float32 --forward_s=0.020 --model=tiny --strategy=dp --system=leonardo --out="$out"
echo "$failed of 4 runs failed"
[ "$failed" = 0 ]
