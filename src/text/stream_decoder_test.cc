// The streaming decoder against tests/golden/tokenizer/decode.jsonl: what is given out after each
// id, the tail, and the text with and without special tokens.

#include "text/stream_decoder.h"

#include <gtest/gtest.h>

#include "base/hash.h"
#include "text/golden_test.h"

namespace fathom {
namespace {

std::string hex(const std::string& bytes) {
  return to_hex({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()});
}

TEST(StreamDecoder, EveryGoldenCaseGivesTheSameSteps) {
  const Tokenizer& tokenizer = released_tokenizer();
  const auto cases = golden_json_lines("tokenizer/decode.jsonl");
  EXPECT_EQ(cases.size(), 73u);
  for (const auto& c : cases) {
    const auto ids = ids_of(c.at("ids"));
    StreamDecoder all(tokenizer);
    StreamDecoder unspecial(tokenizer, SpecialTokens::kSkip);
    std::string text;
    std::string text_unspecial;
    for (size_t i = 0; i < ids.size(); ++i) {
      const std::string step = *all.push(ids[i]);
      EXPECT_EQ(step, string_of(c.at("steps").at(i))) << c.at("cat") << " step " << i;
      text += step;
      text_unspecial += *unspecial.push(ids[i]);
    }
    const std::string tail = all.flush();
    EXPECT_EQ(tail, string_of(c.at("tail")));
    EXPECT_EQ(text + tail, string_of(c.at("text")));
    EXPECT_EQ(text_unspecial + unspecial.flush(), string_of(c.at("text_skip_special")));
    EXPECT_EQ(hex(*tokenizer.decode_bytes(ids)), string_of(c.at("bytes")));
    EXPECT_EQ(*tokenizer.decode(ids), string_of(c.at("text")));
    EXPECT_EQ(*tokenizer.decode(ids, SpecialTokens::kSkip), string_of(c.at("text_skip_special")));
  }
}

TEST(StreamDecoder, AWrongIdIsAnErrorAndChangesNothing) {
  StreamDecoder decoder(released_tokenizer());
  EXPECT_EQ(*decoder.push(130), "");  // C3
  EXPECT_FALSE(decoder.push(-1));
  EXPECT_FALSE(decoder.push(129280));
  EXPECT_EQ(*decoder.push(105), "\xC3\xA9");
  EXPECT_EQ(decoder.flush(), "");
}

TEST(StreamDecoder, FlushEndsOneTextAndBeginsAnother) {
  StreamDecoder decoder(released_tokenizer());
  EXPECT_EQ(*decoder.push(130), "");
  EXPECT_EQ(decoder.flush(), "\xEF\xBF\xBD");
  EXPECT_EQ(decoder.flush(), "");
  EXPECT_EQ(*decoder.push(105), "\xEF\xBF\xBD");  // A9 alone is ill-formed
}

}  // namespace
}  // namespace fathom
