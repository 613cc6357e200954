# shellcheck shell=sh disable=SC2154,SC2034 # variables shared with the files that read this
# Read by ./fathom: `setup [--cuda] [--train]`, and what optional parts need. POSIX sh.

setup() {
  cuda=
  train=
  for word in "$@"; do
    case $word in
      --cuda) cuda=1 ;;
      --train) train=1 ;;
      --help | -h)
        printf '%s\n' 'usage: ./fathom setup [--cuda] [--train]' \
          'Installs the packages that are missing and builds build/release/fathom.' \
          '  --cuda    fails where the CUDA backend cannot be built, and says why' \
          '  --train   builds the trainer, fathom-train, too; fetches libtorch where there is none'
        return
        ;;
      *)
        say "usage: setup: wanted --cuda or --train, found $word; see ./fathom setup --help"
        exit 2
        ;;
    esac
  done
  ensure_packages build
  build_release fathom
  if [ -n "$cuda" ]; then build_cuda || exit 1; fi
  if [ -n "$train" ]; then build_train fathom-train || exit 1; fi
  ready=build/release/fathom
  if [ -n "$cuda" ]; then ready="$ready (with the CUDA backend)"; fi
  if [ -n "$train" ]; then ready="$ready, build/train/fathom-train"; fi
  say "ready: $ready"
}

# The release build has the backend wherever it can; `--cuda` says why where it cannot.
build_cuda() {
  reason=$(cuda_obstacle)
  if [ -z "$reason" ]; then return 0; fi
  say "setup: --cuda: $reason"
  return 1
}

# venv NAME REQUIREMENT...: a Python environment build/NAME with these packages.
# Status 1 where it cannot be had; the reason is in build/NAME.log.
venv() {
  place=$root/build/$1
  name=$1
  shift
  if [ "$(cat "$place/.requirements" 2>/dev/null)" = "$*" ]; then return 0; fi
  ensure_packages train || return 1
  rm -rf "$place"
  run_logged "python environment $name" "$place.log" python3 -m venv "$place" || return 1
  run_logged "installing $*" "$place.log" "$place/bin/pip" install --quiet "$@" || return 1
  printf '%s' "$*" >"$place/.requirements"
}

torch_version=2.13.0

# The folder with libtorch's CMake package: that of an installed Python package, or our own copy.
torch_cmake_dir() {
  for python in python3 "$root/build/torch-venv/bin/python"; do
    if "$python" -c 'import torch; print(torch.utils.cmake_prefix_path)' 2>/dev/null; then
      return 0
    fi
  done
  return 1
}

# build_train TARGET...: builds preset train; installs libtorch where there is none.
build_train() {
  if ! [ -e "$root/src/train/CMakeLists.txt" ]; then
    say "setup: --train: this version has no trainer"
    return 1
  fi
  if ! prefix=$(torch_cmake_dir); then
    say "setup: installing the Python package torch $torch_version below build/ for its libtorch"
    if ! venv torch-venv "torch==$torch_version" || ! prefix=$(torch_cmake_dir); then
      say "setup: --train: torch $torch_version cannot be installed (log: build/torch-venv.log)"
      return 1
    fi
  fi
  cmake_arguments=-DCMAKE_PREFIX_PATH=$prefix
  build train "$@" || return 1
  cmake_arguments=
  ln -sf ../train/fathom-train "$root/build/release/fathom-train"
}
