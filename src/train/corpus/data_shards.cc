#include "train/corpus/data_shards.h"

#include <algorithm>
#include <sstream>

#include "base/check.h"
#include "base/file.h"
#include "base/thread_pool.h"
#include "train/corpus/data_store.h"

namespace fathom::train {
namespace {

constexpr const char* kEndToken = "<｜end▁of▁sentence｜>";

template <typename T>
std::string_view bytes_of(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

}  // namespace

void append_documents(const Tokenizer& tokenizer, const std::vector<std::string>& texts,
                      Shard& shard) {
  FATHOM_CHECK(tokenizer.vocab_size() <= 65'536);
  const auto end = tokenizer.added_token(kEndToken);
  FATHOM_CHECK(end.has_value());
  std::vector<std::vector<uint16_t>> encoded(texts.size());
  ThreadPool pool(0);
  pool.parallel_for(static_cast<int64_t>(texts.size()), 16, [&](int64_t begin, int64_t stop) {
    for (int64_t i = begin; i < stop; ++i) {
      std::vector<uint16_t>& ids = encoded[static_cast<size_t>(i)];
      const auto tokens = tokenizer.encode(texts[static_cast<size_t>(i)], AddedTokens::kIgnore);
      for (const TokenId id : tokens.value()) {
        ids.push_back(static_cast<uint16_t>(id));
      }
      ids.push_back(static_cast<uint16_t>(*end));
    }
  });
  for (size_t i = 0; i < texts.size(); ++i) {
    shard.ids.insert(shard.ids.end(), encoded[i].begin(), encoded[i].end());
    shard.bytes += static_cast<int64_t>(texts[i].size());
  }
}

std::vector<std::string> take_documents(const Tokenizer& tokenizer,
                                        const std::vector<std::string>& texts, int64_t n_tokens) {
  std::vector<std::pair<double, size_t>> order;
  for (size_t i = 0; i < texts.size(); ++i) order.emplace_back(unit_hash(texts[i]), i);
  std::sort(order.begin(), order.end());
  std::vector<std::string> taken;
  int64_t tokens = 0;
  for (const auto& [hash, index] : order) {
    if (tokens >= n_tokens) break;
    taken.push_back(texts[index]);
    tokens +=
        static_cast<int64_t>(tokenizer.encode(taken.back(), AddedTokens::kIgnore)->size()) + 1;
  }
  return taken;
}

Result<void> write_shard(const std::string& dir, const Shard& shard) {
  FATHOM_CHECK(shard.weights.empty() || shard.weights.size() == shard.ids.size());
  FATHOM_RETURN_IF_ERROR(write_file_atomic(dir + "/" + shard.name + ".u16", bytes_of(shard.ids)));
  if (shard.weights.empty()) return {};
  return write_file_atomic(dir + "/" + shard.name + ".w8", bytes_of(shard.weights));
}

std::string index_json(int vocab_size, const std::vector<Shard>& shards) {
  std::ostringstream out;
  out << "{\n  \"vocab_size\": " << vocab_size << ",\n  \"sources\": [\n";
  for (size_t i = 0; i < shards.size(); ++i) {
    const Shard& shard = shards[i];
    out << "    {\"name\": " << json_quoted(shard.name) << ", \"kind\": " << json_quoted(shard.kind)
        << ", \"split\": \"" << (shard.split == Split::kTrain ? "train" : "heldout")
        << "\", \"mix\": " << shard.mix << ", \"tokens\": " << json_quoted(shard.name + ".u16");
    if (!shard.weights.empty()) out << ", \"weights\": " << json_quoted(shard.name + ".w8");
    out << ", \"n_tokens\": " << shard.ids.size() << ", \"bytes\": " << shard.bytes
        << ", \"row\": " << shard.row << "}" << (i + 1 < shards.size() ? "," : "") << "\n";
  }
  out << "  ]\n}\n";
  return out.str();
}

}  // namespace fathom::train
