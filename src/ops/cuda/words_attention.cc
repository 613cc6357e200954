#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "ops/cuda/attend.h"
#include "ops/cuda/attend_decode.h"
#include "ops/cuda/compress.h"
#include "ops/cuda/cuda_ops.h"
#include "ops/cuda/index_decode.h"
#include "ops/cuda/index_select.h"
#include "ops/cuda/row_kernels.h"

// Words over packed state.

namespace fathom {
namespace {

// Places in Scratch.
constexpr size_t kA = 0;
constexpr size_t kZ = 1;
constexpr size_t kLatents = 2;
constexpr size_t kKeys = 3;
constexpr size_t kGroups = 4;
constexpr size_t kTables = 5;
constexpr size_t kQueries = 0;
constexpr size_t kPlan = 1;
constexpr size_t kScores = 2;
constexpr size_t kTops = 3;
constexpr size_t kBins = 4;
constexpr size_t kKept = 5;
constexpr size_t kRotated = 0;

constexpr int64_t kScoreBytes = int64_t{64} << 20;  // of the scores that stand at a time
constexpr int64_t kIndexPieceRows = 256;            // of index_decode, whose lists are 170 KB a row

uint16_t* bf16(const Tensor& t) { return static_cast<uint16_t*>(t.data); }
uint8_t* bytes(const Tensor& t) { return static_cast<uint8_t*>(t.data); }
float* f32(const Tensor& t) { return static_cast<float*>(t.data); }

// As ops/cpu has it: the group of the first row, or the first with its last token not below
// write_from.
std::vector<cuda::Group> groups_of(const Rows& rows, int64_t ratio) {
  std::vector<cuda::Group> groups;
  for (int64_t s = 0; s < rows.n_sequences(); ++s) {
    const SequenceRows& sequence = rows.sequence(s);
    const int64_t end = sequence.first_position + sequence.n_rows;
    const int64_t first = std::max(sequence.first_position, sequence.write_from) / ratio;
    for (int64_t g = first; (g + 1) * ratio <= end; ++g) groups.push_back({s, g});
  }
  return groups;
}

}  // namespace

// ---- compress ----

void CudaOps::do_compress(const CompressArgs& args) {
  const int64_t n_rows = args.rows->n_rows();
  const int64_t ratio = args.main.stream.ratio;
  const int64_t width = args.wkv.out();
  if (n_rows == 0) return;
  cuda::CompressKernelArgs kernel;
  kernel.main = tables_.blocks(args.main);
  kernel.index = tables_.blocks(args.index);
  if (ratio > 1) kernel.remainder = tables_.slots(args.remainder);
  kernel.rows = tables_.rows(*args.rows);
  kernel.ratio = ratio;
  kernel.width = width;
  kernel.index_width = args.wk.out();
  auto* a = scratch_.get<float>(kA, n_rows * width);
  auto* z = scratch_.get<float>(kZ, n_rows * width);
  if (memory_->failed()) return;
  kernel.a = a;
  kernel.z = z;
  const auto project = [&](const Weight& w, float* out) {
    cuda::launch_product({.out = out,
                          .out_stride = width,
                          .x = cuda::product_rows(args.x),
                          .w = cuda::product_weight(w),
                          .n_rows = n_rows,
                          .n_out = width,
                          .in = w.in()},
                         stream());
  };
  project(args.wkv, a);
  if (ratio > 1) project(args.wgate, z);
  compress_entries(args, kernel);
  if (memory_->failed()) return;
  if (ratio > 1) cuda::launch_keep_remainder(kernel, stream());
  done("compress");
  if (!probing()) return;
  const SequenceRows& sequence = args.rows->sequence(0);
  const int64_t n = (sequence.first_position + sequence.n_rows) / ratio;
  auto* keys = scratch_.get<uint16_t>(kKeys, n * kernel.index_width);
  if (n == 0 || keys == nullptr) return;
  cuda::launch_read_keys(kernel, keys, n, stream());
  show("attn.index_k", made(keys, DType::kBf16, {n, kernel.index_width}));
}

// The groups that the step completes, on the device; returns the positions of their first tokens.
const int64_t* CudaOps::stage_groups(const Rows& rows, cuda::CompressKernelArgs& kernel) {
  if (recording_.active()) return recorded_groups(kernel);
  const std::vector<cuda::Group> groups = groups_of(rows, kernel.ratio);
  kernel.n_groups = static_cast<int64_t>(groups.size());
  if (groups.empty()) return nullptr;
  std::vector<int64_t> table;
  for (const cuda::Group& g : groups) table.insert(table.end(), {g.sequence, g.entry});
  for (const cuda::Group& g : groups) table.push_back(g.entry * kernel.ratio);
  const int64_t* staged_table = staged(kGroups, table);
  kernel.groups = reinterpret_cast<const cuda::Group*>(staged_table);
  return staged_table + 2 * kernel.n_groups;
}

const int64_t* CudaOps::recorded_groups(cuda::CompressKernelArgs& kernel) {
  const int64_t n = kernel.rows.n_sequences;
  FATHOM_CHECK(n == kernel.rows.n_rows);
  auto* room = static_cast<int64_t*>(recording_.room(3 * n * dtype_bytes(DType::kI64)));
  if (room == nullptr) return nullptr;
  auto* groups = reinterpret_cast<cuda::Group*>(room);
  kernel.groups = groups;
  kernel.n_groups = n;
  cuda::launch_step_groups({groups, room + 2 * n, kernel.rows, kernel.ratio}, stream());
  return room + 2 * n;
}

// The groups that the step completes: latents, index keys from the latents before they are rotated,
// then the entries.
void CudaOps::compress_entries(const CompressArgs& args, cuda::CompressKernelArgs& kernel) {
  const int64_t half = args.inv_freq.dim(0);
  const int64_t* positions = stage_groups(*args.rows, kernel);
  const int64_t n = kernel.n_groups;
  if (n == 0) return;
  kernel.c = scratch_.get<uint16_t>(kLatents, n * kernel.width);
  kernel.keys = scratch_.get<uint16_t>(kKeys, n * kernel.index_width);
  auto* cos = scratch_.get<float>(kTables, 2 * n * half);
  if (memory_->failed()) return;
  const Tensor c = made(kernel.c, DType::kBf16, {n, kernel.width});
  const Tensor keys = made(kernel.keys, DType::kBf16, {n, kernel.index_width});
  const auto norm = [&](const Tensor& rows, const Tensor& weight) {
    cuda::launch_norm({.y = bf16(rows),
                       .y_stride = rows.dim(1),
                       .x = bf16(rows),
                       .x_stride = rows.dim(1),
                       .weight = bf16(weight),
                       .n_rows = n,
                       .width = rows.dim(1),
                       .eps = args.eps},
                      stream());
  };
  const auto rotate = [&](const Tensor& rows) {
    cuda::launch_rotate({.y = bf16(rows),
                         .x = bf16(rows),
                         .cos = cos,
                         .sin = cos + n * half,
                         .n_rows = n,
                         .width = rows.dim(1),
                         .half = half},
                        stream());
  };
  cuda::launch_rotation({.cos = cos,
                         .sin = cos + n * half,
                         .position = positions,
                         .inv_freq = f32(args.inv_freq),
                         .n = n,
                         .half = half},
                        stream());
  cuda::launch_pool_groups(kernel, stream());
  norm(c, args.norm);
  show("attn.c", c);

  cuda::launch_product({.out_bf16 = kernel.keys,
                        .out_stride = keys.dim(1),
                        .x = {.bf16 = kernel.c, .bf16_stride = c.dim(1), .as_bf16 = true},
                        .w = cuda::product_weight(args.wk),
                        .n_rows = n,
                        .n_out = keys.dim(1),
                        .in = c.dim(1)},
                       stream());
  norm(keys, args.k_norm);
  rotate(keys);
  show("attn.index_k_rope", keys);
  cuda::launch_write_keys(kernel, stream());

  rotate(c);
  show("attn.c_rope", c);
  cuda::launch_write_entries(kernel, stream());
  if (!probing()) return;
  // KV4 is not idempotent, so entries are not written again: this look is read-only.
  cuda::launch_read_entries(kernel, stream());
  show("attn.C", c);
}

// ---- index_select ----

namespace {

// Everything a probe sees as one matrix of entries: scores of places, put where their entries are.
std::vector<float> spread_scores(const IndexSelectArgs& args, std::span<const float> places,
                                 std::span<const int32_t> lists, int64_t n_entries) {
  const int64_t n_rows = args.rows->n_rows();
  const float never = -std::numeric_limits<float>::infinity();
  std::vector<float> scores(static_cast<size_t>(n_rows * n_entries), never);
  const int64_t stride = static_cast<int64_t>(places.size()) / n_rows;
  const int64_t P = args.pool_in.dim(1);
  for (int64_t row = 0; row < n_rows; ++row) {
    const int64_t visible = visible_entries(args.rows->position(row), args.keys.stream.ratio);
    for (int64_t i = 0; i < stride; ++i) {
      const int32_t block = lists[static_cast<size_t>(row * P + i / args.block_size)];
      const int64_t entry = block * args.block_size + i % args.block_size;
      if (block == kNoEntry || entry >= visible) continue;
      scores[static_cast<size_t>(row * n_entries + entry)] =
          places[static_cast<size_t>(row * stride + i)];
    }
  }
  return scores;
}

}  // namespace

void CudaOps::show_scores(const IndexSelectArgs& args, const float* scores, int64_t stride) {
  const int64_t n_rows = args.rows->n_rows();
  int64_t n_entries = 0;
  for (int64_t row = 0; row < n_rows; ++row) {
    n_entries =
        std::max(n_entries, visible_entries(args.rows->position(row), args.keys.stream.ratio));
  }
  if (n_entries == 0) return;
  std::vector<float> places(static_cast<size_t>(n_rows * stride));
  memory_->read(places.data(), scores, static_cast<int64_t>(places.size() * sizeof(float)));
  std::vector<float> shown;
  if (args.pool_in.empty()) {
    // Places beyond what a row may see were not written.
    for (int64_t row = 0; row < n_rows; ++row) {
      const int64_t visible = visible_entries(args.rows->position(row), args.keys.stream.ratio);
      const auto begin = places.begin() + row * stride;
      std::fill(begin + visible, begin + stride, -std::numeric_limits<float>::infinity());
    }
    shown = std::move(places);
  } else {
    std::vector<int32_t> lists(static_cast<size_t>(args.pool_in.elements()));
    memory_->read(lists.data(), args.pool_in.data, args.pool_in.bytes());
    shown = spread_scores(args, places, lists, n_entries);
  }
  show("attn.index_scores", Tensor::dense(shown.data(), DType::kF32, {n_rows, n_entries}));
}

void CudaOps::do_index_select(const IndexSelectArgs& args) {
  FATHOM_CHECK(args.pool_in.empty() || args.pool_out.empty());
  const int64_t n_rows = args.rows->n_rows();
  const int64_t width = 2 * args.keys.stream.payload_bytes;
  const int64_t row_width = args.n_heads * width;
  if (n_rows == 0) return;
  auto* q = scratch_.get<uint16_t>(kQueries, n_rows * row_width);
  auto* plan = scratch_.get<cuda::RowPlan>(kPlan, n_rows);
  const Tensor& pool = args.pool_in.empty() ? args.pool_out : args.pool_in;
  cuda::IndexKernelArgs kernel = {
      .topk = static_cast<int32_t*>(args.topk.data),
      .pool_out = static_cast<int32_t*>(args.pool_out.data),
      .pool_in = static_cast<const int32_t*>(args.pool_in.data),
      .K = args.topk.dim(1),
      .topk_stride = args.topk.stride[0],
      .P = pool.empty() ? 0 : pool.dim(1),
      .pool_stride = pool.empty() ? 0 : pool.stride[0],
      .q = q,
      .weights = bf16(args.weights),
      .weight_stride = args.weights.stride[0],
      .weight_scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(width)) /
                                         std::sqrt(static_cast<double>(args.n_heads))),
      .keys = tables_.blocks(args.keys),
      .rows = tables_.rows(*args.rows),
      .n_heads = args.n_heads,
      .width = width,
      .block_size = args.block_size,
      .mode = args.scores,
      .settle = !probing(),
      .plan = plan};
  if (memory_->failed()) return;
  const cuda::RotateRows rotate = {.y = q,
                                   .x = bf16(args.q),
                                   .cos = f32(args.rope.cos),
                                   .sin = f32(args.rope.sin),
                                   .n_rows = n_rows,
                                   .heads = args.n_heads,
                                   .width = width,
                                   .half = args.rope.inv_freq.dim(0)};
  if (probing()) {
    const Tensor shown = made(q, DType::kBf16, {n_rows, args.n_heads, width});
    cuda::launch_rotate(rotate, stream());
    show("attn.index_q_rope", shown);
    cuda::launch_through_idx4(q, n_rows * row_width, stream());
    show("attn.index_q", shown);
  } else {
    cuda::launch_index_queries(rotate, stream());
  }
  select_pieces(args, kernel);
  done("index_select");
  if (!args.pool_out.empty()) show("attn.pool_blocks", args.pool_out);
  show("attn.topk_ids", args.topk);
}

