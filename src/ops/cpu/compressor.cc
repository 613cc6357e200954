#include "ops/cpu/compressor.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "base/math_inline.h"
#include "ops/cpu/cpu_ops.h"
#include "ops/cpu/dot.h"
#include "ops/cpu/lanes.h"
#include "ops/cpu/norm.h"
#include "ops/cpu/probing.h"
#include "ops/cpu/quantize.h"
#include "ops/cpu/rope.h"
#include "ops/cpu/scratch.h"

namespace fathom {
namespace cpu {

void pool_group(CpuPath path, const PoolGroup& args) {
  const PoolGroup g = args;
  on_path(
      path, [=]() __attribute__((always_inline)) {
        constexpr int64_t kStrip = 16;
        for (int64_t d = 0; d < g.width; d += kStrip) {
          float top[kStrip];
          float total[kStrip] = {};
          float sum[kStrip] = {};
          for (int64_t j = 0; j < kStrip; ++j) top[j] = g.z[0][d + j];
          for (int64_t i = 1; i < g.m; ++i) {
            for (int64_t j = 0; j < kStrip; ++j) {
              top[j] = g.z[i][d + j] > top[j] ? g.z[i][d + j] : top[j];
            }
          }
          for (int64_t i = 0; i < g.m; ++i) {
            for (int64_t j = 0; j < kStrip; ++j) total[j] += exp_f32_inline(g.z[i][d + j] - top[j]);
          }
          for (int64_t i = 0; i < g.m; ++i) {
            for (int64_t j = 0; j < kStrip; ++j) {
              sum[j] += exp_f32_inline(g.z[i][d + j] - top[j]) / total[j] * g.a[i][d + j];
            }
          }
          for (int64_t j = 0; j < kStrip; ++j) g.c[d + j] = round_to_bf16(sum[j]);
        }
      });
}

namespace {

constexpr int64_t kRowTile = 128;  // rows that share one walk over the projections
constexpr int64_t kMaxRatio = 64;  // a group fits a block of source tokens

// A group that the step completes and writes.
struct Group {
  int64_t sequence = 0;
  int64_t entry = 0;
};

// Rows [begin, end) of the step are projected: the tokens of written groups and of the last,
// unfinished one.
struct Span {
  int64_t begin = 0;
  int64_t end = 0;
};

struct CompressPlan {
  std::vector<Group> groups;
  std::vector<Span> spans;  // a sequence each
};

void make_plan(const CompressArgs& args, CompressPlan* plan) {
  const int64_t m = args.main.stream.ratio;
  plan->groups.clear();
  plan->spans.clear();
  for (int64_t s = 0; s < args.rows->n_sequences(); ++s) {
    const SequenceRows& sequence = args.rows->sequence(s);
    const int64_t end = sequence.first_position + sequence.n_rows;
    // The first group is the one of the first row, or the first with (g + 1) m - 1 >= write_from.
    const int64_t first = std::max(sequence.first_position, sequence.write_from) / m;
    for (int64_t g = first; (g + 1) * m <= end; ++g) plan->groups.push_back({s, g});
    const int64_t unfinished = end / m * m;
    const int64_t lowest =
        std::min(std::max(std::min(first * m, unfinished), sequence.first_position), end);
    const int64_t offset = args.rows->first_row(s) - sequence.first_position;
    plan->spans.push_back({lowest + offset, end + offset});
  }
}

// out rows [begin, end) of the step = x W^T in fp32, or rounded to bf16 (and held as fp32).
class Projection {
 public:
  Projection(ThreadPool& pool, CpuPath path) : pool_(pool), path_(path) {}

  struct Args {
    float* out = nullptr;
    const float* x = nullptr;  // [n_rows, padded K]
    int64_t n_rows = 0;
    const Weight* w = nullptr;
    bool round = false;
  };
  void run(const Args& args) {
    const int64_t width = args.w->out();
    const int64_t K = padded_width(args.w->in());
    const int64_t grain = row_grain(std::max<int64_t>(1, args.n_rows * K / 8));
    pool_.parallel_for(width, grain, [&](int64_t begin, int64_t end) {
      matmul(path_, {.out = args.out + begin,
                     .out_stride = width,
                     .x = args.x,
                     .n_rows = args.n_rows,
                     .w = args.w,
                     .o_begin = begin,
                     .o_end = end});
    });
    if (!args.round) return;
    for (int64_t i = 0; i < args.n_rows * width; ++i) args.out[i] = round_to_bf16(args.out[i]);
  }

