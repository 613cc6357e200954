#!/bin/bash
# What the CUDA backend is held to, on a machine with a GPU that builds nothing.
#   check.sh PACK RESULTS STEP...    steps: machine tests cases text sanitizer
# from the repository root. PACK is what bench/device/pack.sh made: the program, the device tests
# and the libraries they need. SOURCE is the folder that the tests were compiled for.
set -uo pipefail
pack=${1:?folder of pack.sh}
results=${2:?folder for results}
shift 2
SOURCE=${SOURCE:?folder that the tests were compiled for}
work=$(mktemp -d)
mkdir -p "$results"
log=$results/cuda-check.txt
failures=0

say() { printf '== %s (%s s)\n' "$*" "$SECONDS" | tee -a "$log"; }
# step NAME COMMAND...: its whole output goes to a file, its end to the log.
step() {
  local name=$1
  shift
  say "$name"
  if "$@" >"$results/cuda-$name.log" 2>&1; then
    tail -n 12 "$results/cuda-$name.log" | tee -a "$log"
  else
    failures=$((failures + 1))
    grep -E 'FAILED|Failure|Error|error|wanted' "$results/cuda-$name.log" | head -n 40 |
      tee -a "$log"
    tail -n 5 "$results/cuda-$name.log" | tee -a "$log"
    say "$name FAILED"
  fi
}

unpack() {
  tar -C "$work" -xJf "$pack/cuda.tar.xz" || exit 1
  export LD_LIBRARY_PATH=$work/lib
  if ! [ -e "$SOURCE" ]; then
    mkdir -p "$(dirname "$SOURCE")"
    ln -s "$PWD" "$SOURCE"
  fi
}

machine() {
  nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.sm,clocks.mem --format=csv
  uname -r
  "$work/fathom" --version
}

cases() {
  "$work/fathom" check --backend cuda tests/golden/t12 --cases tests/golden/t12/cases
}

# The same prompt, greedily, on both backends.
text() {
  local prompt='The compiler reads a file and' backend
  for backend in cpu cuda; do
    "$work/fathom" run -m models/fathom-34m --backend "$backend" -n 64 -p "$prompt" \
      >"$work/text-$backend" || return 1
  done
  cat "$work/text-cuda"
  cmp "$work/text-cpu" "$work/text-cuda" && echo "equal on both backends"
}

sanitizer() {
  local tool
  for tool in memcheck racecheck; do
    compute-sanitizer --tool "$tool" --error-exitcode 9 "$work/cuda_test" \
      --gtest_filter="${SANITIZE:-CudaWords.*Small*:CudaWords.Route*:CudaWords.EngramG*}" ||
      return 1
  done
}

unpack
: >"$log"
for name in "$@"; do
  case $name in
    machine | cases | text | sanitizer) step "$name" "$name" ;;
    tests)
      step tests timeout "${LIMIT:-400}" "$work/cuda_test" --gtest_brief=0 \
        --gtest_filter="${FILTER:-*}" ;;
    *)
      echo "check.sh: no step $name" >&2
      exit 2
      ;;
  esac
done
say "done, $failures failed"
rm -rf "$work"
[ "$failures" = 0 ]
