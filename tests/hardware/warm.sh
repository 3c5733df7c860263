#!/usr/bin/env bash
# How long the first optimizer step takes, with and without what an earlier process or another machine has left:
# warm.sh FOLDER MODEL…
# `hardware` is on the PATH, built with feature `cuda`. Lines of JSON go to FOLDER/warm.jsonl and to standard output as
# soon as they are known. A machine is a folder: caches of kernels and tuning, and the driver's own cache of what it
# compiles of them, so that a new folder is a fresh machine. `first_step_s` is the figure; `later_step_s` is what such a
# step takes anyhow.
set -uo pipefail
folder=$1; shift
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
machines=$(mktemp -d)
trap 'rm -rf "$machines"' EXIT
cd "$machines"
failed=0
say() { printf '%4d s  %s\n' "$SECONDS" "$*" >&2; }

# Runs `hardware warm` on the machine $1, with the driver's cache of machine $2, and the variables that follow up to --.
on() {
  local machine=$1 driver=$2; shift 2
  local variables=()
  while [ "$1" != -- ]; do variables+=("$1"); shift; done
  shift
  mkdir -p "$machines/$driver/driver"
  env -u GPU_TUNED_MEASURE -u GPU_TUNED_WARM -u GPU_TUNED_WARM_BUNDLE -u CUBECL_ENVIRONMENT -u CUBECL_AUTOTUNE_CACHE \
    XDG_CACHE_HOME="$machines/$machine/cache" CUDA_CACHE_PATH="$machines/$driver/driver" "${variables[@]}" \
    timeout 400 hardware warm "$@" | tee -a "$folder/warm.jsonl" || failed=1
}

for model in "$@"; do
  a=$model-a b=$model-b c=$model-c maker=$model-maker bundles=$machines/$model-bundles
  on "$a" "$a" -- --model "$model" --case cold; say "$model cold"
  on "$a" "$a" -- --model "$model" --case "second process"; say "$model second process"
  on "$maker" "$maker" GPU_TUNED_WARM="$bundles" GPU_TUNED_WARM_JSON=1 GPU_TUNED_WARM_DRIVER=1 -- --model "$model"; say "$model bundled"
  bundle=GPU_TUNED_WARM_BUNDLE=$bundles
  on "$b" "$b" "$bundle" -- --model "$model" --case "bundle on a fresh machine"; say "$model on a fresh machine"
  on "$b" "$b" "$bundle" -- --model "$model" --case "second process with a bundle"; say "$model again"
  # What of it is the driver's own compiling: the same where its cache has something already, and so is not filled.
  mkdir -p "$machines/$c/driver/other"
  on "$c" "$c" "$bundle" -- --model "$model" --case "bundle without the driver's part"
  say "$model without the driver's part"
done
exit "$failed"