 private:
  ThreadPool& pool_;
  CpuPath path_;
};

// The word: projections, latents, then one entry and one key a group.
class CompressPass {
 public:
  CompressPass(Ops& ops, ThreadPool& pool, CpuPath path, const CompressArgs& args)
      : ops_(ops), pool_(pool), path_(path), args_(args) {}

  void run() {
    make_plan(args_, &plan_);
    find_bases();
    project_rows();
    latents();
    if (n_groups() > 0) {
      index_keys();
      entries();
    }
    if (ratio() > 1) keep_remainder();
    if (ops_.probing()) show_index_keys();
  }

 private:
  struct Projected;
  struct Latents;
  struct Keys;
  struct Work;

  int64_t ratio() const { return args_.main.stream.ratio; }
  int64_t width() const { return args_.wkv.out(); }
  int64_t index_width() const { return args_.wk.out(); }
  int64_t half() const { return args_.inv_freq.dim(0); }
  int64_t n_groups() const { return static_cast<int64_t>(plan_.groups.size()); }
  const Group& group(int64_t i) const { return plan_.groups[static_cast<size_t>(i)]; }
  int64_t group_grain() const { return row_grain(4 * width()); }

  void find_bases() {
    n_projected_ = 0;
    bases_.clear();
    for (const Span& span : plan_.spans) {
      bases_.push_back(n_projected_ - span.begin);
      n_projected_ += span.end - span.begin;
    }
    a_ = scratch<Projected>(2 * n_projected_ * width());
    z_ = a_ + n_projected_ * width();
  }

  // The row of a_ and z_ that belongs to an absolute position of a sequence.
  int64_t projected_row(int64_t s, int64_t position) const {
    const int64_t row =
        args_.rows->first_row(s) + position - args_.rows->sequence(s).first_position;
    return bases_[static_cast<size_t>(s)] + row;
  }

  void project_rows() {
    struct X;
    const int64_t K = padded_width(args_.x.width());
    int64_t done = 0;
    Projection projection(pool_, path_);
    for (const Span& span : plan_.spans) {
      for (int64_t row = span.begin; row < span.end; row += kRowTile) {
        const int64_t n = std::min(kRowTile, span.end - row);
        float* x = scratch<X>(std::min(kRowTile, n_projected_) * K);
        expand_rows(args_.x, WeightFormat::kBf16, row, row + n, x);
        projection.run({a_ + done * width(), x, n, &args_.wkv, ratio() == 1});
        if (ratio() > 1) projection.run({z_ + done * width(), x, n, &args_.wgate, false});
        done += n;
      }
    }
  }

  // (a, z) of a token of a group: projected in this step, or kept from an earlier one.
  const float* token_row(const Group& g, int64_t i, bool gate) const {
    const int64_t position = g.entry * ratio() + i;
    if (position < args_.rows->sequence(g.sequence).first_position) {
      return reinterpret_cast<const float*>(
          args_.remainder.payload(g.sequence, 2 * i + (gate ? 1 : 0)));
    }
    return (gate ? z_ : a_) + projected_row(g.sequence, position) * width();
  }

  void latent(int64_t i) {
    const Group& g = group(i);
    float* c = c_ + i * width();
    if (ratio() == 1) {
      std::copy_n(token_row(g, 0, false), width(), c);
    } else {
      std::array<const float*, kMaxRatio> a;
      std::array<const float*, kMaxRatio> z;
      for (int64_t t = 0; t < ratio(); ++t) {
        a[static_cast<size_t>(t)] = token_row(g, t, false);
        z[static_cast<size_t>(t)] = token_row(g, t, true);
      }
      pool_group(path_, {c, a.data(), z.data(), ratio(), width()});
    }
    rms_norm_row(path_, {c, c, args_.norm.as<Bf16>(), width(), args_.eps});
  }

  void latents() {
    c_ = scratch<Latents>(n_groups() * width());
    pool_.parallel_for(n_groups(), group_grain(), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) latent(i);
    });
    if (ops_.probing() && n_groups() > 0) {
      show_rounded(ops_, "attn.c", c_, {n_groups(), width()});
    }
  }

