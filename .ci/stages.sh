# Stages of checks, and the table of their times. Sourced by the scripts of this folder.
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# Release builds keep their settings; these make builds of the checks smaller and quicker.
export CARGO_TERM_COLOR=never CARGO_INCREMENTAL=0 CARGO_PROFILE_DEV_DEBUG=0 CARGO_PROFILE_DEV_STRIP=symbols

table=''
print_table() {
  local status=$? cpu
  # Jobs beside a stage that failed, with all their processes.
  for job in $(jobs -p); do kill -- "-$job" || true; done
  cpu_seconds
  row "$SECONDS" "$cpu" "$([ "$status" = 0 ] && echo 'all stages' || echo 'FAILED in the last stage')"
  printf '\n  seconds     CPU s  stage\n%s' "$table"
  rm -rf "$scratch"
}
trap print_table EXIT

row() { printf -v table '%s%9d %9d  %s\n' "$table" "$@"; }

# Sets `cpu` to the CPU seconds of all finished commands, user and system.
cpu_seconds() {
  local line
  # Not in a subshell, which has times of its own.
  { times; } >"$scratch/times"
  line=$(tail -n 1 "$scratch/times")
  cpu=$(awk '{ for (i = 1; i <= 2; i++) { split($i, part, /[ms]/); sum += 60 * part[1] + part[2] } printf "%d", sum }' <<<"$line")
}
scratch=$(mktemp -d)

# Runs one stage and records its time.
stage() {
  local name="$*" status=0 begin=$SECONDS cpu cpu_before
  name=${name#eval }
  printf '\n== %s\n' "$name"
  cpu_seconds
  cpu_before=$cpu
  "$@" || status=$?
  cpu_seconds
  row $((SECONDS - begin)) $((cpu - cpu_before)) "$name"
  return $status
}
