#include "text/tokenizer_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <numeric>
#include <optional>
#include <unordered_map>

#include "text/byte_alphabet.h"
#include "text/quote.h"
#include "text/tokenizer_file_json.h"
#include "text/utf8.h"

namespace fathom {
namespace {

namespace json = boost::json;

// The file in work: what later sections need to know of earlier ones.
class Reader {
 public:
  Reader(JsonSource source, int64_t n_entries_max) : source_(source), id_max_(n_entries_max - 1) {}

  Result<void> read_vocabulary(const json::object& model);
  Result<void> read_added_tokens(const json::object& root);
  Result<void> check_ids() const;
  Result<void> read_merges(const json::object& model);
  Result<void> check_reachable() const;

  TokenizerFile take() { return std::move(file_); }

 private:
  // How a vocabulary entry comes about.
  enum class Origin : uint8_t { kUnknown, kByte, kMerge, kAdded };

  // The id of an entry as model.vocab writes it, or kNoToken.
  TokenId find_entry(std::string_view symbols) const;
  // Messages are rare and entries many, so `where` is a function.
  template <typename Where>
  Result<void> put(TokenId id, std::string bytes, const Where& where);
  Result<void> read_added_token(const json::value& value, size_t index);
  Result<Merge> read_merge(const json::value& value, size_t index);
  Result<TokenId> merge_part(std::string_view symbols, size_t index, std::string_view which) const;
  Result<std::pair<std::string_view, std::string_view>> merge_parts(const json::value& value,
                                                                    size_t index) const;

