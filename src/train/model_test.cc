// The definition against the golden data, finite differences, and the rules that gradients obey.

#include "train/model.h"

#include <c10/core/GradMode.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>

#include "train/export.h"
#include "train/quant.h"
#include "train/reference.h"

namespace fathom::train {
namespace {

const std::string kRoot = FATHOM_SOURCE_DIR;

ModelConfig tiny_config() {
  auto file = read_config(kRoot + "/tests/train/tiny/config.json");
  EXPECT_TRUE(file.has_value()) << file.error().message;
  return file->config;
}

struct Tiny {
  ModelConfig whole = tiny_config();
  TextConfig config = whole.text_config;
  Params params;
  Model model;

  explicit Tiny(at::ScalarType type)
      : params(whole, {type, type}, at::kCPU),
        model(whole, params, at::arange(config.vocab_size, at::kLong)) {
    params.init(config, 7);
    // Livelier than the training start, so that every path carries weight.
    const at::NoGradGuard no_grad;
    for (const ParamSpec& spec : params.specs()) {
      Tensor value = params.master(spec);
      auto noise = at::randn(value.sizes(), at::detail::createCPUGenerator(spec.offset + 1));
      value.add_(noise, spec.group == Group::kMuon ? 0.02 : 0.2);
    }
    params.sync(false);
  }
};

Tensor random_tokens(int64_t batch, int64_t length, int64_t vocab, uint64_t seed) {
  return at::randint(0, vocab, {batch, length}, at::detail::createCPUGenerator(seed),
                     at::TensorOptions().dtype(at::kLong));
}

Tensor loss_of(Tiny& t, const Tensor& tokens, const Numerics& numerics, Measures* measures) {
  const Tensor x = t.model.run(tokens, numerics, measures);
  const int64_t n = x.size(0);
  const Tensor target = (tokens.view({-1}) * 7 + 3).remainder(t.config.vocab_size);
  Tensor nll;
  const Tensor weight = at::full({n}, 1.0 / static_cast<double>(n), x.options());
  return cross_entropy(x, t.params.get("head"), target, weight, nll);
}

TEST(Definition, GradientsEqualFiniteDifferences) {
  Tiny t(at::kDouble);
  const Tensor tokens = random_tokens(2, 32, t.config.vocab_size, 3);
  Numerics numerics;
  numerics.dense = true;
  t.params.zero_grad();
  torch::autograd::backward({loss_of(t, tokens, numerics, nullptr)}, {});
  const at::NoGradGuard no_grad;
  int checked = 0;
  for (const ParamSpec& spec : t.params.specs()) {
    if (spec.group == Group::kIndexer) {
      continue;
    }
    Tensor leaf = t.params.get(spec.name, spec.layer).detach();
    const Tensor way = at::randn(leaf.sizes(), at::detail::createCPUGenerator(spec.offset + 5),
                                 at::TensorOptions().dtype(at::kDouble));
    const double slope = (t.params.get(spec.name, spec.layer).grad() * way).sum().item<double>();
    const double step = 1e-6;
    leaf.add_(way, step);
    const double high = loss_of(t, tokens, numerics, nullptr).item<double>();
    leaf.add_(way, -2 * step);
    const double low = loss_of(t, tokens, numerics, nullptr).item<double>();
    leaf.add_(way, step);
    const double wanted = (high - low) / (2 * step);
    EXPECT_NEAR(slope, wanted, 1e-3 * std::abs(wanted) + 2e-7) << spec.layer << " " << spec.name;
    checked += std::abs(wanted) > 1e-6 ? 1 : 0;
  }
  EXPECT_GT(checked, 150);
}

TEST(Definition, IsCausal) {
  Tiny t(at::kFloat);
  const at::NoGradGuard no_grad;
  const int64_t from = 37;
  Tensor tokens = random_tokens(1, 64, t.config.vocab_size, 11);
  Tensor other = tokens.clone();
  other.narrow(1, from, 64 - from).copy_(random_tokens(1, 64 - from, t.config.vocab_size, 12));
  for (const bool dense : {true, false}) {
    Numerics numerics;
    numerics.dense = dense;
    numerics.cache = numerics.activations = !dense;
    const Tensor a = t.model.run(tokens, numerics).narrow(0, 0, from);
    const Tensor b = t.model.run(other, numerics).narrow(0, 0, from);
    EXPECT_TRUE(at::equal(a, b)) << "dense " << dense;
  }
}

TEST(Definition, IndexerLearnsFromItsOwnLossOnly) {
  Tiny t(at::kDouble);
  const Tensor tokens = random_tokens(2, 64, t.config.vocab_size, 5);
  Numerics numerics;
  numerics.index_loss = numerics.index_stats = true;
  Measures measures;
  t.params.zero_grad();
  const Tensor loss = loss_of(t, tokens, numerics, &measures);
  torch::autograd::backward({loss}, {});
  const auto size = [&](const ParamSpec& spec) {
    return t.params.get(spec.name, spec.layer).grad().abs().sum().item<double>();
  };
  for (const ParamSpec& spec : t.params.specs()) {
    EXPECT_EQ(size(spec) == 0, spec.group == Group::kIndexer) << spec.layer << " " << spec.name;
  }
  Measures again;
  t.params.zero_grad();
  loss_of(t, tokens, numerics, &again);
  ASSERT_TRUE(again.index_kl.defined());
  EXPECT_GT(again.index_kl.item<double>(), 0);
  torch::autograd::backward({again.index_kl}, {});
  for (const ParamSpec& spec : t.params.specs()) {
    EXPECT_EQ(size(spec) > 0, spec.group == Group::kIndexer) << spec.layer << " " << spec.name;
  }
  EXPECT_EQ(again.recall.size(), 3U);
}

TEST(Definition, SinkhornEqualsTheGoldenMatrix) {
  const Tensor logits = at::tensor({1.0F, 0.0F, 0.0F, 0.0F, 0.0F, 2.0F, 0.0F, 0.0F, 0.0F, 0.0F,
                                    3.0F, 0.0F, 0.5F, 0.0F, 0.0F, 1.0F})
                            .view({1, 4, 4});
  const Tensor golden =
      at::tensor({0.52906966F, 0.14528677F, 0.09408443F, 0.23155816F, 0.12211974F, 0.6735611F,
                  0.05903149F, 0.14528681F, 0.07908191F, 0.05903141F, 0.76780117F, 0.09408435F,
                  0.26972777F, 0.12211968F, 0.07908195F, 0.52906966F})
          .view({1, 4, 4});
  const Tensor c = reference::sinkhorn(logits, 1e-6, 20);
  EXPECT_LT((c - golden).abs().max().item<double>(), 2e-6);
}

TEST(Quantisers, EqualTheGoldenCodes) {
  const auto file = read_tensors(kRoot + "/tests/golden/ops/quantizers.safetensors");
  ASSERT_TRUE(file.has_value()) << file.error().message;
  const Tensor input = file->at("input");
  const std::pair<const char*, Quant> kinds[] = {
      {"a8", Quant::kA8}, {"idx4", Quant::kIdx4}, {"kv4", Quant::kKv4}};
  for (const auto& [name, kind] : kinds) {
    const auto found = file->find(std::string(name) + ".dequant");
    ASSERT_NE(found, file->end()) << name;
    const Tensor mine = fake_quant(input, kind).to(at::kFloat);
    EXPECT_TRUE(at::equal(mine, found->second.to(at::kFloat))) << name;
  }
}

// The released layout at tiny size: every quantiser and rounding point on, against golden logits.
struct Golden {
  std::unique_ptr<Params> params;
  std::unique_ptr<Model> model;

