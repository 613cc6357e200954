#!/bin/sh
# usage: tools/corpus_pack.sh DIR SHARDS PACK
# Packs the shards into PACK/doc.tar.xz and PACK/rest.tar.xz (code, recall, dialogue, held-out sets,
# tokenizer, Engram map, manifest), each small enough to copy in one go. To unpack:
#   for f in *.tar.xz; do tar -xJf "$f"; done
# or, where there is no xz program:
#   python3 -c 'import sys, tarfile; [tarfile.open(f).extractall() for f in sys.argv[1:]]' *.tar.xz
set -eu
dir=$1 shards=$2 pack=$3
mkdir -p "$pack"
cp "$dir/tokenizer.json" "$dir/manifest.json" "$shards/"
flags="--sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner"
# shellcheck disable=SC2086  # several flags
tar -C "$shards" $flags -cf - doc.u16 | xz -T2 -6 > "$pack/doc.tar.xz"
# shellcheck disable=SC2086
tar -C "$shards" $flags --exclude=doc.u16 -cf - . | xz -T2 -6 > "$pack/rest.tar.xz"
ls -l "$pack"
