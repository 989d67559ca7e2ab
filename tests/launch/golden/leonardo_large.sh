#!/bin/bash
# jaxbench on Leonardo Booster (CINECA): 1,024 devices, 256 nodes
# Written by: jaxbench slurm --system=leonardo --flagfile=flags/paper_dp_pp_tp_llama3_70b.flags --devices=1024 --account=my_project --time_limit=2:00:00
#SBATCH --job-name=jaxbench-leonardo
#SBATCH --account=my_project
#SBATCH --partition=boost_usr_prod
#SBATCH --qos=boost_qos_bprod
#SBATCH --nodes=256
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
#SBATCH --time=2:00:00
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
srun --nodes=256 --ntasks=1024 --ntasks-per-node=4 --cpus-per-task=8 --kill-on-bad-exit=1 \
    --gpu-bind=none --cpu-bind=cores jaxbench run \
    --flagfile=flags/paper_dp_pp_tp_llama3_70b.flags --system=leonardo --devices=1024 \
    --expect_devices=1024 --out=results
