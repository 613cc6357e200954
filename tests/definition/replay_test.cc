// Goal: a bounded replay is what spec/backbone.md 4.5 defines. Method: bit equality of logits with
// a direct masked computation of the same rows, on T12 and on the shipped model.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "engine/load.h"
#include "engine/runner.h"
#include "masked_forward.h"
#include "ops/backends.h"
#include "text/engram_map.h"

namespace fathom {
namespace {

using Logits = std::vector<float>;

struct ReplayCase {
  const char* name;
  const char* folder;
  int64_t n_prompt;
};

constexpr int64_t kDecoded = 4;

class Replay : public testing::TestWithParam<ReplayCase> {
 protected:
  void SetUp() override {
    const std::string path = std::string(FATHOM_SOURCE_DIR) + "/" + GetParam().folder;
    auto loaded = load_model(path, {.need_tokenizer = false});
    ASSERT_TRUE(loaded) << loaded.error().message;
    loaded_ = std::move(*loaded);
    ops_ = std::move(*make_backend({}));
    std::mt19937 random(23);
    const auto vocab = static_cast<uint32_t>(text().vocab_size);
    for (int64_t i = 0; i < n() + kDecoded; ++i) {
      tokens_.push_back(static_cast<int32_t>(random() % vocab));
    }
    make_map();
  }

  void make_map() {
    map_.resize(static_cast<size_t>(text().vocab_size));
    std::iota(map_.begin(), map_.end(), 0);
    if (text().engram_compressed_vocab_size == text().vocab_size) return;
    ASSERT_TRUE(loaded_.tokenizer);
    const std::vector<int32_t> map = build_engram_map(*loaded_.tokenizer).compressed;
    std::ranges::fill(map_, map[static_cast<size_t>(text().engram_pad_token_id)]);
    std::ranges::copy(map, map_.begin());
  }

  const Model& model() const { return *loaded_.model; }
  const TextConfig& text() const { return model().config().text_config; }
  int64_t n() const { return GetParam().n_prompt; }
  std::span<const int32_t> prompt() const {
    return std::span(tokens_).first(static_cast<size_t>(n()));
  }

  // The engine: prefill, cut to `prefix`, replay, prefill of the rest, then decodes. Logits of the
  // last prompt row and of each decoded one.
  Logits engine(Schedule schedule, RestoreGrade grade, int64_t prefix, int64_t chunk) const {
    const auto r = *Runner::make(
        model(), *ops_, {.schedule = schedule, .context = n() + kDecoded, .max_rows = n()});
    Sequence sequence = *r->open();
    EXPECT_TRUE(r->append(sequence, prompt()));
    EXPECT_TRUE(r->prefill(sequence));
    r->rewind(sequence, prefix, grade);
    EXPECT_TRUE(r->append(sequence, prompt().subspan(static_cast<size_t>(prefix))));
    Logits all;
    for (int64_t i = 0; i <= kDecoded; ++i) {
      const Tensor row = *r->prefill(sequence, chunk);
      all.insert(all.end(), row.as<float>(), row.as<float>() + row.elements());
      if (i == kDecoded) break;
      EXPECT_TRUE(r->append(sequence, {&tokens_[static_cast<size_t>(n() + i)], 1}));
    }
    EXPECT_EQ(sequence.replayed > 0, prefix > 0);
    return all;
  }

  Logits defined(Schedule schedule, int64_t prefix) const {
    const int64_t from = std::max<int64_t>(0, prefix - text().sliding_window);
    const int64_t decoder_from =
        schedule == Schedule::kExact ? from : std::max(from, n() - text().sliding_window);
    const Logits rows = masked_logits(
        model(), *ops_, map_,
        {.tokens = tokens_, .prefix = prefix, .encoder_from = from, .decoder_from = decoder_from});
    return {rows.end() - (kDecoded + 1) * text().vocab_size, rows.end()};
  }

  LoadedModel loaded_;
  std::unique_ptr<Ops> ops_;
  std::vector<int32_t> tokens_;
  std::vector<int32_t> map_;
};

TEST_P(Replay, ABoundedReplayEqualsItsDefinition) {
  for (const Schedule schedule : {Schedule::kExact, Schedule::kDeploy}) {
    for (const int64_t prefix : {n() / 2, n() / 2 + 1, n() - 1}) {  // an odd one splits a pair
      const Logits want = defined(schedule, prefix);
      EXPECT_EQ(engine(schedule, RestoreGrade::kBounded, prefix, 0), want) << "prefix " << prefix;
      EXPECT_EQ(engine(schedule, RestoreGrade::kBounded, prefix, 33), want) << "prefix " << prefix;
    }
  }
}

// A cold prefill has no replay in the encoder, and in the deploy schedule one in the decoder.
TEST_P(Replay, AColdPrefillEqualsItsDefinition) {
  for (const Schedule schedule : {Schedule::kExact, Schedule::kDeploy}) {
    EXPECT_EQ(engine(schedule, RestoreGrade::kBounded, 0, 0), defined(schedule, 0));
  }
}

// The mask is not vacuous: what it hides changes the result.
TEST_P(Replay, ABoundedReplayIsNotTheExactOne) {
  EXPECT_NE(defined(Schedule::kExact, n() / 2), defined(Schedule::kExact, 0));
  EXPECT_NE(defined(Schedule::kDeploy, 0), defined(Schedule::kExact, 0));
  EXPECT_EQ(engine(Schedule::kExact, RestoreGrade::kExact, n() / 2, 0),
            defined(Schedule::kExact, 0));
}

INSTANTIATE_TEST_SUITE_P(Models, Replay,
                         testing::Values(ReplayCase{"T12", "tests/golden/t12", 61},
                                         ReplayCase{"Shipped", "models/fathom-34m", 150}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace fathom
