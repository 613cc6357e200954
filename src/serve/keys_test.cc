// Goal: a key admits its tenant and no other text does; a keys file is read whole or refused with
// the line and the member. Method: keys that were made here, and broken files.
#include "serve/keys.h"

#include <gtest/gtest.h>

#include <set>

namespace fathom {
namespace {

std::string digest_text(char digit) { return std::string(64, digit); }

std::string table(const std::string& name, char digit, const std::string& more = "") {
  return "[[key]]\nname = \"" + name + "\"\nsha256 = \"" + digest_text(digit) + "\"\nsalt = \"" +
         name + std::string(16, '0') + "\"\n" + more;
}

std::string refusal(const std::string& text) {
  const auto read = read_keys(text, "keys.toml");
  EXPECT_FALSE(read) << text;
  return read ? "" : read.error().message;
}

TEST(Keys, AMadeKeyAdmitsItsTenantAlone) {
  const NewKey alice = *make_key("alice");
  const NewKey bob = *make_key("bob");
  EXPECT_EQ(alice.table.find(alice.key), std::string::npos);
  const auto ring = read_keys(alice.table + bob.table + "role = \"admin\"\n", "x");
  ASSERT_TRUE(ring) << ring.error().message;
  ASSERT_NE(ring->find(alice.key), nullptr);
  EXPECT_EQ(ring->find(alice.key)->name, "alice");
  EXPECT_EQ(ring->find(alice.key)->role, KeyRole::kUser);
  EXPECT_EQ(ring->find(bob.key)->role, KeyRole::kAdmin);
  EXPECT_NE(ring->find(alice.key)->id, ring->find(bob.key)->id);
  EXPECT_NE(ring->find(alice.key)->id, TenantId{});
  for (size_t i = 0; i < alice.key.size(); ++i) {
    std::string wrong = alice.key;
    wrong[i] ^= 1;
    EXPECT_EQ(ring->find(wrong), nullptr);
    EXPECT_EQ(ring->find(alice.key.substr(0, i)), nullptr);
  }
  EXPECT_EQ(ring->find(alice.key + "0"), nullptr);
}

TEST(Keys, NoTwoKeysOrSaltsAreAlike) {
  std::set<std::string> seen;
  for (int i = 0; i < 100; ++i) {
    const NewKey made = *make_key("n");
    EXPECT_TRUE(seen.insert(made.key).second);
    EXPECT_TRUE(seen.insert(made.table.substr(made.table.find("salt"))).second);
    EXPECT_EQ(made.key.size(), 58U);
  }
  EXPECT_FALSE(make_key("no blanks"));
  EXPECT_FALSE(make_key(""));
  EXPECT_FALSE(make_key(std::string(65, 'a')));
}

TEST(NewKey, HasTheRoleAndTheLimitsThatWereAsked) {
  const QuotaLimits limits = {.requests_per_minute = 60, .concurrent_requests = 2};
  const NewKey made = *make_key("watch", KeyRole::kMetrics, limits);
  const KeyRing ring = *read_keys(made.table, "keys");
  ASSERT_NE(ring.find(made.key), nullptr);
  EXPECT_EQ(ring.find(made.key)->role, KeyRole::kMetrics);
  EXPECT_EQ(ring.find(made.key)->quota, limits);
  EXPECT_FALSE(make_key("a", KeyRole::kUser, {.tokens_per_minute = kQuotaMax + 1}));
}

TEST(Keys, TheCacheIsRootedInNameAndSaltAndNotInTheKey) {
  const Tenant a = {.name = "ab", .key = {1}, .salt = "cccccccccccccccc"};
  Tenant rotated = a;
  rotated.key = {2};
  EXPECT_EQ(cache_salt(a), cache_salt(rotated));
  Tenant moved = a;  // framed: what one part loses the other does not gain
  moved.name = "a";
  moved.salt = "b" + a.salt;
  EXPECT_NE(cache_salt(a), cache_salt(moved));
  Tenant salted = a;
  salted.salt[0] = 'd';
  EXPECT_NE(cache_salt(a), cache_salt(salted));
}

TEST(Keys, AFileGivesEveryMember) {
  const auto ring = read_keys(table("one", 'a',
                                    "role = \"metrics\"\nweight = 2.5\npriority = -3\n"
                                    "requests_per_minute = 60\ntokens_per_minute = 100_000\n"
                                    "concurrent_requests = 4\n") +
                                  table("two", 'b', "weight = 3\n"),
                              "keys.toml");
  ASSERT_TRUE(ring) << ring.error().message;
  const Tenant* one = ring->named("one");
  ASSERT_NE(one, nullptr);
  EXPECT_EQ(to_hex(one->key), digest_text('a'));
  EXPECT_EQ(one->role, KeyRole::kMetrics);
  EXPECT_EQ(one->weight, 2.5);
  EXPECT_EQ(one->priority, -3);
  EXPECT_EQ(one->quota.requests_per_minute, 60);
  EXPECT_EQ(one->quota.tokens_per_minute, 100'000);
  EXPECT_EQ(one->quota.concurrent_requests, 4);
  EXPECT_EQ(ring->named("two")->weight, 3);
  EXPECT_EQ(ring->named("three"), nullptr);
}

TEST(Keys, ABrokenFileIsRefusedWithItsLine) {
  EXPECT_EQ(refusal(""), "keys.toml: wanted a table [[key]], found none");
  EXPECT_NE(refusal("[[key]]\nname = \n").find("keys.toml: line 2: wanted TOML, found: "),
            std::string::npos);
  EXPECT_EQ(refusal("keys = 1\n"), "keys.toml: line 1: wanted tables [[key]], found \"keys\"");
  EXPECT_EQ(refusal(table("a", 'a', "colour = 1\n")),
            "keys.toml: line 1: wanted a member of a key, found \"colour\"");
  EXPECT_EQ(refusal(table("a", 'A')),
            "keys.toml: line 1: sha256: wanted 64 hexadecimal digits in lower case");
  EXPECT_EQ(refusal("[[key]]\nname = \"a\"\nsalt = \"0123456789abcdef\"\n"),
            "keys.toml: line 1: sha256: wanted it, found none");
  EXPECT_EQ(refusal(table("a", 'a') + table("a", 'b')),
            "keys.toml: line 5: name: wanted one of its own for a, found that of a");
  EXPECT_EQ(refusal(table("a", 'a') + table("b", 'a')),
            "keys.toml: line 5: sha256: wanted one of its own for b, found that of a");
  EXPECT_EQ(refusal(table("a", 'a', "weight = 0\n")),
            "keys.toml: line 1: weight: wanted a number from 0.001 to 1000");
  EXPECT_EQ(refusal(table("a", 'a', "weight = nan\n")),
            "keys.toml: line 1: weight: wanted a number from 0.001 to 1000");
  EXPECT_EQ(refusal(table("a", 'a', "priority = 99999999999\n")),
            "keys.toml: line 1: priority: wanted -100 to 100, found 2147483647");
  EXPECT_EQ(refusal(table("a", 'a', "tokens_per_minute = -1\n")),
            "keys.toml: line 1: tokens_per_minute: wanted 0 (none) to 1000000000, found -1");
  EXPECT_EQ(refusal(table("a", 'a', "role = \"root\"\n")),
            "keys.toml: line 1: role: wanted \"user\", \"metrics\" or \"admin\"");
  EXPECT_EQ(refusal(table("a b", 'a')),
            "keys.toml: line 1: name: wanted 1 to 64 letters, digits, '.', '_' or '-', found "
            "\"a b\"");
}

TEST(Keys, TheKeyOfTheEnvironmentIsAnAdministrators) {
  const std::string key = "0123456789abcdef";
  KeyRing ring;
  ASSERT_TRUE(ring.add(*only_tenant(key)));
  ASSERT_NE(ring.find(key), nullptr);
  EXPECT_EQ(ring.find(key)->role, KeyRole::kAdmin);
  EXPECT_EQ(only_tenant(key)->salt, ring.find(key)->salt);
  EXPECT_FALSE(only_tenant(key.substr(1)));
}

}  // namespace
}  // namespace fathom
