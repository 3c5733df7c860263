#!/usr/bin/env bash
# Fuzzes the parsers of files and messages that others may have written, with coverage, by LLVM's libFuzzer on stable Rust.
#
#   scripts/fuzz.sh [--seconds N | --cases N] [--keep FOLDER] [--quick] [TARGET...]
#
# By default every target runs for 60 seconds, as many at a time as there are processors. --keep continues from the inputs in a
# folder and adds the new ones. --quick builds for debugging and without coverage, on top of the workspace's build: the first
# inputs run, then random changes of them. An input that fails is kept in fuzz/artifacts; to repeat it, pass it to the program,
# which is in fuzz/target/x86_64-unknown-linux-gnu/release, or in target/debug after --quick.
set -euo pipefail
cd "$(dirname "$0")/.."

# Targets with the folders of their first inputs.
seeds() {
  case $1 in
    training_config) echo optimize/tests/configs ;;
    sources) echo examples/digits/src examples/char-lm/src ;;
    *) echo "fuzz/seeds/$1" ;;
  esac
}
all=(attribute bench_results config_file lock recording rendezvous saved_plan sources table training_config)

limit=-max_total_time=60 keep=$(mktemp -d) targets=() is_quick=''
while [ $# -gt 0 ]; do
  case $1 in
    --seconds) limit=-max_total_time=$2 && shift ;;
    --cases) limit=-runs=$2 && shift ;;
    --keep) keep=$2 && shift ;;
    --quick) is_quick=1 ;;
    --help) sed -n '2,11s/^#\( \|$\)//p' "$0" && exit ;;
    *) targets+=("$1") ;;
  esac
  shift
done
[ ${#targets[@]} -gt 0 ] || targets=("${all[@]}")

# Coverage of libFuzzer; these flags are stable.
host=x86_64-unknown-linux-gnu
flags='-Cpasses=sancov-module -Ccodegen-units=1 -Cllvm-args=-sanitizer-coverage-level=4'
flags+=' -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table'
build=(cargo build --quiet --locked --manifest-path fuzz/Cargo.toml)
if [ -n "$is_quick" ]; then
  programs=target/debug
  "${build[@]}" --target-dir target
else
  programs=fuzz/target/$host/release
  RUSTFLAGS="$flags --cfg fuzzing" "${build[@]}" --release --target "$host"
fi

# Runs one target, and prints a row of the table.
fuzz() {
  local target=$1 begin=$SECONDS status=0 log
  log=$(mktemp)
  mkdir -p "$keep/$target" fuzz/artifacts
  # shellcheck disable=SC2046
  "$programs/$target" "$limit" -max_len=8192 -timeout=20 -rss_limit_mb=4096 -print_final_stats=1 \
    "-artifact_prefix=fuzz/artifacts/$target-" "$keep/$target" $(seeds "$target") >"$log" 2>&1 || status=$?
  cases=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
  coverage=$(sed -n 's/.* cov: \([0-9]*\) .*/\1/p' "$log" | tail -n 1)
  printf '%-16s %11s cases %6s s %7s edges  %s\n' "$target" "${cases:-?}" $((SECONDS - begin)) "${coverage:-?}" \
    "$([ $status = 0 ] && echo ok || echo FAILED)"
  [ $status = 0 ] || { grep -v '^#' "$log" | tail -n 40 && return 1; }
}
export -f fuzz seeds
export keep limit programs
printf '%s\0' "${targets[@]}" | xargs -0 -n 1 -P "$(nproc)" bash -c 'set -euo pipefail; fuzz "$1"' fuzz
