#!/bin/bash
# The trainer on a GPU machine that has nothing but CUDA, cmake, ninja and torch's Python package.
# The lower rooms come as archives, made before by bench/device/rooms.sh (ROOMS).
#   train.sh STEP...       steps: unpack build check speed train eval export
# from the repository root. Variables: DATA (folder with index.json and streams, or .tar.xz of
# them), WORK (build and run folder on local disk, kept between calls), LIMIT (seconds of wall time
# for `train`), RECIPE, OUT (results).
set -euo pipefail
DATA=${DATA:?folder with index.json}
WORK=${WORK:-/tmp/fathom}
OUT=${OUT:-$WORK/out}
ROOMS=${ROOMS:-$PWD/build/rooms}
LIMIT=${LIMIT:-400}
RECIPE=${RECIPE:-recipes/n34/recipe.toml}
train=$WORK/build/fathom-train
mkdir -p "$WORK" "$OUT"

say() { printf '== %s (%s s)\n' "$*" "$SECONDS"; }

build() {
  local prefix
  prefix=$(python3 -c 'import torch; print(torch.utils.cmake_prefix_path)')
  cmake -S src/train -B "$WORK/build" -G Ninja -DCMAKE_PREFIX_PATH="$prefix" \
    -DFATHOM_ROOMS_DIR="$ROOMS" \
    -DFATHOM_TRAIN_GPU=ON -DTORCH_CUDA_ARCH_LIST=9.0a > "$WORK/configure.log" 2>&1 ||
    { tail -40 "$WORK/configure.log"; return 1; }
  cmake --build "$WORK/build" > "$WORK/build.log" 2>&1 ||
    { grep -E 'error|FAILED|undefined' -A3 "$WORK/build.log" | head -60; return 1; }
}

# Streams may travel as .tar.xz; they are unpacked once, all at a time.
unpack() {
  local file pids=()
  mkdir -p "$WORK/data"
  for file in "$DATA"/*; do
    case $file in
      *.tar.xz)
        python3 -c 'import sys, tarfile; tarfile.open(sys.argv[1]).extractall(sys.argv[2])' \
          "$file" "$WORK/data" &
        pids+=($!) ;;
      *) cp -r "$file" "$WORK/data/" ;;
    esac
  done
  for pid in "${pids[@]}"; do wait "$pid"; done
}

for step in "$@"; do
  say "$step"
  case $step in
    unpack) unpack ;;
    build) build ;;
    # These two report and let the later steps go on.
    check) $train selfcheck 2>&1 | tee "$OUT/selfcheck.log" || say "check FAILED" ;;
    speed)
      $train speed --recipe "$RECIPE" --data "$WORK/data" --out "$WORK/speed" 2>&1 \
        | tee "$OUT/speed.log" ||
        say "speed FAILED" ;;
    train)
      $train run --recipe "$RECIPE" --data "$WORK/data" --out "$WORK/run" --limit "$LIMIT" 2>&1 |
        tee -a "$WORK/train.log"
      cp "$WORK/train.log" "$OUT/" ;;
    eval)
      $train eval --recipe "$RECIPE" --data "$WORK/data" --out "$WORK/run" 2>&1 |
        tee -a "$WORK/train.log" ;;
    export)
      rm -rf "$WORK/model"
      $train export --recipe "$RECIPE" --data "$WORK/data" --out "$WORK/run" --model "$WORK/model"
      cp "$WORK"/model/* "$OUT/"
      cat "$WORK/train.log" "$WORK/run/log.csv" "$WORK/run/eval.csv" > "$OUT/train.log" ;;
    *) echo "train.sh: no step $step" >&2; exit 2 ;;
  esac
done
say "done"
