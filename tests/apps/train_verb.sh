#!/bin/sh
# `fathom train`: help without the trainer, one line where it is absent, words and exit status
# passed on where it is there, the data jobs in the program itself.
#   train_verb.sh FATHOM
set -eu
fathom=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp "$fathom" "$work/fathom"
program=$work/fathom

fail() {
  echo "train_verb: $*" >&2
  exit 1
}
# expect STATUS command...: its output goes to $work/out and $work/err.
expect() {
  wanted=$1
  shift
  status=0
  "$@" >"$work/out" 2>"$work/err" || status=$?
  [ "$status" = "$wanted" ] || fail "$*: wanted status $wanted, found $status: $(cat "$work/err")"
}

expect 0 "$program" train --help
grep -q 'run --recipe FILE.toml' "$work/out" || fail "--help does not name the jobs"
expect 2 "$program" train
grep -q '^fathom: usage: train: ' "$work/err" || fail "no job: $(cat "$work/err")"

expect 1 "$program" train run --recipe none.toml
[ "$(wc -l <"$work/err")" = 1 ] || fail "absent: wanted one line, found: $(cat "$work/err")"
grep -q './fathom setup --train builds it' "$work/err" || fail "absent: $(cat "$work/err")"

cat >"$work/fathom-train" <<'END'
#!/bin/sh
printf '<%s>' "$@"
exit 7
END
chmod +x "$work/fathom-train"
expect 7 "$program" train run --recipe 'a b.toml' --json --help
[ "$(cat "$work/out")" = '<run><--recipe><a b.toml><--json><--help>' ] ||
  fail "words: $(cat "$work/out")"

expect 1 "$program" train tokenizer --recipe
grep -q '^fathom: train: --recipe: wanted a value, found none$' "$work/err" ||
  fail "tokenizer: $(cat "$work/err")"
expect 1 "$program" train data shards --dir "$work"
grep -q '^fathom: train: --recipe: wanted a value, found none$' "$work/err" ||
  fail "data: $(cat "$work/err")"
expect 1 "$program" train data corpse
grep -q 'wanted corpus, tokenizer or shards, found corpse' "$work/err" ||
  fail "data: $(cat "$work/err")"

# A vocabulary from a small text, through the verb.
mkdir -p "$work/dir/text"
awk 'BEGIN {
  for (d = 0; d < 60; d++) {
    for (i = 0; i < 200; i++) printf "word%d and line %d of document %d\n", i % 97, i * d, d
    printf "\001"
  }
}' | tr '\001' '\000' >"$work/dir/text/a.txt"
printf 'a doc train MIT 0 package *\n' >"$work/recipe"
expect 0 "$program" train tokenizer --recipe "$work/recipe" --dir "$work/dir" --vocab 300
grep -q '"vocab": 300' "$work/out" || fail "tokenizer: $(cat "$work/out")"
[ -s "$work/dir/tokenizer.json" ] || fail "tokenizer: wrote no tokenizer.json"
expect 0 "$program" tokenize --help
