#include "train/selfcheck.h"

#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>

#include <chrono>
#include <cstdio>
#include <functional>
#include <vector>

#include "train/kernels.h"
#include "train/model.h"
#include "train/ops.h"
#include "train/quant.h"
#include "train/reference.h"

namespace fathom::train {

namespace {

using Word = std::function<std::vector<Tensor>(const std::vector<Tensor>&)>;

const at::Device kGpu = at::Device(at::kCUDA, 0);

Tensor random(at::IntArrayRef shape, double scale = 1.0) {
  return at::randn(shape, at::TensorOptions().device(kGpu).dtype(at::kFloat)) * scale;
}

// Distance over size, in fp64.
double apart(const Tensor& a, const Tensor& b) {
  const Tensor x = a.to(at::kDouble);
  const Tensor y = b.to(at::kDouble);
  return ((x - y).norm() / y.norm().clamp_min(1e-30)).item<double>();
}

// Inputs that the fused form takes in bf16 are rounded first, so that both see the same numbers.
struct Checker {
  bool failed = false;

  static std::vector<Tensor> leaves(const std::vector<Tensor>& inputs, bool low,
                                    const std::vector<bool>& wide) {
    std::vector<Tensor> out;
    for (size_t i = 0; i < inputs.size(); ++i) {
      Tensor t = wide[i] ? inputs[i] : inputs[i].to(at::kBFloat16);
      t = low || wide[i] ? t : t.to(at::kFloat);
      out.push_back(t.clone().detach().requires_grad_(true));
    }
    return out;
  }

  static std::vector<Tensor> results(const Word& word, std::vector<Tensor> inputs,
                                     const std::vector<Tensor>& pulls) {
    std::vector<Tensor> out = word(inputs);
    std::vector<Tensor> roots;
    std::vector<Tensor> grads;
    for (size_t i = 0; i < out.size(); ++i) {
      if (out[i].requires_grad()) {
        roots.push_back(out[i]);
        grads.push_back(pulls[i].to(out[i].scalar_type()));
      }
    }
    torch::autograd::backward(roots, grads);
    for (Tensor& value : out) {
      value = value.detach();
    }
    for (const Tensor& input : inputs) {
      out.push_back(input.grad().defined() ? input.grad() : at::zeros_like(input));
    }
    return out;
  }

