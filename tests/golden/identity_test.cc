// Goal: results do not depend on how the work is cut. Method: bit equality of logits between ways
// of computing the same rows, on T12 and on the shipped model (docs/design.md sections 6 and 7).
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <random>

#include "base/file.h"
#include "engine/load.h"
#include "engine/runner.h"
#include "ops/backends.h"

namespace fathom {
namespace {

using Logits = std::vector<float>;

struct ModelCase {
  const char* name;
  const char* folder;
  int64_t n_tokens;
};

Logits copy_of(const Tensor& t) { return {t.as<float>(), t.as<float>() + t.elements()}; }

class Identity : public testing::TestWithParam<ModelCase> {
 protected:
  void SetUp() override {
    const std::string path = std::string(FATHOM_SOURCE_DIR) + "/" + GetParam().folder;
    auto loaded = load_model(path, {.need_tokenizer = false});
    ASSERT_TRUE(loaded) << loaded.error().message;
    loaded_ = std::move(*loaded);
    n_ = GetParam().n_tokens;
    std::mt19937 random(17);
    const auto vocab = static_cast<uint32_t>(model().config().text_config.vocab_size);
    for (int64_t i = 0; i < n_ + 8; ++i) tokens_.push_back(static_cast<int32_t>(random() % vocab));
    ops_ = open({});
  }

  const Model& model() const { return *loaded_.model; }

  static std::unique_ptr<Ops> open(const BackendOptions& options) {
    auto ops = make_backend(options);
    return ops ? std::move(*ops) : nullptr;
  }

  std::unique_ptr<Runner> runner(Ops& ops, Schedule schedule, int64_t n_sequences = 1) const {
    auto made = Runner::make(model(), ops,
                             {.schedule = schedule,
                              .context = n_ + 8,
                              .n_sequences = n_sequences,
                              .max_rows = n_sequences * (n_ + 8),
                              .max_logit_rows = n_sequences * (n_ + 8)});
    return std::move(*made);
  }

  // Logits after the prompt and after each of four more tokens.
  Logits trace(Ops& ops, Schedule schedule, int64_t chunk) const {
    const auto r = runner(ops, schedule);
    Sequence sequence = *r->open();
    Logits all;
    EXPECT_TRUE(r->append(sequence, std::span(tokens_).first(static_cast<size_t>(n_))));
    for (int64_t i = 0; i <= 4; ++i) {
      const Logits row = copy_of(*r->prefill(sequence, chunk));
      all.insert(all.end(), row.begin(), row.end());
      EXPECT_TRUE(r->append(sequence, {&tokens_[static_cast<size_t>(n_ + i)], 1}));
    }
    return all;
  }

