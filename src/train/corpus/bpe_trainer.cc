#include "train/corpus/bpe_trainer.h"

#include <algorithm>
#include <map>
#include <queue>
#include <unordered_map>
#include <unordered_set>

#include "text/regex_split.h"
#include "text/utf8.h"

namespace fathom::train {
namespace {

struct Word {
  std::vector<int> symbols;
  int64_t count = 0;
};

using Pair = uint64_t;
Pair make_pair_key(int left, int right) {
  return static_cast<uint64_t>(left) << 32 | static_cast<uint32_t>(right);
}

// The classic loop: the most frequent pair is merged everywhere, and only the words that hold it
// are touched. A heap entry is stale when its count is not the current one; it is then dropped.
class Merger {
 public:
  Merger(std::vector<Word> words, std::vector<std::string> symbols)
      : words_(std::move(words)), symbols_(std::move(symbols)) {
    for (size_t w = 0; w < words_.size(); ++w) {
      const Word& word = words_[w];
      for (size_t i = 0; i + 1 < word.symbols.size(); ++i) {
        const Pair pair = make_pair_key(word.symbols[i], word.symbols[i + 1]);
        counts_[pair] += word.count;
        where_[pair].push_back(static_cast<int>(w));
      }
    }
    for (const auto& [pair, count] : counts_) push(pair, count);
  }

  bool step(int64_t min_count, std::vector<std::pair<std::string, std::string>>& merges) {
    while (!heap_.empty()) {
      const Entry best = heap_.top();
      heap_.pop();
      if (best.count < min_count) return false;
      if (counts_[best.pair] != best.count) continue;
      const int left = static_cast<int>(best.pair >> 32);
      const int right = static_cast<int>(best.pair & 0xFFFFFFFF);
      const std::string joined = symbols_[left] + symbols_[right];
      // Two pairs can spell the same bytes; the vocabulary holds every spelling once.
      if (!spelled_.insert(joined).second) continue;
      merges.emplace_back(symbols_[left], symbols_[right]);
      symbols_.push_back(joined);
      apply(best.pair, left, right, static_cast<int>(symbols_.size()) - 1);
      return true;
    }
    return false;
  }

 private:
  struct Entry {
    int64_t count;
    std::string left, right;
    Pair pair;
    bool operator<(const Entry& other) const {
      if (count != other.count) return count < other.count;
      if (left != other.left) return left > other.left;
      return right > other.right;
    }
  };

  void push(Pair pair, int64_t count) {
    heap_.push({count, symbols_[pair >> 32], symbols_[pair & 0xFFFFFFFF], pair});
  }

  void apply(Pair pair, int left, int right, int joined) {
    std::vector<int> words = std::move(where_[pair]);
    where_.erase(pair);
    std::sort(words.begin(), words.end());
    words.erase(std::unique(words.begin(), words.end()), words.end());
    std::map<Pair, bool> touched;  // ordered: the heap's order must not depend on hashing
    for (int w : words) {
      Word& word = words_[static_cast<size_t>(w)];
      count_pairs(word, -word.count, w, touched);
      size_t out = 0;
      for (size_t i = 0; i < word.symbols.size(); ++i) {
        const bool match =
            i + 1 < word.symbols.size() && word.symbols[i] == left && word.symbols[i + 1] == right;
        word.symbols[out++] = match ? joined : word.symbols[i];
        if (match) ++i;
      }
      word.symbols.resize(out);
      count_pairs(word, word.count, w, touched);
    }
    for (const auto& [changed, grown] : touched) {
      const int64_t count = counts_[changed];
      if (count > 0) push(changed, count);
      (void)grown;
    }
    counts_.erase(pair);
  }

  void count_pairs(const Word& word, int64_t delta, int w, std::map<Pair, bool>& touched) {
    for (size_t i = 0; i + 1 < word.symbols.size(); ++i) {
      const Pair pair = make_pair_key(word.symbols[i], word.symbols[i + 1]);
      counts_[pair] += delta;
      touched[pair] = true;
      if (delta > 0) {
        std::vector<int>& list = where_[pair];
        if (list.empty() || list.back() != w) list.push_back(w);
      }
    }
  }

  std::vector<Word> words_;
  std::vector<std::string> symbols_;
  std::unordered_set<std::string> spelled_;
  std::unordered_map<Pair, int64_t> counts_;
  std::unordered_map<Pair, std::vector<int>> where_;
  std::priority_queue<Entry> heap_;
};

}  // namespace

struct BpeTrainer::State {
  BpeOptions options;
  RegexSplit splitter;
  std::unordered_map<std::string, int64_t> pieces;

  template <typename Body>
  Result<void> for_each_piece(std::string_view text, Body body) const {
    if (utf8_valid_prefix(text) < text.size())
      return invalid("tokenizer text: wanted UTF-8, found other bytes");
    std::vector<size_t> ends;
    RegexSplit::Scratch scratch;
    FATHOM_RETURN_IF_ERROR(splitter.split(text, 0, &scratch, &ends));
    size_t begin = 0;
    for (size_t end : ends) {
      body(text.substr(begin, end - begin));
      begin = end;
    }
    return {};
  }
};

BpeTrainer::BpeTrainer(std::unique_ptr<State> state) : state_(std::move(state)) {}
BpeTrainer::BpeTrainer(BpeTrainer&&) noexcept = default;
BpeTrainer& BpeTrainer::operator=(BpeTrainer&&) noexcept = default;
BpeTrainer::~BpeTrainer() = default;

Result<BpeTrainer> BpeTrainer::create(BpeOptions options) {
  const size_t fixed = 256 + options.head_tokens.size() + options.tail_tokens.size();
  if (options.vocab_size < static_cast<int>(fixed)) {
    return invalid("tokenizer: vocab_size: wanted at least " + std::to_string(fixed) + ", found " +
                   std::to_string(options.vocab_size));
  }
  FATHOM_ASSIGN_OR_RETURN(RegexSplit splitter, RegexSplit::compile(options.patterns));
  return BpeTrainer(std::unique_ptr<State>(new State{std::move(options), std::move(splitter), {}}));
}

Result<void> BpeTrainer::add_text(std::string_view text) {
  return state_->for_each_piece(
      text, [&](std::string_view piece) { ++state_->pieces[std::string(piece)]; });
}

Result<std::vector<std::string>> BpeTrainer::split(std::string_view text) const {
  std::vector<std::string> pieces;
  FATHOM_RETURN_IF_ERROR(
      state_->for_each_piece(text, [&](std::string_view piece) { pieces.emplace_back(piece); }));
  return pieces;
}

BpeModel BpeTrainer::train() const {
  std::vector<std::pair<std::string, int64_t>> sorted(state_->pieces.begin(), state_->pieces.end());
  std::sort(sorted.begin(), sorted.end());
  std::vector<Word> words;
  for (const auto& [piece, count] : sorted) {
    if (piece.size() < 2) continue;
    Word word;
    word.count = count;
    for (char c : piece) word.symbols.push_back(static_cast<unsigned char>(c));
    words.push_back(std::move(word));
  }
  std::vector<std::string> symbols;
  for (int byte = 0; byte < 256; ++byte) symbols.emplace_back(1, static_cast<char>(byte));
  BpeModel model{state_->options, {}};
  const size_t wanted = static_cast<size_t>(model.options.vocab_size) - 256 -
                        model.options.head_tokens.size() - model.options.tail_tokens.size();
  Merger merger(std::move(words), std::move(symbols));
  while (model.merges.size() < wanted && merger.step(model.options.min_count, model.merges)) {
  }
  return model;
}

}  // namespace fathom::train
