#!/usr/bin/env bash
# Five runs that are bad on purpose, what `diagnose` says of each, and what mending it brings: bad.sh FOLDER [CASE…]
# `guides` and `cargo-gpu-tuned` are on the PATH, built in release mode. For each case FOLDER/CASE.json is the diagnosis of the
# bad run. Where settings mend it, that has a run with them as well; where the program or the machine has to change,
# FOLDER/CASE-mended.json has the predictions beside the run after that. BALLAST is a command that leaves so many MiB free on
# the GPU and writes a file once it holds the rest (`$BALLAST FREE_MIB READY_FILE`), such as `hardware hold`; without it the last
# case is left out.
set -uo pipefail
folder=$1; shift
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
say() { printf '%4d s  %s\n' "$SECONDS" "$*" >&2; }

# What is named first.
first() { sed -n 's/.*"kind": "\(.*\)".*/\1/p' "$1" | head -n 1; }
# What is trained.
patches() { guides=(guides patches "$@"); }
diagnose() { local name=$1; shift; cargo-gpu-tuned diagnose --json "$@" -- "${guides[@]}" > "$folder/$name.json" 2> "$folder/$name.log"; say "$name: $? $(first "$folder/$name.json")"; }
bad() { diagnose "$1" --record "$folder/$1.jsonl" "${@:2}"; }
mended() { diagnose "$1-mended" --before "$folder/$1.jsonl"; }

tiny_batch() { patches --global-batch 64 --batch-size 1 --steps "${STEPS:-60}"; bad tiny_batch --try --try-for 60s; }
no_workers() { patches --global-batch 64 --num-workers 0 --host-ms 5 --steps "${STEPS:-60}"; bad no_workers --try --try-for 60s; }
sync() {
  local run=(--global-batch 64 --steps "${STEPS:-80}")
  patches "${run[@]}" --sync; bad sync
  patches "${run[@]}"; mended sync
}
leak() {
  patches --global-batch 256 --leak --steps "${STEPS:-60}"; bad leak
  # Until memory is out: the program fails then, as it should.
  patches --global-batch 256 --leak --steps "${UNTIL:-1000}"; mended leak
}
neighbour() {
  local holder ready=$folder/.ready
  rm -f "$ready"; $BALLAST "${LEFT_MIB:-1300}" "$ready" & holder=$!
  until [ -e "$ready" ]; do kill -0 "$holder" || return 1; sleep 0.1; done
  patches --global-batch 256 --steps "${STEPS:-60}"; bad neighbour
  kill "$holder"; wait "$holder" 2> /dev/null; rm -f "$ready"
  mended neighbour
}

[ $# -gt 0 ] || set -- tiny_batch no_workers sync leak ${BALLAST:+neighbour}
for case in "$@"; do rm -f "$folder/$case.jsonl"; "$case"; done
