#pragma once

// Text to token ids and back: byte-level BPE read from a tokenizer.json (spec/tokenizer.md).
//
// Every byte string has an encoding, and decode_bytes(encode(x)) == x. Ill-formed UTF-8 is encoded
// as it is (text/pretokenizer.h). No token is added by itself, BOS included.
//
// Thread rule: const after load; all members may be called from several threads.

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/token.h"

namespace fathom {

enum class AddedTokens {
  kMatch,   // an added token's text becomes its id, wherever it stands
  kIgnore,  // it is text like any other
};

enum class SpecialTokens {
  kKeep,
  kSkip,  // tokens flagged special give no text; note that <|System|> (fullwidth) is not flagged
};

class Tokenizer {
 public:
  // Errors name file, field and values (text/tokenizer_file.h says what is accepted).
  static Result<Tokenizer> load(const std::string& path);
  static Result<Tokenizer> from_json(std::string_view json, std::string_view name);

  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  // `text` is shorter than 2 GiB. kExhausted where a split pattern of the file backtracks too much
  // (text/regex_split.h); never with the released patterns.
  //
  // Both forms end with kInvalid as soon as it is certain that there are more than `ids_max` ids,
  // which takes time by ids_max and not by the text.
  Result<std::vector<TokenId>> encode(std::string_view text, AddedTokens added,
                                      size_t ids_max = SIZE_MAX) const;

  // Added tokens are matched only where they lie wholly inside one of `markers`, which ascend, do
  // not overlap and lie inside the text: what a chat renderer wrote itself. All else is plain text,
  // and a range border that is not the border of a matched token splits nothing.
  Result<std::vector<TokenId>> encode(std::string_view text, std::span<const ByteRange> markers,
                                      size_t ids_max = SIZE_MAX) const;

  // The bytes of all ids, put together. An id outside the vocabulary is an error.
  Result<std::string> decode_bytes(std::span<const TokenId> ids,
                                   SpecialTokens special = SpecialTokens::kKeep) const;

  // The same as well-formed UTF-8: each maximal ill-formed subpart becomes U+FFFD.
  Result<std::string> decode(std::span<const TokenId> ids,
                             SpecialTokens special = SpecialTokens::kKeep) const;

  // Ids are 0 .. vocab_size() - 1, added tokens among them.
  int32_t vocab_size() const;
  bool is_valid(TokenId id) const { return id >= 0 && id < vocab_size(); }
  Result<void> check_ids(std::span<const TokenId> ids) const;

  // Of a valid id. Added tokens: the UTF-8 of their text. The view lives as long as the tokenizer.
  std::string_view token_bytes(TokenId id) const;
  bool is_added(TokenId id) const;
  bool is_special(TokenId id) const;

  // The added token with exactly this text.
  std::optional<TokenId> added_token(std::string_view text) const;

 private:
  struct Parts;
  struct Work;
  explicit Tokenizer(std::unique_ptr<Parts> parts);

  Result<void> encode_plain(std::string_view text, Work* work) const;

  std::unique_ptr<Parts> parts_;
};

}  // namespace fathom
