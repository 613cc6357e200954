#!/bin/bash
# Packs what check.sh carries to a machine that builds nothing: pack.sh BUILD PACK, where BUILD is
# the folder of preset cuda. Libraries that every Linux has are left out.
set -euo pipefail
build=${1:?build folder of preset cuda}
pack=${2:?folder to fill}
work=$(mktemp -d)
mkdir -p "$work/lib" "$pack"
for program in fathom tests/cuda/cuda_test; do
  strip -o "$work/$(basename "$program")" "$build/$program"
done
# Checks of kernels alone, those that were built.
for program in "$build"/bench/device/*_check; do
  if [ -x "$program" ]; then strip -o "$work/$(basename "$program")" "$program"; fi
done
ldd "$build/fathom" "$build/tests/cuda/cuda_test" | awk '/=> \// { print $3 }' | sort -u |
  grep -vE '/(libc|libm|libgcc_s|libstdc\+\+|libz|libpthread|libdl|librt)\.so' |
  xargs -I{} cp -L {} "$work/lib/"
tar -C "$work" -cJf "$pack/cuda.tar.xz" .
rm -rf "$work"
ls -l "$pack/cuda.tar.xz"
