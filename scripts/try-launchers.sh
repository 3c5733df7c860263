#!/usr/bin/env bash
# Runs a program under each launcher of docs/launchers.md, on this machine:
#
#   scripts/try-launchers.sh                                    the example of gpu-tuned-ranks
#   scripts/try-launchers.sh target/release/char-lm --steps 20  any program
#
# LAUNCH is the path of cargo-gpu-tuned, RANKS the number of ranks. TORCHRUN, MPIRUN and MPIEXEC may name programs that are not on
# the PATH; without them these launchers are left out. The variables of srun and of two hosts are played.
set -euo pipefail
cd "$(dirname "$0")/.."

launch=${LAUNCH:-target/debug/cargo-gpu-tuned}
ranks=${RANKS:-2}
port=${PORT:-29600}
expected=''
if [ $# = 0 ]; then
  set -- target/debug/examples/hello
  expected="of $ranks, .*: sum $((ranks * (ranks + 1) / 2))\$"
fi
program=("$@")
output=$(mktemp)
trap 'rm -f "$output"' EXIT

# Runs a command, and checks its exit status and the lines of its ranks.
under() {
  local name=$1 status=0
  shift
  printf '== %s\n' "$name"
  timeout "${LIMIT:-300}" "$@" >"$output" 2>&1 || status=$?
  sed 's/^/   /' "$output"
  if [ "$status" != 0 ]; then
    printf '%s: exit status %s\n' "$name" "$status"
    exit 1
  fi
  if [ -n "$expected" ] && [ "$(grep -c "$expected" "$output")" != "$ranks" ]; then
    printf '%s: not %s lines with `%s`\n' "$name" "$ranks" "$expected"
    exit 1
  fi
}

# Starts a process for each rank, with the variables that `variables RANK` prints, and waits for all.
played() {
  local rank process status=0 processes=()
  for ((rank = 0; rank < ranks; rank++)); do
    # shellcheck disable=SC2046
    env $("$1" "$rank") "${program[@]}" &
    processes+=($!)
  done
  for process in "${processes[@]}"; do wait "$process" || status=$?; done
  return $status
}

# The variables of `srun` in a job on two hosts; both are this one.
srun_variables() {
  local node=$(($1 * 2 / ranks))
  echo "SLURM_JOB_ID=$port" SLURM_STEP_ID=0 "SLURM_PROCID=$1" "SLURM_NTASKS=$ranks" "SLURM_LOCALID=$1" SLURM_NNODES=2 \
    "SLURM_NODEID=$node" "SLURM_JOB_NODELIST=localhost,node[2-3]"
}

# The variables of a Kubernetes PyTorchJob with a pod for each GPU.
kubernetes_variables() {
  echo "RANK=$1" "WORLD_SIZE=$ranks" MASTER_ADDR=localhost "MASTER_PORT=$((port + 1))" PET_NNODES="$ranks" \
    "PET_NODE_RANK=$1" GPU_TUNED_SECRET=of-this-test
}

# The variables of an indexed job of Kubernetes, with those of its manifest.
indexed_variables() {
  echo "JOB_COMPLETION_INDEX=$1" "WORLD_SIZE=$ranks" MASTER_ADDR=localhost "MASTER_PORT=$((port + 5))" GPU_TUNED_SECRET=of-this-test
}

# Two agents of torchrun, each with half of the ranks.
two_agents() {
  local agent processes=() status=0
  for agent in 1 2; do
    GPU_TUNED_SECRET=of-this-test "$TORCHRUN" --nnodes 2 --nproc-per-node $((ranks / 2)) --rdzv-backend c10d \
      --rdzv-endpoint "localhost:$((port + 2))" --rdzv-id "try$port" --no-python "${program[@]}" &
    processes+=($!)
  done
  for agent in "${processes[@]}"; do wait "$agent" || status=$?; done
  return $status
}

under 'cargo gpu-tuned launch' "$launch" launch --ranks "$ranks" -- "${program[@]}"
export -f played srun_variables kubernetes_variables indexed_variables two_agents
as_bash=(bash -c 'ranks=$1 port=$2 program=("${@:4}"); eval "$3"' bash "$ranks" "$port")
under 'srun (played)' "${as_bash[@]}" 'played srun_variables' "${program[@]}"
under 'Kubernetes (played)' "${as_bash[@]}" 'played kubernetes_variables' "${program[@]}"
under 'Kubernetes, indexed (played)' "${as_bash[@]}" 'played indexed_variables' "${program[@]}"

if TORCHRUN=${TORCHRUN:-$(command -v torchrun)}; then
  export TORCHRUN
  under 'torchrun' "$TORCHRUN" --standalone --nproc-per-node "$ranks" --no-python "${program[@]}"
  [ $((ranks % 2)) = 1 ] || under 'torchrun, two agents' "${as_bash[@]}" two_agents "${program[@]}"
else
  echo '== torchrun: SKIPPED, because it is not installed (pip install torch)'
fi
if MPIRUN=${MPIRUN:-$(command -v mpirun)}; then
  export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
  under 'mpirun' "$MPIRUN" --oversubscribe -np "$ranks" "${program[@]}"
else
  echo '== mpirun: SKIPPED, because it is not installed (apt-get install openmpi-bin)'
fi
# An unknown launcher: each process would train a copy of the model.
for variables in 'PMI_RANK=0 PMI_SIZE=4' 'PMIX_RANK=0' 'JOB_COMPLETION_INDEX=0'; do
  printf '== refused: %s\n' "$variables"
  # shellcheck disable=SC2086
  if env $variables "${program[@]}"; then
    echo "$variables: not refused"
    exit 1
  fi
done
if MPIEXEC=${MPIEXEC:-$(command -v mpiexec.hydra)}; then
  under 'mpiexec' "$MPIEXEC" -launcher fork -n "$ranks" "${program[@]}"
else
  echo '== mpiexec: SKIPPED, because it is not installed (apt-get install mpich)'
fi
