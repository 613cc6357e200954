# shellcheck shell=sh disable=SC2154,SC2034 # variables shared with the files that read this
# Read by ./fathom: lock, packages, configure, build. POSIX sh; needs $root.

say() { printf 'fathom: %s\n' "$*" >&2; }
die() {
  say "$*"
  exit 1
}
# tell WORDS...: what is no failure, and not said with --quiet.
quiet=
tell() { if [ -z "$quiet" ]; then say "$@"; fi; }

# A redirection that fails would end the shell, in its own words.
require_writable() {
  mkdir -p "$root/build" 2>/dev/null || die "build: $root/build: cannot create"
  for place in "$root/build" "$root/build/.lock" "$root/build/release"; do
    if [ -e "$place" ] && ! [ -w "$place" ]; then
      die "build: $place: wanted what this user may write, found what it may not; whose it is" \
        "builds first"
    fi
  done
}

# One installation or build at a time: a second use waits for the first and then finds it done.
take_lock() {
  require_writable
  command -v flock >/dev/null 2>&1 || return 0
  exec 9>"$root/build/.lock"
  if ! flock -w 2 9; then
    tell "another ./fathom is building here; waiting for it"
    flock 9
  fi
}
release_lock() { exec 9>&-; }

# locked COMMAND...: not around running the program or tests, which may start ./fathom again.
locked() {
  take_lock
  locked_status=0
  "$@" || locked_status=$?
  release_lock
  return "$locked_status"
}

# packages_of GROUP: the lines NAME[|NAME ...] of one group of tools/packages.txt.
packages_of() { sed -n "s/^$1 //p" "$root/tools/packages.txt"; }

installed() {
  dpkg-query -W -f '${db:Status-Status}\n' "$1" 2>/dev/null | grep -qx installed
}

# missing_packages GROUP: the lines of which no name is installed.
missing_packages() {
  for names in $(packages_of "$1"); do
    found=
    for name in $(printf '%s' "$names" | tr '|' ' '); do
      if installed "$name"; then found=1; fi
    done
    if [ -z "$found" ]; then printf '%s\n' "$names"; fi
  done
}

# ensure_packages GROUP: installs what is missing. Status 1 where that is impossible and GROUP is
# not `build`; without the packages of `build` nothing can go on.
ensure_packages() {
  stamp=$root/build/.packages-$1
  if cmp -s "$root/tools/packages.txt" "$stamp"; then return 0; fi
  locked check_packages "$1" || {
    if [ "$1" = build ]; then exit 1; fi
    return 1
  }
}

check_packages() {
  stamp=$root/build/.packages-$1
  if cmp -s "$root/tools/packages.txt" "$stamp"; then return 0; fi
  if ! command -v dpkg-query >/dev/null 2>&1 || ! command -v apt-get >/dev/null 2>&1; then
    foreign_distribution "$1"
    return
  fi
  missing=$(missing_packages "$1")
  if [ -n "$missing" ] && ! install_packages "$missing"; then return 1; fi
  cp "$root/tools/packages.txt" "$stamp"
}

foreign_distribution() {
  if [ "$1" != build ]; then return 0; fi
  for tool in cmake ninja c++ pkg-config; do
    if ! command -v "$tool" >/dev/null 2>&1; then
      say "setup: no apt-get here, and $tool is missing; packages are installed on Debian and" \
        "Ubuntu only. Install what corresponds to these, then run ./fathom again:"
      packages_of build | tr '\n' ' ' | fold -s -w 90 >&2
      printf '\n' >&2
      exit 1
    fi
  done
}

install_packages() {
  as_root=
  if [ "$(id -u)" != 0 ]; then
    as_root=sudo
    if ! command -v sudo >/dev/null 2>&1; then
      say "setup: packages are missing, and there is no sudo. As root, run: apt-get install" \
        "$(printf '%s' "$1" | sed 's/|.*//' | tr '\n' ' ')"
      return 1
    fi
    if ! [ -t 0 ]; then as_root='sudo -n'; fi
  fi
  log=$root/build/packages.log
  if ! run_logged "apt-get update" "$log" apt_get update; then
    show_log "$log" "setup: apt-get update failed"
    return 1
  fi
  chosen=$(choose_packages "$1")
  tell "installing with ${as_root:+$as_root }apt-get: $(printf '%s' "$chosen" | tr '\n' ' ')"
  # shellcheck disable=SC2086 # one word a package
  if ! run_logged "apt-get install" "$log" apt_get install -y --no-install-recommends $chosen; then
    show_log "$log" "setup: apt-get install failed"
    return 1
  fi
}

