#!/bin/sh
# clang_tidy.sh BUILD_DIR JOBS: clang-tidy (.clang-tidy, all findings are errors) over every
# source of src/ and apps/ that the build compiles, tests and src/ops/cuda left out (this clang-tidy
# cannot read the headers of CUDA 13). Unchanged files are not looked at again: a file's stamp is
# the hash of what the compiler sees of the repository.
set -eu
build=$1
jobs=$2
root=$(CDPATH='' cd -- "$(dirname -- "$0")/../.." && pwd -P)
stamps=$root/build/clang-tidy
mkdir -p "$stamps"

# Whatever any header or the configuration says is part of every stamp.
common=$(cd "$root" && find src apps .clang-tidy -name "*.h" -o -name .clang-tidy 2>/dev/null |
  sort | xargs cat | sha256sum | cut -c 1-16)

# shellcheck disable=SC2016 # expanded by the shell that xargs starts
check='
  stamp=$1/$(cat "$3" | sha256sum | cut -c 1-16)-$4
  if [ -e "$stamp" ]; then exit 0; fi
  flag=--extra-arg=-Wno-unknown-warning-option
  if clang-tidy-14 --quiet "$flag" -p "$2" "$3" 2>/dev/null; then
    : >"$stamp"
  else
    printf "clang-tidy: %s\n" "$3"
    exit 1
  fi
'
sed -n 's/^ *"file": "\(.*\)",*$/\1/p' "$build/compile_commands.json" |
  grep -E "^$root/(src|apps)/.*\.cc$" | grep -vE '_(test|fuzz)\.cc$|/src/ops/cuda/' | sort -u |
  xargs -P "$jobs" -I FILE sh -c "$check" sh "$stamps" "$build" FILE "$common"
