#!/usr/bin/env bash
# clean_machine.sh WORK_DIR [SOURCE]: what a person meets on a machine with nothing but git and a
# shell. Makes a minimal Debian 12 tree below WORK_DIR (kept for the next time), clones SOURCE
# (default: this repository's last commit) inside it as root without standard input, and times
#   ./fathom run -p "..."    wanted: at most 15 minutes
#   ./fathom run again       wanted: the rebuild check alone, under 0.3 s
#   ./fathom test            wanted: at most 40 minutes
# on two processors. Needs root, debootstrap and unshare. Exit status 1 where a bound is missed.
# The last lines are a Markdown table row for bench/results/clean_machine.md.
set -euo pipefail

work=${1:?usage: clean_machine.sh WORK_DIR [SOURCE]}
here=$(CDPATH='' cd -- "$(dirname -- "$0")/../.." && pwd -P)
source=${2:-$here}
base=$work/base
machine=$work/machine
mkdir -p "$work"

if ! [ -x "$base/usr/bin/git" ]; then
  rm -rf "$base"
  debootstrap --variant=minbase --include=git,ca-certificates bookworm "$base"
fi
rm -rf "$machine" "$work/source.git"
cp -a --reflink=auto "$base" "$machine"
cp -L /etc/resolv.conf /etc/hosts "$machine/etc/"
git clone -q --bare "$source" "$work/source.git"
mkdir -p "$machine/srv/source.git"

# inside COMMAND: one shell command in the clean machine, with an empty environment.
inside() {
  # shellcheck disable=SC2016 # expanded inside the new namespace
  taskset -c 0,1 unshare --mount --pid --fork sh -c '
    mount --make-rprivate /
    mount -t proc proc "$1/proc"
    mount --rbind /dev "$1/dev"
    mount --bind "$2" "$1/srv/source.git"
    exec chroot "$1" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root CI=true \
      sh -c "$3"' sh "$machine" "$work/source.git" "$1" </dev/null
}

missed=0
# timed NAME LIMIT_S COMMAND: its seconds into $seconds.
timed() {
  local began ended
  began=$(date +%s.%N)
  if ! inside "$3"; then
    echo "clean_machine: $1 failed" >&2
    missed=1
  fi
  ended=$(date +%s.%N)
  seconds=$(awk -v a="$began" -v b="$ended" 'BEGIN { printf "%.1f", b - a }')
  echo "clean_machine: $1 took $seconds s (wanted at most $2 s)" >&2
  if awk -v s="$seconds" -v l="$2" 'BEGIN { exit !(s > l) }'; then missed=1; fi
}

ask='./fathom run -p "The quick brown" -n 16'
inside 'git config --global safe.directory "*"'
timed clone 60 'cd /srv && git clone -q /srv/source.git fathom'
timed first-run 900 "cd /srv/fathom && $ask"
first=$seconds
timed second-run 5 "cd /srv/fathom && $ask"
second=$seconds
timed check 0.3 'cd /srv/fathom && ./fathom --version'
check=$seconds
timed test 2400 'cd /srv/fathom && ./fathom test'
printf '| date | commit | first run, s | second run, s | --version, s | test, s |\n'
printf '| --- | --- | --- | --- | --- | --- |\n'
printf '| %s | %s | %s | %s | %s | %s |\n' "$(date -u +%Y-%m-%d)" \
  "$(git -C "$work/source.git" rev-parse --short HEAD)" "$first" "$second" "$check" "$seconds"
exit "$missed"
