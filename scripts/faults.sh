#!/usr/bin/env bash
# Injects faults into the system calls of commands and of a program that trains, and checks every file afterwards:
#
#   scripts/faults.sh                  all cases
#   scripts/faults.sh report lock      some cases
#
# Each case runs once without faults. Then it runs again for each system call on its own files and on /proc and /sys: once for
# each error in `errors` below, and once with SIGKILL at the begin of the call. A run passes if
#
#   - each file is the old one or the new one, whole; a streamed file (recording, events, results of bench) has what was
#     written until then;
#   - exit code 0 comes with all new files, or with a message about the missing ones;
#   - any other exit code comes with a message, without a panic, without temporary files, and with all old or all new files,
#     or with the names of the files that differ;
#   - after SIGKILL, the command without faults makes the new files and leaves no temporary ones.
#
# The table has the number of runs and their outcomes. The exit code is 1 if a run fails. No GPU is needed. Needs strace, and
# `cargo build -p cargo-gpu-tuned; cargo build -p faults-tests`. LIMIT (40) is the number of occurrences of a system call that
# get faults, evenly spaced; RUN_SECONDS (60) is the time after which a run counts as hanging.
set -euo pipefail
if [[ ${1:-} == -h || ${1:-} == --help ]]; then
  sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "$0"
  exit
fi
cd "$(dirname "$0")/.."
export tuned=$PWD/target/debug/cargo-gpu-tuned writes=$PWD/target/debug/writes-files fixtures=$PWD/cli/tests/fixtures root=$PWD
command -v strace >/dev/null || { echo 'strace is missing: install it, such as by `apt-get install strace`' >&2; exit 2; }
[[ -x $tuned && -x $writes ]] || { echo 'not built: run `cargo build -p cargo-gpu-tuned` and `cargo build -p faults-tests`' >&2; exit 2; }

errors() {
  case $1 in
    openat) echo EACCES ENOSPC EIO EROFS EMFILE ;;
    read | readv | pread64) echo EIO EINTR ;;
    write | writev | pwrite64 | ftruncate | copy_file_range | fsync | fdatasync) echo ENOSPC EIO EINTR ;;
    rename* | link* | mkdir* | unlink* | rmdir | chmod | fchmod*) echo ENOSPC EIO EROFS ;;
    flock) echo ENOLCK EINTR ENOSYS ;;
    mmap) echo ENOMEM ;;
    *) echo EIO EACCES ;;
  esac
}
calls=openat,read,readv,pread64,write,writev,pwrite64,ftruncate,copy_file_range,fsync,fdatasync,rename,renameat,renameat2,link
calls+=,linkat,mkdir,mkdirat,unlink,unlinkat,rmdir,chmod,fchmod,fchmodat,flock,mmap,statx,getdents64

