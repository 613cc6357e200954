#include "ops/cpu/indexer.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "ops/cpu/best.h"
#include "ops/cpu/cpu_ops.h"
#include "ops/cpu/dot.h"
#include "ops/cpu/lanes.h"
#include "ops/cpu/probing.h"
#include "ops/cpu/quantize.h"
#include "ops/cpu/rope.h"
#include "ops/cpu/scratch.h"

namespace fathom {
namespace cpu {

void combine_heads(CpuPath path, const CombineHeads& args) {
  const CombineHeads a = args;
  on_path(
      path, [=]() __attribute__((always_inline)) {
        for (int64_t e = 0; e < a.n; ++e) a.scores[e] = 0.0f;
        for (int64_t h = 0; h < a.n_heads; ++h) {
          const float w = a.w[h];
          const float* dots = a.dots + h * a.stride;
          if (a.mode == IndexScores::kF32) {
            for (int64_t e = 0; e < a.n; ++e) {
              const float relu = dots[e] > 0.0f ? dots[e] : 0.0f;
              a.scores[e] = __builtin_fmaf(w, relu, a.scores[e]);
            }
          } else {
            for (int64_t e = 0; e < a.n; ++e) {
              const float rounded = round_to_bf16(dots[e]);
              a.scores[e] += round_to_bf16((rounded > 0.0f ? rounded : 0.0f) * w);
            }
          }
        }
        if (a.mode == IndexScores::kBf16) {
          for (int64_t e = 0; e < a.n; ++e) a.scores[e] = round_to_bf16(a.scores[e]);
        }
      });
}

void index_weights(const Bf16* weights, int64_t n_heads, int64_t head_width, float* w) {
  const auto scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(head_width)) /
                                        std::sqrt(static_cast<double>(n_heads)));
  for (int64_t h = 0; h < n_heads; ++h) w[h] = round_to_bf16(bf16_to_float(weights[h]) * scale);
}

namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();
constexpr float kPinned = std::numeric_limits<float>::infinity();

// What one row keeps while its candidates stream by.
struct Selection {
  BestK entries;
  BestK blocks;
};

// Rows of one sequence that share a walk over its keys; a row with a true pool walks alone.
struct RowBlock {
  int64_t begin = 0;
  int64_t end = 0;
  bool listed = false;
};

class IndexPass {
 public:
  IndexPass(Ops& ops, ThreadPool& pool, CpuPath path, const IndexSelectArgs& args)
      : ops_(ops), pool_(pool), path_(path), args_(args) {}

  void run() {
    FATHOM_CHECK(args_.pool_in.empty() || args_.pool_out.empty());
    if (ops_.probing()) return run_probed();
    plan_blocks();
    const auto n_blocks = static_cast<int64_t>(blocks_.size());
    if (n_blocks == 0) return;
    if (cost_ < kWorthThreads) return run_range(0, n_blocks);
    if (n_blocks >= pool_.n_threads()) {
      return pool_.parallel_for(n_blocks, 1,
                                [this](int64_t begin, int64_t end) { run_range(begin, end); });
    }
    for (const RowBlock& block : blocks_) run_split(block);
  }

 private:
  static constexpr int64_t kTile = 64;                        // entries
  static constexpr int64_t kHeadRows = 256;                   // heads of a row block
  static constexpr int64_t kWorthThreads = int64_t{1} << 19;  // multiplications

  int64_t n_heads() const { return args_.n_heads; }
  int64_t head_width() const { return 2 * args_.keys.stream.payload_bytes; }
  int64_t row_width() const { return n_heads() * head_width(); }
  int64_t n_chosen() const { return args_.topk.dim(1); }
  int64_t n_pool() const { return args_.pool_out.empty() ? 0 : args_.pool_out.dim(1); }
  int64_t visible(int64_t row) const {
    return visible_entries(args_.rows->position(row), args_.keys.stream.ratio);
  }
  int64_t n_blocks_of(int64_t row) const {
    return (visible(row) + args_.block_size - 1) / args_.block_size;
  }
  // Whole candidate blocks, so that a block never straddles tiles.
  int64_t tile() const { return std::max<int64_t>(1, kTile / args_.block_size) * args_.block_size; }

  int64_t n_listed(int64_t row) const {
    const int32_t* blocks = args_.pool_in.row<int32_t>(row);
    int64_t n = 0;
    while (n < args_.pool_in.dim(1) && blocks[n] != kNoEntry) ++n;
    return n;
  }

  // ---- plan ----

