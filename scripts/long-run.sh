#!/usr/bin/env bash
# Trains `char-lm` on a GPU beside the monitor and a neighbour that comes and goes, and prints trends:
#
#   scripts/long-run.sh MINUTES FOLDER [OPTION OF char-lm]...
#
# The folder gets the recording, samples of both processes, checkpoints, and `trends.txt`: growth per hour with its standard
# error, without the first quarter of the time, and the speed at both ends. A folder with checkpoints is resumed. The neighbour
# takes all memory but 8 GiB for 50 s, and trains for 50 s, with 50 s between; it is killed each time. Needs `char-lm`,
# `hardware` and `cargo-gpu-tuned` on the PATH, the first two built with feature `cuda`.
set -euo pipefail
if [[ $# -lt 2 ]]; then
  sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "$0"
  exit 2
fi
seconds=$(($1 * 60)) folder=$2
shift 2
mkdir -p "$folder"
cd "$folder"
neighbour_model=(--window 128 --layers 2 --d-model 64)
# Kernels are compiled before the time begins, or its first minutes would differ from the others.
for model in "${neighbour_model[*]}" "$*"; do
  # shellcheck disable=SC2086
  timeout -s KILL 240 char-lm $model --steps 20 >/dev/null 2>&1 || true
done

settings=(--steps 10000000 "$@")
[[ ! -e checkpoints ]] || settings=(--resume)
GPU_TUNED_RECORD=$PWD/run.jsonl char-lm --checkpoint-dir checkpoints --checkpoint-every 2000 "${settings[@]}" >program.log 2>&1 &
program=$!
cargo-gpu-tuned gpu-tuned monitor --plain --pid "$program" --record run.jsonl >monitor.log 2>&1 &
monitor=$! neighbour='' kind=''
trap 'kill -KILL $program $monitor $neighbour 2>/dev/null || true' EXIT

# Resident KiB, threads and open files of a process.
figures() {
  awk '/^VmRSS/ { rss = $2 } /^Threads/ { threads = $2 } END { printf "%d\t%d\t", rss, threads }' "/proc/$1/status"
  find "/proc/$1/fd" -type l | wc -l
}

begin=$SECONDS
while ((SECONDS - begin < seconds)) && kill -0 $program 2>/dev/null; do
  case $(((SECONDS - begin) % 200 / 50)) in
    1) next=holds ;;
    3) next=trains ;;
    *) next='' ;;
  esac
  if [[ $next != "$kind" ]]; then
    [[ -z $neighbour ]] || { kill -KILL "$neighbour" 2>/dev/null && wait "$neighbour" 2>/dev/null; } || true
    neighbour='' kind=$next
    case $kind in
      holds) hardware hold 8192 >>neighbour.log 2>&1 & neighbour=$! ;;
      trains) char-lm "${neighbour_model[@]}" --steps 1000000 >>neighbour.log 2>&1 & neighbour=$! ;;
    esac
  fi
  printf '%d\t%s\t%s\t%s\n' "$(date +%s)" "${kind:-away}" "$(figures $program)" "$(figures $monitor)" >>samples.tsv || true
  sleep 2
done
kill -0 $program 2>/dev/null && echo 'the program ran to the end' || { echo 'the program ended early:'; tail program.log; }
# shellcheck disable=SC2086
kill -KILL $program $neighbour 2>/dev/null || true
wait $program $neighbour 2>/dev/null || true
trap - EXIT
kill -INT $monitor && wait $monitor || true

for table in steps gpus; do
  cargo-gpu-tuned gpu-tuned export run.jsonl --csv=$table -o $table.csv >/dev/null
done
# Growth per hour of each column of figures over the first column, in seconds, by least squares.
trend='
  { rows++; time[rows] = $1; for (i = 2; i <= NF; i++) value[rows, i] = $i; columns = NF }
  END {
    first = int(rows / 4) + 1; n = rows - first + 1
    for (i = 2; i <= columns; i++) {
      sx = sy = sxx = sxy = syy = 0
      for (r = first; r <= rows; r++) { x = (time[r] - time[first]) / 3600; y = value[r, i] - value[first, i]; sx += x; sy += y; sxx += x * x; sxy += x * y; syy += y * y }
      dx = sxx - sx * sx / n; slope = (sxy - sx * sy / n) / dx; rest = (syy - sy * sy / n) - slope * slope * dx
      printf "%-28s from %.1f to %.1f, %+.2f +- %.2f an hour\n", names[i], value[first, i], value[rows, i], slope, sqrt((rest > 0 ? rest : 0) / (n - 2) / dx)
    }
  }'
column() { head -1 "$1" | tr , '\n' | grep -nx "$2" | cut -d: -f1; }
{
  awk -F'\t' -v OFS='\t' '{ print $1, $3 / 1024, $4, $5, $6 / 1024, $7, $8 }' samples.tsv |
    awk -F'\t' 'BEGIN { split("- program_MiB program_threads program_files monitor_MiB monitor_threads monitor_files", names, " ") }'"$trend"
  awk -F, -v r="$(column steps.csv reserved_bytes)" -v u="$(column steps.csv in_use_bytes)" -v OFS='\t' \
    'NR > 1 && $r != "" { print $1, $r / 1048576, $u / 1048576 }' steps.csv |
    awk -F'\t' 'BEGIN { split("- pools_reserved_MiB pools_in_use_MiB", names, " ") }'"$trend"
  # All memory of the GPU counts where the neighbour was away for ten seconds.
  awk -F'\t' '$2 == "away" { away++; if (away > 5) print $1 } $2 != "away" { away = 0 }' samples.tsv >away.txt
  awk -F, -v m="$(column gpus.csv memory_used_bytes)" -v OFS='\t' \
    'FNR == NR { away[$1] = 1; next } FNR > 1 && (int($1) in away) && $m != "" { print $1, $m / 1048576 }' away.txt gpus.csv |
    awk -F'\t' 'BEGIN { split("- gpu_used_MiB", names, " ") }'"$trend"
  awk -F, -v s="$(column steps.csv samples)" '
    NR > 1 { if (!begin) begin = $1; at[NR] = $1; samples[NR] = $s; end = $1 }
    END {
      span = end - begin; part = span < 860 ? span / 3 : span < 1260 ? 400 : 600
      for (r in at) { if (at[r] < begin + 60 + part && at[r] >= begin + 60) a += samples[r]; if (at[r] > end - part) b += samples[r] }
      printf "samples/s of %d s: %.1f after the first minute, %.1f at the end: %+.2f%%\n", part, a / part, b / part, (b / a - 1) * 100
    }' steps.csv
  awk -F, -v s="$(column steps.csv applied)" -v r="$(column steps.csv rescues)" 'NR > 1 { n++; lost += 1 - $s; rescues += $r } END { printf "%d steps, %d not applied, %d rescues\n", n, lost, rescues }' steps.csv
} | tee trends.txt