# Prints `+` for errors that last: all later calls fail, too. Errors of writes would keep messages away.
is_lasting() { [[ $1 == EIO || $1 == EINTR || $2 == write* || $2 == pwrite* ]] || echo +; }

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
box=$scratch/box
# Faults must damage nothing else: programs get homes of their own, and cargo itself in place of rustup, which rewrites its
# settings when it cannot read them.
cargo=$(rustup which cargo 2>/dev/null || command -v cargo)
export PATH=${cargo%/*}:/usr/bin:/bin HOME=$scratch/home CARGO_HOME=$scratch/cargo RUSTUP_HOME=$scratch/rustup TMPDIR=$box/tmp
export CARGO_TARGET_DIR=$scratch/target CARGO_NET_OFFLINE=true RUST_BACKTRACE=0
export GPU_TUNED_NVML_PATH=/nonexistent/libnvidia-ml.so.1
unset XDG_CACHE_HOME XDG_CONFIG_HOME XDG_DATA_HOME CARGO RUSTUP_TOOLCHAIN
mkdir "$HOME"
exec 3>&1

# Digest and name of each file below a folder. Binary files that differ between runs count by their size: events, optimizers.
state() {
  local file
  (cd "$1" && find . -type f ! -name '*tfevents*' ! -name optimizer.bpk -print0 | if [ -n "$figures" ]; then
    while read -rd '' file; do echo "$(LC_ALL=C sed -E 's/[0-9.]+/N/g' "$file" | md5sum | cut -c-32)  $file"; done
  else xargs -0r md5sum; fi
  find . -name '*tfevents*' -printf '%s  %h/tfevents\n' -o -name optimizer.bpk -printf '%s  %p\n')
}

# Runs the case in the box, under strace with the given options. Sets `code`.
run_case() {
  code=0
  (
    cd "$box/package"
    timeout -k 5 "${RUN_SECONDS:-60}" nice strace -f "$@" bash -c "exec $run"
    exit $?
  ) >"$scratch/out" 2>"$scratch/err" </dev/null || code=$?
}

restore() { rm -rf "$box" && cp -a "$scratch/template" "$box"; }

# Names the files that are new (`N`), old (`O`), temporary (`T`) or torn (`X`), in that form.
compare() {
  state "$box" >"$scratch/now"
  awk '{ name = substr($0, index($0, "  ") + 2) } FILENAME ~ /old$/ { old[name] = $1; all[name] } FILENAME ~ /new$/ { new[name] = $1; all[name] }
    FILENAME ~ /now$/ { now[name] = $1; all[name] }
    END { for (name in all) {
      is_known = name in old || name in new; o = old[name]; n = new[name]; is = now[name]
      if (is != n || is != o) print is == n ? "N" : is == o ? "O" : is_known ? "X" : "T", name } }' \
    "$scratch/old" "$scratch/new" "$scratch/now"
}

fail() {
  failed=$((failed + 1))
  printf 'FAILED %s, %s: %s; exit code %s\n' "$name" "$fault" "$1" "$code" >&3
  { echo "$2"; head -n 6 "$scratch/err"; } | sed 's/^/    /' >&3
}

# Judges a run by its exit code, its message and the files.
judge() {
  local found kinds torn is_told
  found=$(compare)
  torn=$(grep '^X' <<<"$found" | grep -vE "$streamed" || true)
  kinds=$(cut -c1 <<<"$found" | sort -u | tr -d '\n')
  # The table of bench names a process that ended early.
  is_told=$(grep -iE 'error|cannot|warn|not ' "$scratch/err" || { [[ $name == bench ]] && grep -E 'failed:|died:' "$scratch/out"; } || true)
  # The library of Rust panics if the pipe from a child cannot be read. Linux has no such error; it comes from here only.
  if [[ $code =~ ^(101|134|139)$ ]] && grep 'panicked at' "$scratch/err" | grep -qv /std/src/sys/process/; then fail 'it panics' ''
  elif [[ -n $torn ]]; then fail 'torn' "$torn"
  elif [[ $code == 124 ]]; then fail 'it hangs' ''
  elif [[ $code == 137 ]]; then
    killed=$((killed + 1))
    judge_next
  # What cannot be removed stays until the next start.
  elif [[ $kinds == *T* && $name == checkpoint ]]; then
    refused=$((refused + 1))
    judge_next
  # A file that cannot be removed stays.
  elif [[ $kinds == *T* && $fault != *unlink* ]]; then fail 'a temporary file is left' "$found"
  elif [[ $code == 0 && $kinds != *[OX]* ]]; then whole=$((whole + 1))
  # A process that ended between two setups was started again for the rest.
  elif [[ $code == 0 && $name == bench ]] && [[ $(grep -c '"measured"' "$box/package/gpu-tuned.bench.jsonl") == 3 ]]; then whole=$((whole + 1))
  elif [[ $code == 0 && -n $is_told ]]; then told=$((told + 1))
  elif [[ $code == 0 ]]; then fail 'it is not done, and says nothing' "$found"
  # The fault may be in the write of the message.
  elif [[ -z $is_told && $fault != *write* ]]; then fail 'no message' ''
  elif [[ $kinds == NO* ]] && ! names_new "$found"; then fail 'some files are new, and the message does not name them' "$found"
  else refused=$((refused + 1)); fi
}

names_new() {
  local kind file
  while read -r kind file; do
    [[ $kind != N ]] || grep -qF "${file##*/}" "$scratch/err" || return 1
  done <<<"$1"
}