  // Everything is chosen and every block is in the pool: no score decides anything.
  bool settle_without_scores(int64_t row) const {
    if (visible(row) > n_chosen() || (n_pool() > 0 && n_blocks_of(row) > n_pool())) return false;
    if (!args_.pool_in.empty() && n_listed(row) < n_blocks_of(row)) return false;
    fill_ascending(args_.topk.row<int32_t>(row), visible(row), n_chosen());
    if (n_pool() > 0) fill_ascending(args_.pool_out.row<int32_t>(row), n_blocks_of(row), n_pool());
    return true;
  }

  static void fill_ascending(int32_t* out, int64_t n, int64_t places) {
    for (int64_t i = 0; i < places; ++i) out[i] = i < n ? static_cast<int32_t>(i) : kNoEntry;
  }

  void plan_blocks() {
    const int64_t rows_max = std::max<int64_t>(1, kHeadRows / n_heads());
    for (int64_t row = 0; row < args_.rows->n_rows(); ++row) {
      if (settle_without_scores(row)) continue;
      const bool listed = !args_.pool_in.empty() && n_listed(row) < n_blocks_of(row);
      cost_ += row_width() * (listed ? n_listed(row) * args_.block_size : visible(row));
      const bool joins =
          !blocks_.empty() && !listed && !blocks_.back().listed && blocks_.back().end == row &&
          row - blocks_.back().begin < rows_max &&
          args_.rows->sequence_of(blocks_.back().begin) == args_.rows->sequence_of(row);
      if (joins) {
        blocks_.back().end = row + 1;
      } else {
        blocks_.push_back({row, row + 1, listed});
      }
    }
  }

  // ---- queries ----

  // RoPE of the heads of a row, in place.
  void rotate_row(int64_t row, float* q) const {
    const Rotation rotation = {args_.rope.cos.row<float>(row), args_.rope.sin.row<float>(row),
                               args_.rope.inv_freq.dim(0)};
    for (int64_t h = 0; h < n_heads(); ++h) {
      rotate_tail(q + h * head_width(), head_width(), rotation);
    }
  }

  void quantize_row(float* q) const {
    struct Codes;
    auto* codes = scratch<Codes, uint8_t>(row_width() / 2 + row_width() / 32);
    quantize_idx4(path_, q, row_width(), codes, codes + row_width() / 2);
    dequantize_idx4(codes, codes + row_width() / 2, row_width(), q);
  }

  const float* queries(const RowBlock& block) const {
    struct Queries;
    if (shown_q_ != nullptr) return shown_q_ + block.begin * row_width();
    float* q = scratch<Queries>((block.end - block.begin) * row_width());
    for (int64_t row = block.begin; row < block.end; ++row) {
      float* out = q + (row - block.begin) * row_width();
      widen(path_, args_.q.row<Bf16>(row), row_width(), out);
      rotate_row(row, out);
      quantize_row(out);
    }
    return q;
  }

  const float* weights(const RowBlock& block) const {
    struct Weights;
    float* w = scratch<Weights>((block.end - block.begin) * n_heads());
    for (int64_t row = block.begin; row < block.end; ++row) {
      index_weights(args_.weights.row<Bf16>(row), n_heads(), head_width(),
                    w + (row - block.begin) * n_heads());
    }
    return w;
  }

  // ---- scores ----

  // One tile of dequantised keys and its products with the heads of rows [first, block.end).
  struct Tile {
    float* keys = nullptr;    // [tile, di]
    float* dots = nullptr;    // [heads, tile]
    float* scores = nullptr;  // [tile]
  };
  Tile make_tile(const RowBlock& block) const {
    struct Keys;
    struct Dots;
    struct Scores;
    return {scratch<Keys>(tile() * head_width()),
            scratch<Dots>((block.end - block.begin) * n_heads() * tile()), scratch<Scores>(tile())};
  }

  void load_key(int64_t sequence, int64_t entry, float* out) const {
    dequantize_idx4(args_.keys.payload(sequence, entry), args_.keys.scale(sequence, entry),
                    head_width(), out);
  }

  void multiply(const Tile& t, const float* q, int64_t n_rows, int64_t n) const {
    const Weight keys = {.data = Tensor::dense(t.keys, DType::kF32, {n, head_width()}),
                         .format = WeightFormat::kF32};
    matmul(path_, {.out = t.dots,
                   .out_stride = tile(),
                   .x = q,
                   .n_rows = n_rows * n_heads(),
                   .w = &keys,
                   .o_begin = 0,
                   .o_end = n});
  }

