# shellcheck shell=sh disable=SC2154,SC2034 # variables shared with the files that read this
# Read by ./fathom: `test` and `test --all`. POSIX sh.
#
# Every ctest run writes a JUnit file, whose counts are summed; a step that is no ctest run (a
# compilation, a static check) counts as one. A skipped test is never counted as passed.

passed=0
failed=0
skipped=0

run_tests() {
  case "$*" in
    '') all= ;;
    --all) all=1 ;;
    --help | -h)
      printf '%s\n' 'usage: ./fathom test [--all]' \
        'Builds and runs every test that needs no libtorch and no GPU.' \
        '  --all   adds sanitizers, static checks, the fuzz corpora, comparisons with published' \
        "          packages and the trainer's tests"
      return
      ;;
    *)
      say "usage: test: wanted nothing or --all, found $*; see ./fathom test --help"
      exit 2
      ;;
  esac
  announce=1
  began=$(date +%s)
  ensure_packages build
  if [ -n "$all" ] && ! { ensure_packages all && ensure_packages train; }; then
    say "test: not all tools of tools/packages.txt could be installed"
  fi
  test_release
  if [ -n "$all" ]; then
    test_differential
    test_clients
    test_console
    test_sanitizer asan 'torch|gpu|differential|clients|console|long|slow|tidy'
    test_sanitizer tsan 'torch|gpu|differential|clients|console|long|slow'
    test_fuzz
    test_clang_tidy
    test_cuda
    test_train
  fi
  say "took $(($(date +%s) - began)) s"
  printf '%s passed, %s failed, %s skipped\n' "$passed" "$failed" "$skipped"
  [ "$failed" = 0 ]
}

# report STEP PASSED FAILED SKIPPED: one line, and the sums.
report() {
  passed=$((passed + $2))
  failed=$((failed + $3))
  skipped=$((skipped + $4))
  printf '%-14s %5s passed, %s failed, %s skipped (%s s)\n' "$1" "$2" "$3" "$4" \
    "$(($(date +%s) - step_began))"
}
begin() { step_began=$(date +%s); }
skip() {
  skipped=$((skipped + 1))
  printf '%-14s skipped: %s\n' "$1" "$2"
}

# labelled NAME|NAME...: the pattern of a test with one of these labels (cmake/FathomRoom.cmake).
labelled() { printf '(^|,)(%s)(,|$)' "$1"; }

count_of() { sed -n "s/^.*[[:space:]]$1=\"\([0-9]*\)\".*$/\1/p" "$2" | head -n 1; }

# run_ctest STEP PRESET ctest-arguments...
run_ctest() {
  step=$1 dir=$root/build/$2
  shift 2
  junit=$root/build/test-$step.xml
  log=$root/build/test-$step.log
  rm -f "$junit"
  status=0
  run_logged "testing $step" "$log" ctest --test-dir "$dir" -j "$(nproc)" --output-on-failure \
    --no-tests=error --output-junit "$junit" "$@" || status=$?
  total=$(count_of tests "$junit" 2>/dev/null || :)
  if [ -z "$total" ] || [ "$total" = 0 ]; then
    show_log "$log" "test: $step: no test ran"
    report "$step" 0 1 0
    return 0
  fi
  bad=$(count_of failures "$junit")
  idle=$(($(count_of skipped "$junit") + $(count_of disabled "$junit")))
  if [ "$status" != 0 ] && [ "$bad" = 0 ]; then bad=1 total=$((total + 1)); fi
  if [ "$bad" != 0 ]; then show_failures "$log"; fi
  if [ "$idle" != 0 ]; then sed -n '/^The following tests did not run:/,/^$/p' "$log" >&2; fi
  report "$step" "$((total - bad - idle))" "$bad" "$idle"
}

# What failed, in ctest's words, without the hundreds of lines about what passed.
show_failures() {
  grep -vE '^ *[0-9]+/[0-9]+ Test .* Passed |^ *Start +[0-9]+:' "$1" | tail -n 150 >&2
  say "test: there are failures (whole log: $1)"
}

test_release() {
  begin
  if ! build_release; then
    report release 0 1 0
    return 0
  fi
  run_ctest release release -LE "$(labelled 'torch|gpu|differential|clients|console|long')"
}

# Comparisons with published packages, which the tests fetch for themselves or say why they cannot.
test_differential() {
  begin
  if ! ctest --test-dir "$root/build/release" -N -L "$(labelled 'differential')" 2>/dev/null |
    grep -q 'Test *#'; then
    skip differential "this version has no differential tests"
  else
    run_ctest differential release -L "$(labelled 'differential')"
  fi
}

# The libraries that people talk to such servers with, fetched in the same way; agents are `long`.
test_clients() {
  begin
  if ! ctest --test-dir "$root/build/release" -N -L "$(labelled 'clients')" 2>/dev/null |
    grep -q 'Test *#'; then
    skip clients "this version has no tests of clients"
  else
    run_ctest clients release -L "$(labelled 'clients')" -LE "$(labelled 'long')"
  fi
}

# The test says why it is skipped where there is no browser.
test_console() {
  begin
  ensure_packages console || say "test: console: chromium cannot be installed"
  run_ctest console release -L "$(labelled 'console')"
}

# test_sanitizer PRESET EXCLUDED-LABELS. What runs on both models runs on T12 alone: the same code
# in a sixth of the time.
test_sanitizer() {
  begin
  if ! build "$1" fathom_tests; then
    report "$1" 0 1 0
    return 0
  fi
  run_ctest "$1" "$1" -LE "$(labelled "$2")" -E '/Shipped'
}

test_fuzz() {
  begin
  if ! find "$root/src" -name '*_fuzz.cc' | grep -q .; then
    skip fuzz "this version has no fuzz targets"
  elif ! command -v clang++-14 >/dev/null 2>&1; then
    skip fuzz "no clang++-14"
  elif ! build fuzz fathom_fuzzers; then
    report fuzz 0 1 0
  else
    run_ctest fuzz fuzz -L "$(labelled 'fuzz')"
  fi
}

test_clang_tidy() {
  begin
  if ! command -v clang-tidy-14 >/dev/null 2>&1; then
    skip clang-tidy "no clang-tidy-14"
  elif run_logged clang-tidy "$root/build/test-clang-tidy.log" \
    sh "$root/tests/tidy/clang_tidy.sh" "$root/build/release" "$(nproc)"; then
    report clang-tidy 1 0 0
  else
    show_log "$root/build/test-clang-tidy.log" "test: clang-tidy complains"
    report clang-tidy 0 1 0
  fi
}

test_cuda() {
  begin
  reason=$(cuda_obstacle)
  if [ -n "$reason" ]; then
    skip cuda "$reason"
  elif build cuda; then
    report cuda 1 0 0
  else
    report cuda 0 1 0
  fi
}

test_train() {
  begin
  if ! [ -e "$root/src/train/CMakeLists.txt" ]; then
    skip train "this version has no trainer"
  elif ! torch_cmake_dir >/dev/null && ! venv torch-venv "torch==$torch_version"; then
    skip train "the Python package torch $torch_version cannot be installed"
  elif ! build_train fathom-train fathom_torch_tests; then
    report train 0 1 0
  else
    run_ctest train train -L "$(labelled 'torch|train')" -LE "$(labelled 'gpu|long')"
  fi
}
