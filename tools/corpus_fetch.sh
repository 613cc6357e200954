#!/bin/sh
# usage: tools/corpus_fetch.sh RECIPE DIR
# Fetches the distribution packages that a recipe names (apt-get download), unpacks them below
# DIR/pkg and writes DIR/packages.tsv: package, version, SHA-256 and size of the .deb.
set -eu
if [ $# -ne 2 ] || [ "$1" = --help ]; then
  echo 'usage: tools/corpus_fetch.sh RECIPE DIR' >&2
  exit 2
fi
recipe=$(realpath "$1")
mkdir -p "$2/deb" "$2/pkg"
cd "$2"

packages=$(sed 's/#.*//' "$recipe" | awk 'NF == 7 { print $6 }' | sort -u)
missing=
for package in $packages; do
  [ -n "$(find deb -name "${package}_*.deb")" ] || missing="$missing $package"
done
if [ -n "$missing" ]; then
  # shellcheck disable=SC2086  # one word a package
  (cd deb && apt-get -qq download $missing)
fi

: > packages.tsv.part
for package in $packages; do
  deb=$(find deb -name "${package}_*.deb" | sort | tail -n 1)
  if [ ! -d "pkg/$package" ]; then
    rm -rf "pkg/$package.part"
    dpkg-deb -x "$deb" "pkg/$package.part"
    mv "pkg/$package.part" "pkg/$package"
  fi
  printf '%s\t%s\t%s\t%s\n' "$package" "$(dpkg-deb -f "$deb" Version)" \
    "$(sha256sum "$deb" | cut -d ' ' -f 1)" "$(wc -c < "$deb")" >> packages.tsv.part
done
mv packages.tsv.part packages.tsv
