#include "ops/cpu/attention.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "ops/cpu/cpu_ops.h"
#include "ops/cpu/lanes.h"
#include "ops/cpu/quantize.h"
#include "ops/cpu/rope.h"
#include "ops/cpu/scratch.h"

namespace fathom {
namespace cpu {
namespace {

// Window rows of all sequences as fp32, laid out by position, so that the window of a row is a run
// of rows: first those that the step can still see of the ring, then the step's own.
struct WindowTable {
  float* rows = nullptr;                 // [n_table_rows, width]
  std::vector<int64_t> lowest;           // [sequence] position of its first table row
  std::vector<int64_t> first_table_row;  // [sequence]
  int64_t n_table_rows = 0;
};

int64_t lowest_position(const SequenceRows& sequence, int64_t window) {
  return std::max<int64_t>({sequence.window_low, sequence.first_position - (window - 1), 0});
}

void plan_table(const AttendArgs& args, WindowTable* table) {
  const int64_t n_sequences = args.rows->n_sequences();
  table->lowest.resize(static_cast<size_t>(n_sequences));
  table->first_table_row.resize(static_cast<size_t>(n_sequences));
  table->n_table_rows = 0;
  for (int64_t s = 0; s < n_sequences; ++s) {
    const SequenceRows& sequence = args.rows->sequence(s);
    const auto i = static_cast<size_t>(s);
    table->lowest[i] =
        std::min(lowest_position(sequence, args.window.stream.rows), sequence.first_position);
    table->first_table_row[i] = table->n_table_rows;
    table->n_table_rows += sequence.first_position + sequence.n_rows - table->lowest[i];
  }
}

void fill_table(CpuPath path, const AttendArgs& args, const WindowTable& table, int64_t begin,
                int64_t end) {
  const int64_t width = args.window.stream.payload_bytes;
  const int64_t n_sequences = args.rows->n_sequences();
  int64_t s = 0;
  for (int64_t r = begin; r < end; ++r) {
    while (s + 1 < n_sequences && r >= table.first_table_row[static_cast<size_t>(s + 1)]) ++s;
    const auto i = static_cast<size_t>(s);
    const int64_t position = table.lowest[i] + r - table.first_table_row[i];
    const int64_t first = args.rows->sequence(s).first_position;
    float* out = table.rows + r * width;
    if (position < first) {
      const int64_t slot = position % args.window.stream.rows;
      dequantize_a8(path, args.window.payload(s, slot), args.window.scale(s, slot), width, out);
    } else {
      const int64_t row = args.rows->first_row(s) + position - first;
      dequantize_a8(path, args.rows_kv.payload.row<uint8_t>(row),
                    args.rows_kv.scales.row<uint8_t>(row), width, out);
    }
  }
}

// Heads [h_begin, h_end) of one row: gathers its list block by block.
class RowWalk {
 public:
  RowWalk(CpuPath path, const AttendArgs& args, const WindowTable& table)
      : path_(path), args_(args), table_(table), width_(args.window.stream.payload_bytes) {}

  // q: rotated, fp32, from head h_begin on.
  void run(int64_t row, const float* q, const SoftmaxState& state) {
    find_list(row);
    begin_softmax(state);
    const int64_t W = args_.window.stream.rows;
    const int64_t n_slots = W + (n_ids_ > 0 ? n_ids_ : 0);
    for (int64_t slot = 0; slot < n_slots; slot += kSlotsPerBlock) {
      SlotRun runs[2];
      int n_runs = 0;
      const int64_t end = slot + kSlotsPerBlock;
      if (slot < n_window_) {
        runs[n_runs++] = {0, std::min(end, n_window_) - slot, window_ + slot * width_};
      }
      const int64_t first = std::max<int64_t>(slot - W, 0);
      const int64_t last = std::min(end - W, n_ids_);
      if (first < last) {
        runs[n_runs++] = {W + first - slot, last - first, gather(first, last)};
      }
      if (n_runs > 0) attend_block(path_, state, {q, runs, n_runs, scale()});
    }
  }

 private:
  float scale() const { return static_cast<float>(1.0 / std::sqrt(static_cast<double>(width_))); }

  void find_list(int64_t row) {
    sequence_ = args_.rows->sequence_of(row);
    const auto s = static_cast<size_t>(sequence_);
    const int64_t position = args_.rows->position(row);
    const int64_t low = std::max<int64_t>(
        {args_.rows->sequence(sequence_).window_low, position - args_.window.stream.rows + 1, 0});
    n_window_ = std::max<int64_t>(0, position - low + 1);
    window_ = table_.rows + (table_.first_table_row[s] + low - table_.lowest[s]) * width_;
    ids_ = args_.topk.empty() ? nullptr : args_.topk.row<int32_t>(row);
    const int64_t K = args_.topk.empty() ? 0 : args_.topk.dim(1);
    n_ids_ = 0;
    while (n_ids_ < K && ids_[n_ids_] != kNoEntry) ++n_ids_;
  }

  const float* gather(int64_t first, int64_t last) const {
    struct Gathered;
    float* out = scratch<Gathered>(kSlotsPerBlock * width_);
    for (int64_t i = first; i < last; ++i) {
      dequantize_kv4(args_.global.payload(sequence_, ids_[i]),
                     args_.global.scale(sequence_, ids_[i]), width_, out + (i - first) * width_);
    }
    return out;
  }

  CpuPath path_;
  const AttendArgs& args_;
  const WindowTable& table_;
  int64_t width_;
  int64_t sequence_ = 0;
  const float* window_ = nullptr;
  int64_t n_window_ = 0;
  const int32_t* ids_ = nullptr;
  int64_t n_ids_ = 0;
};

struct HeadRange {
  int64_t begin = 0;
  int64_t end = 0;
};

struct AttendPass {
  CpuPath path;
  const AttendArgs& args;
  const WindowTable& table;

