#include <algorithm>
#include <chrono>
#include <cstdio>

#include "apps/bench.h"
#include "apps/progress.h"
#include "base/file.h"
#include "text/tokenizer.h"

namespace fathom {
namespace {

using Clock = std::chrono::steady_clock;

struct Sample {
  const char* name;
  const char* text;
};

constexpr Sample kSamples[] = {
    {"english",
     "The harbour lay still under a pale morning sky, and the first boats were already on their "
     "way out when the bells of the old church began to ring. Nobody on the quay looked up; they "
     "had nets to mend, letters to read, and a long day of ordinary work before them.\n"},
    {"chinese",
     "清晨的港口十分安静，第一批渔船已经出海，老教堂的钟声才刚刚响起。码头上没有人抬头，"
     "他们要补网、读信，还有漫长而平常的一天等着他们。\n"},
    {"code",
     "static int find_slot(const struct table *t, uint64_t key) {\n"
     "  for (size_t i = hash(key) & t->mask;; i = (i + 1) & t->mask) {\n"
     "    if (t->slots[i].key == key || t->slots[i].key == EMPTY) return (int)i;\n  }\n}\n"},
};

// About 1 MiB, numbered so that no two lines are alike.
std::string repeated(const char* text) {
  std::string result;
  for (int i = 0; result.size() < (size_t{1} << 20); ++i) {
    result.append(std::to_string(i)).append(" ").append(text);
  }
  return result;
}

}  // namespace

Result<void> bench_tokenizer(const BenchOptions& options, BenchRows& rows) {
  FATHOM_ASSIGN_OR_RETURN(const Tokenizer tokenizer,
                          Tokenizer::load(options.model + "/tokenizer.json"));
  ProgressLine line(options.progress, "bench tokenizer", "texts");
  int64_t n_done = 0;
  for (const Sample& sample : kSamples) {
    line.update(n_done++, std::ssize(kSamples));
    const std::string text = repeated(sample.text);
    std::vector<TokenId> ids;
    double best = 1e30;
    for (int round = 0; round < 5; ++round) {
      const auto start = Clock::now();
      FATHOM_ASSIGN_OR_RETURN(ids, tokenizer.encode(text, AddedTokens::kMatch));
      best = std::min(best, std::chrono::duration<double>(Clock::now() - start).count());
    }
    FATHOM_ASSIGN_OR_RETURN(const std::string back, tokenizer.decode_bytes(ids));
    if (back != text) return invalid("bench: tokenizer: decoded text differs from the input");
    char conditions[160];
    std::snprintf(conditions, sizeof conditions,
                  "%zu bytes of numbered repeats, %zu ids, 1 thread, best of 5", text.size(),
                  ids.size());
    rows.push_back({std::string("tokenizer_encode_") + sample.name,
                    static_cast<double>(text.size()) / best, "bytes_per_s", 0, conditions});
  }
  return {};
}

}  // namespace fathom