// Pieces of rows whose scores fit their bytes; all rows at once for a probe.
void CudaOps::select_pieces(const IndexSelectArgs& args, cuda::IndexKernelArgs& kernel) {
  const int64_t n_rows = args.rows->n_rows();
  const int64_t P = kernel.P * args.block_size;
  int64_t n_entries = 0;
  for (int64_t row = 0; row < n_rows; ++row) {
    n_entries =
        std::max(n_entries, visible_entries(args.rows->position(row), args.keys.stream.ratio));
  }
  if (recording_.active()) {
    n_entries = visible_entries(recording_.horizon() - 1, args.keys.stream.ratio);
  }
  kernel.stride = args.pool_in.empty() ? n_entries : P;
  kernel.block_stride = (n_entries + args.block_size - 1) / args.block_size;
  const bool tensor_cores = fast() && cuda::index_decode_fits(kernel);
  const int64_t fitting = kScoreBytes / (4 * std::max<int64_t>(1, kernel.stride));
  const int64_t most = tensor_cores ? std::min(n_rows, kIndexPieceRows) : n_rows;
  const int64_t piece = probing() ? n_rows : std::clamp<int64_t>(fitting, 1, most);
  kernel.scores = scratch_.get<float>(kScores, piece * kernel.stride);
  kernel.tops = scratch_.get<float>(kTops, piece * kernel.block_stride);
  cuda::IndexDecodeRoom room;
  if (tensor_cores) {
    room.bins = scratch_.get<uint32_t>(kBins, cuda::IndexDecodeRoom::bin_words(piece));
    room.kept = scratch_.get<uint64_t>(kKept, cuda::IndexDecodeRoom::kept_words(piece));
    room.entry_rows_log2 = std::countr_zero(static_cast<uint64_t>(kernel.keys.stream.rows));
  } else if (!memory_->failed()) {
    cuda::launch_plan_rows(kernel, stream());
  }
  for (int64_t row = 0; row < n_rows && !memory_->failed(); row += piece) {
    kernel.first_row = row;
    kernel.n_piece = std::min(piece, n_rows - row);
    if (tensor_cores) {
      memory_->check(cuda::index_decode({kernel, room}, stream()), "index_select");
      continue;
    }
    cuda::launch_scores(kernel, stream());
    cuda::launch_choose(kernel, stream());
  }
  if (probing() && !memory_->failed()) show_scores(args, kernel.scores, kernel.stride);
}

