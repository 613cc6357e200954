#!/bin/sh
# Builds the rooms below the trainer and gathers them, with the libraries that they link, as
# archives for train.sh: the GPU machine has none of these libraries and need not compile the rooms.
#   rooms.sh [FOLDER]     default build/rooms; run on the machine that builds fathom
set -eu
cd "$(dirname "$0")/../.."
out=${1:-build/rooms}
rooms='base tensor text ops checkpoint model'
targets=$(for room in $rooms; do printf 'fathom_%s ' "$room"; done)
if ! [ -e build/release/build.ninja ]; then cmake --preset release >/dev/null; fi
# shellcheck disable=SC2086 # one word a target
cmake --build build/release --target $targets
mkdir -p "$out"
for room in $rooms; do
  cp "build/release/src/$room/libfathom_$room.a" "$out/"
done
# JSON is all that the trainer reaches through the rooms; what else text and ops link is not drawn.
json=$(c++ -print-file-name=libboost_json.a)
if ! [ -e "$json" ]; then
  echo "rooms.sh: libboost_json.a: wanted the static library of Boost.JSON, found none" >&2
  exit 1
fi
cp "$json" "$out/"
strip --strip-debug "$out"/*.a
du -sh "$out"
