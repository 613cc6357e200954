#!/bin/bash
# Builds, checks and times the fast kernels on a machine with a GPU of compute capability 9.0 and
# nvcc, without CMake. Usage: bench/device/decode.sh [OUT], from the root; results go to OUT.
set -euo pipefail
out=${1:-build/device}
mkdir -p "$out"
nvcc="nvcc -std=c++20 -O3 --fmad=false --expt-relaxed-constexpr"
nvcc="$nvcc -gencode arch=compute_90a,code=sm_90a -Isrc -Ibench/device"
for name in pack dense_decode experts_decode attend_decode index_select \
  index_decode index_best dense_prefill experts_prefill \
  value_product; do
  $nvcc -c -o "$out/$name.o" "src/ops/cuda/$name.cu" &
done
for name in probe decode_check decode_bench attend_check index_check \
  prefill_check experts_check value_check; do
  $nvcc -c -o "$out/$name.o" "bench/device/$name.cu" &
done
wait
products="$out/pack.o $out/dense_decode.o $out/experts_decode.o"
nvcc -cudart static -o "$out/probe" "$out/probe.o"
nvcc -cudart static -o "$out/decode_check" "$out/decode_check.o" $products
nvcc -cudart static -o "$out/decode_bench" "$out/decode_bench.o" $products
nvcc -cudart static -o "$out/attend_check" "$out/attend_check.o" "$out/attend_decode.o"
nvcc -cudart static -o "$out/index_check" "$out/index_check.o" "$out/index_select.o" \
  "$out/index_decode.o" "$out/index_best.o"
nvcc -cudart static -o "$out/prefill_check" "$out/prefill_check.o" "$out/pack.o" \
  "$out/dense_decode.o" "$out/dense_prefill.o"
nvcc -cudart static -o "$out/experts_check" "$out/experts_check.o" "$out/experts_decode.o" \
  "$out/experts_prefill.o"
nvcc -cudart static -o "$out/value_check" "$out/value_check.o" "$out/value_product.o"
"$out/probe" | tee "$out/probe.txt"
"$out/decode_check"
"$out/decode_bench" | tee "$out/decode.csv"
"$out/attend_check" bench | tee "$out/attend.csv"
"$out/prefill_check" bench | tee "$out/prefill.csv"
"$out/experts_check" bench | tee "$out/experts.csv"
"$out/value_check" bench | tee "$out/value.csv"
"$out/index_check" bench | tee "$out/index.csv"
compute-sanitizer --tool memcheck "$out/decode_check" small | tail -1
# What racecheck says of the products is explained in docs/kernels/decode.md.
compute-sanitizer --tool racecheck "$out/attend_check" once | tail -1
compute-sanitizer --tool racecheck "$out/decode_check" once | tail -1