  void word(const char* name, const Word& word, const std::vector<Tensor>& inputs,
            const std::vector<bool>& wide, double limit = 0.02) {
    const auto fused_in = leaves(inputs, true, wide);
    const auto plain_in = leaves(inputs, false, wide);
    std::vector<Tensor> pulls;
    {
      const at::NoGradGuard no_grad;
      for (const Tensor& value : word(fused_in)) {
        pulls.push_back(random(value.sizes()));
      }
    }
    const auto fused = results(word, fused_in, pulls);
    set_reference_ops(true);
    const auto plain = results(word, plain_in, pulls);
    set_reference_ops(false);
    std::printf("%-14s", name);
    bool bad = false;
    for (size_t i = 0; i < fused.size(); ++i) {
      const double d = apart(fused[i], plain[i]);
      const bool is_grad = i >= pulls.size();
      std::printf("  %s%zu %.1e", is_grad ? "d" : "o", is_grad ? i - pulls.size() : i, d);
      bad |= !(d < limit);
    }
    std::printf("%s\n", bad ? "  FAILED" : "");
    std::fflush(stdout);
    failed |= bad;
  }
};

constexpr int64_t kTokens = 1024;
constexpr int64_t kDim = 384;

void check_hyper(Checker& c) {
  const auto hc = [](const std::vector<Tensor>& in) {
    const HcOut out = hc_read(in[0], in[1], {in[2], in[3], in[4], 1e-6, 20}, in[5]);
    return std::vector<Tensor>{out.streams * 1.0, out.x, out.pre, out.mix};
  };
  c.word("hc_read", hc,
         {random({kTokens, 4, kDim}), random({kTokens, 4}).sigmoid(), random({24, 4 * kDim}, 0.03),
          random({3}).abs(), random({24}), random({kDim}) + 1},
         {false, true, true, true, true, false});
  c.word("hc_collapse",
         [](const std::vector<Tensor>& in) {
           return std::vector<Tensor>{hc_collapse(in[0], in[1], in[2])};
         },
         {random({kTokens, 4, kDim}), random({kTokens, 4}).sigmoid(), random({kDim}) + 1},
         {false, true, false});
  c.word("hc_write",
         [](const std::vector<Tensor>& in) {
           return std::vector<Tensor>{hc_write(in[0], in[1], in[2])};
         },
         {random({kTokens, 4, kDim}), random({kTokens, kDim}), random({kTokens, 20}).sigmoid()},
         {false, false, true});
  c.word("engram",
         [](const std::vector<Tensor>& in) {
           return std::vector<Tensor>{engram_add(in[0], in[1], in[2])};
         },
         {random({kTokens, 4, kDim}), random({kTokens, 5 * kDim}), random({4, kDim}) + 1},
         {false, false, true});
}

void check_rows(Checker& c) {
  for (const int64_t dim : {32, 64, 128, 384}) {
    c.word(
        "rms_norm",
        [](const std::vector<Tensor>& in) { return std::vector<Tensor>{rms_norm(in[0], in[1])}; },
        {random({kTokens, dim}), random({dim}) + 1}, {false, false});
  }
  const Tensor table = random({kTokens, 8, 2}).to(kGpu);
  c.word("rotate",
         [&](const std::vector<Tensor>& in) {
           return std::vector<Tensor>{rotate(in[0], {table, 512, 2}, false),
                                      rotate(in[0], {table, 256, 1}, true)};
         },
         {random({kTokens, 6, 64})}, {false});
  c.word("swiglu",
         [](const std::vector<Tensor>& in) {
           const Tensor chosen = in[1] * in[1].gt(0.5);
           return std::vector<Tensor>{swiglu(in[0], chosen, 160, 1.5)};
         },
         {random({kTokens, 2 * 9 * 160}), random({kTokens, 8}).sigmoid()}, {false, true});
  const Tensor bias = random({8}, 0.3);
  Tensor load = at::zeros({8}, bias.options());
  c.word(
      "route",
      [&](const std::vector<Tensor>& in) {
        return std::vector<Tensor>{route(in[0], bias, 2, 1.5, load)};
      },
      {random({kTokens, 8})}, {true}, 1e-4);
  c.word(
      "linear_f32",
      [](const std::vector<Tensor>& in) { return std::vector<Tensor>{linear_f32(in[0], in[1])}; },
      {random({kTokens, kDim}), random({8, kDim})}, {false, false});
  const Tensor target = at::randint(0, 4096, {kTokens}, load.options().dtype(at::kLong));
  const Tensor weight = random({kTokens}).abs() / kTokens;
  c.word("cross_entropy",
         [&](const std::vector<Tensor>& in) {
           Tensor nll;
           const Tensor loss = cross_entropy(in[0], in[1], target, weight, nll);
           return std::vector<Tensor>{loss.view({1}), nll};
         },
         {random({kTokens, kDim}), random({4096, kDim}, 0.05)}, {false, false});
}

void check_attend(Checker& c, int64_t length, int64_t ratio, bool global, bool masked) {
  const int64_t entries = global ? length / ratio : 0;
  const int64_t batch = 2;
  const AttendShape shape{length, 64, ratio, entries, 0.125};
  Tensor selected;
  if (masked) {
    selected = at::randint(0, 256, {batch * length, entries / 8},
                           at::TensorOptions().device(kGpu).dtype(at::kByte));
  }
  const auto word = [&](const std::vector<Tensor>& in) {
    const Tensor given = global ? in[3] : Tensor();
    const AttendOut out = attend(in[0], in[1], {given, selected}, in[2], shape);
    return std::vector<Tensor>{out.out, out.lse};
  };
  std::vector<Tensor> inputs{random({batch * length, 6, 64}), random({batch * length, 64}),
                             random({6})};
  std::vector<bool> wide{false, false, true};
  if (global) {
    inputs.push_back(random({batch * entries, 64}));
    wide.push_back(false);
  }
  c.word("attend", word, inputs, wide, 0.03);
}

// Codes must be equal: both forms are exact.
void check_quant(Checker& c) {
  for (const Quant kind : {Quant::kA8, Quant::kIdx4, Quant::kKv4}) {
    const Tensor x = (random({4096, 64}) * random({4096, 1}, 4.0).exp()).to(at::kBFloat16);
    const Tensor fused = fake_quant(x, kind);
    const Tensor plain = fake_quant(x.to(at::kCPU), kind).to(kGpu);
    const auto wrong = fused.to(at::kFloat).ne(plain.to(at::kFloat)).sum().item<int64_t>();
    std::printf("quantiser %d     %ld of %ld values differ\n", static_cast<int>(kind), wrong,
                x.numel());
    c.failed |= wrong != 0;
  }
}

// The fused selection sees bf16 dot products, so members near the limit may differ.
void check_select(Checker& c, int64_t length, int64_t ratio) {
  const int64_t batch = 2;
  const int64_t entries = length / ratio;
  const SelectShape shape{length, ratio, 64, 16, 8};
  const Tensor q = random({batch * length, 4, 32}).to(at::kBFloat16);
  const Tensor k = random({batch * entries, 32}).to(at::kBFloat16);
  const Tensor w = random({batch * length, 4}).abs();
  const Selection fused = index_select(q, k, w, Tensor(), shape);
  const Selection inside = index_select(q, k, w, fused.pool, shape);
  set_reference_ops(true);
  const Selection plain = index_select(q, k, w, Tensor(), shape);
  set_reference_ops(false);
  const Tensor mine = selection_bits(fused.entries, entries);
  const Tensor pool = selection_bits(fused.pool, entries);
  const auto share = [](const Tensor& a, const Tensor& b) {
    return a.logical_and(b).sum().item<double>() / b.sum().item<double>();
  };
  const Tensor visible = visible_mask(length, entries, ratio, kGpu).repeat({batch, 1});
  const Tensor count = visible.sum(1).clamp_max(64);
  const auto wrong_count = mine.sum(1).ne(count).sum().item<int64_t>();
  const Tensor within = selection_bits(inside.entries, entries);
  const auto outside = within.logical_and(pool.logical_not()).sum().item<int64_t>();
  const auto hidden = mine.logical_and(visible.logical_not()).sum().item<int64_t>();
  const double same = share(mine, plain.entries);
  const double same_pool = share(pool, plain.pool);
  std::printf(
      "select %4ld/%ld    same %.4f  pool %.4f  rows of wrong size %ld  hidden %ld  "
      "outside the pool %ld\n",
      length, ratio, same, same_pool, wrong_count, hidden, outside);
  c.failed |= same < 0.98 || same_pool < 0.98 || wrong_count + hidden + outside != 0;
}

double seconds() {
  const auto time = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double>(time).count();
}

double timed(const std::function<void()>& work, int repeat) {
  work();
  gpu::synchronize();
  const double begin = seconds();
  for (int i = 0; i < repeat; ++i) {
    work();
  }
  gpu::synchronize();
  return (seconds() - begin) / repeat * 1e3;
}

// Forward plus backward of single words at the size of a training step.
void time_words(int64_t n, int64_t length) {
  const auto low = [](const Tensor& t) { return t.to(at::kBFloat16).requires_grad_(true); };
  const auto high = [](const Tensor& t) { return t.clone().detach().requires_grad_(true); };
  const auto both = [](const char* name, int count, const std::function<Tensor()>& word) {
    const Tensor like = at::randn_like(word());
    const double ms = timed([&] { torch::autograd::backward({word()}, {like}); }, 5);
    std::printf("  %-22s %7.3f ms x %d = %.1f ms\n", name, ms, count, ms * count);
    std::fflush(stdout);
  };
  const Tensor streams = low(random({n, 4, kDim}));
  const Tensor pre = high(random({n, 4}).sigmoid());
  const HcParams p{high(random({24, 4 * kDim}, 0.03)), high(random({3})), high(random({24})), 1e-6,
                   20};
  const Tensor norm = low(random({kDim}));
  both("hc_read", 24, [&] { return hc_read(streams, pre, p, norm).x; });
  const Tensor y = low(random({n, kDim}));
  const Tensor mix = high(random({n, 20}).sigmoid());
  both("hc_write", 24, [&] { return hc_write(streams, y, mix); });
  const Tensor kv = low(random({n, 5 * kDim}));
  const Tensor gain = high(random({4, kDim}));
  both("engram", 2, [&] { return engram_add(streams, kv, gain); });
  const Tensor w13 = low(random({2 * 9 * 160, kDim}, 0.05));
  const Tensor gu = low(random({n, 2 * 9 * 160}));
  const Tensor wt = high(random({n, 8}).gt(0.7).to(at::kFloat));
  both("experts in", 12, [&] { return apply_weight(y, w13); });
  both("swiglu", 12, [&] { return swiglu(gu, wt, 160, 10); });
  const Tensor h = low(random({n, 9 * 160}));
  const Tensor w2 = low(random({9 * 160, kDim}, 0.05));
  both("experts out", 12, [&] { return at::matmul(h, w2); });
  const Tensor q = low(random({n, 6, 64}));
  const Tensor row = low(random({n, 64}));
  const Tensor sink = high(random({6}));
  for (const int64_t ratio : {0, 2, 1}) {
    const int64_t entries = ratio == 0 ? 0 : length / ratio;
    const Tensor global = low(random({std::max<int64_t>(1, n / length * entries), 64}));
    const AttendShape shape{length, 64, std::max<int64_t>(ratio, 1), entries, 0.125};
    const int count = ratio == 0 ? 2 : (ratio == 2 ? 4 : 6);
    both(ratio == 0 ? "attend window" : (ratio == 2 ? "attend ratio 2" : "attend ratio 1"), count,
         [&] {
           return attend(q, row, {ratio == 0 ? Tensor() : global, Tensor()}, sink, shape).out;
         });
  }
  const Tensor qi = random({n, 4, 32}).to(at::kBFloat16);
  const Tensor ki = random({n, 32}).to(at::kBFloat16);
  const Tensor wi = random({n, 4});
  const double select = timed(
      [&] {
        index_select(qi, ki, wi, Tensor(), {length, 1, 64, 64, 8});
      },
      5);
  std::printf("  %-22s %7.3f ms x 5 = %.1f ms\n", "index_select", select, select * 5);
  const Tensor head = low(random({4096, kDim}, 0.05));
  const Tensor target = at::randint(0, 4096, {n}, wi.options().dtype(at::kLong));
  const Tensor weight = at::full({n}, 1.0 / static_cast<double>(n), wi.options());
  both("head and loss", 1, [&] {
    Tensor nll;
    return cross_entropy(y, head, target, weight, nll);
  });
}

}  // namespace

Result<void> selfcheck() {
  Checker c;
  check_hyper(c);
  check_rows(c);
  check_attend(c, 256, 1, false, false);
  check_attend(c, 256, 2, true, false);
  check_attend(c, 512, 1, true, true);
  check_attend(c, 1024, 1, true, true);
  check_attend(c, 2048, 1, true, false);
  check_quant(c);
  check_select(c, 512, 2);
  check_select(c, 512, 1);
  check_select(c, 2048, 1);
  if (c.failed) {
    return invalid("selfcheck: a fused kernel differs from its definition");
  }
  std::printf("selfcheck passed\n");
  return {};
}

void word_speeds(const Recipe& recipe) {
  std::printf("words, forward + backward, T 512:\n");
  time_words(recipe.batch_tokens, 512);
}

}  // namespace fathom::train
