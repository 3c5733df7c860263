#!/usr/bin/env bash
# Starts Slurm on this machine for a moment, and ranks under real `srun`: one step, PMI, and two steps of one job beside each other.
# Needs root, Debian's packages slurm-wlm and munge, and the example of gpu-tuned-ranks:
#
#   cargo build -p gpu-tuned-ranks --examples && scripts/try-slurm.sh
#
# With `char-lm` as a second program, a job of it gets SIGUSR1 before its time limit, is queued again, and ends as one that was not
# interrupted, in about three minutes on two cores:
#
#   cargo build -p char-lm && scripts/try-slurm.sh target/debug/examples/hello target/debug/char-lm
set -euo pipefail
cd "$(dirname "$0")/.."

program=$(realpath "${1:-target/debug/examples/hello}")
for command in slurmctld slurmd munged; do
  if [ "$(id -u)" != 0 ] || ! PATH=$PATH:/usr/sbin command -v "$command" >/dev/null; then
    echo "Slurm: SKIPPED, because it needs root and $command (apt-get install slurm-wlm munge)"
    exit
  fi
done
PATH=$PATH:/usr/sbin
folder=$(mktemp -d)
export SLURM_CONF=$folder/slurm.conf
clean() {
  for daemon in slurmd slurmctld munged; do
    [ ! -f "$folder/$daemon.pid" ] || kill "$(cat "$folder/$daemon.pid")" || true
  done
  # Its daemons write there until they have ended.
  sleep 2
  rm -rf "$folder"
}
trap clean EXIT
chmod 755 "$folder"

if ! munge -n </dev/null >/dev/null 2>&1; then
  mkdir -p /run/munge
  chown munge /run/munge
  install -d -o munge "$folder/munge"
  runuser -u munge -- munged --pid-file "$folder/munge/pid" --log-file "$folder/munge/log"
  ln -s munge/pid "$folder/munged.pid"
fi
cat >"$SLURM_CONF" <<END
ClusterName=try
SlurmctldHost=localhost
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/spool
SlurmctldPidFile=$folder/slurmctld.pid
SlurmdPidFile=$folder/slurmd.pid
SlurmctldLogFile=$folder/slurmctld.log
SlurmdLogFile=$folder/slurmd.log
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmctldPort=26817
SlurmdPort=26818
NodeName=localhost CPUs=$(nproc) State=UNKNOWN
PartitionName=all Nodes=localhost Default=YES State=UP
END
mkdir "$folder/state" "$folder/spool"
slurmctld
slurmd -N localhost

# Runs a command, and checks that so many ranks of two have met.
meet() {
  local name=$1 count=$2
  shift 2
  printf '== %s\n' "$name"
  timeout 120 "$@" >"$folder/output" 2>&1 || { cat "$folder/output" && exit 1; }
  sed 's/^/   /' "$folder/output"
  if [ "$(grep -c 'of 2, .*, by srun: sum 3$' "$folder/output")" != "$count" ]; then
    printf '%s: not %s ranks of two\n' "$name" "$count"
    exit 1
  fi
}

cat >"$folder/job" <<END
#!/bin/bash
srun --overlap -n 2 $program & srun --overlap -n 2 $program & wait
# No rank, but a program on its own.
$program
END
meet 'srun' 2 srun -n 2 "$program"
meet 'srun with PMI' 2 srun --mpi=pmi2 -n 2 "$program"
meet 'two steps of one job' 4 bash -c "sbatch -W -n 2 -o $folder/job.out $folder/job && cat $folder/job.out"
grep 'no launcher started this process' "$folder/output"

[ $# -gt 1 ] || exit 0
echo '== preemption'
trains="$(realpath "$2") --cpu --json --steps ${STEPS:-160}"
# The job of docs/launchers.md, without GPUs and with a shorter notice.
awk '/^## / { is_slurm = $2 == "Slurm" } is_slurm && /^```/ { if (is_job) exit; is_job = 1; next } is_job' docs/launchers.md |
  sed -E "/--nodes|--gpus|--ntasks/d; s/USR1@[0-9]+/USR1@40/; s|--cpus-per-task=12|--cpus-per-task=1|
    s|^failures=|&$folder/|; s|target/release/train|$trains --checkpoint-dir $folder/run --resume|
    s|^code=.*|&; echo \"start \${SLURM_RESTART_COUNT:-0} ends with \$code\"|" >"$folder/preempted"
job=$(sbatch --parsable -n 2 --time=1 -o "$folder/preempted.out" "$folder/preempted")
while state=$(squeue -h -j "$job" -o %r 2>/dev/null) && [ -n "$state" ]; do
  # Slurm waits two minutes before it starts a job again.
  [ "$state" != BeginTime ] || scontrol update "JobId=$job" StartTime=now || true
  sleep 1
done
grep -aE 'ends with|resuming' "$folder/preempted.out" | sed 's/^/   /'
# The plan depends on the processors: other micro-batches would round otherwise.
srun -n 2 --cpus-per-task=1 $trains >"$folder/whole" 2>/dev/null
perplexity() { grep -ao '"perplexity":[0-9.]*' "$1" | tail -1; }
if ! grep -aq 'ends with 99' "$folder/preempted.out" || [ "$(perplexity "$folder/preempted.out")" != "$(perplexity "$folder/whole")" ]; then
  echo "preemption: $(perplexity "$folder/preempted.out"), without $(perplexity "$folder/whole")"
  exit 1
fi
