#!/bin/sh
# Wrong usage of fathom-train: status 2 and one line, before any work; help with status 0.
#   train_jobs.sh FATHOM_TRAIN
set -eu
trainer=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# expect STATUS LINE words...: LINE is standard error.
expect() {
  wanted=$1 line=$2
  shift 2
  status=0
  "$trainer" "$@" >"$work/out" 2>"$work/err" || status=$?
  if [ "$status" != "$wanted" ] || [ "$(cat "$work/err")" != "$line" ]; then
    echo "train_jobs: $*: wanted status $wanted and '$line', found $status and" \
      "'$(cat "$work/err")'" >&2
    exit 1
  fi
}
# wrong JOB MESSAGE words...
wrong() {
  job=$1 message=$2
  shift 2
  expect 2 "fathom: usage: train $job: $message; see fathom train $job --help" "$job" "$@"
}

expect 0 '' --help
for job in run resume eval export speed; do
  expect 0 '' "$job" --help
  grep -q "^  $job  " "$work/out"
  wrong "$job" 'wanted a flag of the job, found --frob' --frob
  wrong "$job" 'wanted a flag of the job, found frob' frob
  wrong "$job" '--out: wanted a value, found none' --out
  wrong "$job" '--threads: wanted a whole number from 1 to 4096, found 0' --threads 0
done
for job in run speed; do
  wrong "$job" '--recipe: wanted a value, found none'
  wrong "$job" '--data: wanted a value, found none' --recipe r
  wrong "$job" '--out: wanted a value, found none' --recipe r --data d
done
for job in resume eval; do wrong "$job" '--out: wanted a value, found none'; done
wrong export '--model: wanted a value, found none' --out o
wrong run '--limit: wanted a number from 1 to 1e+09, found x' --limit x
wrong eval '--tokens: wanted a whole number from 1 to 1e+09, found 1.5' --tokens 1.5
wrong speed 'wanted a flag of the job, found --json' --json
wrong resume 'wanted one of --quiet and --progress, found both' --out o --quiet --progress
expect 2 'fathom: usage: train: wanted a job, found frob; see fathom train --help' frob
expect 2 'fathom: usage: train: wanted a job, found nothing; see fathom train --help'

expect 1 "fathom: train: run: r: cannot open: No such file or directory" \
  run --recipe r --data "$work" --out "$work/o"
printf 'config = "c"\n' >"$work/r"
expect 1 "fathom: train: run: $work/index.json: wanted token streams, found none; \
tools/corpus_build.sh makes them (tools/corpus_fetch.sh is its first step)" \
  run --recipe "$work/r" --data "$work" --out "$work/o"
expect 1 "fathom: train: resume: $work/o/checkpoint.bin: wanted the checkpoint of a run, \
found none" resume --out "$work/o"
