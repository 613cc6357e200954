#!/bin/bash
# Times whole decode steps, and prefill, on a machine with a GPU: step.sh FATHOM PLAN... [> FILE]
# PLAN is a named plan or a config.json; its random model is written once to PROXIES (default
# build/proxies). Prints the rows of `fathom bench`, with exact and with fast numerics.
set -euo pipefail
fathom=${1:?program}
shift
proxies=${PROXIES:-build/proxies}
rows=$(mktemp)
bench() {
  "$fathom" bench --backend cuda --proxy-dir "$proxies" --quiet --csv "$rows" "$@" >&2
  tail -n +2 "$rows"
}
for plan in "$@"; do
  for context in 4096 65536 1000000; do
    bench --suite decode --plan "$plan" --numerics fast --context "$context" --invented --steps 64
  done
  for batch in 8 32; do
    bench --suite decode --plan "$plan" --numerics fast --context 4096 --invented --steps 64 \
      --batch "$batch"
  done
  bench --suite decode,prefill --plan "$plan" --numerics fast --context 4096 --steps 64
  bench --suite decode --plan "$plan" --numerics exact --context 4096 --invented --steps 16
done
rm -f "$rows"
