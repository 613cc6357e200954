#!/bin/sh
# usage: tools/corpus_build.sh [DIR]    (default build/corpus)
# From distribution packages to everything that a training run reads, below DIR:
#   pkg/ text/ manifest.json tokenizer.json    the corpus
#   shards/                                    tokens, index.json, engram_map.i32
#   pack/                                      the same in two xz files, for another machine
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
dir=${1:-$root/build/corpus}
recipe=$root/tools/corpus_recipe.txt
program=$root/build/release/src/train/corpus/fathom-train-data

[ -x "$program" ] || (cd "$root" && cmake --preset release && \
  cmake --build build/release --target fathom-train-data)
"$root/tools/corpus_fetch.sh" "$recipe" "$dir"
"$program" corpus --recipe "$recipe" --dir "$dir" > /dev/null
"$program" tokenizer --recipe "$recipe" --dir "$dir"
"$program" shards --recipe "$recipe" --dir "$dir" --out "$dir/shards" \
  --doc-bytes 165000000 --code-bytes 140000000
"$root/tools/corpus_pack.sh" "$dir" "$dir/shards" "$dir/pack"