  LoadedModel loaded_;
  std::unique_ptr<Ops> ops_;
  std::vector<int32_t> tokens_;
  int64_t n_ = 0;
};

TEST_P(Identity, AnyChunkingOfPrefillGivesTheSameBits) {
  for (const Schedule schedule : {Schedule::kExact, Schedule::kDeploy}) {
    const Logits whole = trace(*ops_, schedule, 0);
    for (const int64_t chunk : {1, 7, 16, 33}) {
      EXPECT_EQ(trace(*ops_, schedule, chunk), whole) << "chunks of " << chunk;
    }
  }
}

TEST_P(Identity, PrefillEqualsPrefillAndDecodes) {
  const auto r = runner(*ops_, Schedule::kExact);
  Sequence whole = *r->open();
  ASSERT_TRUE(r->append(whole, std::span(tokens_).first(static_cast<size_t>(n_))));
  const StepItem item = {.sequence = &whole, .n_rows = n_, .want = WantLogits::kAll};
  const Logits all = copy_of(*r->step({&item, 1}));
  r->close(whole);
  const auto vocab = static_cast<size_t>(model().config().text_config.vocab_size);
  Sequence parts = *r->open();
  const int64_t n_decodes = 5;
  for (int64_t i = n_ - n_decodes; i <= n_; ++i) {
    const auto done = parts.tokens.size();
    ASSERT_TRUE(r->append(parts, std::span(tokens_).subspan(done, static_cast<size_t>(i) - done)));
    const Logits row = copy_of(*r->prefill(parts));
    const auto at = static_cast<size_t>(i - 1) * vocab;
    EXPECT_EQ(std::memcmp(row.data(), all.data() + at, vocab * sizeof(float)), 0) << i;
  }
}

TEST_P(Identity, ARowDoesNotDependOnItsNeighbours) {
  const auto r = runner(*ops_, Schedule::kExact, 5);
  std::vector<Sequence> sequences;
  std::vector<StepItem> items;
  std::vector<Logits> alone;
  for (int64_t s = 0; s < 5; ++s) {
    const auto part =
        std::span(tokens_).subspan(static_cast<size_t>(s), static_cast<size_t>(n_ - 3 * s));
    Sequence one = *r->open();
    ASSERT_TRUE(r->append(one, part));
    alone.push_back(copy_of(*r->prefill(one)));
    r->close(one);
    sequences.push_back(*r->open());
    ASSERT_TRUE(r->append(sequences.back(), part));
  }
  for (Sequence& sequence : sequences) {
    items.push_back(
        {.sequence = &sequence, .n_rows = sequence.pending(), .want = WantLogits::kLast});
  }
  const Logits together = copy_of(*r->step(items));
  const size_t vocab = alone[0].size();
  for (size_t s = 0; s < 5; ++s) {
    EXPECT_EQ(std::memcmp(together.data() + s * vocab, alone[s].data(), vocab * sizeof(float)), 0);
  }
}

TEST_P(Identity, ThreadsAndInstructionPathsGiveTheSameBits) {
  const Logits reference =
      trace(*open({.n_threads = 1, .cpu_path = CpuPath::kScalar}), Schedule::kDeploy, 0);
  int n_compared = 0;
  for (const CpuPath path : {CpuPath::kScalar, CpuPath::kAvx2, CpuPath::kAvx512}) {
    for (const int n_threads : {1, 2}) {
      const auto ops = open({.n_threads = n_threads, .cpu_path = path});
      if (ops == nullptr) continue;  // not on this machine
      EXPECT_EQ(trace(*ops, Schedule::kDeploy, 0), reference);
      ++n_compared;
    }
  }
  EXPECT_GE(n_compared, 2);
}

TEST_P(Identity, ReplayWithTheFullHaloEqualsNoReplay) {
  for (const Schedule schedule : {Schedule::kExact, Schedule::kDeploy}) {
    const auto r = runner(*ops_, schedule, 2);
    const auto prompt = std::span(tokens_).first(static_cast<size_t>(n_));
    Sequence live = *r->open();
    ASSERT_TRUE(r->append(live, prompt));
    const Logits want = copy_of(*r->prefill(live));
    Sequence other = *r->open();
    for (const int64_t position : {n_ - 1, n_ - 2, n_ / 2, n_ / 2 + 1}) {
      r->close(other);
      other = *r->open();
      ASSERT_TRUE(r->append(other, prompt));
      ASSERT_TRUE(r->prefill(other));
      r->rewind(other, position, RestoreGrade::kExact);
      ASSERT_TRUE(r->append(other, prompt.subspan(static_cast<size_t>(position))));
      EXPECT_EQ(copy_of(*r->prefill(other, 16)), want) << "rewound to " << position;
    }
  }
}

// The deployed schedule in one step: two prompts whose decoder sees only their last window, a chunk
// of a third prompt that the decoder does not see at all, and a decode row.
TEST_P(Identity, MixedStepsOfTheDeployedScheduleEqualEachAlone) {
  const auto alone = runner(*ops_, Schedule::kDeploy);
  const auto prompt_of = [&](size_t s) {
    return std::span(tokens_).subspan(s, static_cast<size_t>(n_) - 5 * s);
  };
  std::vector<Logits> want;
  for (size_t s = 0; s < 4; ++s) {
    Sequence one = *alone->open();
    ASSERT_TRUE(alone->append(one, prompt_of(s)));
    want.push_back(copy_of(*alone->prefill(one)));
    alone->close(one);
  }
  const auto r = runner(*ops_, Schedule::kDeploy, 4);
  std::vector<Sequence> sequences;
  for (size_t s = 0; s < 4; ++s) {
    sequences.push_back(*r->open());
    const auto prompt = prompt_of(s);
    // The last one has all but its last token behind it: what joins is one decode row.
    ASSERT_TRUE(r->append(sequences[s], s < 3 ? prompt : prompt.first(prompt.size() - 1)));
  }
  ASSERT_TRUE(r->prefill(sequences[3]));
  ASSERT_TRUE(r->append(sequences[3], prompt_of(3).last(1)));
  const int64_t part = sequences[2].pending() / 2;
  const std::vector<StepItem> items = {
      {.sequence = &sequences[0], .n_rows = sequences[0].pending(), .want = WantLogits::kLast},
      {.sequence = &sequences[2], .n_rows = part},
      {.sequence = &sequences[3], .n_rows = 1, .want = WantLogits::kLast},
      {.sequence = &sequences[1], .n_rows = sequences[1].pending(), .want = WantLogits::kLast}};
  const Logits together = copy_of(*r->step(items));
  const size_t vocab = want[0].size();
  ASSERT_EQ(together.size(), 3 * vocab);
  // Prefilling all but one token and decoding it is another schedule than prefilling all: the
  // deployed decoder then sees one row more. Its reference is made the same way.
  Sequence one = *alone->open();
  ASSERT_TRUE(alone->append(one, prompt_of(3).first(prompt_of(3).size() - 1)));
  ASSERT_TRUE(alone->prefill(one));
  ASSERT_TRUE(alone->append(one, prompt_of(3).last(1)));
  want[3] = copy_of(*alone->prefill(one));
  const auto row = [&](size_t i) {
    return Logits(together.begin() + static_cast<ptrdiff_t>(i * vocab),
                  together.begin() + static_cast<ptrdiff_t>((i + 1) * vocab));
  };
  EXPECT_EQ(row(0), want[0]);
  EXPECT_EQ(row(1), want[3]);
  EXPECT_EQ(row(2), want[1]);
  EXPECT_EQ(copy_of(*r->prefill(sequences[2])), want[2]);
}

// A bounded rewind computes the rows of one window again, reports them, and leaves what it did not
// rewind as it was: entries below the cut are the same bytes.
TEST_P(Identity, ABoundedRewindReplaysOneWindow) {
  const auto r = runner(*ops_, Schedule::kDeploy);
  const int64_t window = model().config().text_config.sliding_window;
  Sequence sequence = *r->open();
  ASSERT_TRUE(r->append(sequence, std::span(tokens_).first(static_cast<size_t>(n_))));
  const Logits want = copy_of(*r->prefill(sequence));
  const std::vector<BlockId> blocks = sequence.blocks;
  r->rewind(sequence, n_ - 1, RestoreGrade::kBounded);
  EXPECT_EQ(sequence.entries_end, n_ - 1);
  EXPECT_EQ(sequence.length, std::max<int64_t>(0, n_ - 1 - window));
  ASSERT_TRUE(r->append(sequence, {&tokens_[static_cast<size_t>(n_ - 1)], 1}));
  const Logits again = copy_of(*r->prefill(sequence));
  EXPECT_EQ(sequence.replayed, std::min(window, n_ - 1));
  EXPECT_TRUE(std::equal(blocks.begin(), blocks.end(), sequence.blocks.begin()));
  // Approximate, not arbitrary: the same best token's logit to within the spread of all logits.
  double error = 0;
  double spread = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    error += (again[i] - want[i]) * (again[i] - want[i]);
    spread += want[i] * want[i];
  }
  EXPECT_LT(error, 0.25 * spread);
}

// A sequence that was written to a file and read by a new runner, whose pools give it other places
// and held something else before.
TEST_P(Identity, ACacheWrittenOutAndReadBackContinuesWithTheSameBits) {
  const std::string path =
      testing::TempDir() + "/fathom_sequence_" + GetParam().name + "_" + std::to_string(::getpid());
  for (const Schedule schedule : {Schedule::kExact, Schedule::kDeploy}) {
    for (const int64_t cut : {n_, n_ - 1, n_ / 2}) {  // one cut has an unfinished pair
      const auto live = runner(*ops_, schedule);
      Sequence sequence = *live->open();
      ASSERT_TRUE(live->append(sequence, std::span(tokens_).first(static_cast<size_t>(cut))));
      ASSERT_TRUE(live->prefill(sequence));
      const std::vector<std::byte> saved = *live->save(sequence);
      const std::string_view text(reinterpret_cast<const char*>(saved.data()), saved.size());
      ASSERT_TRUE(write_file_atomic(path, text));

      const auto fresh = runner(*ops_, schedule, 2);
      Sequence other = *fresh->open();  // takes the first places, then gives them back used
      ASSERT_TRUE(fresh->append(other, std::span(tokens_).last(static_cast<size_t>(n_))));
      ASSERT_TRUE(fresh->prefill(other));
      const std::string bytes = *read_file(path);
      auto restored = fresh->restore(std::as_bytes(std::span(bytes)), path);
      ASSERT_TRUE(restored) << restored.error().message;
      EXPECT_EQ(*fresh->save(*restored), saved);
      fresh->close(other);
      for (int64_t i = cut; i < cut + 4; ++i) {
        const std::span<const int32_t> token(&tokens_[static_cast<size_t>(i)], 1);
        ASSERT_TRUE(live->append(sequence, token));
        ASSERT_TRUE(fresh->append(*restored, token));
        const Logits want = copy_of(*live->prefill(sequence));
        EXPECT_EQ(copy_of(*fresh->prefill(*restored)), want) << "cut " << cut << ", token " << i;
      }
      EXPECT_EQ(*fresh->save(*restored), *live->save(sequence));
    }
  }
  std::filesystem::remove(path);
}

// The same in the middle of a prompt and of a replay, where decoder and encoder stand apart.
TEST_P(Identity, APromptWrittenOutHalfWayContinuesWithTheSameBits) {
  const auto live = runner(*ops_, Schedule::kDeploy);
  Sequence sequence = *live->open();
  ASSERT_TRUE(live->append(sequence, std::span(tokens_).first(static_cast<size_t>(n_))));
  const auto stop_after = [](int64_t rows) {
    return [rows](int64_t done, int64_t) { return done < rows; };
  };
  ASSERT_FALSE(live->prefill(sequence, 16, stop_after(96)));
  live->rewind(sequence, 81, RestoreGrade::kBounded);
  ASSERT_TRUE(live->append(sequence, std::span(tokens_).subspan(81, static_cast<size_t>(n_ - 81))));
  ASSERT_FALSE(live->prefill(sequence, 5, stop_after(5)));
  ASSERT_LT(sequence.length, sequence.entries_end);
  const auto fresh = runner(*ops_, Schedule::kDeploy);
  auto restored = fresh->restore(*live->save(sequence), "bytes");
  ASSERT_TRUE(restored) << restored.error().message;
  EXPECT_EQ(copy_of(*fresh->prefill(*restored, 7)), copy_of(*live->prefill(sequence)));
}

TEST_P(Identity, AChangedOrForeignSavedSequenceIsRefused) {
  const auto r = runner(*ops_, Schedule::kDeploy, 2);
  Sequence sequence = *r->open();
  ASSERT_TRUE(r->append(sequence, std::span(tokens_).first(70)));
  ASSERT_TRUE(r->prefill(sequence));
  const std::vector<std::byte> saved = *r->save(sequence);
  const auto refused = [&](std::span<const std::byte> bytes) {
    const auto result = r->restore(bytes, "bytes");
    return !result && result.error().message.starts_with("bytes: ");
  };
  std::mt19937 random(5);
  for (int i = 0; i < 50; ++i) {
    std::vector<std::byte> changed = saved;
    changed[random() % changed.size()] ^= std::byte{1} << (random() % 8);
    EXPECT_TRUE(refused(changed));
    EXPECT_TRUE(refused(std::span(saved).first(random() % saved.size())));
  }
  std::vector<std::byte> longer = saved;
  longer.push_back({});
  EXPECT_TRUE(refused(longer));
  const auto exact = runner(*ops_, Schedule::kExact);
  EXPECT_FALSE(exact->restore(saved, "bytes"));
  const auto small = Runner::make(model(), *ops_, {.context = 64});
  EXPECT_EQ((*small)->restore(saved, "bytes").error().code, ErrorCode::kExhausted);
  // Nothing was taken by what was refused: the second slot is free.
  EXPECT_TRUE(r->restore(saved, "bytes"));
}

INSTANTIATE_TEST_SUITE_P(Models, Identity,
                         testing::Values(ModelCase{"T12", "tests/golden/t12", 150},
                                         ModelCase{"Shipped", "models/fathom-34m", 200}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace fathom
