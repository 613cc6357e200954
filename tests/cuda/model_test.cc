// Goal: the same model text gives the CPU's logits on the GPU, bit for bit, however the work is
// cut, and agrees with the stored cases. Method: whole models on both backends.
#include <algorithm>

#include "engine/load.h"
#include "engine/runner.h"
#include "eval/case_check.h"
#include "ops/cuda/cuda_ops.h"
#include "side.h"

namespace fathom {
namespace {

const std::string kRoot = FATHOM_SOURCE_DIR;
const std::string kT12 = kRoot + "/tests/golden/t12";
const std::string kShipped = kRoot + "/models/fathom-34m";

using Logits = std::vector<float>;

Logits copy_of(const Tensor& t) { return {t.as<float>(), t.as<float>() + t.elements()}; }

std::vector<int32_t> random_tokens(int64_t n, int64_t vocab, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<int32_t> tokens;
  for (int64_t i = 0; i < n; ++i) {
    tokens.push_back(static_cast<int32_t>(random() % static_cast<uint64_t>(vocab)));
  }
  return tokens;
}

// A model on one backend. Members in the order of who outlives whom.
struct Loaded {
  Ops* ops = nullptr;
  LoadedModel loaded;

  Loaded(Ops& on, const std::string& folder) : ops(&on) {
    auto made = load_model(folder, {.model = {.memory = &on.memory()}, .need_tokenizer = false});
    EXPECT_TRUE(made) << made.error().message;
    loaded = std::move(*made);
  }
  int64_t vocab() const { return loaded.model->config().text_config.vocab_size; }
  std::unique_ptr<Runner> runner(Schedule schedule, int64_t context, int64_t n_sequences = 1) {
    return std::move(*Runner::make(*loaded.model, *ops,
                                   {.schedule = schedule,
                                    .context = context,
                                    .n_sequences = n_sequences,
                                    .max_rows = n_sequences * context,
                                    .max_logit_rows = n_sequences * context}));
  }
};

class CudaModel : public testing::Test {
 protected:
  void SetUp() override {
    backends_ = open_backends();
    if (backends_.cuda == nullptr) GTEST_SKIP() << "no GPU on this machine";
  }

  // Logits after a prompt and after each of some more tokens.
  Logits trace(Loaded& model, Schedule schedule, int64_t n, int64_t chunk) {
    const auto tokens = random_tokens(n + 6, model.vocab(), 17);
    const auto runner = model.runner(schedule, n + 8);
    Sequence sequence = *runner->open();
    Logits all;
    EXPECT_TRUE(runner->append(sequence, std::span(tokens).first(static_cast<size_t>(n))));
    for (int64_t i = 0; i < 6; ++i) {
      const Logits row = copy_of(*runner->prefill(sequence, chunk));
      all.insert(all.end(), row.begin(), row.end());
      EXPECT_TRUE(runner->append(sequence, {&tokens[static_cast<size_t>(n + i)], 1}));
    }
    runner->close(sequence);
    return all;
  }

