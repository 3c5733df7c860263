#!/usr/bin/env bash
# Time to measure models with empty caches: measure.sh FOLDER MODEL…
# `hardware` is on the PATH, built with feature `cuda`. Each model has caches of its own, of kernels and of the driver. It is
# measured in each of PRECISIONS (f32), in one process after the other, as `cargo gpu-tuned measure` does. SET has other
# settings, such as `kernels=library`. Lines of JSON go to FOLDER/measure.jsonl and to standard output, the output of the program to
# FOLDER/measure.log, and the measurements to FOLDER/measure.lock. BUDGET is that of
# `cargo gpu-tuned measure --budget`, in seconds.
#
# `usable_s` are the seconds until two sizes of the first mode had memory and time, `done_s` those of the last try, both
# from the first try; `process_s` are all of the process. `tries` has a mode and micro-batch for each try that was timed, and
# `sizes` is the number of those in the first mode.
set -uo pipefail
folder=$1; shift
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
caches=$(mktemp -d)
trap 'rm -rf "$caches"' EXIT
failed=0
for model in "$@"; do
  for precision in ${PRECISIONS:-f32}; do
    output=$caches/$model-$precision.log
    mkdir -p "$caches/$model/driver"
    begin=$EPOCHREALTIME
    env ${BUDGET:+GPU_TUNED_MEASURE_BUDGET="$BUDGET"} GPU_TUNED_MEASURE=1 GPU_TUNED_LOCK="$folder/measure.lock" \
      GPU_TUNED_SET="precision=$precision${SET:+,$SET}" \
      XDG_CACHE_HOME="$caches/$model/cache" CUDA_CACHE_PATH="$caches/$model/driver" \
      timeout "${LIMIT:-500}" hardware measure --model "$model" 2>&1 | tee "$output" >&2 || failed=1
    process=$(awk -v a="$begin" -v b="$EPOCHREALTIME" 'BEGIN { printf "%.1f", b - a }')
    { echo "== $model $precision"; cat "$output"; } >> "$folder/measure.log"
    # Lines such as `  34 s of 120 s; f32, batch 64: 4.6 GiB reserved, micro-step 76.400 ms`.
    awk -v model="$model" -v precision="$precision" -v set="${SET:-}" -v process="$process" '
      / s of [0-9]+ s; .*, batch [0-9]+: / {
        last = $1
        if (!/micro-step/) next
        mode = $6; batch = $8; gsub(/[,:]/, "", mode); gsub(/:/, "", batch)
        if (first == "") first = mode
        tries = tries (tries == "" ? "" : ", ") "[\"" mode "\", " batch "]"
        if (mode == first && ++timed == 2) usable = $1
      }
      END {
        printf "{\"run\":\"measure\",\"model\":\"%s\",\"precision\":\"%s\",\"set\":\"%s\",", model, precision, set
        printf "\"sizes\":%d,\"usable_s\":%s,\"done_s\":%s,", timed, usable == "" ? "null" : usable, last == "" ? "null" : last
        printf "\"process_s\":%s,\"tries\":[%s]}\n", process, tries
      }' "$output" | tee -a "$folder/measure.jsonl"
  done
done
exit "$failed"
