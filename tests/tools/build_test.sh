#!/usr/bin/env sh
# build_test.sh: how many compilers tools/build.sh starts at once, from a system's files as they are
# on machines with and without control groups; when it builds, waits and speaks. Status 1 and one
# line for each that is wrong.
set -u
here=$(CDPATH='' cd -- "$(dirname -- "$0")/../.." && pwd -P)
root=$here
# shellcheck source=tools/build.sh
. "$root/tools/build.sh"

nproc() { printf 16; }
cgroup_mount=$(mktemp -d)
meminfo=$cgroup_mount/meminfo
trap 'rm -rf "$cgroup_mount"' EXIT
mkdir "$cgroup_mount/memory"
status=0

# expect NUMBER WHAT
expect() {
  found=$(jobs)
  if [ "$found" = "$1" ]; then return; fi
  printf '%s: wanted %s compilers, found %s\n' "$2" "$1" "$found"
  status=1
}
put() { printf '%s\n' "$2" >"$cgroup_mount/$1"; }

expect 16 "no file of the system"
put meminfo "MemAvailable: 50000000 kB"
expect 16 "memory for all processors"
put meminfo "MemAvailable: 9000000 kB"
expect 5 "9 GB free"
put meminfo "MemAvailable: 900000 kB"
expect 1 "less than one compiler needs"

put meminfo "MemAvailable: 50000000 kB"
put memory.max max
put memory.current 1000
expect 16 "version 2 without a limit"
put memory.max 8589934592
put memory.current 5000000000
put memory.stat "anon 3
inactive_file 2000000000
active_file 1000000000"
expect 4 "version 2 with 6.6 GB left"
put memory.max 1000000
expect 1 "version 2 with nothing left"

rm "$cgroup_mount"/memory.*
put memory/memory.limit_in_bytes 9223372036854771712
put memory/memory.usage_in_bytes 1000000
expect 16 "version 1 without a limit"
put memory/memory.limit_in_bytes 4294967296
expect 2 "version 1 with 4 GiB left"

# A tree of its own, in which building is a word in a log.
root=$cgroup_mount/tree
mkdir -p "$root/src" "$root/apps" "$root/cmake" "$root/tools" "$root/build"
: >"$root/CMakeLists.txt"
: >"$root/CMakePresets.json"
printf 'build c++\n' >"$root/tools/packages.txt"
cp "$root/tools/packages.txt" "$root/build/.packages-build"
cuda_obstacle() { printf 'none here'; }
build_now() {
  printf 'built\n' >>"$root/log"
  mkdir -p "$root/build/release"
  : >"$root/build/release/fathom"
  chmod +x "$root/build/release/fathom"
}
# builds NUMBER WHAT: how often it was built so far, and that no use said a word.
builds() {
  build_program 2>"$root/err"
  found=$(wc -l <"$root/log")
  if [ "$found" != "$1" ] || { [ -n "$quiet" ] && [ -s "$root/err" ]; }; then
    printf '%s: wanted %s builds, found %s: %s\n' "$2" "$1" "$found" "$(cat "$root/err")"
    status=1
  fi
  sleep 0.02 # so that files written next are newer
}
builds 1 "first use"
quiet=1
builds 1 "second use"
: >"$root/src/new.cc"
builds 2 "a file more"
builds 2 "no file more"
rm "$root/src/new.cc"
builds 3 "a file less"
rm "$root/build/release/fathom"
builds 4 "no program"
mv "$root" "$root.moved"
root=$root.moved
builds 5 "another place"

# Who holds the lock keeps nobody from a program that is current; others wait, and say so unless
# they are quiet.
flock -o "$root/build/.lock" sleep 30 &
holder=$!
while flock -n "$root/build/.lock" true; do :; done
builds 5 "current beside a lock"
: >"$root/src/new.cc"
quiet=
(build_program) 2>"$root/err" &
waiter=$!
while ! grep -q 'another ./fathom is building here' "$root/err"; do sleep 0.1; done
kill "$holder"
wait "$holder" 2>/dev/null
wait "$waiter"
builds 6 "behind the lock"

# Another user runs what is there, and is told where that is not current.
if [ "$(id -u)" = 0 ] && command -v setpriv >/dev/null 2>&1; then
  chmod 755 "$cgroup_mount"
  other() {
    setpriv --reuid 65534 --regid 65534 --clear-groups sh -c ". '$here/tools/build.sh'
      cuda_obstacle() { printf 'none here'; }
      root='$root'; build_program" >"$cgroup_mount/said" 2>&1
  }
  other || {
    printf 'current program of another user: wanted no complaint, found: %s\n' \
      "$(cat "$cgroup_mount/said")"
    status=1
  }
  : >"$root/src/newer.cc"
  if other || ! grep -q "^fathom: build: $root/build: wanted what this" "$cgroup_mount/said" ||
    [ "$(wc -l <"$cgroup_mount/said")" != 1 ]; then
    printf 'old program of another user: found: %s\n' "$(cat "$cgroup_mount/said")"
    status=1
  fi
fi

# Words that are none.
for word in test setup; do
  said=$("$here/fathom" "$word" --bogus 2>&1)
  if [ $? != 2 ] || [ "${said%; see ./fathom "$word" --help}" = "$said" ]; then
    printf '%s --bogus: found: %s\n' "$word" "$said"
    status=1
  fi
done
exit $status
