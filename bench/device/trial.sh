#!/bin/bash
# Kernels on trial beside those they replace, on a machine with a GPU that builds nothing.
#   trial.sh PACK RESULTS STEP...
#   steps: machine build synth checks tests equality decode prefill batch profile r8 sanitizer
# from the repository root. PACK is what bench/device/pack.sh made. Each step has a limit of its own
# and does not stop the others; a short table is printed last. Random models are written to WORK,
# that of p7 beside the steps that follow `synth`. R8: the plan of step r8, or its config.json.
# GOLDEN: the folder of the cases of step equality. `build` compiles the checks, from source.tar.xz
# of the pack or from the tree.
set -uo pipefail
pack=${1:?folder of pack.sh}
results=${2:?folder for results}
shift 2
mkdir -p "$results"
results=$(cd "$results" && pwd)
log=$results/run.log
rows=$results/bench.csv
work=${WORK:-$(mktemp -d)}
golden=${GOLDEN:-tests/golden/t12}
mkdir -p "$work"
: >"$log"
: >"$rows"

say() { printf '== %s (%s s)\n' "$*" "$SECONDS" | tee -a "$log"; }
# part NAME SECONDS COMMAND...
part() {
  local name=$1 limit=$2 status=0
  shift 2
  say "$name"
  : >"$work/part"
  timeout "$limit" "$@" >"$work/part" 2>&1 || status=$?
  cat "$work/part" >>"$log"
  tail -n 20 "$work/part" | cut -c1-200
  if [ "$status" != 0 ]; then say "$name FAILED: $status"; fi
  verdicts+="$name: $([ "$status" = 0 ] && echo passed || echo "FAILED ($status)")"$'\n'
  return "$status"
}

# sanitize TOOL CHECK
sanitize() {
  part "$1 $2" 60 compute-sanitizer --tool "$1" --error-exitcode 9 "$work/$2" small
}

# Times of kernels, one after the other: profile NAME ARGUMENTS OF BENCH...
profile() {
  local name=$1
  shift
  part "profile of $name" 150 ncu --clock-control none --metrics gpu__time_duration.sum --csv \
    --log-file "$work/ncu.csv" "$work/fathom" bench --quiet --backend cuda "$@"
  part "kernels of $name" 20 python3 - "$work/ncu.csv" <<'PYTHON'
import collections, csv, re, sys
lines = [l for l in open(sys.argv[1]) if l.startswith('"')]
times = collections.defaultdict(list)
for row in csv.DictReader(lines):
    # A kernel by its name and its grid, since one name serves several words.
    name = re.sub(r"\(.*", "", row["Kernel Name"].replace("(anonymous namespace)::", ""))
    value = float(row["Metric Value"].replace(",", ""))
    scale = {"ns": 1e-3, "nsecond": 1e-3, "us": 1, "usecond": 1, "ms": 1e3, "msecond": 1e3}
    times[name[-60:], row.get("Grid Size", "")].append(value * scale[row["Metric Unit"]])
for (name, grid), all in sorted(times.items(), key=lambda x: sum(x[1]))[-45:]:
    print(f"{sum(all):.0f},{len(all)},{sum(all) / len(all):.1f},{name},{grid}")
print("us,calls,us each,kernel,grid")
PYTHON
}
verdicts=
checks='index_check prefill_check experts_check value_check attend_check'

# The kernels that a check is linked with.
parts_of() {
  case $1 in
    index_check) echo index_select index_decode index_best ;;
    prefill_check) echo pack dense_decode dense_prefill ;;
    experts_check) echo experts_decode experts_prefill ;;
    value_check) echo value_product ;;
    attend_check) echo attend_decode ;;
  esac
}

# build_check CHECK: from the root of the sources.
build_check() {
  local files=() part
  for part in $(parts_of "$1"); do files+=("src/ops/cuda/$part.cu"); done
  nvcc -std=c++20 -O3 --fmad=false --expt-relaxed-constexpr -cudart static -Isrc -Ibench/device \
    -gencode arch=compute_90a,code=sm_90a -o "$work/$1" "bench/device/$1.cu" "${files[@]}"
}

