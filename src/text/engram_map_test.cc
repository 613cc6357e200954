// The Engram token map of the released tokenizer: number of keys, digest of the whole map, listed
// pairs, families that collapse, and the token ids of tests/golden/tokenizer/engram_rows.json.

#include "text/engram_map.h"

#include <gtest/gtest.h>

#include "base/hash.h"
#include "text/golden_test.h"

namespace fathom {
namespace {

class EngramMapTest : public testing::Test {
 protected:
  static const EngramMap& map() {
    static const EngramMap map = build_engram_map(released_tokenizer());
    return map;
  }
};

TEST_F(EngramMapTest, DigestAndCountAreThoseOfTheSpecification) {
  const auto golden = golden_json("tokenizer/engram_map.json");
  EXPECT_EQ(map().n_keys, golden.at("compressed").as_int64());
  EXPECT_EQ(static_cast<int64_t>(map().compressed.size()), golden.at("vocab").as_int64());
  EXPECT_EQ(map().compressed[2], golden.at("pad").as_int64());
  std::string bytes;
  for (const int32_t id : map().compressed) {
    for (int shift = 0; shift < 32; shift += 8) bytes += static_cast<char>(id >> shift);
  }
  EXPECT_EQ(to_hex(sha256(std::as_bytes(std::span(bytes)))), string_of(golden.at("sha256")));
}

TEST_F(EngramMapTest, PairsAndFamiliesAreEqual) {
  const auto golden = golden_json("tokenizer/engram_map.json");
  for (const auto& pair : golden.at("pairs").as_array()) {
    EXPECT_EQ(map().compressed.at(pair.at(0).as_int64()), pair.at(1).as_int64());
  }
  for (const auto& family : golden.at("families").as_object()) {
    const TokenId id = std::stoi(std::string(family.key()));
    EXPECT_EQ(released_tokenizer().token_bytes(id), string_of(family.value().at(0)));
    EXPECT_EQ(map().compressed.at(id), family.value().at(1).as_int64());
  }
}

TEST_F(EngramMapTest, GoldenSequencesHaveTheSameIds) {
  const auto golden = golden_json("tokenizer/engram_rows.json");
  for (const auto& c : golden.at("cases").as_array()) {
    std::vector<TokenId> compressed;
    for (const TokenId id : ids_of(c.at("ids"))) compressed.push_back(map().compressed.at(id));
    EXPECT_EQ(compressed, ids_of(c.at("compressed"))) << c.at("name");
  }
}

}  // namespace
}  // namespace fathom
