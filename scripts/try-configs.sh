#!/usr/bin/env bash
# Plans the public configs of optimize/tests/acceptance.txt: scripts/try-configs.sh [FOLDER].
# Fetches nine repositories from GitHub into the folder, each at the commit of the list, and repeats the list's outcomes.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=$(realpath -m "${1:-target/public-configs}")
sed -n 's/^\[\(.*\) \(.*\)\]$/\1 \2/p' optimize/tests/acceptance.txt | while read -r repository commit; do
  [ ! -e "$folder/$repository" ] || continue
  git init -q "$folder/$repository.part"
  git -C "$folder/$repository.part" fetch -q --depth 1 "https://github.com/$repository" "$commit"
  git -C "$folder/$repository.part" checkout -q FETCH_HEAD
  mv "$folder/$repository.part" "$folder/$repository"
done
PUBLIC_CONFIGS="$folder" cargo test -p gpu-tuned-optimize --test it -- --ignored public_configs_have_their_outcomes