// ---- attend ----

// True where the shape is the released one and the kernel for it ran.
bool CudaOps::attend_fast(const AttendArgs& args, const cuda::AttendKernelArgs& kernel) {
  const KvStream& window = args.window.stream;
  const auto aligned = [](const KvStream& s, int64_t record) {
    return s.payload_offset % 16 == 0 && s.scale_offset % 2 == 0 && record % 16 == 0;
  };
  const bool fits =
      fast() && kernel.n_heads == 64 && kernel.width == 512 && kernel.half == 32 &&
      window.rows == 128 && kernel.K <= 512 && aligned(window, args.window.slot_bytes) &&
      (kernel.topk == nullptr || aligned(args.global.stream, args.global.block_bytes));
  if (!fits) return false;
  cuda::AttendDecode fast = {.q = kernel.q,
                             .out = kernel.o,
                             .sink = kernel.sink,
                             .cos = kernel.cos,
                             .sin = kernel.sin,
                             .rows = kernel.rows,
                             .n_rows = static_cast<int>(kernel.rows.n_rows),
                             .ring = kernel.window.base,
                             .ring_ids = kernel.window.ids,
                             .ring_bytes = kernel.window.slot_bytes,
                             .ring_codes_at = window.payload_offset,
                             .ring_scales_at = window.scale_offset,
                             .step_codes = kernel.row_codes,
                             .step_scales = kernel.row_scales,
                             .narrow = trial()};
  if (kernel.topk != nullptr) {
    fast.pool = kernel.global.base;
    fast.block_ids = kernel.global.ids;
    fast.block_stride = static_cast<int>(kernel.global.stride);
    fast.block_rows = static_cast<int>(kernel.global.stream.rows);
    fast.block_bytes = kernel.global.block_bytes;
    fast.block_codes_at = kernel.global.stream.payload_offset;
    fast.block_scales_at = kernel.global.stream.scale_offset;
    fast.topk = kernel.topk;
    fast.topk_stride = static_cast<int>(kernel.topk_stride);
    fast.k = static_cast<int>(kernel.K);
  }
  memory_->check(cuda::attend_decode(fast, stream()), "attend");
  return true;
}

