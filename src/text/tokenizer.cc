#include "text/tokenizer.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "base/file.h"
#include "text/added_tokens.h"
#include "text/bpe.h"
#include "text/pretokenizer.h"
#include "text/tokenizer_file.h"
#include "text/utf8.h"

namespace fathom {

struct Tokenizer::Parts {
  Bpe bpe;
  Pretokenizer pretokenizer;
  AddedTokenMatcher matcher;
  std::vector<bool> is_added;    // by id
  std::vector<bool> is_special;  // by id
  std::string name;              // of the file, for messages
  size_t token_bytes_max = 1;
};

// What one call of encode() needs.
struct Tokenizer::Work {
  const size_t ids_max;
  const size_t token_bytes_max;
  std::vector<TokenId> ids;
  std::vector<size_t> ends;
  Bpe::Scratch scratch;
  Pretokenizer::Scratch split;

  // Whether so many bytes more still may fit.
  bool fits(size_t n_bytes) const {
    return ids.size() <= ids_max && n_bytes / token_bytes_max <= ids_max - ids.size();
  }
};

namespace {

Error too_many(size_t ids_max) {
  return invalid(fmt::format("wanted text of at most {} tokens, found more", ids_max));
}

}  // namespace

Tokenizer::Tokenizer(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

Result<Tokenizer> Tokenizer::load(const std::string& path) {
  constexpr uint64_t kFileBytesMax = uint64_t{256} << 20;
  FATHOM_ASSIGN_OR_RETURN(const std::string json, read_file(path, kFileBytesMax));
  return from_json(json, path);
}

Result<Tokenizer> Tokenizer::from_json(std::string_view json, std::string_view name) {
  FATHOM_ASSIGN_OR_RETURN(const TokenizerFile file, parse_tokenizer_file(json, name));
  auto pretokenizer = Pretokenizer::create(file.split_patterns);
  if (!pretokenizer) {
    return invalid(fmt::format("{}: pre_tokenizer: {}", name, pretokenizer.error().message));
  }
  auto parts = std::make_unique<Parts>(
      Parts{Bpe(file), std::move(*pretokenizer), AddedTokenMatcher(file.added),
            std::vector<bool>(file.token_bytes.size()), std::vector<bool>(file.token_bytes.size()),
            std::string(name)});
  for (const AddedToken& token : file.added) {
    parts->is_added[token.id] = true;
    parts->is_special[token.id] = token.special;
  }
  for (const std::string& bytes : file.token_bytes) {
    parts->token_bytes_max = std::max(parts->token_bytes_max, bytes.size());
  }
  return Tokenizer(std::move(parts));
}

Result<void> Tokenizer::encode_plain(std::string_view text, Work* work) const {
  work->ends.clear();
  if (const auto cut = parts_->pretokenizer.split(text, &work->split, &work->ends); !cut) {
    return Error{cut.error().code,
                 fmt::format("{}: pre_tokenizer: {}", parts_->name, cut.error().message)};
  }
  size_t begin = 0;
  for (const size_t end : work->ends) {
    if (!work->fits(end - begin)) return too_many(work->ids_max);
    parts_->bpe.encode(text.substr(begin, end - begin), &work->scratch, &work->ids);
    begin = end;
  }
  return {};
}

Result<std::vector<TokenId>> Tokenizer::encode(std::string_view text, AddedTokens added,
                                               size_t ids_max) const {
  if (added == AddedTokens::kIgnore) return encode(text, std::span<const ByteRange>{}, ids_max);
  const ByteRange whole{0, text.size()};
  return encode(text, std::span(&whole, 1), ids_max);
}

Result<std::vector<TokenId>> Tokenizer::encode(std::string_view text,
                                               std::span<const ByteRange> markers,
                                               size_t ids_max) const {
  Work work = {.ids_max = ids_max, .token_bytes_max = parts_->token_bytes_max};
  if (!work.fits(text.size())) return too_many(ids_max);
  size_t plain_begin = 0;
  size_t checked = 0;
  for (const ByteRange& range : markers) {
    FATHOM_CHECK(range.begin >= checked);
    FATHOM_CHECK(range.begin <= range.end);
    FATHOM_CHECK(range.end <= text.size());
    size_t from = range.begin;
    while (const auto match = parts_->matcher.find(text, from, range.end)) {
      FATHOM_RETURN_IF_ERROR(
          encode_plain(text.substr(plain_begin, match->range.begin - plain_begin), &work));
      work.ids.push_back(match->id);
      from = plain_begin = match->range.end;
    }
    checked = range.end;
  }
  FATHOM_RETURN_IF_ERROR(encode_plain(text.substr(plain_begin), &work));
  if (!work.fits(0)) return too_many(ids_max);
  return std::move(work.ids);
}

Result<void> Tokenizer::check_ids(std::span<const TokenId> ids) const {
  for (size_t i = 0; i < ids.size(); ++i) {
    if (is_valid(ids[i])) continue;
    return invalid(fmt::format("token {} has id {}, wanted 0 to {}", i, ids[i], vocab_size() - 1));
  }
  return {};
}

Result<std::string> Tokenizer::decode_bytes(std::span<const TokenId> ids,
                                            SpecialTokens special) const {
  FATHOM_RETURN_IF_ERROR(check_ids(ids));
  std::string bytes;
  for (const TokenId id : ids) {
    if (special == SpecialTokens::kSkip && is_special(id)) continue;
    bytes += token_bytes(id);
  }
  return bytes;
}

Result<std::string> Tokenizer::decode(std::span<const TokenId> ids, SpecialTokens special) const {
  FATHOM_ASSIGN_OR_RETURN(const std::string bytes, decode_bytes(ids, special));
  std::string text;
  if (utf8_append_decided(bytes, &text) < bytes.size()) utf8_append(&text, kReplacementCharacter);
  return text;
}

int32_t Tokenizer::vocab_size() const { return parts_->bpe.vocabulary().size(); }

std::string_view Tokenizer::token_bytes(TokenId id) const {
  FATHOM_CHECK(is_valid(id));
  return parts_->bpe.vocabulary().bytes(id);
}

bool Tokenizer::is_added(TokenId id) const {
  FATHOM_CHECK(is_valid(id));
  return parts_->is_added[id];
}

bool Tokenizer::is_special(TokenId id) const {
  FATHOM_CHECK(is_valid(id));
  return parts_->is_special[id];
}

std::optional<TokenId> Tokenizer::added_token(std::string_view text) const {
  const TokenId id = parts_->matcher.find_exact(text);
  return id == kNoToken ? std::nullopt : std::optional(id);
}

}  // namespace fathom
