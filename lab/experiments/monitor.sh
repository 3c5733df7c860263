#!/usr/bin/env bash
# What it costs a training run to be watched: monitor.sh FOLDER [MODEL]
# `experiments`, `cargo-gpu-tuned` and the example `sample_cost` of this package are on the PATH, built in release mode. The model trains
# alone and watched, in turns, ROUNDS times, each in a process of its own; lines of JSON go to FOLDER/monitor.jsonl, those of
# `experiments overhead` with `watched` before them. INTERVAL is the time between looks. The first round fills caches of kernels
# and is marked.
set -uo pipefail
folder=$1; model=${2:-transformer}
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
interval=${INTERVAL:-1s}
failed=0

sample_cost 100 100 | tee "$folder/sample_cost.txt"

# Trains once, watched or not, and notes the lines that come of it.
train() {
  local round=$1 watched=$2 lines
  lines=$(mktemp)
  experiments overhead --model "$model" --accumulate 1 --repeats "${REPEATS:-9}" > "$lines" 2>> "$folder/overhead.log" &
  local training=$! monitor=
  if [ "$watched" = true ]; then
    cargo-gpu-tuned monitor --pid "$training" --interval "$interval" --record "$folder/watched-$round.jsonl" --plain \
      > "$folder/monitor-$round.log" 2>&1 &
    monitor=$!
  fi
  wait "$training" || failed=1
  # It ends with the program that it watches.
  [ -z "$monitor" ] || wait "$monitor" || failed=1
  sed "s/^{/{\"round\":$round,\"watched\":$watched,\"interval\":\"$interval\",/" "$lines" | tee -a "$folder/monitor.jsonl"
  rm -f "$lines"
}

for round in $(seq 0 "${ROUNDS:-5}"); do
  train "$round" false
  train "$round" true
done
exit "$failed"
