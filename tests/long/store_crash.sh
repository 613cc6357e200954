#!/bin/sh
# Crash trials of the disk store (tests/store): writers that are killed at random instants, 10,000
# of them if not given, 2,000 a piece; then a fifth as many of compact and erase. Adds one line to
# bench/results/store-crash.md and one to store-rewrite.md. Status 1 at the first piece that fails.
#   store_crash.sh [TRIALS [SEED [FOLDER]]]    FOLDER: where the stores are made, a temporary one
set -eu
trials=${1:-10000}
seed=${2:-0}
root=$(cd "$(dirname "$0")/../.." && pwd)
program=$root/build/release/tests/store/store_crash
results=$root/bench/results/store-crash.md
piece=2000
[ -x "$program" ] || cmake --build "$root/build/release" --target store_crash
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
folder=${3:-$work}
first=$seed
done=0
failed=
: >"$work/log"
while [ -z "$failed" ] && [ "$done" -lt "$trials" ]; do
  [ $((trials - done)) -ge $piece ] || piece=$((trials - done))
  "$program" "$folder/store-crash" "$piece" "$seed" >"$work/piece" || failed=yes
  cat "$work/piece" >>"$work/log"
  done=$((done + piece))
  seed=$((seed + 1))
done
if ! [ -e "$results" ]; then
  cat >"$results" <<'END'
# Crash trials of the disk store

Writers killed at random instants, started by `tests/long/store_crash.sh`; the four kinds stand in
`tests/store/crash.h`. At work: writers that had published something when they were killed.
Published: blocks that a writer saw findable before its end, counted again in every later trial of
the folder, of the kinds without damage and with room; found: of those. Read: blocks that came back
in all kinds, each compared with what its key says; bad: those that the store refused (damaged
ones). Wrong: blocks with other bytes. Refused: folders that did not open.

|date|commit|file system|seeds|trials|at work|published|found|read|bad|wrong|refused|failed|
|---|---|---|---|--:|--:|--:|--:|--:|--:|--:|--:|---|
END
fi
awk -v date="$(date -u +%Y-%m-%d)" -v commit="$(git -C "$root" rev-parse --short HEAD)" \
  -v type="$(stat -f -c %T "$folder")" -v seeds="$first to $((seed - 1))" \
  -v result="${failed:+FAILED}" '
  $1 == "trials" { for (i = 2; i <= NF; i += 2) sum[$(i - 1)] += $i }
  END {
    printf "| %s | %s | %s | %s | %d | %d | %d | %d | %d | %d | %d | %d | %s |\n", date, commit,
      type, seeds, sum["trials"], sum["at-work"], sum["published"], sum["found"], sum["read"],
      sum["bad"], sum["wrong"], sum["refused"], result == "" ? "none" : result
  }' "$work/log" | tee -a "$results"
[ -z "$failed" ] || exit 1

results=$root/bench/results/store-rewrite.md
"$program" "$folder/store-crash" $((trials / 5)) "$first" rewrite >"$work/piece" || failed=yes
if ! [ -e "$results" ]; then
  cat >"$results" <<'END'
# Crash trials of compact and erase

A process that writes a store's segments anew (`fathom store compact`, `erase`) is killed at a
random instant, started by `tests/long/store_crash.sh`; what is looked at then stands in
`tests/store/rewrite_crash.h`. At work: killed before it had ended. Half done: the next run had
something left to do. Kept: blocks that nothing was to take, each read and compared with what its
key says; found: of those. Problems: that an audit found behind a kill, but for the rows of the one
segment whose file may have gone before them. Erased: blocks that were to
go; left: traces of them in the folder's bytes once the job was done. Stores in clear and sealed
ones in turn.

|date|commit|file system|seed|trials|at work|half done|kept|found|wrong|problems|erased|left|failed|
|---|---|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|---|
END
fi
awk -v date="$(date -u +%Y-%m-%d)" -v commit="$(git -C "$root" rev-parse --short HEAD)" \
  -v type="$(stat -f -c %T "$folder")" -v seed="$first" -v result="${failed:-none}" '
  $1 == "trials" {
    printf "| %s | %s | %s | %s |", date, commit, type, seed
    for (i = 2; i <= NF; i += 2) printf " %d |", $i
    printf " %s |\n", result
  }' "$work/piece" | tee -a "$results"
[ -z "$failed" ] || exit 1
