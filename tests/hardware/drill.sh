#!/usr/bin/env bash
# Takes memory away from training on a GPU at every moment: drill.sh FOLDER
# `hardware` is on the PATH; DRILLS names the drills to run, REPEATS how often each happens in its process. A drill that
# fails ends none of the others. COLD=0 leaves out the last one, which tunes everything again.
set -uo pipefail
folder=$1
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
say() { printf '%4d s  %s\n' "$SECONDS" "$*" >&2; }

# Runs `hardware` with these arguments, and notes it where that failed.
attempt() {
  timeout 300 hardware "$@" >> "$folder/drill.jsonl" 2>> "$folder/$1-${2:-all}.log"
  local rc=$?
  ((rc == 0)) || printf '{"way":"failed","arguments":"%s","rc":%d}\n' "$*" "$rc" >> "$folder/drill.jsonl"
  say "$* ended with $rc"
}

for drill in ${DRILLS:-forward backward optimizer loader stays goes never}; do
  attempt drill "$drill" --repeats "${REPEATS:-3}"
done

# Without anything tuned beforehand: caches of its own, in an empty folder; then, in a process of its own, what the
# micro-batch does that it came down to.
[ "${COLD:-1}" = 0 ] && exit
cold=$(mktemp -d)
printf '[compilation]\ncache = true\n[environment]\npath = { directory = "%s" }\n' "$cold" > "$cold/cubecl.toml"
(cd "$cold" && attempt drill forward --cold --repeats 1)
size=$(grep '"cold":true' "$folder/drill.jsonl" | tail -n 1 | sed -n 's/.*"micro_batch_after":\([0-9]*\).*/\1/p')
[ -n "$size" ] && attempt drill undisturbed --sizes "$size"
rm -rf "$cold"
