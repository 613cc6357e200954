#include "train/canonical_rows.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/math_inline.h"
#include "tensor/codecs.h"

namespace fathom::train::rows {

namespace {

constexpr int64_t kSlots = 64;
constexpr float kNever = -std::numeric_limits<float>::infinity();

#if defined(__x86_64__)
template <typename Body>
[[gnu::target("avx2,fma"), gnu::noinline]] void with_fma(const Body& body) {
  body();
}
#endif

// Runs the body with fused multiply-adds as instructions where the machine has them; as calls
// otherwise, with the same bits. The body is an always_inline lambda.
template <typename Body>
void run(const Body& body) {
#if defined(__x86_64__)
  static const bool fused = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  if (fused) {
    with_fma(body);
    return;
  }
#endif
  body();
}

[[gnu::always_inline]] inline float fold(float* lanes) {
  for (int64_t j = 0; j < 8; ++j) {
    lanes[j] += lanes[j + 8];
  }
  for (int64_t j = 0; j < 4; ++j) {
    lanes[j] += lanes[j + 4];
  }
  lanes[0] += lanes[2];
  lanes[1] += lanes[3];
  return lanes[0] + lanes[1];
}

// out[o] of kRows rows of b, side by side so that their sums need not wait for each other.
template <int64_t kRows>
[[gnu::always_inline]] inline void trees(const float* a, const float* b, int64_t width,
                                         float* out) {
  float lanes[kRows][16] = {};
  for (int64_t k = 0; k < width; k += kBlock) {
    for (int64_t o = 0; o < kRows; ++o) {
      const float* row = b + o * width + k;
      for (int64_t j = 0; j < 16; ++j) {
        lanes[o][j] += __builtin_fmaf(a[k + j + 16], row[j + 16], a[k + j] * row[j]);
      }
    }
  }
  for (int64_t o = 0; o < kRows; ++o) {
    out[o] = fold(lanes[o]);
  }
}

// Scores of one block of slots for one head, holes at minus infinity; whether any slot is filled.
[[gnu::always_inline]] inline bool block_scores(const Attend& a, const float* q, int64_t first,
                                                float* scores) {
  bool any = false;
  for (int64_t i = 0; i < kSlots; ++i) {
    const int64_t slot = first + i;
    const int64_t row = slot < a.n_slots ? a.slots[slot] : -1;
    scores[i] = kNever;
    if (row >= 0) {
      trees<1>(q, a.vectors + row * a.width, a.width, scores + i);
      scores[i] *= a.scale;
      any = true;
    }
  }
  return any;
}

[[gnu::always_inline]] inline void attend_head(const Attend& a, int64_t head) {
  const float* q = a.q + head * a.width;
  float* acc = a.out + head * a.width;
  std::fill_n(acc, a.width, 0.0F);
  float top = -1e30F;
  float sum = 0;
  for (int64_t first = 0; first < a.n_slots; first += kSlots) {
    float scores[kSlots];
    if (!block_scores(a, q, first, scores)) {
      continue;
    }
    const float before = top;
    top = std::max(top, *std::max_element(scores, scores + kSlots));
    float lanes[16] = {};
    for (int64_t i = 0; i < kSlots; i += 16) {
      for (int64_t j = 0; j < 16; ++j) {
        scores[i + j] = exp_f32_inline(scores[i + j] - top);
        lanes[j] += scores[i + j];
      }
    }
    const float keep = exp_f32_inline(before - top);
    sum = sum * keep + fold(lanes);
    for (int64_t c = 0; c < a.width; ++c) {
      acc[c] *= keep;
    }
    for (int64_t i = 0; i < std::min(kSlots, a.n_slots - first); ++i) {
      if (a.slots[first + i] < 0) {
        continue;
      }
      const float p = round_to_bf16(scores[i]);
      const float* v = a.vectors + a.slots[first + i] * a.width;
      for (int64_t c = 0; c < a.width; ++c) {
        acc[c] = __builtin_fmaf(p, v[c], acc[c]);
      }
    }
  }
  const float total = sum + exp_f32_inline(a.sink[head] - top);
  for (int64_t c = 0; c < a.width; ++c) {
    acc[c] = round_to_bf16(acc[c] / total);
  }
}

}  // namespace

float pair_tree(const float* a, const float* b, int64_t width) {
  float out = 0;
  run([&]() __attribute__((always_inline)) { trees<1>(a, b, width, &out); });
  return out;
}

void products(const Products& p, int64_t begin, int64_t end) {
  run([&]() __attribute__((always_inline)) {
    constexpr int64_t kTile = 4;
    int64_t o = begin;
    for (; o + kTile <= end; o += kTile) {
      for (int64_t r = 0; r < p.n; ++r) {
        trees<kTile>(p.a + r * p.width, p.b + o * p.width, p.width, p.out + r * p.m + o);
      }
    }
    for (; o < end; ++o) {
      for (int64_t r = 0; r < p.n; ++r) {
        trees<1>(p.a + r * p.width, p.b + o * p.width, p.width, p.out + r * p.m + o);
      }
    }
  });
}

void index_scores(float* out, const float* dots, const float* w, int64_t heads, int64_t n) {
  run([&]() __attribute__((always_inline)) {
    std::fill_n(out, n, 0.0F);
    for (int64_t h = 0; h < heads; ++h) {
      for (int64_t e = 0; e < n; ++e) {
        const float dot = dots[h * n + e];
        out[e] = __builtin_fmaf(w[h], dot > 0 ? dot : 0.0F, out[e]);
      }
    }
  });
}

void attend(const Attend& a) {
  run([&]() __attribute__((always_inline)) {
    for (int64_t head = 0; head < a.heads; ++head) {
      attend_head(a, head);
    }
  });
}

}  // namespace fathom::train::rows
