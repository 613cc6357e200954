#include <algorithm>
#include <cstring>

#include "ops/cpu/cpu_ops.h"
#include "ops/cpu/lanes.h"
#include "ops/cpu/norm.h"
#include "ops/cpu/probing.h"
#include "ops/cpu/quantize.h"
#include "ops/cpu/rope.h"
#include "ops/cpu/scratch.h"

namespace fathom {
namespace cpu {
namespace {

// One word over rows [begin, end); `rows` holds the rows from `base_row` on as fp32.
struct WindowPass {
  CpuPath path;
  const WindowKvArgs& args;
  int64_t base_row = 0;
  float* rows = nullptr;  // [rows, dh]

  int64_t width() const { return args.kv.dim(1); }
  float* row(int64_t r) const { return rows + (r - base_row) * width(); }

  void norm(int64_t begin, int64_t end) const {
    for (int64_t r = begin; r < end; ++r) {
      widen(path, args.kv.row<Bf16>(r), width(), row(r));
      rms_norm_row(path, {row(r), row(r), args.weight.as<Bf16>(), width(), args.eps});
    }
  }

  void rotate(int64_t begin, int64_t end) const {
    const int64_t half = args.rope.inv_freq.dim(0);
    for (int64_t r = begin; r < end; ++r) {
      rotate_tail(row(r), width(),
                  {args.rope.cos.row<float>(r), args.rope.sin.row<float>(r), half});
    }
  }

  void quantize(int64_t begin, int64_t end) const {
    for (int64_t r = begin; r < end; ++r) {
      quantize_a8(path, row(r), width(), args.out.payload.row<uint8_t>(r),
                  args.out.scales.row<uint8_t>(r));
    }
  }

  void dequantize(int64_t begin, int64_t end) const {
    for (int64_t r = begin; r < end; ++r) {
      dequantize_a8(path, args.out.payload.row<uint8_t>(r), args.out.scales.row<uint8_t>(r),
                    width(), row(r));
    }
  }
};

void run_probed(Ops& ops, CpuPath path, const WindowKvArgs& args) {
  const int64_t n_rows = args.kv.dim(0);
  const int64_t width = args.kv.dim(1);
  const Buffer buffer(n_rows * width * dtype_bytes(DType::kF32));
  float* rows = reinterpret_cast<float*>(buffer.data());
  const WindowPass pass = {path, args, 0, rows};
  pass.norm(0, n_rows);
  show_rounded(ops, "attn.kv_norm", rows, {n_rows, width});
  pass.rotate(0, n_rows);
  show_rounded(ops, "attn.kv_rope", rows, {n_rows, width});
  pass.quantize(0, n_rows);
  pass.dequantize(0, n_rows);
  show_rounded(ops, "attn.kv", rows, {n_rows, width});
  // Values of the format stay as they are; anything else that a probe wrote enters the format here.
  pass.quantize(0, n_rows);
}

}  // namespace
}  // namespace cpu

void CpuOps::do_window_kv(const WindowKvArgs& args) {
  if (probing()) return cpu::run_probed(*this, path_, args);
  const int64_t width = args.kv.dim(1);
  pool_.parallel_for(args.kv.dim(0), cpu::row_grain(2 * width), [&](int64_t begin, int64_t end) {
    struct Row;
    cpu::WindowPass pass = {path_, args};
    pass.rows = cpu::scratch<Row>(width);
    for (int64_t row = begin; row < end; ++row) {
      pass.base_row = row;
      pass.norm(row, row + 1);
      pass.rotate(row, row + 1);
      pass.quantize(row, row + 1);
    }
  });
}

void CpuOps::do_window_commit(const WindowCommitArgs& args) {
  const KvStream& stream = args.window.stream;
  const auto payload_bytes = static_cast<size_t>(stream.payload_bytes);
  const auto scale_bytes = static_cast<size_t>(stream.scale_bytes);
  for (int64_t s = 0; s < args.rows->n_sequences(); ++s) {
    const SequenceRows& sequence = args.rows->sequence(s);
    for (int64_t i = std::max<int64_t>(0, sequence.n_rows - stream.rows); i < sequence.n_rows;
         ++i) {
      const int64_t row = args.rows->first_row(s) + i;
      const int64_t slot = (sequence.first_position + i) % stream.rows;
      std::memcpy(args.window.payload(s, slot), args.rows_kv.payload.row<uint8_t>(row),
                  payload_bytes);
      std::memcpy(args.window.scale(s, slot), args.rows_kv.scales.row<uint8_t>(row), scale_bytes);
    }
  }
}

}  // namespace fathom
