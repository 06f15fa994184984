#!/usr/bin/env bash
#SBATCH --job-name=jaxpar-grade
#SBATCH --cpus-per-task=2
#SBATCH --mem=8G
#SBATCH --time=02:00:00
# Grades one student for each task of a Slurm array; every option after the secret goes to jaxpar grade. A roster
# belongs to the second command: a task knows one student.
#
#   sbatch --array=1-"$(find submissions -mindepth 1 -maxdepth 1 ! -name '.*' | wc -l)" slurm_array.sh \
#       submissions results course.secret --exercises scatter gather
#   jaxpar grade --merge results/* --out class --roster roster.csv      # when all have ended
#
# Each item of the folder of submissions is one student's: a folder or a zip file. A task ends with 1 where the machine
# failed to judge something; submit the array again, and only that is judged.
# A task that was killed goes on where it stopped when the same array is submitted again.
set -euo pipefail
submissions=$1 results=$2 secret=$3
shift 3
mapfile -d '' -t students < <(
    find "$submissions" -mindepth 1 -maxdepth 1 ! -name '.*' -printf '%f\0' | LC_ALL=C sort -z
)
student=${students[SLURM_ARRAY_TASK_ID - 1]}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp -R --no-dereference "$submissions/$student" "$work/"
"${JAXPAR:-jaxpar}" grade "$work" --out "$results/$student" --secret-file "$secret" \
    --jobs "${SLURM_CPUS_PER_TASK:-1}" "$@"
