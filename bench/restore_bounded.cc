// restore_bounded MODEL < TEXT: how far a bounded restore moves what the model says next, by where
// the hit ends. Passages of the text run in the exact schedule; then each is rewound to a position
// with the bounded grade (the last window is replayed) and goes on with the same tokens. Prints a
// Markdown table of the divergence KL(exact || bounded), in nats, by tokens behind the hit, and of
// the first token that would be chosen otherwise. A hit that ends within the first window replays
// everything and must show none: status 1 where it does.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include "base/check.h"
#include "engine/load.h"
#include "engine/runner.h"
#include "ops/backends.h"

namespace fathom {
namespace {

constexpr int64_t kPassages = 8;
constexpr int64_t kPassageTokens = 1024;
constexpr int64_t kBehind = 128;  // tokens that are compared

struct Hit {
  const char* kind;
  int64_t position;
};
// Behind one another from the last on, so that the entries before each are exact.
constexpr Hit kHits[] = {{"block edge", 896},
                         {"one behind an edge", 833},
                         {"one before an edge", 767},
                         {"odd, inside a block", 685},
                         {"block edge", 640},
                         {"one behind an edge", 513},
                         {"one before an edge", 447},
                         {"odd, inside a block", 365},
                         {"block edge", 256},
                         {"one behind an edge", 193},
                         {"one before an edge", 127},
                         {"odd, inside a block", 109},
                         {"within the first window", 51}};
constexpr int64_t kRanges[] = {1, 16, 64, kBehind};  // ends of the columns

struct Row {
  std::vector<double> kl;  // by tokens behind the hit
  int64_t first = kBehind;
};

std::vector<double> log_softmax(const float* logits, int64_t n) {
  const double max = *std::max_element(logits, logits + n);
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += std::exp(logits[i] - max);
  std::vector<double> out;
  for (int64_t i = 0; i < n; ++i) out.push_back(logits[i] - max - std::log(sum));
  return out;
}

double divergence(const float* exact, const float* bounded, int64_t n) {
  const std::vector<double> p = log_softmax(exact, n);
  const std::vector<double> q = log_softmax(bounded, n);
  double sum = 0;
  for (size_t i = 0; i < p.size(); ++i) sum += std::exp(p[i]) * (p[i] - q[i]);
  return sum;
}

int64_t choice(const float* logits, int64_t n) {
  return std::max_element(logits, logits + n) - logits;
}

class Measurement {
 public:
  explicit Measurement(Runner& runner) : runner_(runner) {}

  void passage(std::span<const int32_t> ids) {
    Sequence sequence = *runner_.open();
    exact_.clear();
    FATHOM_CHECK(runner_.append(sequence, ids).has_value());
    run(sequence, &exact_);
    for (const Hit& hit : kHits) {
      runner_.rewind(sequence, hit.position, RestoreGrade::kBounded);
      FATHOM_CHECK(runner_.append(sequence, ids.subspan(static_cast<size_t>(hit.position), kBehind))
                       .has_value());
      std::map<int64_t, std::vector<float>> bounded;
      run(sequence, &bounded);
      rows_[hit.kind].push_back(compare(hit.position, bounded));
    }
    runner_.close(sequence);
  }

  bool print() const {
    std::printf(
        "| hit ends | hits | KL 1st token | 2 to 16 | 17 to 64 | 65 to 128 | chosen "
        "otherwise | first, median | first, least |\n");
    std::printf("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n");
    for (const auto& [kind, rows] : rows_) print(kind, rows);
    const auto control = rows_.find("within the first window");
    return std::ranges::all_of(control->second, [](const Row& row) {
      return row.first == kBehind && *std::ranges::max_element(row.kl) == 0;
    });
  }

 private:
  // Logits of all pending rows by position.
  void run(Sequence& sequence, std::map<int64_t, std::vector<float>>* logits) {
    while (sequence.length < static_cast<int64_t>(sequence.tokens.size())) {
      const int64_t begin = sequence.length;
      const int64_t n = std::min(runner_.options().max_rows,
                                 static_cast<int64_t>(sequence.tokens.size()) - begin);
      const StepItem item = {.sequence = &sequence, .n_rows = n, .want = WantLogits::kAll};
      const Result<Tensor> out = runner_.step({&item, 1});
      FATHOM_CHECK(out.has_value());
      n_vocab_ = out->dim(1);
      for (int64_t row = 0; row < n; ++row) {
        const float* values = out->row<float>(row);
        (*logits)[begin + row].assign(values, values + n_vocab_);
      }
    }
  }

  Row compare(int64_t position, const std::map<int64_t, std::vector<float>>& bounded) const {
    Row row;
    for (int64_t i = 0; i < kBehind; ++i) {
      const float* p = exact_.at(position + i).data();
      const float* q = bounded.at(position + i).data();
      row.kl.push_back(divergence(p, q, n_vocab_));
      const bool differs = choice(p, n_vocab_) != choice(q, n_vocab_);
      if (differs) row.first = std::min(row.first, i);
    }
    return row;
  }

  static void print(const std::string& kind, const std::vector<Row>& rows) {
    std::string line = fmt::format("| {} | {} ", kind, rows.size());
    int64_t begin = 0;
    for (const int64_t end : kRanges) {
      double sum = 0;
      for (const Row& row : rows) {
        for (int64_t i = begin; i < end; ++i) sum += row.kl[static_cast<size_t>(i)];
      }
      line += fmt::format("| {:.2e} ", sum / static_cast<double>((end - begin) * rows.size()));
      begin = end;
    }
    std::vector<int64_t> first;
    for (const Row& row : rows) first.push_back(row.first);
    std::ranges::sort(first);
    const auto shown = [](int64_t i) { return i == kBehind ? "none" : std::to_string(i + 1); };
    const auto n_differ = std::ranges::count_if(first, [](int64_t i) { return i < kBehind; });
    std::printf("%s| %ld of %zu | %s | %s |\n", line.c_str(), n_differ, rows.size(),
                shown(first[first.size() / 2]).c_str(), shown(first.front()).c_str());
  }

  Runner& runner_;
  int64_t n_vocab_ = 0;
  std::map<int64_t, std::vector<float>> exact_;  // of the passage
  std::map<std::string, std::vector<Row>> rows_;
};

int measure(const char* path, const std::string& text) {
  const auto loaded = load_model(path, {});
  FATHOM_CHECK(loaded.has_value());
  const auto ops = std::move(*make_backend({.n_threads = 1}));
  const auto runner = std::move(*Runner::make(*loaded->model, *ops,
                                              {.schedule = Schedule::kExact,
                                               .context = kPassageTokens + kBehind,
                                               .max_rows = 256,
                                               .max_logit_rows = 256}));
  const std::vector<TokenId> ids = *loaded->tokenizer->encode(text, AddedTokens::kIgnore);
  Measurement measurement(*runner);
  const auto n_ids = static_cast<int64_t>(ids.size());
  for (int64_t i = 0; i < kPassages; ++i) {
    const int64_t begin = i * ((n_ids - kPassageTokens) / kPassages);
    FATHOM_CHECK(begin >= 0);
    measurement.passage(std::span(ids).subspan(static_cast<size_t>(begin), kPassageTokens));
  }
  return measurement.print() ? 0 : 1;
}

}  // namespace
}  // namespace fathom

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: restore_bounded MODEL < TEXT\n");
    return 2;
  }
  std::string text;
  char buffer[1 << 16];
  for (size_t n = 0; (n = std::fread(buffer, 1, sizeof(buffer), stdin)) > 0;)
    text.append(buffer, n);
  return fathom::measure(argv[1], text);
}
