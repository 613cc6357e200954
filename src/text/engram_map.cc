#include "text/engram_map.h"

#include <unicode/normalizer2.h>
#include <unicode/uchar.h>
#include <unicode/unistr.h>

#include <string>
#include <unordered_map>

#include "base/check.h"
#include "text/byte_alphabet.h"
#include "text/unicode_classes.h"
#include "text/utf8.h"

namespace fathom {
namespace {

constexpr char32_t kCapitalIWithDot = 0x130;
constexpr char32_t kCombiningDotAbove = 0x307;

bool is_mark(char32_t c) { return unicode_class_contains(UnicodeClass::kMark, c); }

// NFKC, then NFD, then each code point that is not a mark in lower case. The mapping is that of a
// single code point without context, of which only U+0130 gives two code points.
std::u32string fold(std::string_view text) {
  UErrorCode status = U_ZERO_ERROR;
  const icu::Normalizer2* nfkc = icu::Normalizer2::getNFKCInstance(status);
  const icu::Normalizer2* nfd = icu::Normalizer2::getNFDInstance(status);
  FATHOM_CHECK(U_SUCCESS(status));
  const icu::StringPiece piece(text.data(), static_cast<int32_t>(text.size()));
  const icu::UnicodeString composed = nfkc->normalize(icu::UnicodeString::fromUTF8(piece), status);
  const icu::UnicodeString decomposed = nfd->normalize(composed, status);
  FATHOM_CHECK(U_SUCCESS(status));

  std::u32string folded;
  for (int32_t i = 0; i < decomposed.length(); i = decomposed.moveIndex32(i, 1)) {
    const auto c = static_cast<char32_t>(decomposed.char32At(i));
    if (is_mark(c)) continue;
    folded.push_back(static_cast<char32_t>(u_tolower(static_cast<UChar32>(c))));
    if (c == kCapitalIWithDot) folded.push_back(kCombiningDotAbove);
  }
  return folded;
}

bool is_blank(char32_t c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }

// Runs of space, tab, CR and LF become one space; then white space is trimmed on both ends, unless
// the whole text is that one space.
std::u32string collapse(const std::u32string& text) {
  std::u32string out;
  for (const char32_t c : text) {
    const bool blank = is_blank(c);
    if (blank && !out.empty() && out.back() == U' ') continue;
    out.push_back(blank ? U' ' : c);
  }
  if (out == U" ") return out;
  const auto is_space = [](char32_t c) { return unicode_class_contains(UnicodeClass::kSpace, c); };
  size_t begin = 0;
  size_t end = out.size();
  while (begin < end && is_space(out[begin])) ++begin;
  while (end > begin && is_space(out[end - 1])) --end;
  return out.substr(begin, end - begin);
}

std::string key_of(const Tokenizer& tokenizer, TokenId id) {
  const std::string_view bytes = tokenizer.token_bytes(id);
  std::string text;
  const bool is_whole = utf8_append_decided(bytes, &text) == bytes.size();
  if (!is_whole || text.find("\xEF\xBF\xBD") != std::string::npos) {
    // A fragment of a character (or U+FFFD itself): the vocabulary's own spelling.
    return tokenizer.is_added(id) ? std::string(bytes) : bytes_to_symbols(bytes);
  }
  std::string key;
  for (const char32_t c : collapse(fold(text))) {
    // The private-use character U+E000 stands for a lone space while white space is trimmed, and
    // becomes a space again wherever it came from.
    utf8_append(&key, c == 0xE000 ? U' ' : c);
  }
  return key.empty() ? text : key;
}

}  // namespace

EngramMap build_engram_map(const Tokenizer& tokenizer) {
  EngramMap map;
  std::unordered_map<std::string, int32_t> id_of_key;
  for (TokenId id = 0; id < tokenizer.vocab_size(); ++id) {
    const auto [at, is_new] = id_of_key.emplace(key_of(tokenizer, id), map.n_keys);
    map.n_keys += is_new ? 1 : 0;
    map.compressed.push_back(at->second);
  }
  return map;
}

}  // namespace fathom
