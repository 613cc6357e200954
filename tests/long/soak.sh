#!/bin/sh
# Mixed load (tests/soak) of three tenants on a server with the shipped model and a small store, for
# an hour if not said otherwise; by default in a temporary folder. Adds what came of it to
# bench/results/soak.md and leaves a line of CSV for every ten seconds in FOLDER/soak.csv. Status 1
# where something failed or grew. The programs are copied first: a build meanwhile changes nothing.
#   soak.sh [SECONDS [FOLDER]]
set -eu
seconds=${1:-3600}
root=$(cd "$(dirname "$0")/../.." && pwd)
build=$root/build/release
results=$root/bench/results/soak.md
store_bytes=$((16 << 20))
[ -x "$build/tests/soak/soak" ] || cmake --build "$build" --target fathom soak >/dev/null
commit=$(git -C "$root" rev-parse --short HEAD)
server=
scratch=$(mktemp -d)
trap '[ -z "$server" ] || kill "$server"; rm -rf "$scratch"' EXIT
work=${2:-$scratch}
mkdir -p "$work"
work=$(cd "$work" && pwd -P)
rm -rf "$work/store"
cp "$build/fathom" "$build/tests/soak/soak" "$work"
keys=
: >"$work/keys.toml"
for tenant in alice bob carol; do
  keys="$keys --key $("$work/fathom" serve --new-key $tenant 2>&1 >>"$work/keys.toml")"
done
"$work/fathom" serve -m "$root/models/fathom-34m" --listen 127.0.0.1:0 --keys "$work/keys.toml" \
  --context 1024 --sequences 4 --blocks 96 --mode deploy --restore exact --quiet \
  --session-bytes 32M --session-ttl 60 --store "$work/store" --store-size "$store_bytes" \
  --host-tier 2M >"$work/server" 2>"$work/server.err" &
server=$!
until grep -q http "$work/server"; do kill -0 "$server" && sleep 0.2; done
port=$(sed -n 's/.*:\([0-9]*\)$/\1/p' "$work/server")
failed=
# shellcheck disable=SC2086
"$work/soak" --port "$port" --pid "$server" --store "$work/store" --store-bytes "$store_bytes" \
  --segment-bytes $((store_bytes / 8)) $keys --seconds "$seconds" --csv "$work/soak.csv" \
  >"$work/verdict" || failed=yes
kill -TERM "$server"
wait "$server" || { failed=yes; echo "FAIL the server's end: status $?" >>"$work/verdict"; }
server=
if ! [ -e "$results" ]; then
  cat >"$results" <<'END_OF_PAGE'
# Soak

`tests/long/soak.sh`: mixed load of three tenants (`tests/soak/mixed_load.h`) on a server with the
shipped model, a pool, a host tier, states of sessions and a store that are all smaller than what
the load computes. What is decided and how stands in `tests/soak/soak.cc`: slopes are of samples
every ten seconds after two fifths of the time, with the 95 % interval of twelve means.
END_OF_PAGE
fi
{
  printf '\n## %s, state of `%s`, %s s\n\n' "$(date -u +%Y-%m-%d)" "$commit" "$seconds"
  sed 's/^/    /' "$work/verdict"
} | tee -a "$results"
[ -z "$failed" ] || exit 1
