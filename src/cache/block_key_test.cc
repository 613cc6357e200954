// Goal: equal content gives equal keys, and anything that decides a block's bytes changes the key.
#include "cache/block_key.h"

#include <gtest/gtest.h>

#include <numeric>
#include <set>

#include "tensor/kv_spec.h"

namespace fathom {
namespace {

std::vector<int32_t> ids(int32_t first, int64_t n = kBlockTokens) {
  std::vector<int32_t> out(static_cast<size_t>(n));
  std::iota(out.begin(), out.end(), first);
  return out;
}

KeyRoot plain_root() {
  KeyRoot root = {.encoder_version = "v1", .tenant_salt = "salt"};
  root.weights.fill(1);
  root.spec.fill(2);
  return root;
}

TEST(BlockKey, EveryPartOfTheRootChangesIt) {
  std::set<BlockKey> seen = {root_key(plain_root())};
  KeyRoot root = plain_root();
  root.weights[31] = 9;
  EXPECT_TRUE(seen.insert(root_key(root)).second) << "weights";
  root = plain_root();
  root.spec[0] = 9;
  EXPECT_TRUE(seen.insert(root_key(root)).second) << "spec";
  root = plain_root();
  root.encoder_version = "v1s";  // the letter moves over the border of two parts
  root.tenant_salt = "alt";
  EXPECT_TRUE(seen.insert(root_key(root)).second) << "framing";
  root = plain_root();
  root.tenant_salt = "";
  EXPECT_TRUE(seen.insert(root_key(root)).second) << "salt";
  EXPECT_FALSE(seen.insert(root_key(plain_root())).second);
}

TEST(BlockKey, EveryPartOfABlockChangesIt) {
  const BlockKey root = root_key(plain_root());
  const auto key = [&](const BlockKey& parent, StateGrade grade, int32_t first,
                       std::vector<ImageSpan> images) {
    return next_key(parent, grade, ids(first), 64, images);
  };
  const ImageSpan image = {.begin = 70, .n_tokens = 10};
  ImageSpan other = image;
  other.digest[3] = 1;
  ImageSpan later = image;
  later.begin = 71;
  std::set<BlockKey> seen;
  EXPECT_TRUE(seen.insert(key(root, StateGrade::kExact, 5, {})).second);
  EXPECT_TRUE(seen.insert(key(root, StateGrade::kBounded, 5, {})).second);
  EXPECT_TRUE(seen.insert(key(root, StateGrade::kExact, 6, {})).second);
  EXPECT_TRUE(seen.insert(key(root, StateGrade::kExact, 5, {image})).second);
  EXPECT_TRUE(seen.insert(key(root, StateGrade::kExact, 5, {other})).second);
  EXPECT_TRUE(seen.insert(key(root, StateGrade::kExact, 5, {later})).second);
  EXPECT_TRUE(seen.insert(key({}, StateGrade::kExact, 5, {})).second);
  // An image that ends before the block, or begins behind it, is not its content.
  EXPECT_FALSE(
      seen.insert(key(root, StateGrade::kExact, 5, {{.begin = 60, .n_tokens = 4}})).second);
  EXPECT_FALSE(
      seen.insert(key(root, StateGrade::kExact, 5, {{.begin = 128, .n_tokens = 4}})).second);
  // One that reaches in from before is.
  EXPECT_TRUE(seen.insert(key(root, StateGrade::kExact, 5, {{.begin = 60, .n_tokens = 5}})).second);
}

// The value is written down: a later version or another machine must give the same.
TEST(BlockKey, IsTheSameInEveryProcess) {
  const BlockKey key = next_key(root_key(plain_root()), StateGrade::kExact, ids(0), 0, {});
  EXPECT_EQ(to_hex(key.digest), "43cac80aad4e5b37c701c083ab8a4dccc926b35aa8a1f37caf7f60cd374458b9");
}

TEST(KeyChain, GrowsByFullBlocksAndBranches) {
  const BlockKey root = root_key(plain_root());
  const std::vector<int32_t> tokens = ids(0, 64 * 4 + 63);
  KeyChain whole(root);
  whole.extend(tokens, {});
  ASSERT_EQ(whole.n_blocks(), 4);
  KeyChain grown(root);
  for (size_t n = 0; n <= tokens.size(); n += 7) grown.extend(std::span(tokens).first(n), {});
  grown.extend(tokens, {});
  EXPECT_TRUE(std::ranges::equal(grown.keys(), whole.keys()));
  grown.branch(2);
  EXPECT_EQ(grown.n_blocks(), 2);
  grown.extend(tokens, {});
  ASSERT_EQ(grown.n_blocks(), 4);
  EXPECT_EQ(grown.keys()[1], whole.keys()[1]);
  EXPECT_NE(grown.keys()[2], whole.keys()[2]);
  EXPECT_NE(grown.keys()[3], whole.keys()[3]);
  grown.reset();
  grown.extend(tokens, {});
  EXPECT_TRUE(std::ranges::equal(grown.keys(), whole.keys()));
}

}  // namespace
}  // namespace fathom
