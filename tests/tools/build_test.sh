#!/usr/bin/env sh
# build_test.sh: how many compilers tools/build.sh starts at once, from a system's files as they are
# on machines with and without control groups. Status 1 and one line for each wrong number.
set -u
root=$(CDPATH='' cd -- "$(dirname -- "$0")/../.." && pwd -P)
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
exit $status
