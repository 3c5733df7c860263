#!/usr/bin/env bash
# How long the first optimizer step takes, with and without what an earlier process or another machine has left:
# warm.sh FOLDER MODEL…
# `hardware` is on the PATH, built with feature `cuda`. Lines of JSON go to FOLDER/warm.jsonl and to standard output as
# soon as they are known, and what programs print beside them to FOLDER/warm.log. A machine is a folder: caches of kernels
# and tuning, and the driver's own cache of what it compiles of them, so that a new folder is a fresh machine.
# `first_step_s` is the figure; `later_step_s` is what such a step takes anyhow.
#
# CASES chooses among (default: "starts archives"):
#   starts    a plain Burn loop, a cold start, and a second process
#   archives  an archive, made and used
#   damaged   a start and its successor with a cache that was cut, emptied, made read-only, or filled with zeros
#   autotune  cold starts with other settings of CubeCL's autotune
set -uo pipefail
folder=$1; shift
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
machines=$(mktemp -d)
trap 'chmod -R u+w "$machines"; rm -rf "$machines"' EXIT
chmod 755 "$machines"
cd "$machines"
cases=" ${CASES:-starts archives} "
failed=0
say() { printf '%4d s  %s\n' "$SECONDS" "$*" >&2; }
wanted() { [[ $cases == *" $1 "* ]]; }

# Runs `hardware warm` on the machine $1, with the driver's cache of machine $2, and the variables that follow up to --.
# `as` is a command that runs it, and `here` the current folder.
as=() here=$machines
on() {
  local machine=$1 driver=$2; shift 2
  local variables=()
  while [ "$1" != -- ]; do variables+=("$1"); shift; done
  shift
  mkdir -p "$machines/$driver/driver"
  (cd "$here" && env -u GPU_TUNED_MEASURE -u GPU_TUNED_WARM -u GPU_TUNED_WARM_BUNDLE -u CUBECL_ENVIRONMENT \
    -u CUBECL_AUTOTUNE_CACHE XDG_CACHE_HOME="$machines/$machine/cache" CUDA_CACHE_PATH="$machines/$driver/driver" \
    "${variables[@]}" "${as[@]}" timeout 400 hardware warm "$@" 2> >(tee -a "$folder/warm.log" >&2)) |
    tee -a "$folder/warm.jsonl" || failed=1
}

# The newest number of this name in the lines.
last() { grep -o "\"$1\":[0-9]*" "$folder/warm.jsonl" | tail -1 | cut -d: -f2; }

# Two processes on a copy of a warm machine, whose cache was changed by the command that follows the name.
damaged() {
  local model=$1 name=$2 change=$3
  local copy=$model-${name// /-}
  cp -r "$machines/$model-a" "$machines/$copy"
  local database
  database=$(find "$machines/$copy/cache" -name '*.db')
  "$change" "$database"
  on "$copy" "$copy" -- --model "$model" --case "$name"; say "$model $name"
  on "$copy" "$copy" -- --model "$model" --case "$name, second process"; say "$model $name, second process"
}
without_log() { rm -f "$1-wal" "$1-tshm"; }
cut_short() { truncate -s $(($(stat -c %s "$1") * 2 / 3)) "$1"; without_log "$1"; }
empty() { truncate -s 0 "$1"; without_log "$1"; }
zero() { local bytes; bytes=$(stat -c %s "$1"); truncate -s 0 "$1"; truncate -s "$bytes" "$1"; without_log "$1"; }
read_only() { chmod -R a-w "$(dirname "$1")"; }

# Permissions do not restrain root: another user runs the program.
as_another_user() {
  if [ "$(id -u)" = 0 ]; then
    cp -n "$(command -v hardware)" "$machines/hardware"
    chmod 755 "$machines/hardware"
    as=(setpriv --reuid 65534 --regid 65534 --clear-groups env "PATH=$machines:$PATH" "HOME=$machines/nobody")
  fi
}

# A cold start with a `cubecl.toml`.
tuned() {
  local model=$1 name=$2 settings=$3
  local machine=$model-${name// /-}
  here=$machines/settings-$machine
  mkdir -p "$here"
  printf '%b\n' "$settings" > "$here/cubecl.toml"
  on "$machine" "$machine" -- --model "$model" --case "cold, $name"; say "$model cold, $name"
  here=$machines
}

for model in "$@"; do
  a=$model-a b=$model-b c=$model-c maker=$model-maker bundles=$machines/$model-bundles
  if wanted starts || wanted damaged; then
    on "$a" "$a" -- --model "$model" --case cold; say "$model cold"
    on "$a" "$a" -- --model "$model" --case "second process"; say "$model second process"
  fi
  if wanted starts; then
    plain=$model-plain
    on "$plain" "$plain" -- --model "$model" --plain "$(last micro_batch)" --case "plain loop"; say "$model plain loop"
    on "$plain" "$plain" -- --model "$model" --plain "$(last micro_batch)" --case "plain loop, second process"
    say "$model plain loop, second process"
  fi
  if wanted archives; then
    on "$maker" "$maker" GPU_TUNED_WARM="$bundles" GPU_TUNED_WARM_JSON=1 GPU_TUNED_WARM_DRIVER=1 -- --model "$model"
    say "$model bundled"
    bundle=GPU_TUNED_WARM_BUNDLE=$bundles
    on "$b" "$b" "$bundle" -- --model "$model" --case "bundle on a fresh machine"; say "$model on a fresh machine"
    on "$b" "$b" "$bundle" -- --model "$model" --case "second process with a bundle"; say "$model again"
    # What of it is the driver's own compiling: the same where its cache has something already, and so is not filled.
    mkdir -p "$machines/$c/driver/other"
    on "$c" "$c" "$bundle" -- --model "$model" --case "bundle without the driver's part"
    say "$model without the driver's part"
  fi
  if wanted damaged; then
    damaged "$model" "cut to two thirds" cut_short
    damaged "$model" "emptied" empty
    damaged "$model" "zeros" zero
    as_another_user
    damaged "$model" "read-only" read_only
    as=()
  fi
  if wanted autotune; then
    tuned "$model" "1 sample" '[autotune.bench]\nmin_samples = 1'
    tuned "$model" "2 samples" '[autotune.bench]\nmin_samples = 2'
    tuned "$model" "at most 3 samples" '[autotune.bench]\nmax_samples = 3'
    tuned "$model" "speed factor 1.1" '[autotune.bench]\nspeed_factor = 1.1'
    tuned "$model" "minimal level" '[autotune]\nlevel = "minimal"'
  fi
done
exit "$failed"
