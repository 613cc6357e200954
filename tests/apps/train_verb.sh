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

grep -q 'see fathom train --help$' "$work/err" || fail "no job: $(cat "$work/err")"
expect 2 "$program" train frob
grep -q '^fathom: usage: train: wanted a job, one of data, .*, found frob; see ' "$work/err" ||
  fail "unknown job: $(cat "$work/err")"

expect 0 "$program" train resume --help
grep -q 'resume --out DIR' "$work/out" || fail "--help needs the trainer: $(cat "$work/out")"
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

# wrong MESSAGE words...: wrong usage is status 2 and one line.
wrong() {
  message=$1
  shift
  expect 2 "$program" train "$@"
  [ "$(cat "$work/err")" = "fathom: usage: train $message --help" ] ||
    fail "$*: $(cat "$work/err")"
}
wrong 'tokenizer: --recipe: wanted a value, found none; see fathom train tokenizer' \
  tokenizer --recipe
wrong 'tokenizer: --dir: wanted a value, found none; see fathom train tokenizer' \
  tokenizer --recipe r
wrong 'tokenizer: --vocab: wanted a whole number from 0 to 65536, found 70000; '\
'see fathom train tokenizer' tokenizer --recipe r --dir d --vocab 70000
wrong 'data: shards: --recipe: wanted a value, found none; see fathom train data' \
  data shards --dir "$work"
wrong 'data: shards: --doc-bytes: wanted a whole number from 0 to 1e+15, found 1.5; '\
'see fathom train data' data shards --recipe r --dir d --out o --doc-bytes 1.5
wrong 'data: corpus: wanted a flag of the job, found --out; see fathom train data' \
  data corpus --out o
wrong 'data: corpus: --dir: wanted it once, found it twice; see fathom train data' \
  data corpus --dir a --dir b
wrong 'data: wanted corpus, tokenizer or shards, found corpse; see fathom train data' data corpse
wrong 'data: wanted corpus, tokenizer or shards, found nothing; see fathom train data' data
for job in data 'data corpus' 'data shards' tokenizer; do
  # shellcheck disable=SC2086 # two words
  expect 0 "$program" train $job --help
  grep -q 'data shards  --recipe FILE' "$work/out" || fail "$job --help: $(cat "$work/out")"
done

# A corpus that was not fetched: which script does it.
printf 'a doc train MIT 0 package *\n' >"$work/recipe"
expect 1 "$program" train data corpus --recipe "$work/recipe" --dir "$work/none"
grep -q "run tools/corpus_fetch.sh $work/recipe $work/none$" "$work/err" ||
  fail "corpus: $(cat "$work/err")"

# Jobs before the ones that they need: which to run.
expect 1 "$program" train tokenizer --recipe "$work/recipe" --dir "$work/none"
grep -q 'what `fathom train data corpus` writes, found none; run it' "$work/err" ||
  fail "tokenizer: $(cat "$work/err")"
expect 1 "$program" train data shards --recipe "$work/recipe" --dir "$work/none" --out "$work/out.d"
grep -q 'what `fathom train tokenizer` writes, found none; run it' "$work/err" ||
  fail "shards: $(cat "$work/err")"
[ ! -e "$work/out.d" ] || fail "shards: left a folder"

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
# A job that fails takes away what it wrote: code alone has no prose for the recall rows.
printf 'a code train MIT 0 package *\n' >"$work/code"
expect 1 "$program" train data shards --recipe "$work/code" --dir "$work/dir" --out "$work/out.d"
grep -q 'prose of the recipe: wanted text' "$work/err" || fail "shards: $(cat "$work/err")"
[ ! -e "$work/out.d" ] || fail "shards: left $(ls "$work/out.d")"
expect 0 "$program" tokenize --help
