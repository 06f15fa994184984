#!/usr/bin/env bash
#SBATCH --job-name=jaxpar-train
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1     # one process on each node, which takes all GPUs of the node
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=16
#SBATCH --time=24:00:00
#SBATCH --signal=TERM@120       # two minutes before the time is over, the processes get SIGTERM
#SBATCH --requeue               # Slurm queues the job again when it preempts it, or a node fails
#SBATCH --open-mode=append      # one log, however often the job was queued
# Trains on the nodes of a Slurm job, and goes on in a later job where this one had to end.
#
#   sbatch slurm_train.sh /shared/run1 --mesh fsdp=16 --steps 20000 --every 200
#
# The folder is on a file system that all nodes share. All options after it go to jaxpar train, which finds the other
# processes by what srun sets. On SIGTERM it saves and ends with 143; a process that is stuck ends with 75.
set -uo pipefail
checkpoints=$1
shift

newest() { # the newest checkpoint that was completed; none prints nothing
    compgen -G "$checkpoints/step-*/manifest.json" | sort | tail -n 1
}

before=$(newest)
srun --kill-on-bad-exit=1 "${JAXPAR:-jaxpar}" train "$@" --checkpoint "$checkpoints" --watchdog 600 \
    ${before:+--resume}
code=$?
if ((code == 0 || code == 2)); then # done, or options that no further attempt will make right
    exit "$code"
fi
if [[ $(newest) == "$before" ]]; then
    echo "The job ended with $code and has saved nothing new; it is not queued again." >&2
    exit "$code"
fi
scontrol requeue "$SLURM_JOB_ID"