  int64_t width() const { return args.window.stream.payload_bytes; }
  int64_t n_heads() const { return args.sink.dim(0); }

  void rotate(int64_t row, float* heads, int64_t count, float sign) const {
    const Rotation rotation = {args.rope.cos.row<float>(row), args.rope.sin.row<float>(row),
                               args.rope.inv_freq.dim(0)};
    for (int64_t h = 0; h < count; ++h) rotate_tail(heads + h * width(), width(), rotation, sign);
  }

  // Leaves these heads of row in `acc`, not yet rotated back. `q_bf16` is rotated or not.
  void attend(int64_t row, const HeadRange& heads, const Bf16* q_bf16, float* acc,
              bool rotated) const {
    struct Query;
    struct Small;
    const int64_t count = heads.end - heads.begin;
    float* q = scratch<Query>(count * width());
    widen(path, q_bf16 + heads.begin * width(), count * width(), q);
    if (!rotated) rotate(row, q, count, 1.0f);
    float* small = scratch<Small>(count * (2 + kSlotsPerBlock));
    const SoftmaxState state = {.acc = acc,
                                .maximum = small,
                                .denominator = small + count,
                                .scores = small + 2 * count,
                                .n_heads = count,
                                .width = width()};
    RowWalk(path, args, table).run(row, q, state);
    finish_softmax(path, state, args.sink.as<float>() + heads.begin);
  }
};

// Heads that one unit of work takes: all of a row where there are rows enough for the threads.
int64_t heads_per_unit(int64_t n_heads, int64_t n_rows, int64_t n_threads, int64_t head_cost) {
  if (n_rows >= n_threads || n_heads * head_cost < (1 << 19)) return n_heads;
  const int64_t parts = (n_threads + n_rows - 1) / n_rows;
  return std::max<int64_t>(8, (n_heads + parts - 1) / parts);
}

void run_fused(ThreadPool& pool, const AttendPass& pass) {
  const AttendArgs& args = pass.args;
  const int64_t n_rows = args.rows->n_rows();
  const int64_t n_heads = pass.n_heads();
  const int64_t slots = args.window.stream.rows + (args.topk.empty() ? 0 : args.topk.dim(1));
  const int64_t head_cost = pass.width() * slots / 4;
  const int64_t heads = heads_per_unit(n_heads, n_rows, pool.n_threads(), head_cost);
  const int64_t units = (n_heads + heads - 1) / heads;
  const int64_t grain = row_grain(heads * head_cost);
  pool.parallel_for(n_rows * units, grain, [&](int64_t first, int64_t last) {
    struct Output;
    float* acc = scratch<Output>(heads * pass.width());
    for (int64_t unit = first; unit < last; ++unit) {
      const int64_t row = unit / units;
      const int64_t begin = unit % units * heads;
      const int64_t end = std::min(begin + heads, n_heads);
      pass.attend(row, {begin, end}, args.q.row<Bf16>(row), acc, false);
      pass.rotate(row, acc, end - begin, -1.0f);
      narrow(pass.path, acc, (end - begin) * pass.width(),
             args.o.row<Bf16>(row) + begin * pass.width());
    }
  });
}

void run_probed(Ops& ops, const AttendPass& pass) {
  const AttendArgs& args = pass.args;
  const int64_t n_rows = args.rows->n_rows();
  const int64_t row_width = pass.n_heads() * pass.width();
  const Buffer buffer(n_rows * row_width * dtype_bytes(DType::kBf16));
  const Tensor q = Tensor::dense(buffer.data(), DType::kBf16, {n_rows, row_width});
  std::vector<float> work(static_cast<size_t>(row_width));
  const auto rotate_all = [&](const Tensor& out, const Tensor& in, float sign) {
    for (int64_t row = 0; row < n_rows; ++row) {
      widen(pass.path, in.row<Bf16>(row), row_width, work.data());
      pass.rotate(row, work.data(), pass.n_heads(), sign);
      narrow(pass.path, work.data(), row_width, out.row<Bf16>(row));
    }
  };
  rotate_all(q, args.q, 1.0f);
  ops.show("attn.q", q.reshaped({n_rows, pass.n_heads(), pass.width()}));
  for (int64_t row = 0; row < n_rows; ++row) {
    pass.attend(row, {0, pass.n_heads()}, q.row<Bf16>(row), work.data(), true);
    narrow(pass.path, work.data(), row_width, args.o.row<Bf16>(row));
  }
  ops.show("attn.o_raw", args.o.reshaped({n_rows, pass.n_heads(), pass.width()}));
  rotate_all(args.o, args.o, -1.0f);
  ops.show("attn.o", args.o);
}

}  // namespace
}  // namespace cpu

void CpuOps::do_attend(const AttendArgs& args) {
  struct Table;
  const int64_t width = args.window.stream.payload_bytes;
  thread_local cpu::WindowTable kept;
  cpu::WindowTable& table = kept;  // of this thread, in the loops of the other ones too
  cpu::plan_table(args, &table);
  table.rows = cpu::scratch<Table>(table.n_table_rows * width);
  pool_.parallel_for(table.n_table_rows, cpu::row_grain(width), [&](int64_t begin, int64_t end) {
    cpu::fill_table(path_, args, table, begin, end);
  });
  const cpu::AttendPass pass = {path_, args, table};
  if (probing()) return cpu::run_probed(*this, pass);
  cpu::run_fused(pool_, pass);
}

}  // namespace fathom
