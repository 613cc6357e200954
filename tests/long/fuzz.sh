#!/usr/bin/env bash
# fuzz.sh [MINUTES [NAME...]]: runs every fuzz target of src/ (or those named) for MINUTES (default
# 10) on its corpus tests/fuzz/NAME/, two at a time at low priority, and writes one row a target to
# bench/results/fuzz.md. New inputs and crashes stay in build/fuzz-work/NAME/. Status 1 on a crash.
set -euo pipefail

root=$(CDPATH='' cd -- "$(dirname -- "$0")/../.." && pwd -P)
minutes=${1:-10}
shift $(($# > 0 ? 1 : 0))
work=$root/build/fuzz-work
results=$root/bench/results/fuzz.md

names=("$@")
if [ ${#names[@]} = 0 ]; then
  mapfile -t names < <(cd "$root" && git ls-files 'src/*_fuzz.cc' |
    sed 's|.*/||; s|_fuzz\.cc$||' | sort)
fi
cmake -S "$root" --preset fuzz >/dev/null
nice cmake --build "$root/build/fuzz" --target "${names[@]/%/_fuzz}" >/dev/null

# fuzz_one NAME: libFuzzer ends by itself after the time, or at the first crash.
fuzz_one() {
  local dir=$work/$1 program dictionary=()
  program=$(find "$root/build/fuzz" -name "$1_fuzz" -type f -perm -u+x)
  mkdir -p "$dir/corpus"
  if [ -e "$root/tests/fuzz/$1.dict" ]; then
    dictionary=("-dict=$root/tests/fuzz/$1.dict")
  fi
  if ! (cd "$dir" && exec nice -n 15 "$program" -max_total_time=$((minutes * 60)) -timeout=20 \
    -rss_limit_mb=2048 -malloc_limit_mb=256 -print_final_stats=1 "${dictionary[@]}" corpus \
    "$root/tests/fuzz/$1" >log 2>&1); then
    : >"$dir/crashed"
  fi
}

for name in "${names[@]}"; do
  rm -f "$work/$name/crashed"
  while [ "$(jobs -rp | wc -l)" -ge 2 ]; do wait -n; done
  fuzz_one "$name" &
done
wait

mkdir -p "$(dirname "$results")"
if ! [ -e "$results" ]; then
  cat >"$results" <<'END'
# Fuzzing

Clang 14 libFuzzer under ASan and UBSan, started by `tests/long/fuzz.sh MINUTES`.

| date | commit | target | minutes | executions | coverage (edges) | crashes |
| --- | --- | --- | ---: | ---: | ---: | ---: |
END
fi
status=0
for name in "${names[@]}"; do
  log=$work/$name/log
  runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
  edges=$(grep -oE ' cov: [0-9]+' "$log" | tail -n 1 | tr -dc 0-9)
  crashes=0
  if [ -e "$work/$name/crashed" ]; then
    crashes=1
    status=1
    tail -n 40 "$log" >&2
  fi
  printf '| %s | %s | %s | %s | %s | %s | %s |\n' "$(date -u +%Y-%m-%d)" \
    "$(git -C "$root" rev-parse --short HEAD)" "$name" "$minutes" "${runs:-0}" "${edges:-0}" \
    "$crashes" | tee -a "$results"
done
exit $status