void CudaOps::do_attend(const AttendArgs& args) {
  const int64_t n_rows = args.rows->n_rows();
  const int64_t n_heads = args.sink.dim(0);
  const int64_t width = args.window.stream.payload_bytes;
  if (n_rows == 0) return;
  cuda::AttendKernelArgs kernel = {
      .o = bf16(args.o),
      .q = bf16(args.q),
      .sink = f32(args.sink),
      .window = tables_.slots(args.window),
      .row_codes = bytes(args.rows_kv.payload),
      .row_scales = bytes(args.rows_kv.scales),
      .cos = f32(args.rope.cos),
      .sin = f32(args.rope.sin),
      .half = args.rope.inv_freq.dim(0),
      .rows = tables_.rows(*args.rows),
      .n_heads = n_heads,
      .width = width,
      .scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(width)))};
  if (!args.topk.empty()) {
    kernel.global = tables_.blocks(args.global);
    kernel.topk = static_cast<const int32_t*>(args.topk.data);
    kernel.K = args.topk.dim(1);
    kernel.topk_stride = args.topk.stride[0];
  }
  if (memory_->failed()) return;
  if (!probing()) {
    if (!attend_fast(args, kernel)) cuda::launch_attend(kernel, stream());
    return done("attend");
  }
  auto* q = scratch_.get<uint16_t>(kRotated, n_rows * n_heads * width);
  if (q == nullptr) return;
  cuda::RotateRows rotate = {.y = q,
                             .x = kernel.q,
                             .cos = kernel.cos,
                             .sin = kernel.sin,
                             .n_rows = n_rows,
                             .heads = n_heads,
                             .width = width,
                             .half = kernel.half};
  cuda::launch_rotate(rotate, stream());
  show("attn.q", made(q, DType::kBf16, {n_rows, n_heads, width}));
  kernel.q = q;
  kernel.rotate = false;
  cuda::launch_attend(kernel, stream());
  show("attn.o_raw", args.o.reshaped({n_rows, n_heads, width}));
  rotate.x = rotate.y = kernel.o;
  rotate.sign = -1.0f;
  cuda::launch_rotate(rotate, stream());
  show("attn.o", args.o);
  done("attend");
}

}  // namespace fathom
