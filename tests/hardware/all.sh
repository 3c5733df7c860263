#!/usr/bin/env bash
# All tests on GPUs, stage by stage: all.sh FOLDER [STAGE…]
# `hardware` is on the PATH; what the stages' scripts ask for besides is in their first lines. A stage that is done is not
# done again: run it anew with the same folder where device time has ended, and the kernels that were tuned are there.
# GPUS (0) are the indices of the GPUs to use, side by side: each takes the next stage that none has taken, and has a cache of
# its own. `ranks` comes last, with all of them, if there are several.
set -uo pipefail
folder=${1:?all.sh FOLDER [STAGE…]}; shift
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
here=$(cd "$(dirname "$0")" && pwd)
read -ra gpus <<< "${GPUS:-0}"
stages=(exact full-f32 warm drill observe)
for model in transformer convnet resnet lstm; do stages+=("$model-f32" "$model-bf16"); done
stages+=(ranks)
[ $# -gt 0 ] && stages=("$@")
say() { printf '%4d s  %s\n' "$SECONDS" "$*" >&2; }

# Each session keeps its own caches; a subcommand without one needs CubeCL to be told.
mkdir -p "$folder/kept"
printf '[compilation]\ncache = true\n[environment]\npath = "global"\n' > "$folder/kept/cubecl.toml"
kept() { (cd "$folder/kept" && "$@"); }
lines() { "${@:2}" > "$folder/$1.jsonl"; }

run() {
  case $1 in
    exact) kept lines exact hardware exact ;;
    full-f32) lines full-f32 hardware exact --full-f32 ;;
    warm) bash "$here/warm.sh" "$folder/warm" transformer ;;
    drill) kept bash "$here/drill.sh" "$folder/drill" ;;
    observe) kept lines observe hardware observe --model transformer ;;
    ranks) kept lines ranks mpirun --bind-to none -np ${#gpus[@]} hardware ranks --global-batch $((256 * ${#gpus[@]})) ;;
    # A folder for each model and precision: a stage that was interrupted begins its lines anew, with the lock that it had.
    *-f32 | *-bf16)
      rm -f "$folder/$1"/*.jsonl
      PRECISIONS=${1#*-} kept bash "$here/prove.sh" "$folder/$1" "${1%-*}" ;;
    *) say "there is no stage $1"; return 2 ;;
  esac
}

# A stage, if it is not done.
stage() {
  local begin=$SECONDS rc
  [ -e "$folder/$1.done" ] && return 0
  run "$1" 2>> "$folder/$1.log"; rc=$?
  [ $rc = 0 ] && touch "$folder/$1.done"
  say "$1 ended with $rc after $((SECONDS - begin)) s"
  return $rc
}

# Stages of one GPU, until none is left.
chain() {
  export CUDA_VISIBLE_DEVICES=$1 XDG_CACHE_HOME=$folder/cache-$1
  local stage failed=0
  for stage in "${stages[@]}"; do
    if [ "$stage" != ranks ] && mkdir "$taken/$stage" 2> /dev/null; then stage "$stage" || failed=1; fi
  done
  return $failed
}

taken=$(mktemp -d)
trap 'rm -rf "$taken"' EXIT
chains=() failed=0
for gpu in "${gpus[@]}"; do chain "$gpu" & chains+=($!); done
for chain in "${chains[@]}"; do wait "$chain" || failed=1; done
if ((${#gpus[@]} > 1)) && [[ " ${stages[*]} " = *" ranks "* ]]; then
  export CUDA_VISIBLE_DEVICES=${GPUS// /,} XDG_CACHE_HOME=$folder/cache-${gpus[0]}
  stage ranks || failed=1
fi
exit $failed
