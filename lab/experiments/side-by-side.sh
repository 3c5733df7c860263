#!/usr/bin/env bash
# A plain Burn loop in f32 with batches of 64, this library, and PyTorch on the same GPU:
#   side-by-side.sh FOLDER [MODEL[:MICRO_BATCH[:PRECISION[:KERNELS]]]…]
# `experiments` is on the PATH, and `python3` has PyTorch. MICRO_BATCH, PRECISION and KERNELS, burn or library, are those of the
# plan. Lines are added to FOLDER/side-by-side.jsonl; runs with a result there are not repeated. The order is: plain, planned, PyTorch, then each
# setting alone. A step has 64 samples. With a larger micro-batch it has that many, and the learning rate grows by the
# square root of the ratio. SAMPLES (12800) are those of a run, LIMIT (180) are its seconds, SWEEP (256,512) are further
# micro-batches in PyTorch. GPUS (0) are the indices of the GPUs; each takes the next model and has a kernel cache of its own, in
# the folder CACHES (FOLDER).
set -uo pipefail
folder=${1:?side-by-side.sh FOLDER [MODEL[:MICRO_BATCH[:PRECISION[:KERNELS]]]…]}; shift
[ $# -gt 0 ] || set -- transformer:64:mixed_bf16 convnet:32:mixed_bf16 resnet:64:f32 lstm:64:f32
mkdir -p "$folder/caches"
folder=$(cd "$folder" && pwd)
here=$(cd "$(dirname "$0")" && pwd)
lines=$folder/side-by-side.jsonl
touch "$lines"
batch=64
read -ra gpus <<< "${GPUS:-0}"
say() { printf '%4d s  %s\n' "$SECONDS" "$*" >&2; }

# Plain loops need CubeCL's caches, too.
printf '[compilation]\ncache = true\n[environment]\npath = "global"\n' > "$folder/caches/cubecl.toml"
cd "$folder/caches" || exit

# A run of model $1 with name $2, if it has no result yet.
baseline() {
  local model=$1 way=$2; shift 2
  grep -q "\"run\":\"baseline\",\"model\":\"$model\",\"way\":\"$way\",.*\"samples_per_second\"" "$lines" && return
  timeout "${LIMIT:-180}" experiments baseline --model "$model" --way "$way" --samples "${SAMPLES:-12800}" "$@" >> "$lines"
  say "$model $way ended with $?"
}

# All runs of a model.
model() {
  local model micro precision kernels rate step scaled library=()
  IFS=: read -r model micro precision kernels <<< "$1"
  micro=${micro:-$batch} precision=${precision:-f32} kernels=${kernels:-burn}
  [ "$kernels" = library ] && library=(--library)
  case $model in transformer | gpt | vit) rate=3e-4 ;; *) rate=1e-3 ;; esac
  step=$((micro > batch ? micro : batch))
  scaled=$(awk "BEGIN { print $rate * sqrt($step / $batch) }")
  local split=(--batch "$step" --micro-batch "$micro" --rate "$scaled") whole=(--batch "$batch" --rate "$rate")
  baseline "$model" plain --plain "${whole[@]}"
  baseline "$model" planned "${split[@]}" --precision "$precision" "${library[@]}" --cuda-graphs
  if ! grep -q "\"run\":\"peer\",\"model\":\"$model\"," "$lines"; then
    timeout "${LIMIT:-180}" python3 "$here/peer.py" "$model" --batch "$batch" --sweep "$step,${SWEEP:-256,512}" >> "$lines"
    say "$model in PyTorch ended with $?"
  fi
  # A plan that changes one setting only is the run of this setting, too.
  [ "$kernels" = burn ] || baseline "$model" library "${whole[@]}" --library
  [ "$micro:$precision:$kernels" = "$batch:f32:burn" ] || baseline "$model" graphs "${whole[@]}" --cuda-graphs
  [ "$precision" = f32 ] || baseline "$model" precision "${whole[@]}" --precision "$precision"
  [ "$micro" = "$batch" ] || baseline "$model" batch "${split[@]}"
}

# Models of one GPU, until none is left.
chain() {
  export CUDA_VISIBLE_DEVICES=$1 XDG_CACHE_HOME=${CACHES:-$folder}/cache-$1
  shift
  local wanted
  for wanted in "$@"; do
    if mkdir "$taken/$wanted" 2> /dev/null; then model "$wanted"; fi
  done
}

taken=$(mktemp -d)
trap 'rm -rf "$taken"' EXIT
chains=()
for gpu in "${gpus[@]}"; do chain "$gpu" "$@" & chains+=($!); done
wait "${chains[@]}"
! grep -q '"message"' "$lines"
