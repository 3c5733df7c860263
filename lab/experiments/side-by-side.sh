#!/usr/bin/env bash
# A plain Burn loop in f32, this library, and PyTorch on the same GPU, with 64 samples in a step:
#   side-by-side.sh FOLDER [MODEL…]
# `experiments` is on the PATH, and `python3` has PyTorch. Lines are added to FOLDER/side-by-side.jsonl; runs with a result there
# are not repeated. Each model has these runs, in this order:
#   plain          Burn's loop
#   bf16, f32      this library's trainer with kernels of NVIDIA's libraries and CUDA graphs
#   library        the same in f32 without CUDA graphs
#   PyTorch        `peer.py`: TF32, bf16, compiled
#   plain-1, …     Burn's loop with other seeds (SEEDS), for `experiments band`
# SAMPLES (12800) are those of a run, LIMIT (180) are its seconds, LEFT those of all runs; SWEEP has further micro-batches in PyTorch.
# The kernel cache is in the folder CACHES (FOLDER/caches).
set -uo pipefail
folder=${1:?side-by-side.sh FOLDER [MODEL…]}; shift
[ $# -gt 0 ] || set -- transformer gpt vit unet convnet resnet lstm
mkdir -p "$folder/caches"
folder=$(cd "$folder" && pwd)
here=$(cd "$(dirname "$0")" && pwd)
lines=$folder/side-by-side.jsonl
touch "$lines"
export XDG_CACHE_HOME=${CACHES:-$folder/caches}

# Plain loops need CubeCL's caches, too.
printf '[compilation]\ncache = true\n[environment]\npath = "global"\n' > "$folder/caches/cubecl.toml"
cd "$folder/caches" || exit

# Runs a command of so many seconds at most, if the line that starts with $1 has no result yet.
once() {
  local name=$1 end=$((SECONDS + ${LIMIT:-180})); shift
  grep -q "$name.*\"samples_per_second\"" "$lines" && return
  ((end > ${LEFT:-1000000})) && end=$LEFT
  ((end - SECONDS < 10)) && return
  timeout $((end - SECONDS)) "$@" >> "$lines"
  printf '%4d s  %s: %s\n' "$SECONDS" "$name" "$?" >&2
}

for model; do
  case $model in transformer | gpt | vit) rate=3e-4 ;; *) rate=1e-3 ;; esac
  baseline() {
    local way=$1; shift
    once "\"model\":\"$model\",\"way\":\"$way\"" experiments baseline --model "$model" --way "$way" --samples "${SAMPLES:-12800}" --rate $rate "$@"
  }
  baseline plain --plain
  baseline bf16 --library --precision mixed_bf16 --cuda-graphs
  baseline f32 --library --cuda-graphs
  baseline library --library
  once "\"run\":\"peer\",\"model\":\"$model\"" python3 "$here/peer.py" "$model" --batch 64 --sweep "${SWEEP:-}"
  for seed in ${SEEDS-1 2}; do baseline "plain-$seed" --plain --seed "$seed"; done
done
! grep -q '"message"' "$lines"