  JsonSource source_;
  int64_t id_max_;
  TokenizerFile file_;
  const json::object* vocab_ = nullptr;  // model.vocab; its ids are checked
  std::vector<bool> taken_;              // by id
  std::vector<Origin> origin_;           // by id
};

// Entries of both sections. A file of n entries can only have ids below n without a hole; the bound
// keeps a wild id from asking for memory before the hole is found.
int64_t count_entries(const json::object& root, const json::object& model) {
  constexpr size_t kEntriesMax = size_t{1} << 24;
  const json::value* vocab = model.if_contains("vocab");
  const json::value* added = root.if_contains("added_tokens");
  const size_t n_vocab = vocab != nullptr && vocab->is_object() ? vocab->get_object().size() : 0;
  const size_t n_added = added != nullptr && added->is_array() ? added->get_array().size() : 0;
  return static_cast<int64_t>(std::min(n_vocab + n_added, kEntriesMax));
}

TokenId Reader::find_entry(std::string_view symbols) const {
  const json::value* id = vocab_->if_contains(symbols);
  return id == nullptr ? kNoToken : static_cast<TokenId>(id->get_int64());
}

template <typename Where>
Result<void> Reader::put(TokenId id, std::string bytes, const Where& where) {
  const auto index = static_cast<size_t>(id);
  if (index >= taken_.size()) {
    taken_.resize(index + 1);
    file_.token_bytes.resize(index + 1);
    origin_.resize(index + 1, Origin::kUnknown);
  }
  if (taken_[index]) {
    return source_.error(
        where(), fmt::format("id {} is already that of {}", id, quote(file_.token_bytes[index])));
  }
  taken_[index] = true;
  file_.token_bytes[index] = std::move(bytes);
  return {};
}

Result<void> Reader::read_vocabulary(const json::object& model) {
  FATHOM_ASSIGN_OR_RETURN(const json::object* vocab, source_.object(model, "model", "vocab"));
  for (const auto& item : *vocab) {
    const std::string_view entry{item.key().data(), item.key().size()};
    const auto where = [&] { return "model.vocab[" + quote(entry) + "]"; };
    const int64_t* id = item.value().if_int64();
    if (id == nullptr || *id < 0 || *id > id_max_) {
      return source_.integer(item.value(), where(), 0, id_max_).error();
    }
    if (entry.empty()) {
      return source_.error(where(), "the entry is empty, wanted at least one symbol");
    }
    // An entry outside the byte alphabet can only be an added token, whose bytes are its text.
    std::optional<std::string> bytes = symbols_to_bytes(entry);
    const bool is_byte = bytes && bytes->size() == 1;
    FATHOM_RETURN_IF_ERROR(
        put(static_cast<TokenId>(*id), bytes ? std::move(*bytes) : std::string(entry), where));
    if (is_byte) origin_[*id] = Origin::kByte;
  }
  vocab_ = vocab;
  for (int byte = 0; byte < 256; ++byte) {
    std::string symbol;
    utf8_append(&symbol, byte_symbol(static_cast<uint8_t>(byte)));
    if (find_entry(symbol) != kNoToken) continue;
    return source_.error("model.vocab", fmt::format("byte 0x{:02X} (symbol {}) is missing, wanted "
                                                    "all 256 bytes",
                                                    byte, quote(symbol)));
  }
  return {};
}

Result<void> Reader::read_added_token(const json::value& value, size_t index) {
  const std::string where = fmt::format("added_tokens[{}]", index);
  FATHOM_ASSIGN_OR_RETURN(const json::object* token, source_.as_object(value, where));
  FATHOM_ASSIGN_OR_RETURN(const int64_t id, source_.integer(*token, where, "id", 0, id_max_));
  FATHOM_ASSIGN_OR_RETURN(const std::string_view content, source_.string(*token, where, "content"));
  FATHOM_ASSIGN_OR_RETURN(const bool special, source_.boolean(*token, where, "special"));
  for (const std::string_view flag : {"single_word", "lstrip", "rstrip"}) {
    FATHOM_ASSIGN_OR_RETURN(const bool set, source_.boolean(*token, where, flag));
    if (set) return source_.error(where + "." + std::string(flag), "is true, supported is false");
  }
  if (content.empty()) return source_.error(where + ".content", "is empty");
  AddedToken added{static_cast<TokenId>(id), std::string(content), special};
  const TokenId entry = find_entry(content);
  if (entry == kNoToken) {
    FATHOM_RETURN_IF_ERROR(put(added.id, added.content, [&] { return std::string(where); }));
  } else if (entry != id) {
    return source_.error(where, fmt::format("id {} of {} differs from its id {} in model.vocab", id,
                                            quote(content), entry));
  } else if (file_.token_bytes[id] != content) {
    return source_.error(
        where + ".content",
        quote(content) + " stands in model.vocab for the bytes " + quote(file_.token_bytes[id]));
  }
  if (origin_[id] == Origin::kAdded) {
    return source_.error(where, fmt::format("{} with id {} is given twice", quote(content), id));
  }
  if (origin_[id] == Origin::kUnknown) origin_[id] = Origin::kAdded;
  file_.added.push_back(std::move(added));
  return {};
}

Result<void> Reader::read_added_tokens(const json::object& root) {
  const json::value* list = root.if_contains("added_tokens");
  if (list == nullptr || list->is_null()) return {};
  FATHOM_ASSIGN_OR_RETURN(const json::array* tokens, source_.as_array(*list, "added_tokens"));
  for (size_t i = 0; i < tokens->size(); ++i) {
    FATHOM_RETURN_IF_ERROR(read_added_token((*tokens)[i], i));
  }
  std::unordered_map<std::string_view, TokenId> seen;
  for (const AddedToken& token : file_.added) {
    const auto [first, is_new] = seen.emplace(token.content, token.id);
    if (is_new) continue;
    return source_.error(
        "added_tokens",
        fmt::format("{} has two ids, {} and {}", quote(token.content), first->second, token.id));
  }
  std::ranges::sort(file_.added, {}, &AddedToken::id);
  return {};
}

Result<void> Reader::check_ids() const {
  const auto hole = std::ranges::find(taken_, false);
  if (hole == taken_.end()) return {};
  return source_.error("model.vocab and added_tokens",
                       fmt::format("no token has id {}, wanted every id from 0 to {}",
                                   hole - taken_.begin(), taken_.size() - 1));
}

Result<std::pair<std::string_view, std::string_view>> Reader::merge_parts(const json::value& value,
                                                                          size_t index) const {
  if (const json::string* text = value.if_string()) {
    const std::string_view both{text->data(), text->size()};
    const size_t space = both.find(' ');
    if (space == both.npos || both.find(' ', space + 1) != both.npos) {
      return source_.error(fmt::format("model.merges[{}]", index),
                           quote(both) + " is not two parts with one space between them");
    }
    return std::pair{both.substr(0, space), both.substr(space + 1)};
  }
  const json::array* parts = value.if_array();
  if (parts == nullptr || parts->size() != 2 || !(*parts)[0].is_string() ||
      !(*parts)[1].is_string()) {
    return source_.error(fmt::format("model.merges[{}]", index),
                         "is neither \"a b\" nor [\"a\", \"b\"]");
  }
  const auto view = [](const json::value& v) {
    return std::string_view{v.get_string().data(), v.get_string().size()};
  };
  return std::pair{view((*parts)[0]), view((*parts)[1])};
}

Result<TokenId> Reader::merge_part(std::string_view symbols, size_t index,
                                   std::string_view which) const {
  const TokenId id = find_entry(symbols);
  if (id != kNoToken) return id;
  return source_.error(fmt::format("model.merges[{}]", index),
                       fmt::format("{} {} is not in model.vocab", which, quote(symbols)));
}

Result<Merge> Reader::read_merge(const json::value& value, size_t index) {
  FATHOM_ASSIGN_OR_RETURN(const auto parts, merge_parts(value, index));
  Merge merge;
  FATHOM_ASSIGN_OR_RETURN(merge.left, merge_part(parts.first, index, "left part"));
  FATHOM_ASSIGN_OR_RETURN(merge.right, merge_part(parts.second, index, "right part"));
  std::string joined(parts.first);
  joined += parts.second;
  FATHOM_ASSIGN_OR_RETURN(merge.result, merge_part(joined, index, "result"));
  for (const TokenId part : {merge.left, merge.right}) {
    if (origin_[part] == Origin::kByte || origin_[part] == Origin::kMerge) continue;
    return source_.error(
        fmt::format("model.merges[{}]", index),
        fmt::format("part {} is neither a byte nor the result of an earlier merge (missing merge, "
                    "cycle or wrong order)",
                    quote(part == merge.left ? parts.first : parts.second)));
  }
  origin_[merge.result] = Origin::kMerge;
  return merge;
}

Result<void> Reader::read_merges(const json::object& model) {
  FATHOM_ASSIGN_OR_RETURN(const json::array* merges, source_.array(model, "model", "merges"));
  file_.merges.reserve(merges->size());
  for (size_t i = 0; i < merges->size(); ++i) {
    FATHOM_ASSIGN_OR_RETURN(const Merge merge, read_merge((*merges)[i], i));
    file_.merges.push_back(merge);
  }
  // A pair that stands twice would have two ranks.
  std::vector<uint32_t> by_pair(merges->size());
  std::iota(by_pair.begin(), by_pair.end(), 0);
  const auto pair_of = [&](uint32_t i) {
    return std::pair(file_.merges[i].left, file_.merges[i].right);
  };
  std::ranges::stable_sort(by_pair, {}, pair_of);
  const auto twice = std::ranges::adjacent_find(by_pair, {}, pair_of);
  if (twice == by_pair.end()) return {};
  return source_.error(fmt::format("model.merges[{}]", twice[1]),
                       fmt::format("repeats model.merges[{}]", twice[0]));
}

Result<void> Reader::check_reachable() const {
  const auto unknown = std::ranges::find(origin_, Origin::kUnknown);
  if (unknown == origin_.end() || file_.ignore_merges) return {};
  const auto id = unknown - origin_.begin();
  return source_.error("model.vocab",
                       fmt::format("{} with id {} is no byte, no added token and not "
                                   "the result of a merge (missing merge)",
                                   quote(file_.token_bytes[id]), id));
}

}  // namespace

Result<TokenizerFile> parse_tokenizer_file(std::string_view text, std::string_view name) {
  const JsonSource source(name);
  json::monotonic_resource memory(text.size() + 4096);
  FATHOM_ASSIGN_OR_RETURN(const json::value document, source.parse(text, &memory));
  FATHOM_ASSIGN_OR_RETURN(const json::object* root, source.as_object(document, "the file"));
  FATHOM_ASSIGN_OR_RETURN(const json::object* model, source.object(*root, "", "model"));
  FATHOM_ASSIGN_OR_RETURN(const bool ignore_merges, check_supported(source, *root, *model));
  FATHOM_ASSIGN_OR_RETURN(auto patterns, read_split_patterns(source, *root));

  Reader reader(source, count_entries(*root, *model));
  FATHOM_RETURN_IF_ERROR(reader.read_vocabulary(*model));
  FATHOM_RETURN_IF_ERROR(reader.read_added_tokens(*root));
  FATHOM_RETURN_IF_ERROR(reader.check_ids());
  FATHOM_RETURN_IF_ERROR(reader.read_merges(*model));
  FATHOM_RETURN_IF_ERROR(reader.check_reachable());
  TokenizerFile file = reader.take();
  file.split_patterns = std::move(patterns);
  file.ignore_merges = ignore_merges;
  return file;
}

}  // namespace fathom