  void combine(const Tile& t, int64_t row_in_dots, const float* w, int64_t n) const {
    combine_heads(path_, {.scores = t.scores,
                          .dots = t.dots + row_in_dots * n_heads() * tile(),
                          .stride = tile(),
                          .w = w,
                          .n_heads = n_heads(),
                          .n = n,
                          .mode = args_.scores});
  }

  // Calls sink(row, first entry, scores, n) for runs of entries in [lo, hi) that a row may see.
  template <typename Sink>
  void walk_range(const RowBlock& block, int64_t lo, int64_t hi, const Sink& sink) const {
    const int64_t sequence = args_.rows->sequence_of(block.begin);
    const float* q = queries(block);
    const float* w = weights(block);
    const Tile t = make_tile(block);
    int64_t first = block.begin;
    hi = std::min(hi, visible(block.end - 1));
    for (int64_t e = lo; e < hi; e += tile()) {
      const int64_t n = std::min(tile(), hi - e);
      while (visible(first) <= e) ++first;  // later rows see more
      for (int64_t i = 0; i < n; ++i) load_key(sequence, e + i, t.keys + i * head_width());
      multiply(t, q + (first - block.begin) * row_width(), block.end - first, n);
      for (int64_t row = first; row < block.end; ++row) {
        combine(t, row - first, w + (row - block.begin) * n_heads(), n);
        sink(row, e, t.scores, std::min(n, visible(row) - e));
      }
    }
  }

  // The same for places [lo, hi) of the row's list of blocks.
  template <typename Sink>
  void walk_list(const RowBlock& block, int64_t lo, int64_t hi, const Sink& sink) const {
    const int64_t row = block.begin;
    const int64_t sequence = args_.rows->sequence_of(row);
    const int32_t* list = args_.pool_in.row<int32_t>(row);
    const int64_t step = tile() / args_.block_size;
    const float* q = queries(block);
    const float* w = weights(block);
    const Tile t = make_tile(block);
    const auto size_of = [&](int64_t i) {
      return std::clamp<int64_t>(visible(row) - list[i] * args_.block_size, 0, args_.block_size);
    };
    hi = std::min(hi, n_listed(row));
    for (int64_t i = lo; i < hi; i += step) {
      int64_t n = 0;
      const int64_t end = std::min(i + step, hi);
      for (int64_t b = i; b < end; ++b) {
        for (int64_t j = 0; j < size_of(b); ++j) {
          load_key(sequence, list[b] * args_.block_size + j, t.keys + n++ * head_width());
        }
      }
      if (n == 0) continue;
      multiply(t, q, 1, n);
      combine(t, 0, w, n);
      const float* scores = t.scores;
      for (int64_t b = i; b < end; scores += size_of(b), ++b) {
        sink(row, list[b] * args_.block_size, scores, size_of(b));
      }
    }
  }

  // ---- selection ----

  // Entries [first, first + n), first at the start of a candidate block where pools are built.
  void keep(Selection* selection, int64_t row, int64_t first, const float* scores,
            int64_t n) const {
    for (int64_t i = 0; i < n; ++i) {
      selection->entries.push(scores[i], static_cast<int32_t>(first + i));
    }
    if (n_pool() == 0) return;
    const int64_t newest = (visible(row) - 1) / args_.block_size;
    for (int64_t i = 0; i < n; i += args_.block_size) {
      const int64_t b = (first + i) / args_.block_size;
      const int64_t end = std::min(n, i + args_.block_size);
      const float top = *std::max_element(scores + i, scores + end);
      selection->blocks.push(b == newest ? kPinned : top, static_cast<int32_t>(b));
    }
  }

  void begin(Selection* selection) const {
    selection->entries.begin(n_chosen());
    selection->blocks.begin(n_pool());
  }

  void write(Selection* selection, int64_t row) const {
    selection->entries.write(args_.topk.row<int32_t>(row));
    if (n_pool() > 0) selection->blocks.write(args_.pool_out.row<int32_t>(row));
  }

  void walk(const RowBlock& block, int64_t lo, int64_t hi, Selection* selections) const {
    const auto sink = [&](int64_t row, int64_t first, const float* scores, int64_t n) {
      keep(selections + (row - block.begin), row, first, scores, n);
    };
    if (block.listed) return walk_list(block, lo, hi, sink);
    walk_range(block, lo, hi, sink);
  }

