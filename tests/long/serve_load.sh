#!/bin/sh
# Load on the server (tests/scripted) over loopback: about two minutes, for a machine without other
# work. Prints a line of JSON a job, and after it what the drained server still held. Status 1 where
# a letter was lost or out of order, or something was held.
#   serve_load.sh [JOB...]
#     starts   1,000 requests one after the other, from the first byte sent to the engine's step;
#              300 with a thousand words
#     latency  512 streams at 20 tokens a second for 15 s: how late each token came
#     cancels  10,000 clients that vanish, then as many whole streams as there are slots
#     hold     4,096 streams for a minute at a token a second; memory a stream
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
build=$root/build/release
programs=$build/tests/scripted
cmake --build "$build" --target scripted_server serve_load >/dev/null
work=$(mktemp -d)
server=
trap '[ -z "$server" ] || kill "$server"; rm -rf "$work"' EXIT
echo '[{"letters": true}]' >"$work/script"

# start STREAMS STEP_US: a server with as many slots.
start() {
  "$programs/scripted_server" "$root/models/fathom-34m" --script "$work/script" --quiet \
    --sequences "$1" --blocks $(($1 * 8 + 128)) --rows 262144 --context 16384 --step-us "$2" \
    --watch "$work/watch" \
    >"$work/server" 2>&1 &
  server=$!
  until grep -q http "$work/server" 2>/dev/null; do kill -0 "$server" && sleep 0.2; done
  port=$(sed -n 's/.*:\([0-9]*\)$/\1/p' "$work/server")
}

load() {
  printf '%s ' "$1"
  "$programs/serve_load" "$@" --port "$port" --pid "$server" --watch "$work/watch"
}

# Drains the server, which refuses to end well while a block or slot is not accounted for.
stop() {
  kill -TERM "$server"
  wait "$server"
  server=
  tail -n 1 "$work/server"
  grep -q '"live":0,"slots":0,"pinned_blocks":0' "$work/server"
  rm -f "$work/watch"
}

for job in "${@:-all}"; do
  case $job in
    starts | all)
      start 16 0
      load starts --count 1000
      load starts --count 300 --words 1000
      stop
      ;;
  esac
  case $job in
    latency | all)
      start 512 50000
      load streams --streams 512 --letters 300
      stop
      ;;
  esac
  case $job in
    cancels | all)
      start 64 1000
      load cancels --count 10000 --at-once 64 --letters 20
      load streams --streams 64 --letters 20
      stop
      ;;
  esac
  case $job in
    hold | all)
      start 4096 1000000
      load streams --streams 4096 --letters 70
      stop
      ;;
  esac
done