build_checks() {
  local check pids=() failed=0
  cd "$1" || return 1
  for check in $checks; do
    build_check "$check" &
    pids+=($!)
  done
  for pid in "${pids[@]}"; do wait "$pid" || failed=1; done
  return "$failed"
}

tar -C "$work" -xJf "$pack/cuda.tar.xz" || exit 1
export LD_LIBRARY_PATH=$work/lib

folder_of() { echo "$work/$(basename "$1" .json)"; }

# The random model of a plan, written once; the first call may run beside other steps.
model() {
  local plan=$1 folder
  folder=$(folder_of "$plan")
  if [ -e "$folder/done" ]; then return; fi
  rm -rf "$folder"
  if "$work/fathom" synth --plan "$plan" -o "$folder" --quiet >"$folder.log" 2>&1; then
    touch "$folder/done"
  else
    cat "$folder.log"
  fi
}

# bench PLAN NUMERICS SUITE CONTEXT ARGUMENT...
bench() {
  local plan=$1 numerics=$2 suite=$3 context=$4
  local folder
  folder=$(folder_of "$plan")
  shift 4
  part "bench $(basename "$plan" .json) $numerics $suite $context $*" "${LIMIT:-60}" \
    "$work/fathom" bench -m "$folder" --backend cuda --numerics "$numerics" --suite "$suite" \
    --context "$context" --csv "$work/csv" "$@"
  if [ -e "$work/csv" ]; then tail -n +2 "$work/csv" >>"$rows"; fi
  rm -f "$work/csv"
}

both() { for numerics in fast trial; do bench "$1" "$numerics" "${@:2}"; done; }

for name in "$@"; do
  case $name in
    machine)
      part machine 30 nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.sm,clocks.mem \
        --format=csv
      part space 10 df -h "$work" /dev/shm
      ;;
    build)
      say build
      sources=.
      if [ -e "$pack/source.tar.xz" ]; then
        sources=$work/source
        mkdir -p "$sources"
        tar -C "$sources" -xJf "$pack/source.tar.xz"
      fi
      status=passed
      (build_checks "$sources") >>"$log" 2>&1 || status=FAILED
      verdicts+="build of checks: $status"$'\n'
      ;;
    synth)
      model p7 &
      synth=$!
      ;;
    checks)
      for check in $checks; do
        part "$check" 90 "$work/$check" bench || sanitize memcheck "$check"
      done
      ;;
    tests)
      part tests 150 "$work/cuda_test" --gtest_filter="${FILTER:-CudaFast.*-*RecordedStepsAre*}"
      if grep -q SKIPPED "$work/part"; then verdicts+=$'tests: some were SKIPPED\n'; fi
      ;;
    equality)
      part equality 90 "$work/fathom" check --backend cuda "$golden" --cases "$golden/cases"
      ;;
    decode | prefill | batch | profile)
      if [ -n "${synth:-}" ]; then wait "$synth"; fi
      model p7
      ;;&
    decode) both p7 decode 1000000 --invented --steps 64 ;;
    prefill)
      both p7 decode,prefill 4096 --steps 64
      both p7 prefill 4096 --rows 4096
      ;;
    batch) both p7 decode 65536 --invented --steps 32 --batch 32 ;;
    r8)
      model "${R8:-r8}"
      LIMIT=150 bench "${R8:-r8}" trial decode,prefill 4096 --steps 64 --rows 4096
      LIMIT=150 bench "${R8:-r8}" trial decode 1000000 --steps 64 --invented
      ;;
    sanitizer)
      for check in $checks; do
        for tool in memcheck racecheck; do sanitize "$tool" "$check"; done
      done
      ;;
    profile)
      profile "prefill" -m "$(folder_of p7)" --numerics trial --suite prefill --context 4096 \
        --rows 4096
      profile "a step of 32" -m "$(folder_of p7)" --numerics trial --suite decode \
        --context 65536 --invented --steps 1 --batch 32
      ;;
    *)
      echo "trial.sh: no step $name" >&2
      exit 2
      ;;
  esac
done
say table
printf '%s' "$verdicts" | tee -a "$log"
grep -hE 'relative L2|differ from|list,rows|,[0-9.]+,[0-9.]+,[0-9.]+$' "$log" | tail -n 80
cut -d, -f1,2,6- "$rows" | sed 's/weights in memory, //' | cut -c1-240