  void run_range(int64_t begin_block, int64_t end_block) const {
    thread_local std::vector<Selection> selections;
    for (int64_t b = begin_block; b < end_block; ++b) {
      const RowBlock& block = blocks_[static_cast<size_t>(b)];
      const auto n_rows = static_cast<size_t>(block.end - block.begin);
      if (selections.size() < n_rows) selections.resize(n_rows);
      for (size_t i = 0; i < n_rows; ++i) begin(&selections[i]);
      walk(block, 0, std::numeric_limits<int64_t>::max(), selections.data());
      for (size_t i = 0; i < n_rows; ++i) {
        write(&selections[i], block.begin + static_cast<int64_t>(i));
      }
    }
  }

  // Few rows over many entries: threads take parts of the entries and keep their best; the order
  // of scores is total, so merging gives what one walk would give.
  void run_split(const RowBlock& block) const {
    const int64_t n_rows = block.end - block.begin;
    const int64_t unit = block.listed ? tile() / args_.block_size : tile();
    const int64_t total = block.listed ? n_listed(block.begin) : visible(block.end - 1);
    const int64_t n_units = (total + unit - 1) / unit;
    const int64_t n_parts = std::min<int64_t>(2 * pool_.n_threads(), (n_units + 7) / 8);
    const int64_t part = (n_units + n_parts - 1) / n_parts * unit;
    std::vector<Selection> selections(static_cast<size_t>(n_parts * n_rows));
    for (Selection& selection : selections) begin(&selection);
    pool_.parallel_for(n_parts, 1, [&](int64_t first, int64_t last) {
      for (int64_t p = first; p < last; ++p) {
        walk(block, p * part, std::min((p + 1) * part, total), selections.data() + p * n_rows);
      }
    });
    for (int64_t i = 0; i < n_rows; ++i) {
      Selection& kept = selections[static_cast<size_t>(i)];
      for (int64_t p = 1; p < n_parts; ++p) {
        const Selection& other = selections[static_cast<size_t>(p * n_rows + i)];
        kept.entries.merge(other.entries);
        kept.blocks.merge(other.blocks);
      }
      write(&kept, block.begin + i);
    }
  }

  // ---- probe ----

  void run_probed() {
    const int64_t n_rows = args_.rows->n_rows();
    std::vector<float> q(static_cast<size_t>(n_rows * row_width()));
    widen(path_, args_.q.as<Bf16>(), n_rows * row_width(), q.data());
    for (int64_t row = 0; row < n_rows; ++row) rotate_row(row, q.data() + row * row_width());
    show_rounded(ops_, "attn.index_q_rope", q.data(), {n_rows, n_heads(), head_width()});
    for (int64_t row = 0; row < n_rows; ++row) quantize_row(q.data() + row * row_width());
    show_rounded(ops_, "attn.index_q", q.data(), {n_rows, n_heads(), head_width()});
    shown_q_ = q.data();

    int64_t n_entries = 0;
    for (int64_t row = 0; row < n_rows; ++row) n_entries = std::max(n_entries, visible(row));
    std::vector<float> scores(static_cast<size_t>(n_rows * n_entries), kNever);
    const auto store = [&](int64_t row, int64_t first, const float* values, int64_t n) {
      std::copy_n(values, n, scores.data() + row * n_entries + first);
    };
    const int64_t all = std::numeric_limits<int64_t>::max();
    for (int64_t row = 0; row < n_rows; ++row) {
      if (visible(row) == 0) continue;
      if (args_.pool_in.empty()) {
        walk_range({row, row + 1, false}, 0, all, store);
      } else {
        walk_list({row, row + 1, true}, 0, all, store);
      }
    }
    if (n_entries > 0) {
      show_f32(ops_, "attn.index_scores", scores.data(), {n_rows, n_entries});
    }
    Selection selection;
    for (int64_t row = 0; row < n_rows; ++row) {
      begin(&selection);
      keep(&selection, row, 0, scores.data() + row * n_entries, visible(row));
      write(&selection, row);
    }
    if (n_pool() > 0) ops_.show("attn.pool_blocks", args_.pool_out);
    ops_.show("attn.topk_ids", args_.topk);
    shown_q_ = nullptr;
  }

  Ops& ops_;
  ThreadPool& pool_;
  CpuPath path_;
  const IndexSelectArgs& args_;
  std::vector<RowBlock> blocks_;
  int64_t cost_ = 0;
  const float* shown_q_ = nullptr;  // [N, Hi di] while a probe looks on
};

}  // namespace
}  // namespace cpu

void CpuOps::do_index_select(const IndexSelectArgs& args) {
  cpu::IndexPass(*this, pool_, path_, args).run();
}

}  // namespace fathom
