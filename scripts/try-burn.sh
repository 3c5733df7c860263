#!/usr/bin/env bash
# Checks what breaks with another release of Burn: scripts/try-burn.sh BURN CUBECL, for example 0.23.0-pre.1 0.12.0-pre.1.
# Works on a copy, needs the registry and 10 minutes, and prints the number of errors of each package.
set -euo pipefail
[ $# = 2 ] || { sed -n '2,3s/^# //p' "$0" >&2; exit 2; }
burn=$1 cubecl=$2
cd "$(dirname "$0")/.."
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
git archive HEAD | tar x -C "$copy"
cd "$copy"
# The releases are named in the manifest of the workspace only.
sed -i -E "s/^(burn[a-z-]* = \{ version = )\"[^\"]*\"/\1\"=$burn\"/; s/^(cubecl[a-z-]* = \{ version = )\"[^\"]*\"/\1\"=$cubecl\"/" Cargo.toml
rm Cargo.lock
# With DOCS_RS the build script of LLVM downloads nothing, and nothing is linked here.
export DOCS_RS=1 CARGO_TERM_COLOR=never
cargo check --workspace --all-targets --features gpu-tuned/cuda --keep-going --message-format short >errors.txt 2>&1 || true
grep -E '^[^ ]+:[0-9]+:[0-9]+: error' errors.txt | sort -u || true
echo
grep -E '^(error: could not compile|error: failed)' errors.txt | sort -u || echo "no errors with Burn $burn and CubeCL $cubecl"
