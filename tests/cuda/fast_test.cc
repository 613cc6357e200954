// Goal: the fast kernels behind the words stay close to the exact ones (docs/kernels/decode.md),
// give a row the same bits in any batch, and leave alone what they must not take; a recorded step
// is the step. Method: exact and fast backend on the same inputs; whole models against the CPU.
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "engine/load.h"
#include "engine/runner.h"
#include "model/plans.h"
#include "model/synth.h"
#include "ops/cuda/cuda_ops.h"
#include "side.h"

namespace fathom {
namespace {

// E4M3 codes of normal values and block scales of three neighbouring powers of two. Values are
// about as large against their blocks' largest as a quantiser leaves them.
Weight fp8(Side& side, int64_t out, int64_t in) {
  std::vector<uint8_t> scales(static_cast<size_t>((out + 31) / 32 * (in / 32)));
  for (uint8_t& s : scales) s = static_cast<uint8_t>(117 + side.random()() % 3);
  return {side.values(DType::kE4m3, {out, in}, 20.0f),
          side.exactly(DType::kE8m0, {(out + 31) / 32, in / 32}, scales),
          WeightFormat::kFp8Block32};
}

Weight fp4(Side& side, int64_t out, int64_t in) {
  std::vector<uint8_t> scales(static_cast<size_t>(out * (in / 32)));
  for (uint8_t& s : scales) s = static_cast<uint8_t>(115 + side.random()() % 5);
  return {side.values(DType::kI8, {out, in / 2}),
          side.exactly(DType::kE8m0, {out, in / 32}, scales), WeightFormat::kFp4Row32};
}

Activation first_rows(const Activation& x, int64_t n) { return x.rows(0, n); }

Bytes linear_rows(Side& side, int64_t out, int64_t in, std::span<const int64_t> batches) {
  const int64_t most = *std::ranges::max_element(batches);
  const Activation x = side.normed(most, in);
  const Weight w = fp8(side, out, in);
  EXPECT_TRUE(side.ops().prepare(w));
  Bytes bytes;
  for (const int64_t n : batches) {
    const Tensor y = side.output(DType::kBf16, {n, out});
    side.ops().linear({y, first_rows(x, n), w});
    side.read(&bytes, y);
  }
  return bytes;
}

TEST_F(CudaFast, LinearIsCloseAndDoesNotDependOnTheBatch) {
  // From 65 rows on, kernels for many rows.
  constexpr int64_t kMost = 700;
  const std::vector<int64_t> batches = {1, 2, 9, 48, 64, 65, 130, kMost};
  for (const auto& [out, in] : {std::pair<int64_t, int64_t>{1280, 5120},
                                {512, 5120},
                                {64, 5120},
                                {4096, 1280},
                                {5120, 2304},
                                {5120, 8192}}) {
    const auto body = [&](Side& side) { return linear_rows(side, out, in, batches); };
    const Bytes wanted = run(*exact_, 31, body);
    const Bytes found = run(*fast_, 31, body);
    const double error = relative_l2(found, wanted);
    EXPECT_LT(error * error / 2, 1e-6) << out << " x " << in;
    EXPECT_GT(error, 0) << "the exact kernel ran";
    const size_t row = static_cast<size_t>(out) * 2;
    size_t at = 0;
    for (const int64_t n : batches) {
      const size_t size = static_cast<size_t>(n) * row;
      EXPECT_TRUE(std::equal(found.begin() + static_cast<ptrdiff_t>(at),
                             found.begin() + static_cast<ptrdiff_t>(at + size),
                             found.end() - static_cast<ptrdiff_t>(kMost * row)))
          << n << " rows of " << out << " x " << in;
      at += size;
    }
  }
}

double relative_of(const std::vector<float>& found, const std::vector<float>& wanted) {
  EXPECT_EQ(found.size(), wanted.size());
  double error = 0;
  double size = 0;
  for (size_t i = 0; i < std::min(found.size(), wanted.size()); ++i) {
    error += (found[i] - wanted[i]) * (found[i] - wanted[i]);
    size += wanted[i] * wanted[i];
  }
  return std::sqrt(error / size);
}

// Exponents that scatter over many binades keep the exact kernel: the bits are the exact ones.
TEST_F(CudaFast, ScatteredExponentsKeepTheExactKernel) {
  const auto body = [&](Side& side) {
    const Activation x = side.normed(5, 2048);
    const Weight w = {side.values(DType::kE4m3, {128, 2048}),
                      side.exactly(DType::kE8m0, {4, 64},
                                   [&] {
                                     std::vector<uint8_t> scales(256);
                                     for (size_t i = 0; i < scales.size(); ++i) {
                                       scales[i] = static_cast<uint8_t>(100 + side.random()() % 24);
                                     }
                                     return scales;
                                   }()),
                      WeightFormat::kFp8Block32};
    EXPECT_TRUE(side.ops().prepare(w));
    const Tensor y = side.output(DType::kBf16, {5, 128});
    side.ops().linear({y, x, w});
    Bytes bytes;
    side.read(&bytes, y);
    return bytes;
  };
  EXPECT_EQ(run(*fast_, 32, body), run(*exact_, 32, body));
  const auto& report = dynamic_cast<CudaOps&>(*fast_).fast_report();
  EXPECT_EQ(report.fast, 0);
  EXPECT_EQ(report.exact, 1);
}

Bytes expert_rows(Side& side, std::span<const int64_t> batches) {
  constexpr int64_t kHidden = 1280;
  constexpr int64_t kWidth = 1024;
  constexpr int64_t kExperts = 12;
  constexpr int64_t kChosen = 6;
  const int64_t most = *std::ranges::max_element(batches);
  const Activation x = side.normed(most, kHidden);
  std::vector<int32_t> ids;
  std::vector<float> weights;
  for (int64_t r = 0; r < most; ++r) {
    std::vector<int32_t> order(kExperts);
    for (int32_t e = 0; e < kExperts; ++e) order[static_cast<size_t>(e)] = e;
    std::shuffle(order.begin(), order.end(), side.random());
    for (int64_t j = 0; j < kChosen; ++j) {
      ids.push_back(order[static_cast<size_t>(j)]);
      weights.push_back(0.1f + static_cast<float>(side.random()() % 100) / 200);
    }
  }
  const Tensor all_ids = side.exactly(DType::kI32, {most, kChosen}, ids);
  const Tensor all_weights = side.exactly(DType::kF32, {most, kChosen}, weights);
  static std::vector<ExpertWeights> experts;
  experts.clear();
  for (int64_t e = 0; e < kExperts; ++e) {
    experts.push_back(
        {fp4(side, kWidth, kHidden), fp4(side, kWidth, kHidden), fp4(side, kHidden, kWidth)});
  }
  const ExpertWeights shared = {fp8(side, kWidth, kHidden), fp8(side, kWidth, kHidden),
                                fp8(side, kHidden, kWidth)};
  EXPECT_TRUE(side.ops().prepare(experts, shared));
  Bytes bytes;
  for (const int64_t n : batches) {
    const Tensor y = side.output(DType::kBf16, {n, kHidden});
    side.ops().experts(
        {y, first_rows(x, n), all_ids.rows(0, n), all_weights.rows(0, n), experts, shared, 10.0f});
    side.read(&bytes, y);
  }
  return bytes;
}

TEST_F(CudaFast, ExpertsAreCloseAndDoNotDependOnTheBatch) {
  // With 12 experts, 1,100 rows go through the kernels for many pairs an expert.
  const std::vector<int64_t> batches = {1, 3, 40, 1100};
  const auto body = [&](Side& side) { return expert_rows(side, batches); };
  const Bytes wanted = run(*exact_, 33, body);
  const Bytes found = run(*fast_, 33, body);
  const double error = relative_l2(found, wanted);
  EXPECT_LT(error, 1e-2);
  EXPECT_GT(error, 0) << "the exact kernels ran";
  const size_t row = 1280 * 2;
  size_t at = 0;
  for (const int64_t n : batches) {
    const size_t size = static_cast<size_t>(n) * row;
    EXPECT_TRUE(std::equal(found.begin() + static_cast<ptrdiff_t>(at),
                           found.begin() + static_cast<ptrdiff_t>(at + size),
                           found.end() - static_cast<ptrdiff_t>(1100 * row)))
        << n << " rows";
    at += size;
  }
}

// Coefficients of many rows have the bits of the exact kernel.
TEST_F(CudaFast, CoefficientsOfManyRowsAreTheExactOnes) {
  for (const int64_t n_rows : {64, 301}) {
    const auto body = [&](Side& side) {
      MhcStepArgs args;
      args.residual = side.values(DType::kBf16, {n_rows, 4, 5120});
      args.site = {side.values(DType::kF32, {24, 4 * 5120}, 0.1f), side.values(DType::kF32, {3}),
                   side.values(DType::kF32, {24})};
      args.predicted = {side.output(DType::kF32, {n_rows, 4}),
                        side.output(DType::kF32, {n_rows, 4}),
                        side.output(DType::kF32, {n_rows, 4, 4})};
      side.ops().mhc_step(args);
      Bytes bytes;
      for (const Tensor& t : {args.predicted.pre, args.predicted.post, args.predicted.comb}) {
        side.read(&bytes, t);
      }
      return bytes;
    };
    EXPECT_EQ(run(*trial_, 36, body), run(*exact_, 36, body)) << n_rows << " rows";
  }
}

// The head and the grouped projection on tensor cores: close, and the same bits in any batch.
TEST_F(CudaFast, ProductsOfValuesDoNotDependOnTheBatch) {
  const std::vector<int64_t> batches = {1, 3, 16, 40, 200};
  const auto body = [&](Side& side) {
    const Activation x = side.normed(200, 1280);
    const Tensor grouped = side.values(DType::kBf16, {200, 4 * 1024});
    const Weight head = side.weight(WeightFormat::kBf16, 4160, 1280, 0.05f);
    const Weight group = fp8(side, 512, 1024);
    EXPECT_TRUE(side.ops().prepare(head));
    EXPECT_TRUE(side.ops().prepare_grouped(group));
    Bytes bytes;
    for (const int64_t n : batches) {
      const Tensor logits = side.output(DType::kF32, {n, 4160});
      const Activation out = side.activation(n, 512);
      side.ops().linear({logits, x.rows(0, n), head});
      side.ops().grouped_linear({out, grouped.rows(0, n), group, 4});
      side.read(&bytes, out.bf16);
      side.read(&bytes, logits);
    }
    return bytes;
  };
  const Bytes wanted = run(*exact_, 37, body);
  const Bytes found = run(*fast_, 37, body);
  ASSERT_EQ(found.size(), wanted.size());
  EXPECT_NE(found, wanted) << "the exact kernels ran";
  const size_t out_row = 512 * 2;
  const size_t logit_row = 4160 * 4;
  const size_t all = found.size() - 200 * (out_row + logit_row);
  EXPECT_LT(relative_l2(std::span(found).subspan(all, 200 * out_row),
                        std::span(wanted).subspan(all, 200 * out_row)),
            3e-3);
  std::vector<float> a(200 * 4160);
  std::vector<float> b(a.size());
  std::memcpy(a.data(), &found[all + 200 * out_row], a.size() * 4);
  std::memcpy(b.data(), &wanted[all + 200 * out_row], b.size() * 4);
  EXPECT_LT(relative_of(a, b), 1e-5);
  size_t at = 0;
  for (const int64_t n : batches) {
    const auto rows = static_cast<size_t>(n);
    EXPECT_EQ(std::memcmp(&found[at], &found[all], rows * out_row), 0) << n << " rows";
    at += rows * out_row;
    EXPECT_EQ(std::memcmp(&found[at], &found[all + 200 * out_row], rows * logit_row), 0)
        << n << " rows";
    at += rows * logit_row;
  }
}

// ---- recorded steps ----

std::vector<int32_t> random_ids(int64_t n, int64_t vocab, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < n; ++i) {
    ids.push_back(static_cast<int32_t>(random() % static_cast<uint64_t>(vocab)));
  }
  return ids;
}

// Greedy ids of sequences of several lengths, decoded in three calls with a step between two.
std::vector<int32_t> decoded(Ops& ops, const std::string& folder, Schedule schedule) {
  const auto loaded =
      load_model(folder, {.model = {.memory = &ops.memory()}, .need_tokenizer = false});
  EXPECT_TRUE(loaded);
  const int64_t vocab = loaded->model->config().text_config.vocab_size;
  const auto runner = std::move(
      *Runner::make(*loaded->model, ops,
                    {.schedule = schedule, .context = 1200, .n_sequences = 3, .max_rows = 1024}));
  std::vector<Sequence> sequences;
  std::vector<Sequence*> all;
  sequences.reserve(3);
  const int64_t lengths[] = {5, 130, 1000};
  for (int64_t s = 0; s < 3; ++s) {
    sequences.push_back(*runner->open());
    Sequence& sequence = sequences.back();
    EXPECT_TRUE(
        runner->append(sequence, random_ids(lengths[s], vocab, 40 + static_cast<uint64_t>(s))));
    EXPECT_TRUE(runner->prefill(sequence));
    const int32_t next[1] = {static_cast<int32_t>(s + 3)};
    EXPECT_TRUE(runner->append(sequence, next));
    all.push_back(&sequence);
  }
  std::vector<int32_t> ids;
  const auto decode = [&](std::span<Sequence* const> some, int64_t n) {
    const auto more = runner->decode_greedy(some, n);
    EXPECT_TRUE(more) << more.error().message;
    if (more) ids.insert(ids.end(), more->begin(), more->end());
  };
  decode(all, 20);
  decode(all, 15);  // goes on with the recording, over the end of its positions
  const StepItem item = {.sequence = all[1], .n_rows = 1, .want = WantLogits::kLast};
  EXPECT_TRUE(runner->step({&item, 1}));
  const int32_t next[1] = {9};
  EXPECT_TRUE(runner->append(*all[1], next));
  decode(std::span(all).first(2), 10);
  for (Sequence* s : all) {
    ids.insert(ids.end(), s->tokens.begin(), s->tokens.end());
    EXPECT_EQ(s->pending(), 1);
    runner->close(*s);
  }
  return ids;
}

TEST_F(CudaFast, RecordedStepsAreTheCpusSteps) {
  const auto cpu = std::move(*make_backend({}));
  const std::string root = FATHOM_SOURCE_DIR;
  for (const std::string& folder : {root + "/models/fathom-34m"}) {
    for (const Schedule schedule : {Schedule::kExact, Schedule::kDeploy}) {
      EXPECT_EQ(decoded(*exact_, folder, schedule), decoded(*cpu, folder, schedule));
    }
  }
}

// ---- a model of released widths: four layers, eight experts ----

ModelConfig wide_config() {
  ModelConfig config = *named_plan("p7");
  config.image_token_id = 4095;
  TextConfig& text = config.text_config;
  text.num_hidden_layers = 4;
  text.compress_ratios = {0, 2, 1, 1};
  text.kv_source_layer_ids = {1, 2};
  text.index_source_layer_ids = {1, 2};
  text.candidate_source_layer_id = 2;
  text.n_routed_experts = 8;
  text.vocab_size = 4096;
  text.engram_compressed_vocab_size = 4096;
  text.dspark_noise_token_id = 4094;
  return config;
}

TEST(CudaFastConfig, OfReleasedWidthsIsValid) {
  const Result<void> valid = validate_config(wide_config(), "wide");
  EXPECT_TRUE(valid) << valid.error().message;
}

// Logits after a prompt and after each of the given tokens.
std::vector<float> wide_logits(Ops& ops, const std::string& folder) {
  const auto loaded =
      load_model(folder, {.model = {.memory = &ops.memory()}, .need_tokenizer = false});
  EXPECT_TRUE(loaded) << loaded.error().message;
  const auto runner =
      std::move(*Runner::make(*loaded->model, ops, {.context = 1024, .max_rows = 700}));
  Sequence sequence = *runner->open();
  EXPECT_TRUE(runner->append(sequence, random_ids(690, 4096, 8)));
  std::vector<float> all;
  for (int32_t i = 0; i < 6; ++i) {
    const Tensor logits = *runner->prefill(sequence);
    all.insert(all.end(), logits.as<float>(), logits.as<float>() + logits.elements());
    EXPECT_TRUE(runner->append(sequence, {&i, 1}));
  }
  return all;
}

// Greedy ids of three sequences, by recorded steps or one by one.
std::vector<int32_t> wide_ids(Ops& ops, const std::string& folder, bool recorded) {
  const auto loaded =
      load_model(folder, {.model = {.memory = &ops.memory()}, .need_tokenizer = false});
  EXPECT_TRUE(loaded) << loaded.error().message;
  const auto runner = std::move(
      *Runner::make(*loaded->model, ops, {.context = 900, .n_sequences = 3, .max_rows = 700}));
  std::vector<Sequence> sequences;
  std::vector<Sequence*> all;
  sequences.reserve(3);
  for (const int64_t length : {3, 200, 600}) {
    sequences.push_back(*runner->open());
    EXPECT_TRUE(runner->append(sequences.back(), random_ids(length, 4096, 9)));
    EXPECT_TRUE(runner->prefill(sequences.back()));
    const int32_t next[1] = {5};
    EXPECT_TRUE(runner->append(sequences.back(), next));
    all.push_back(&sequences.back());
  }
  if (recorded) return *runner->decode_greedy(all, 16);
  std::vector<int32_t> ids;
  for (int i = 0; i < 16; ++i) {
    std::vector<StepItem> items;
    for (Sequence* s : all)
      items.push_back({.sequence = s, .n_rows = 1, .want = WantLogits::kLast});
    const Tensor logits = *runner->step(items);
    for (size_t s = 0; s < all.size(); ++s) {
      const float* row = logits.row<float>(static_cast<int64_t>(s));
      ids.push_back(static_cast<int32_t>(std::max_element(row, row + logits.dim(1)) - row));
      EXPECT_TRUE(runner->append(*all[s], {&ids.back(), 1}));
    }
  }
  return ids;
}

TEST_F(CudaFast, ModelOfReleasedWidths) {
  const std::string folder = testing::TempDir() + "/fathom_wide_" + std::to_string(::getpid());
  ThreadPool pool(0);
  ASSERT_TRUE(write_random_model(folder, wide_config(), {.seed = 4}, pool));
  const std::vector<float> wanted = wide_logits(*exact_, folder);
  for (Ops* ops : {fast_.get(), trial_.get()}) {
    const double relative = relative_of(wide_logits(*ops, folder), wanted);
    const char* name = ops == fast_.get() ? "fast" : "trial";
    std::printf("logits of %s numerics: relative L2 %.2e\n", name, relative);
    RecordProperty(std::string("relative_l2_") + name, std::to_string(relative));
    EXPECT_LT(relative, 0.1);
    EXPECT_GT(relative, 0) << "the exact kernels ran";
    EXPECT_EQ(wide_ids(*ops, folder, true), wide_ids(*ops, folder, false)) << name;
  }
  EXPECT_EQ(wide_ids(*exact_, folder, true), wide_ids(*exact_, folder, false));
  const auto& report = dynamic_cast<CudaOps&>(*fast_).fast_report();
  std::printf("matrices: %lld fast, %lld exact, %llu values changed\n",
              static_cast<long long>(report.fast), static_cast<long long>(report.exact),
              static_cast<unsigned long long>(report.changed));
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace fathom
