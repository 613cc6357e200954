// Any bytes as a tokenizer.json: an error of one line, or a tokenizer that gives back every byte of
// the very bytes it was read from, unless its patterns backtrack too much.

#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "text/engram_map.h"
#include "text/stream_decoder.h"
#include "text/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace fathom;  // NOLINT: one function
  const std::string_view input{reinterpret_cast<const char*>(data), size};
  const auto tokenizer = Tokenizer::from_json(input, "fuzz.json");
  if (!tokenizer) {
    FATHOM_CHECK(tokenizer.error().message.find('\n') == std::string::npos);
    return 0;
  }
  for (const auto added : {AddedTokens::kMatch, AddedTokens::kIgnore}) {
    const auto encoded = tokenizer->encode(input, added);
    if (!encoded) {
      FATHOM_CHECK(encoded.error().code == ErrorCode::kExhausted);
      FATHOM_CHECK(encoded.error().message.find('\n') == std::string::npos);
      continue;
    }
    const auto& ids = *encoded;
    FATHOM_CHECK(*tokenizer->decode_bytes(ids) == input);
    StreamDecoder decoder(*tokenizer);
    std::string text;
    for (const TokenId id : ids) text += *decoder.push(id);
    FATHOM_CHECK(text + decoder.flush() == *tokenizer->decode(ids));
  }
  const EngramMap map = build_engram_map(*tokenizer);
  FATHOM_CHECK(map.n_keys <= tokenizer->vocab_size());
  return 0;
}