  void rotate(int64_t i, float* row, int64_t row_width) const {
    float* tables = scratch<Work>(2 * half());
    rotation_at(group(i).entry * ratio(), args_.inv_freq.as<float>(), half(), tables,
                tables + half());
    rotate_tail(row, row_width, {tables, tables + half(), half()});
  }

  // From the latent before it is rotated.
  void index_keys() {
    float* keys = scratch<Keys>(n_groups() * index_width());
    Projection(pool_, path_).run({keys, c_, n_groups(), &args_.wk, true});
    pool_.parallel_for(n_groups(), group_grain(), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        float* key = keys + i * index_width();
        rms_norm_row(path_, {key, key, args_.k_norm.as<Bf16>(), index_width(), args_.eps});
        rotate(i, key, index_width());
      }
    });
    if (ops_.probing()) {
      show_rounded(ops_, "attn.index_k_rope", keys, {n_groups(), index_width()});
    }
    for (int64_t i = 0; i < n_groups(); ++i) {
      const Group& g = group(i);
      quantize_idx4(path_, keys + i * index_width(), index_width(),
                    args_.index.payload(g.sequence, g.entry),
                    args_.index.scale(g.sequence, g.entry));
    }
  }

  void write_entry(int64_t i) const {
    const Group& g = group(i);
    quantize_kv4(path_, c_ + i * width(), width(), args_.main.payload(g.sequence, g.entry),
                 args_.main.scale(g.sequence, g.entry));
  }

  void entries() {
    const bool probing = ops_.probing();
    pool_.parallel_for(n_groups(), group_grain(), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        rotate(i, c_ + i * width(), width());
        if (!probing) write_entry(i);
      }
    });
    if (probing) show_entries();
  }

  void show_entries() {
    show_rounded(ops_, "attn.c_rope", c_, {n_groups(), width()});
    for (int64_t i = 0; i < n_groups(); ++i) {
      const Group& g = group(i);
      write_entry(i);
      dequantize_kv4(args_.main.payload(g.sequence, g.entry), args_.main.scale(g.sequence, g.entry),
                     width(), c_ + i * width());
    }
    // KV4 is not idempotent, so entries are not written again: this look is read-only.
    show_rounded(ops_, "attn.C", c_, {n_groups(), width()});
  }

  void show_index_keys() {
    const SequenceRows& sequence = args_.rows->sequence(0);
    const int64_t n = (sequence.first_position + sequence.n_rows) / ratio();
    if (n == 0) return;
    std::vector<float> keys(static_cast<size_t>(n * index_width()));
    for (int64_t g = 0; g < n; ++g) {
      dequantize_idx4(args_.index.payload(0, g), args_.index.scale(0, g), index_width(),
                      keys.data() + g * index_width());
    }
    show_rounded(ops_, "attn.index_k", keys.data(), {n, index_width()});
  }

  // Tokens of the group that the step leaves unfinished and that the step itself brought.
  void keep_remainder() {
    const auto bytes = static_cast<size_t>(width()) * sizeof(float);
    for (int64_t s = 0; s < args_.rows->n_sequences(); ++s) {
      const SequenceRows& sequence = args_.rows->sequence(s);
      const int64_t end = sequence.first_position + sequence.n_rows;
      const int64_t group_begin = end / ratio() * ratio();
      for (int64_t p = std::max(group_begin, sequence.first_position); p < end; ++p) {
        const int64_t i = p - group_begin;
        const int64_t row = projected_row(s, p);
        std::memcpy(args_.remainder.payload(s, 2 * i), a_ + row * width(), bytes);
        std::memcpy(args_.remainder.payload(s, 2 * i + 1), z_ + row * width(), bytes);
      }
    }
  }

  Ops& ops_;
  ThreadPool& pool_;
  CpuPath path_;
  const CompressArgs& args_;
  CompressPlan plan_;
  std::vector<int64_t> bases_;  // [sequence] projected row = base + row of the step
  int64_t n_projected_ = 0;
  float* a_ = nullptr;  // [n_projected, dh]
  float* z_ = nullptr;
  float* c_ = nullptr;  // [n_groups, dh]
};

}  // namespace
}  // namespace cpu

void CpuOps::do_compress(const CompressArgs& args) {
  FATHOM_CHECK(args.main.stream.ratio <= cpu::kMaxRatio);
  cpu::CompressPass(*this, pool_, path_, args).run();
}

}  // namespace fathom