  Backends backends_;
};

TEST_F(CudaModel, StoredCasesOfT12Agree) {
  const Result<CaseReport> report = check_cases(
      kT12, *backends_.cuda, {.cases = kT12 + "/cases", .manifest = kT12 + "/manifest.json"});
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_TRUE(report->problems.empty()) << report->problems.front();
  EXPECT_EQ(report->cases, 10);
  EXPECT_EQ(report->passed, 10);
  EXPECT_GT(report->compared, 2000);
}

TEST_F(CudaModel, LogitsAreTheCpusInAnyChunking) {
  for (const auto& [folder, n] :
       {std::pair{kT12, int64_t{150}}, std::pair{kShipped, int64_t{200}}}) {
    Loaded cpu(*backends_.cpu, folder);
    Loaded cuda(*backends_.cuda, folder);
    for (const Schedule schedule : {Schedule::kExact, Schedule::kDeploy}) {
      const Logits wanted = trace(cpu, schedule, n, 0);
      for (const int64_t chunk : {0, 1, 7, 33}) {
        EXPECT_EQ(trace(cuda, schedule, n, chunk), wanted) << folder << " in chunks of " << chunk;
      }
    }
  }
}

TEST_F(CudaModel, ARowDoesNotDependOnItsNeighbours) {
  Loaded cuda(*backends_.cuda, kShipped);
  const auto tokens = random_tokens(160, cuda.vocab(), 5);
  for (const int64_t n_sequences : {1, 8, 48}) {
    const auto runner = cuda.runner(Schedule::kDeploy, 64, n_sequences);
    std::vector<Sequence> sequences;
    std::vector<StepItem> items;
    for (int64_t s = 0; s < n_sequences; ++s) {
      sequences.push_back(*runner->open());
      const auto part = std::span(tokens).subspan(static_cast<size_t>(s), 40);
      ASSERT_TRUE(runner->append(sequences.back(), part));
    }
    for (Sequence& s : sequences) items.push_back({&s, s.pending(), WantLogits::kLast});
    const Logits together = copy_of(*runner->step(items));
    const auto alone = cuda.runner(Schedule::kDeploy, 64);
    for (int64_t s = 0; s < n_sequences; s += 7) {
      Sequence one = *alone->open();
      ASSERT_TRUE(alone->append(one, std::span(tokens).subspan(static_cast<size_t>(s), 40)));
      const Logits row = copy_of(*alone->prefill(one));
      EXPECT_TRUE(std::equal(row.begin(), row.end(), together.begin() + s * cuda.vocab())) << s;
      alone->close(one);
    }
  }
}

// Greedy ids of 24 tokens after a prompt.
std::vector<int32_t> greedy(Loaded& model, std::span<const int32_t> prompt) {
  const auto runner = model.runner(Schedule::kDeploy, 256);
  Sequence sequence = *runner->open();
  EXPECT_TRUE(runner->append(sequence, prompt));
  std::vector<int32_t> ids;
  for (int i = 0; i < 24; ++i) {
    const Tensor logits = *runner->prefill(sequence);
    const float* row = logits.as<float>();
    ids.push_back(static_cast<int32_t>(std::max_element(row, row + logits.dim(1)) - row));
    EXPECT_TRUE(runner->append(sequence, {&ids.back(), 1}));
  }
  runner->close(sequence);
  return ids;
}

TEST_F(CudaModel, GreedyIdsOf32PromptsAreTheCpus) {
  Loaded cpu(*backends_.cpu, kShipped);
  Loaded cuda(*backends_.cuda, kShipped);
  for (uint64_t i = 0; i < 32; ++i) {
    const auto prompt = random_tokens(static_cast<int64_t>(1 + i * 5), cuda.vocab(), 100 + i);
    EXPECT_EQ(greedy(cuda, prompt), greedy(cpu, prompt)) << "prompt " << i;
  }
}

// A step that fails tells so and leaves sequences that go on to the same logits.
TEST_F(CudaModel, AFailedStepIsTakenBack) {
  Loaded cuda(*backends_.cuda, kT12);
  const auto tokens = random_tokens(40, cuda.vocab(), 3);
  for (const Schedule schedule : {Schedule::kExact, Schedule::kDeploy}) {
    const auto runner = cuda.runner(schedule, 64, 2);
    Sequence whole = *runner->open();
    ASSERT_TRUE(runner->append(whole, tokens));
    const Logits wanted = copy_of(*runner->prefill(whole));
    Sequence failing = *runner->open();
    ASSERT_TRUE(runner->append(failing, std::span(tokens).first(33)));
    ASSERT_TRUE(runner->prefill(failing));
    ASSERT_TRUE(runner->append(failing, std::span(tokens).subspan(33)));
    dynamic_cast<CudaOps&>(*backends_.cuda).gpu().fail(io_error("cuda: experts: out of order"));
    const Result<Tensor> failed = runner->prefill(failing);
    ASSERT_FALSE(failed);
    EXPECT_EQ(failed.error().message, "cuda: experts: out of order");
    EXPECT_EQ(copy_of(*runner->prefill(failing)), wanted);
  }
}

}  // namespace
}  // namespace fathom