# Judges what a killed run left: a streamed file is readable, and the next run does the work.
judge_next() {
  local left
  if [[ -n $check ]] && ! (cd "$box/package" && { [[ $name == recording && ! -s run.jsonl ]] || eval "$check"; }) >"$scratch/err" 2>&1; then
    fail 'its files cannot be read' ''
  fi
  run_case -e trace=none -o /dev/null
  left=$(compare | grep -v '^N' | grep -vE "$streamed" || true)
  [[ $code == 0 ]] || fail 'the next run does not end well' ''
  [[ -z $left ]] || fail 'left after the next run' "$left"
}

printf '%-20s %6s %6s %6s %8s %7s %7s\n' case runs whole warned refused killed FAILED
all_failed=0
while IFS='|' read -r name rest <&4; do
  [[ $# == 0 || " $* " == *" $name "* ]] || continue
  # The last two fields have no bars; a preparation may have them.
  streamed='tfevents$'
  case $name in recording) streamed='run.jsonl$' ;; bench) streamed='bench.jsonl$' ;; esac
  check=${rest##*|} rest=${rest%|*} figures=${rest##*|} rest=${rest%|*} run=${rest##*|} prepare=${rest%|*}
  whole=0 told=0 refused=0 killed=0 failed=0 runs=0
  rm -rf "$scratch/template" "$box"
  mkdir -p "$box/package" "$box/tmp"
  (cd "$box/package" && eval "$prepare") >"$scratch/out" 2>&1 || { cat "$scratch/out"; exit 2; }
  cp -a "$box" "$scratch/template"
  state "$box" >"$scratch/old"
  run_case -y --seccomp-bpf -e trace=$calls -o "$scratch/log"
  [[ $code == 0 ]] || { cat "$scratch/err"; exit 2; }
  state "$box" >"$scratch/new"
  while read -r call number; do
    for fault in $(errors "$call") SIGKILL; do
      how="error=$fault:when=$number$(is_lasting "$fault" "$call") --seccomp-bpf"
      # With filters in the kernel, strace sends no signals.
      [[ $fault == SIGKILL ]] && how=signal=KILL:when=$number
      fault="$fault at $call $number" runs=$((runs + 1))
      restore
      # shellcheck disable=SC2086
      run_case -e "trace=$call" -e inject=$call:$how -o /dev/null
      judge
    done
  done < <(awk -v box="$box" '
    { process = $1; sub(/^[0-9]+ +/, "") }
    /^[a-z0-9_]+\(/ {
      call = $0; sub(/\(.*/, "", call); number = ++count[process, call]
      gsub(/AT_FDCWD<[^>]*>/, "AT_FDCWD"); sub(/ = [^=]*$/, "")
      if (index($0, box) || /"\/(proc|sys)\/|<\/(proc|sys)\/|AT_FDCWD, "[^\/]|^[a-z0-9]+\("[^\/]/) print call, number
    }' "$scratch/log" | sort -u | sort -k1,1 -k2n | awk -v limit="${LIMIT:-40}" '
    { at[$1, ++count[$1]] = $2 }
    END { for (call in count) { n = count[call]; m = n < limit ? n : limit; for (i = 0; i < m; i++) print call, at[call, 1 + int(i * n / m)] } }')
  printf '%-20s %6d %6d %6d %8d %7d %7d\n' "$name" $runs $whole $told $refused $killed $failed
  all_failed=$((all_failed + failed))
done 4< <(grep -v '^#' scripts/faults.txt)
[[ $all_failed == 0 ]]
