#!/usr/bin/env bash
# Compiles kernels of models where there is no GPU, so that none of a GPU's time goes into it: ahead.sh FOLDER MODEL…
# leaves them in FOLDER/kernels.db, the file `cubecl/default.db` in the folder of caches there (XDG_CACHE_HOME). They belong to the
# very `hardware` that is on the PATH here. LIBRARIES is the folder of libfake_nvml.so and libfake_cuda.so, of `cargo build
# --release -p fake-nvml -p fake-cuda`; SCENARIO a file that plays the GPU, with its driver (tests/fake-nvml/scenarios);
# LIBDEVICE the file libdevice.10.bc of a CUDA toolkit. `kernels.py --ptxas` compiles them further, here or there.
set -euo pipefail
folder=${1:?ahead.sh FOLDER MODEL…}; shift
here=$(cd "$(dirname "$0")" && pwd)
scenario=$(realpath "${SCENARIO:?}")
batches=1,2,3,4,6,8,12,16,20,24,28,32,36,40,44,48,64,65,80,92,96,128,129,160,180,192,224,256,320,364,384,512
# Any of these may be the first whose size is tuned for, and the candidates are compiled for that one alone.
firsts="512 256 129 128 65 64 44 32 28 20 16 2 1"
mkdir -p "$folder/lib" "$folder/toolkit/nvvm/libdevice"
folder=$(cd "$folder" && pwd)
cp "${LIBRARIES:?}/libfake_nvml.so" "$folder/lib/libnvidia-ml.so.1"
for name in libcuda.so libcuda.so.1; do cp "$LIBRARIES/libfake_cuda.so" "$folder/lib/$name"; done
cp "${LIBDEVICE:?}" "$folder/toolkit/nvvm/libdevice/libdevice.10.bc"

# All candidates are compiled, as a GPU may tune otherwise than a driver that runs none.
beside() {
  env HOME="$PWD" XDG_CACHE_HOME="$PWD" LD_LIBRARY_PATH="$folder/lib" CUDA_PATH="$folder/toolkit" \
    FAKE_NVML_SCENARIO="$scenario" CUBECL_AUTOTUNE_SHORT_CIRCUIT=0 hardware "$@" > /dev/null
}

# In a cache of its own, as another compiles at the same time.
compile() {
  mkdir -p "$folder/$1-$2"
  cd "$folder/$1-$2"
  printf '[compilation]\ncache = true\n[autotune]\ndisable_cache = true\n[environment]\npath = "global"\n' > cubecl.toml
  # Later steps have kernels of their own: the optimizer has its state then, and what one step leaves is fused with the next.
  local dry=(trace --model "$1" --precision "$2" --dry --steps 3 --unwatched)
  for how in "" "--checkpointing"; do
    for batch in $firsts "$batches"; do
      # shellcheck disable=SC2086 # none or one word
      beside "${dry[@]}" $how --batches "$batch"
    done
  done
  beside "${dry[@]}" --accumulate 2 --batches 40,64,256,320
  beside "${dry[@]}" --queue 2 --batches 40,320
}

for model in "$@"; do
  compilers=()
  for precision in f32 bf16; do
    compile "$model" "$precision" & compilers+=($!)
  done
  for compiler in "${compilers[@]}"; do wait "$compiler"; done
  printf '%4d s  %s\n' "$SECONDS" "$model" >&2
done
python3 "$here/kernels.py" "$folder/kernels.db" "$folder"/*/cubecl/default.db
