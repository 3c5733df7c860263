#!/usr/bin/env bash
# Starts Slurm on this machine for a moment, and ranks under real `srun`: one step, PMI, and two steps of one job beside each other.
# Needs root, Debian's packages slurm-wlm and munge, and the example of gpu-tuned-ranks:
#
#   cargo build -p gpu-tuned-ranks --examples && scripts/try-slurm.sh
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
