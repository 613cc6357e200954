// Goal: a URL says what it says, and what is none is refused without repeating a password.
#include "cache/remote/redis_address.h"

#include <gtest/gtest.h>

namespace fathom {
namespace {

TEST(RedisUrl, SaysWhereAndWho) {
  const auto plain = parse_redis_url("redis://cache-1.example");
  ASSERT_TRUE(plain) << plain.error().message;
  EXPECT_EQ(plain->shown(), "cache-1.example:6379/0");
  EXPECT_EQ(plain->password, "");
  const auto whole = parse_redis_url("redis://ann:p%40ss%3aword@10.0.0.7:6380/12");
  ASSERT_TRUE(whole) << whole.error().message;
  EXPECT_EQ(whole->user, "ann");
  EXPECT_EQ(whole->password, "p@ss:word");
  EXPECT_EQ(whole->shown(), "10.0.0.7:6380/12");
  const auto six = parse_redis_url("redis://:secret@[::1]:7000/");
  ASSERT_TRUE(six) << six.error().message;
  EXPECT_EQ(six->user, "");
  EXPECT_EQ(six->password, "secret");
  EXPECT_EQ(six->shown(), "[::1]:7000/0");
}

TEST(RedisUrl, AnythingElseIsRefusedWithoutThePassword) {
  for (const char* url : {"",
                          "redis:",
                          "redis://",
                          "http://host",
                          "rediss://:secret@host",
                          "redis://host:",
                          "redis://host:0",
                          "redis://host:65536",
                          "redis://host:06379",
                          "redis://host:1x",
                          "redis://host/x",
                          "redis://host/-1",
                          "redis://host/99999999999",
                          "redis://secret@host",
                          "redis://u:@host",
                          "redis://u:secret%4@host",
                          "redis://u:secret%zz@host",
                          "redis://u:secret@ho st",
                          "redis://u:secret@[::1",
                          "redis://u:secret@[::1]7",
                          "redis://[]",
                          "redis://u:secret@a:b:c"}) {
    const auto read = parse_redis_url(url);
    ASSERT_FALSE(read) << url;
    EXPECT_EQ(read.error().message.find("secret"), std::string::npos) << read.error().message;
    EXPECT_EQ(read.error().message.find('\n'), std::string::npos);
  }
}

}  // namespace
}  // namespace fathom