apt_get() {
  # shellcheck disable=SC2086 # 'sudo -n' is two words
  $as_root env DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=300 \
    -o Acquire::Retries=3 "$@" </dev/null
}

# choose_packages LINES: for each NAME[|NAME ...] the first name that the distribution has.
choose_packages() {
  for names in $1; do
    choice=
    for name in $(printf '%s' "$names" | tr '|' ' '); do
      if [ -z "$choice" ] && apt-cache show --no-all-versions "$name" >/dev/null 2>&1; then
        choice=$name
      fi
    done
    printf '%s\n' "${choice:-${names%%|*}}"
  done | sort -u
}

# run_logged WHAT LOG COMMAND...: output goes to LOG; on a terminal its last line is shown,
# elsewhere WHAT where $announce is set.
announce=
run_logged() {
  what=$1 log_file=$2
  shift 2
  if ! [ -t 2 ] || [ -n "$quiet" ]; then
    if [ -n "$announce" ]; then tell "$what"; fi
    "$@" >"$log_file" 2>&1 9>&-
    return
  fi
  status_file=$log_file.status
  printf '1' >"$status_file"
  {
    if "$@" 2>&1 9>&-; then printf '0' >"$status_file"; else printf '%s' "$?" >"$status_file"; fi
  } | tee "$log_file" | while IFS= read -r line; do
    printf '\r\033[K%s: %.70s' "$what" "$line" >&2
  done
  printf '\r\033[K' >&2
  status=$(cat "$status_file")
  rm -f "$status_file"
  return "$status"
}

# show_log LOG MESSAGE: the part of a log that says why.
show_log() {
  if grep -q '^FAILED: ' "$1"; then
    sed -n '/^FAILED: /,$p' "$1" | head -n 80 >&2
  else
    tail -n 60 "$1" >&2
  fi
  say "$2 (whole log: $1)"
}

meminfo=/proc/meminfo
cgroup_mount=/sys/fs/cgroup

# group_free_kib: what the control group of a container leaves, version 2 or 1; nothing where
# there is no limit. Pages of files count as free: the kernel drops them.
group_free_kib() {
  for names in "memory.max memory.current memory.stat" \
    "memory/memory.limit_in_bytes memory/memory.usage_in_bytes memory/memory.stat"; do
    # shellcheck disable=SC2086 # three words
    set -- $names
    limit=$(cat "$cgroup_mount/$1" 2>/dev/null || :)
    used=$(cat "$cgroup_mount/$2" 2>/dev/null || :)
    case "$limit$used" in '' | *[!0-9]*) continue ;; esac
    cached=$(awk '/^(total_)?(in)?active_file / { n[$1] = $2 }
      END { t = n["total_active_file"] + n["total_inactive_file"]
            print t ? t : n["active_file"] + n["inactive_file"] }' \
      "$cgroup_mount/$3" 2>/dev/null || echo 0)
    awk -v limit="$limit" -v used="$used" -v cached="$cached" 'BEGIN {
      held = used - cached; if (held < 0) held = 0
      left = (limit + 0 > held) ? (limit - held) / 1024 : 0
      printf "%.0f\n", left }'
    return
  done
}

# free_kib: the memory that a build may take; nothing where the system does not say.
free_kib() {
  { awk '/^MemAvailable:/ { print $2 }' "$meminfo" 2>/dev/null || :
    group_free_kib; } | sort -n | head -n 1
}

# As many compilers as there are processors, at most one for each 1.5 GiB of free memory; one at
# least.
jobs() {
  cpus=$(nproc 2>/dev/null || getconf _NPROCESSORS_ONLN 2>/dev/null || printf 1)
  free=$(free_kib)
  if [ -n "$free" ]; then
    fit=$((free / 1572864))
    if [ "$fit" -lt 1 ]; then fit=1; fi
    if [ "$fit" -lt "$cpus" ]; then cpus=$fit; fi
  fi
  printf '%s' "$cpus"
}

