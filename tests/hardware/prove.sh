#!/usr/bin/env bash
# Takes the raw data of docs/proof.md on a GPU: prove.sh FOLDER MODEL…
# `hardware` is on the PATH. PRECISIONS, if set, are those to measure, and STAGES what to do of `measure trace confirm sweep
# sweep-more pairs boundary`, so that it can be spread over several runs with one folder: what tells of memory comes first.
# Lines are added to those that FOLDER has: begin with an empty one. BALLAST is what holds memory in place of `hardware hold`:
# a command that leaves so many MiB free on the GPU and writes a file once it holds the rest (`$BALLAST FREE_MIB READY_FILE`).
set -uo pipefail
folder=$1; shift
mkdir -p "$folder"
lock=$folder/gpu-tuned.lock
held_out=24,40,80,160,224,320
failed=0
does() { [[ " ${STAGES:-measure trace confirm sweep sweep-more pairs boundary} " = *" $1 "* ]]; }
say() { printf '%4d s  %s\n' "$SECONDS" "$*" >&2; }

# Steps of the LSTM take a third of a second whatever the batch: small ones would take minutes, and nobody plans them.
swept() { if [ "$1" = lstm ]; then echo --plain --batches 160,224,320,384,448,512; else echo --batches $held_out,64; fi; }

# What `sweep` leaves out of the LSTM: another batch, and checkpointing. Each new batch may take a minute of tuning.
sweep_more() {
  hardware sweep --model "$1" --precision "$2" --lock "$lock" --plain --alone --batches 288 >> "$folder/sweep.jsonl" &&
    hardware sweep --model "$1" --precision "$2" --lock "$lock" --checkpointed --batches 160,224,288,320,384,448,512 \
      >> "$folder/sweep.jsonl"
}

# Micro-batches between the points of the lock: what was reserved, once for all steps, as a training loop has it.
trace() { hardware trace --model "$1" --precision "$2" ${3:+"$3"} --batches $held_out --steps 12 --unwatched >> "$folder/trace.jsonl"; }

# The same steps executed and dry, at a small and a large batch: with one micro-batch, with checkpointing, with gradients of two
# added up, with two batches waiting. Kernels are tuned by what is executed.
pairs() {
  local how dry
  for how in "" "--checkpointing" "--accumulate 2" "--queue 2"; do
    for dry in "" --dry; do
      # shellcheck disable=SC2086 # none, one or two words
      hardware trace --model "$1" --precision "$2" $how $dry --batches 40,320 --steps 12 --unwatched >> "$folder/pairs.jsonl" ||
        return 1
    done
  done
}

# All but $1 MiB is taken, until `release`.
hold() {
  ready=$folder/.ready.$$
  rm -f "$ready"; ${BALLAST:-hardware hold} "$1" "$ready" & holder=$!
  until [ -e "$ready" ]; do
    kill -0 "$holder" 2> /dev/null || { say "the ballast ended before it held all but $1 MiB"; return 1; }
    sleep 0.1
  done
}
release() { kill "$holder"; wait "$holder" 2> /dev/null; rm -f "$ready"; }

# The planned settings of model $1 in precision $2 with $3 MiB free: they run, or the proof is none.
confirm() {
  hold "$3" || exit
  hardware trace --model "$1" --precision "$2" --planned "$lock" --memory-mib "$3" --steps 12 --unwatched |
    sed "s/^{/{\"free_mib\":$3,/; s/\"way\":\"trace\"/\"way\":\"confirmed\"/" >> "$folder/confirmed.jsonl" || failed=1
  release
}

# Free memory with which batch $2 of model $1 just runs, between $3 and $4 MiB.
boundary() {
  local low=$3 high=$4 free ok
  while ((high - low > high / 400)); do
    free=$(((low + high) / 2))
    hold "$free" || exit
    ok=false
    hardware trace --model "$1" --batches "$2" --steps 12 --unwatched 2> /dev/null | grep -q '"loss":[0-9]' && ok=true
    release
    printf '{"model":"%s","precision":"f32","checkpointing":false,"batch":%d,"way":"boundary","free_mib":%d,"ok":%s}\n' \
      "$1" "$2" "$free" "$ok" >> "$folder/boundary.jsonl"
    if $ok; then high=$free; else low=$free; fi
  done
}

for model in "$@"; do
  for precision in ${PRECISIONS:-f32 bf16}; do
    if does measure; then
      GPU_TUNED_MEASURE=1 GPU_TUNED_LOCK=$lock hardware measure --model "$model" --precision "$precision" &&
        say "$model $precision measured" || failed=1
    fi
    if does trace; then
      trace "$model" "$precision" || failed=1
      trace "$model" "$precision" --checkpointing || failed=1
      say "$model $precision traced"
    fi
    if does confirm; then
      confirm "$model" "$precision" 24576; confirm "$model" "$precision" 8192
      say "$model $precision confirmed with 24 and 8 GiB free"
    fi
    if does sweep; then
      # shellcheck disable=SC2046 # several words
      hardware sweep --model "$model" --precision "$precision" --lock "$lock" $(swept "$model") >> "$folder/sweep.jsonl" || failed=1
      say "$model $precision swept"
    fi
    if does sweep-more && [ "$model" = lstm ]; then
      sweep_more "$model" "$precision" || failed=1
      say "$model $precision swept with checkpointing, too"
    fi
    if does pairs; then
      pairs "$model" "$precision" || failed=1
      say "$model $precision traced, executed and dry"
    fi
  done
  if does boundary; then
    case $model in
      transformer) boundary transformer 64 9300 10500 ;;
      convnet) boundary convnet 64 4500 6500 ;;
    esac
  fi
done
exit "$failed"
