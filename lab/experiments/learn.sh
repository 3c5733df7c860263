#!/usr/bin/env bash
# What the trainer learns in every precision, on a GPU: learn.sh FOLDER [MODEL…]
# `experiments` is on the PATH. Lines go to FOLDER/learn.jsonl as soon as they are known; a run that fails loses no other.
# STEPS (500) and SEEDS (1) are those of the models in full size, SMALL_STEPS (300) and SMALL_SEEDS (3; 0 leaves them out)
# those of the small ones, which tell how far seeds are apart. Kernels are tuned again in every process, unless Burn's
# persistent caches are on (`cubecl.toml`): have them on.
set -uo pipefail
folder=${1:?learn.sh FOLDER [MODEL…]}; shift
[ $# -gt 0 ] || set -- transformer convnet
mkdir -p "$folder"
say() { printf '%4d s  %s\n' "$SECONDS" "$*" >&2; }

learn() {
  if timeout "${LIMIT:-180}" experiments learn "$@" >> "$folder/learn.jsonl"; then say "$*"; else say "failed ($?): $*"; fi
}

for model in "$@"; do
  for way in f32 mixed_bf16 bf16_params mixed_f16; do
    learn --model "$model" --way $way --steps "${STEPS:-500}" --seeds "${SEEDS:-1}"
  done
  learn --model "$model" --way mixed_f16 --steps "${STEPS:-500}" --overflow 100,101,250,400
done
[ "${SMALL_SEEDS:-3}" -gt 0 ] || exit 0
for model in "$@"; do
  for way in f32 mixed_bf16 bf16_params mixed_f16; do
    learn --model "$model" --small --way $way --steps "${SMALL_STEPS:-300}" --seeds "${SMALL_SEEDS:-3}"
  done
done