# configure PRESET [cmake arguments]: where it was not yet done with these presets, in this place,
# with the groups of packages that are installed now.
configure() {
  preset=$1
  shift
  dir=$root/build/$preset
  stamp=$dir/.configured
  wanted=$root/build/.wanted-$preset
  mkdir -p "$dir"
  {
    printf '%s %s %s\n' "$root" "$*" "$(cd "$root/build" && echo .packages-*)"
    cat "$root/CMakePresets.json"
  } >"$wanted"
  if [ -f "$dir/build.ninja" ] && cmp -s "$wanted" "$stamp"; then return 0; fi
  rm -rf "$dir/CMakeCache.txt" "$dir/CMakeFiles" "$stamp"
  # Warnings are errors with the compiler that the project is developed with; a newer compiler
  # has warnings nobody has seen yet.
  if [ "$preset" != fuzz ] && ! c++ -dumpversion 2>/dev/null | grep -q '^12\b'; then
    set -- "$@" --compile-no-warning-as-error
  fi
  if ! (cd "$root" && run_logged "configuring $preset" "$dir.log" \
    cmake --preset "$preset" "$@"); then
    show_log "$dir.log" "build: cmake could not configure preset $preset"
    return 1
  fi
  mv "$wanted" "$stamp"
}

# Why the CUDA backend cannot be built here; empty where it can.
cuda_obstacle() {
  nvcc=$(command -v nvcc || printf /usr/local/cuda/bin/nvcc)
  if ! [ -x "$nvcc" ]; then
    printf 'no nvcc in the search path and none in /usr/local/cuda/bin'
    return
  fi
  release=$("$nvcc" --version 2>/dev/null | sed -n 's/.*release \([0-9]*\)\..*/\1/p')
  if [ "${release:-0}" -lt 13 ]; then
    printf '%s: wanted release 13 or newer, found %s' "$nvcc" "${release:-none}"
  fi
}

# choose_cuda: $cmake_arguments of the release build, with the CUDA backend where there is a
# toolkit; $reason: why it has none.
choose_cuda() {
  cmake_arguments=
  reason=$(cuda_obstacle)
  if [ -z "$reason" ]; then cmake_arguments=-DFATHOM_CUDA=ON; fi
}

# What build/release depends on beside the age of files.
release_facts() {
  printf '%s %s %s\n' "$root" "$cmake_arguments" "$(cd "$root/build" && echo .packages-*)"
}

# is_current: whether the program was built from what is here now. Told without the lock and without
# writing, so that a use need not wait for another one and may be another user's.
is_current() {
  current=$root/build/release/.current
  choose_cuda
  [ -x "$root/build/release/fathom" ] && [ -e "$current" ] || return 1
  [ "$(cat "$current")" = "$(release_facts)" ] || return 1
  changed=$(cd "$root" && find src apps cmake CMakeLists.txt CMakePresets.json tools/packages.txt \
    -newer "$current" -print 2>/dev/null | head -n 1)
  # A new package may have new headers.
  if [ -z "$changed" ]; then changed=$(find /var/lib/dpkg/status -newer "$current" 2>/dev/null); fi
  [ -z "$changed" ]
}

# build_program: what ./fathom runs, where it is not current.
build_program() {
  if is_current; then return 0; fi
  require_writable
  ensure_packages build
  tell_without_cuda
  locked build_program_now
}

build_program_now() {
  # As old as the first file that the build looks at: a change while it runs is built the next time.
  release_facts >"$root/build/.began"
  build_now release fathom || return 1
  mv "$root/build/.began" "$root/build/release/.current"
}

tell_without_cuda() {
  if [ -n "$reason" ] && ! [ -e "$root/build/release/.built" ]; then
    tell "building without the CUDA backend: $reason"
  fi
}

# build_release TARGET...: the release build.
build_release() {
  choose_cuda
  tell_without_cuda
  built=0
  build release "$@" || built=$?
  cmake_arguments=
  return "$built"
}

# build PRESET TARGET...: quiet unless it fails. $cmake_arguments, where set, go to cmake.
build() { locked build_now "$@"; }

build_now() {
  preset=$1
  shift
  # shellcheck disable=SC2086 # several arguments
  configure "$preset" ${cmake_arguments-} || return 1
  if ! [ -e "$root/build/$preset/.built" ]; then
    tell "building build/$preset for the first time; this takes minutes"
  fi
  if ! NINJA_STATUS='[%f/%t] ' run_logged "building $preset" "$root/build/$preset.log" \
    ninja -C "$root/build/$preset" -j "$(jobs)" "$@"; then
    show_log "$root/build/$preset.log" "build: preset $preset does not build"
    return 1
  fi
  : >"$root/build/$preset/.built"
}
