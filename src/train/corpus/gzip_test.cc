// Goal: a gzip file is read whole or refused in one line; nothing of it is dropped silently.
// Method: packed random text, cut, damaged, joined and followed by other bytes.
#include "train/corpus/gzip.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "train/corpus/data_corpus.h"
#include "train/corpus/synth_text_rng.h"

namespace fathom::train {
namespace {

constexpr size_t kMost = 1 << 20;

std::string random_text(uint64_t seed, int64_t n) {
  SynthRng rng(seed);
  std::string text;
  for (int64_t i = 0; i < n; ++i) text += static_cast<char>('a' + rng.below(26));
  return text;
}

// The message; empty: it was taken.
std::string complaint(const std::string& packed, size_t max_bytes = kMost) {
  const Result<std::string> text = gunzip(packed, "a.gz", max_bytes);
  return text ? std::string() : text.error().message;
}

TEST(Gzip, GivesBackWhatWasPacked) {
  for (const int64_t n : {0, 1, 1000, 70'000, 200'000}) {
    const std::string text = random_text(1, n);
    EXPECT_EQ(gunzip(gzipped(text), "a.gz", kMost).value(), text) << n;
  }
}

TEST(Gzip, JoinsMembersAndTakesPaddingWithZeros) {
  const std::string packed = gzipped("one ") + gzipped("") + gzipped("two");
  EXPECT_EQ(gunzip(packed, "a.gz", kMost).value(), "one two");
  EXPECT_EQ(gunzip(packed + std::string(513, '\0'), "a.gz", kMost).value(), "one two");
}

TEST(Gzip, RefusesWhatIsNoGzipFile) {
  const std::string other = "a.gz: byte 0: wanted a gzip file, found another kind";
  EXPECT_EQ(complaint("plain text"), other);
  EXPECT_EQ(complaint(""), other);
  EXPECT_EQ(complaint(std::string(100, '\0')), other);
  EXPECT_EQ(complaint("\x1f"), other);
}

TEST(Gzip, RefusesAnythingElseBehindAMember) {
  const std::string packed = gzipped("one ");
  const std::string at = "a.gz: byte " + std::to_string(packed.size()) +
                         ": wanted the end or another gzip member, found other bytes";
  EXPECT_EQ(complaint(packed + "garbage"), at);
  EXPECT_EQ(complaint(packed + std::string(8, '\0') + "x"), at);
  EXPECT_EQ(complaint(packed + std::string(8, '\0') + packed), at);
}

TEST(Gzip, RefusesEveryCutAndEveryDamagedByteOfTheData) {
  const std::string text = random_text(2, 300);
  const std::string packed = gzipped(text);
  for (size_t n = 1; n < packed.size(); ++n) {
    EXPECT_NE(complaint(packed.substr(0, n)), "") << n;
    EXPECT_NE(complaint(packed + packed.substr(0, n)), "") << n;
  }
  constexpr size_t kHeader = 10;  // of which time, flags of the method and system mean nothing here
  for (size_t n = kHeader; n < packed.size(); ++n) {
    std::string damaged = packed;
    damaged[n] = static_cast<char>(damaged[n] ^ 0x10);
    EXPECT_NE(complaint(damaged), "") << n;
  }
}

TEST(Gzip, BoundsWhatItUnpacks) {
  const std::string packed = gzipped(std::string(5000, 'a'));
  EXPECT_EQ(complaint(packed, 5000), "");
  EXPECT_NE(complaint(packed, 4999).find("wanted at most 4999 bytes unpacked, found more"),
            std::string::npos);
  EXPECT_NE(complaint(packed + packed, 9999), "");
}

TEST(Gzip, IsWhatANameOfThisKindPromises) {
  const auto path = std::filesystem::temp_directory_path() /
                    ("fathom_gzip_" + std::to_string(getpid()) + ".txt.gz");
  std::ofstream(path, std::ios::binary) << "plain text";
  EXPECT_EQ(read_maybe_gzip(path.string()).error().message,
            path.string() + ": byte 0: wanted a gzip file, found another kind");
  std::ofstream(path, std::ios::binary) << gzipped("text") << "garbage";
  EXPECT_FALSE(read_maybe_gzip(path.string()));
  std::ofstream(path, std::ios::binary) << gzipped("text");
  EXPECT_EQ(read_maybe_gzip(path.string()).value(), "text");
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace fathom::train