  Golden() {
    const std::string folder = kRoot + "/tests/golden/t12";
    auto loaded = read_config(folder + "/config.json");
    EXPECT_TRUE(loaded.has_value()) << loaded.error().message;
    const ModelConfig& config = loaded->config;
    const int64_t vocab = config.text_config.vocab_size;
    params = std::make_unique<Params>(config, ParamTypes{}, at::kCPU);
    model = std::make_unique<Model>(config, *params, at::arange(vocab, at::kLong));
    const auto done = import_model(*model, *params, folder);
    EXPECT_TRUE(done.has_value()) << done.error().message;
  }

  Tensor logits(const Tensor& tokens, bool score_bf16) {
    const at::NoGradGuard no_grad;
    Numerics numerics;
    numerics.exact = true;
    numerics.score_bf16 = score_bf16;
    return model->logits(model->run(tokens.to(at::kLong).view({1, -1}), numerics));
  }
};

std::map<std::string, Tensor> golden_case(const std::string& name) {
  auto file = read_tensors(kRoot + "/tests/golden/t12/cases/" + name + ".safetensors");
  EXPECT_TRUE(file.has_value()) << file.error().message;
  return file.has_value() ? *file : std::map<std::string, Tensor>{};
}

TEST(Golden, ShortLogits) {
  Golden g;
  // The manifest's largest deviation of other summation orders is 0.035; four times that.
  for (const bool bf16 : {true, false}) {
    const auto file = golden_case(bf16 ? "short" : "short_fp32score");
    const Tensor mine = g.logits(file.at("tokens"), bf16);
    EXPECT_LT((mine - file.at("logits")).abs().max().item<double>(), 0.142) << "bf16 " << bf16;
  }
}

TEST(Golden, PrefillLogits) {
  Golden g;
  const auto file = golden_case("prefill");
  int close = 0;
  int all = 0;
  for (const auto& [name, tokens] : file) {
    const size_t dot = name.find(".tokens");
    if (dot == std::string::npos) {
      continue;
    }
    const Tensor golden = file.at(name.substr(0, dot) + ".logits").view({-1});
    const Tensor mine = g.logits(tokens, true)[-1];
    const double apart = (mine - golden).abs().max().item<double>();
    EXPECT_LT(apart, 0.5) << name;
    EXPECT_EQ(mine.argmax().item<int64_t>(), golden.argmax().item<int64_t>()) << name;
    close += apart < 1e-3 ? 1 : 0;
    ++all;
  }
  EXPECT_GE(all, 10);
  EXPECT_GE(close, all * 2 / 3);
}

}  // namespace
}  // namespace fathom::train
