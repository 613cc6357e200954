#!/bin/sh
# Simulated lives of the engine (tests/simulation): SEEDS of them from FIRST_SEED on, 50,000 from 0
# if not given, which makes more than 1,000,000 requests; one process, 2,000 seeds a piece. Adds one
# line to bench/results/simulation.md. Status 1 at the first seed that fails, after printing it.
#   simulation.sh [SEEDS [FIRST_SEED]]
set -eu
seeds=${1:-50000}
seed=${2:-0}
root=$(cd "$(dirname "$0")/../.." && pwd)
program=$root/build/release/tests/simulation/simulate
results=$root/bench/results/simulation.md
piece=2000
[ -x "$program" ] || cmake --build "$root/build/release" --target simulate
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
first=$seed
end=$((seed + seeds))
failed=
: >"$work/log"
while [ -z "$failed" ] && [ "$seed" -lt "$end" ]; do
  [ $((end - seed)) -ge $piece ] || piece=$((end - seed))
  "$program" "$seed" "$piece" >"$work/piece" || failed=yes
  cat "$work/piece" >>"$work/log"
  seed=$((seed + piece))
done
if ! [ -e "$results" ]; then
  cat >"$results" <<'END'
# Simulation of the engine

Random lives of the engine with an executor that hashes the state it is given, started by
`tests/long/simulation.sh`. Requests are those that were taken in, and the refused beside them.
Whole and cut: answers, and beginnings of those that were cut short, equal to the ones computed
alone; bounded: answers after a bounded replay, which are not comparable. Faults: failures of steps
and allocations; lost: requests that they cost. Wait: the most steps that a request was live, over
those that it and all that went before it take alone (the bound is 4). CPU: of one process.

|date|commit|seeds|requests|refused|whole|cut|bounded|faults|lost|wait|CPU s|failed|
|---|---|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|---|
END
fi
awk -v date="$(date -u +%Y-%m-%d)" -v commit="$(git -C "$root" rev-parse --short HEAD)" \
  -v seeds="$first to $((seed - 1))" -v result="${failed:+FAILED}" '
  $1 == "requests" { requests += $2; refused += $4 }
  $1 == "compared" { whole += $2; cut += $4; bounded += $6 }
  $1 == "injected" {
    injected += $2
    lost += $4
    if ($11 > wait) wait = $11
  }
  $1 == "cpu" { cpu += $2 }
  END {
    printf "| %s | %s | %s | %d | %d | %d | %d | %d | %d | %d | %.2f | %.0f | %s |\n", date,
      commit, seeds, requests, refused, whole, cut, bounded, injected, lost, wait, cpu,
      result == "" ? "none" : result
  }' "$work/log" | tee -a "$results"
[ -z "$failed" ] || { grep '^failed' "$work/log"; exit 1; }
