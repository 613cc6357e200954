// Goal: what is written is what is read, in bounded shards, and nothing stays behind a failure.
// Method: random tensors through the writer and back; fingerprint and scan on damaged copies.

#include "checkpoint/writer.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>

#include "base/folder_testing.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/fingerprint.h"

namespace fathom {
namespace {

namespace fs = std::filesystem;

class CheckpointWriterTest : public FolderTest {
 protected:
  void write_all(const std::string& folder, int64_t max_shard_bytes) {
    auto writer = CheckpointWriter::create(folder, tensors(), max_shard_bytes);
    ASSERT_TRUE(writer) << writer.error().message;
    for (const ExpectedTensor& tensor : tensors()) {
      ASSERT_TRUE(writer->write(tensor.name, content(tensor)));
    }
    const Result<void> done = writer->finish();
    ASSERT_TRUE(done) << done.error().message;
  }
  static std::vector<ExpectedTensor> tensors() {
    return {{"codes", DType::kE4m3, {33, 7}}, {"scale", DType::kE8m0, {3}},
            {"norm", DType::kBf16, {129}},    {"fn", DType::kF32, {5, 6, 7}},
            {"packed", DType::kI8, {64, 64}}, {"nothing", DType::kF32, {0, 4}},
            {"scalar", DType::kI64, {}}};
  }
  // Finite values: small codes only.
  static std::vector<std::byte> content(const ExpectedTensor& tensor) {
    std::mt19937 random(static_cast<uint32_t>(tensor.name.size()));
    std::vector<std::byte> bytes(static_cast<size_t>(tensor.bytes()));
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random() & 0x3f);
    return bytes;
  }
  static int64_t n_files(const fs::path& folder) {
    return std::distance(fs::directory_iterator(folder), fs::directory_iterator());
  }
};

TEST_F(CheckpointWriterTest, WhatIsWrittenIsRead) {
  write_all(folder(), 1 << 20);
  const auto checkpoint = Checkpoint::open(folder());
  ASSERT_TRUE(checkpoint) << checkpoint.error().message;
  EXPECT_TRUE(checkpoint->compare(tensors()).empty());
  for (const ExpectedTensor& tensor : tensors()) {
    const Tensor view = checkpoint->get(tensor).value();
    const auto wanted = content(tensor);
    const std::span found(static_cast<const std::byte*>(view.data), wanted.size());
    EXPECT_TRUE(std::ranges::equal(found, wanted));
    const auto width = static_cast<uintptr_t>(dtype_bytes(tensor.dtype));
    EXPECT_EQ(reinterpret_cast<uintptr_t>(view.data) % width, 0u);
  }
  EXPECT_TRUE(fs::exists(folder_ / "model-00001-of-00001.safetensors"));
  EXPECT_EQ(n_files(folder_), 2);
}

TEST_F(CheckpointWriterTest, ShardsStayBelowTheBoundAndHoldTheSameWeights) {
  ThreadPool pool(2);
  write_all(folder() + "/one", 1 << 20);
  write_all(folder() + "/many", 5000);
  int n_shards = 0;
  for (const auto& file : fs::directory_iterator(folder_ / "many")) {
    if (file.path().extension() != ".safetensors") continue;
    ++n_shards;
    EXPECT_LE(file.file_size(), 5000u);
  }
  EXPECT_GE(n_shards, 2);
  const auto one = Checkpoint::open(folder() + "/one").value();
  const auto many = Checkpoint::open(folder() + "/many").value();
  EXPECT_TRUE(many.compare(tensors()).empty());
  EXPECT_EQ(to_hex(weights_fingerprint(one, pool)), to_hex(weights_fingerprint(many, pool)));
}

TEST_F(CheckpointWriterTest, PartsMayComeInAnyOrder) {
  const std::vector<ExpectedTensor> one = {{"w", DType::kI8, {1000}}};
  const auto bytes = content(one[0]);
  auto writer = CheckpointWriter::create(folder(), one, 1 << 20).value();
  ASSERT_TRUE(writer.write(0, 600, std::span(bytes).subspan(600)));
  EXPECT_NE(writer.finish().error().message.find("wanted 1000 bytes to be written, found 400"),
            std::string::npos);
  ASSERT_TRUE(writer.write(0, 0, std::span(bytes).first(600)));
  ASSERT_TRUE(writer.finish());
  const auto checkpoint = Checkpoint::open(folder()).value();
  EXPECT_EQ(std::memcmp(checkpoint.get("w")->data, bytes.data(), bytes.size()), 0);
}

TEST_F(CheckpointWriterTest, AByteWrittenTwiceDoesNotStandForOneNeverWritten) {
  const std::vector<ExpectedTensor> one = {{"w", DType::kI8, {1000}}};
  const auto bytes = content(one[0]);
  auto writer = CheckpointWriter::create(folder(), one, 1 << 20).value();
  const auto write = [&](size_t begin, size_t end) {
    return writer.write(0, static_cast<int64_t>(begin),
                        std::span(bytes).subspan(begin, end - begin));
  };
  ASSERT_TRUE(write(0, 400));
  ASSERT_TRUE(write(600, 800));
  for (const auto& [begin, end] :
       {std::pair(0, 400), {399, 401}, {100, 200}, {500, 601}, {0, 1000}, {700, 900}}) {
    const auto again = write(static_cast<size_t>(begin), static_cast<size_t>(end));
    ASSERT_FALSE(again) << begin << " " << end;
    EXPECT_NE(again.error().message.find("tensor w: bytes " + std::to_string(begin)),
              std::string::npos);
  }
  EXPECT_NE(writer.finish().error().message.find("wanted 1000 bytes to be written, found 600"),
            std::string::npos);
  ASSERT_TRUE(write(800, 1000));
  ASSERT_TRUE(write(400, 600));
  ASSERT_TRUE(writer.finish());
}

TEST_F(CheckpointWriterTest, ADroppedWriterLeavesNothing) {
  {
    auto writer = CheckpointWriter::create(folder(), tensors(), 2000);
    ASSERT_TRUE(writer);
    EXPECT_GT(n_files(folder_), 0);
  }
  EXPECT_FALSE(fs::exists(folder_));
  fs::create_directories(folder_);
  { ASSERT_TRUE(CheckpointWriter::create(folder(), tensors(), 2000)); }
  EXPECT_EQ(n_files(folder_), 0);
}

TEST_F(CheckpointWriterTest, ParentsThatItMadeGoWithIt) {
  fs::create_directories(folder_ / "old");
  const std::string inner = (folder_ / "old" / "new" / "a" / "b").string();
  {
    const auto writer = CheckpointWriter::create(inner, tensors(), 1 << 20);
    ASSERT_TRUE(writer) << writer.error().message;
    EXPECT_TRUE(fs::exists(inner));
  }
  EXPECT_TRUE(fs::is_empty(folder_ / "old"));
  std::ofstream(folder_ / "old" / "file") << "x";
  EXPECT_FALSE(CheckpointWriter::create((folder_ / "old/file/a").string(), tensors(), 1 << 20));
  EXPECT_EQ(n_files(folder_ / "old"), 1);
  write_all(inner, 1 << 20);
  EXPECT_TRUE(fs::exists(fs::path(inner) / "model.safetensors.index.json"));
}

TEST_F(CheckpointWriterTest, WhatIsNotAcceptedIsTakenAway) {
  const std::string inner = (folder_ / "a" / "b").string();
  auto writer = CheckpointWriter::create(inner, tensors(), 2048);
  ASSERT_TRUE(writer) << writer.error().message;
  for (const ExpectedTensor& tensor : tensors()) {
    ASSERT_TRUE(writer->write(tensor.name, content(tensor)));
  }
  bool was_whole = false;
  const auto refuse = [&]() -> Result<void> {
    was_whole = Checkpoint::open(inner).has_value();
    return exhausted("no");
  };
  EXPECT_EQ(writer->finish(refuse).error().message, "no");
  EXPECT_TRUE(was_whole);
  writer = invalid("dropped");
  EXPECT_FALSE(fs::exists(folder_));
}

TEST_F(CheckpointWriterTest, RoomIsAskedForBeforeAnythingIsWritten) {
  const int64_t bytes = int64_t{1} << 60;
  const auto writer = CheckpointWriter::create(folder(), {{"w", DType::kI8, {bytes}}}, bytes * 2);
  ASSERT_FALSE(writer);
  EXPECT_EQ(writer.error().code, ErrorCode::kExhausted);
  const std::string wanted = folder() + ": wanted 11529215046068471";  // 2^60 and the header
  EXPECT_TRUE(writer.error().message.starts_with(wanted)) << writer.error().message;
  EXPECT_NE(writer.error().message.find(" bytes free on its disk, found "), std::string::npos);
  EXPECT_FALSE(fs::exists(folder_));
}

// A folder in the place of the second shard stops the renames after the first.
TEST_F(CheckpointWriterTest, AFinishThatFailsLeavesNothing) {
  {
    auto writer = CheckpointWriter::create(folder(), tensors(), 5000).value();
    for (const ExpectedTensor& tensor : tensors()) {
      ASSERT_TRUE(writer.write(tensor.name, content(tensor)));
    }
    ASSERT_TRUE(writer.add_file("config.json", "{}"));
    std::string second;
    for (const auto& file : fs::directory_iterator(folder_)) {
      const std::string name = file.path().filename().string();
      if (name.starts_with("model-00002-")) second = name.substr(0, name.find(".safetensors") + 12);
    }
    ASSERT_NE(second, "");
    fs::create_directories(folder_ / second / "in the way");
    EXPECT_FALSE(writer.finish());
    fs::remove_all(folder_ / second);
  }
  EXPECT_FALSE(fs::exists(folder_));
  write_all(folder(), 5000);
}

TEST_F(CheckpointWriterTest, FurtherFilesComeWithTheShards) {
  {
    auto writer = CheckpointWriter::create(folder(), {{"w", DType::kI8, {3}}}, 1 << 20).value();
    ASSERT_TRUE(writer.add_file("config.json", "{\"a\": 1}"));
    EXPECT_FALSE(fs::exists(folder_ / "config.json"));
    ASSERT_TRUE(writer.write("w", std::vector<std::byte>(3)));
    ASSERT_TRUE(writer.finish());
  }
  std::ifstream file(folder_ / "config.json");
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(file), {}), "{\"a\": 1}");
  EXPECT_EQ(n_files(folder_), 3);
}

TEST_F(CheckpointWriterTest, OneWriterHasTheFolder) {
  {
    const auto first = CheckpointWriter::create(folder(), tensors(), 2000);
    ASSERT_TRUE(first);
    const int64_t before = n_files(folder_);
    const auto second = CheckpointWriter::create(folder(), tensors(), 1 << 20);
    ASSERT_FALSE(second);
    EXPECT_NE(second.error().message.find("found another process writing"), std::string::npos);
    EXPECT_EQ(n_files(folder_), before);
  }
  write_all(folder(), 1 << 20);
}

TEST_F(CheckpointWriterTest, WhatADeadWriterLeftIsRemoved) {
  fs::create_directories(folder_);
  for (const char* name : {"model-00001-of-00009.safetensors.77-0.tmp", "config.json.77-3.tmp"}) {
    std::ofstream(folder_ / name) << "x";
  }
  write_all(folder(), 1 << 20);
  EXPECT_EQ(n_files(folder_), 2);
}

// A folder in the way of a file behind the shards holds the moment; the process ends in it.
TEST_F(CheckpointWriterTest, AWriterThatDiedBetweenTwoRenamesIsFollowedByAnother) {
  const pid_t child = ::fork();
  if (child == 0) {
    auto writer = CheckpointWriter::create(folder(), tensors(), 2000).value();
    for (const ExpectedTensor& tensor : writer.tensors()) {
      const std::vector<std::byte> bytes(static_cast<size_t>(tensor.bytes()));
      FATHOM_CHECK(writer.write(tensor.name, bytes));
    }
    FATHOM_CHECK(writer.add_file("z.json", "{}"));
    fs::create_directories(folder_ / "z.json" / "x");
    const bool finished = bool(writer.finish());
    FATHOM_CHECK(!finished);
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  ASSERT_EQ(status, 0);
  ASSERT_TRUE(fs::exists(folder_ / ".fathom-writer"));
  EXPECT_TRUE(
      std::any_of(fs::directory_iterator(folder_), fs::directory_iterator(),
                  [](const auto& file) { return file.path().extension() == ".safetensors"; }));
  fs::remove_all(folder_ / "z.json");
  std::ofstream(folder_ / "mine.txt") << "x";
  write_all(folder(), 1 << 20);
  EXPECT_EQ(n_files(folder_), 3);  // shard, index, and what was not the writer's
}

// It has all that it announced: nothing is removed, although the marker stayed.
TEST_F(CheckpointWriterTest, AWriterThatDiedBehindTheLastRenameLeavesAWholeModel) {
  const pid_t child = ::fork();
  if (child == 0) {
    auto writer = CheckpointWriter::create(folder(), tensors(), 2000).value();
    for (const ExpectedTensor& tensor : writer.tensors()) {
      const std::vector<std::byte> bytes(static_cast<size_t>(tensor.bytes()));
      FATHOM_CHECK(writer.write(tensor.name, bytes));
    }
    FATHOM_CHECK(writer.finish());
    ::_exit(0);
  }
  ::waitpid(child, nullptr, 0);
  ASSERT_TRUE(fs::exists(folder_ / ".fathom-writer"));
  const auto second = CheckpointWriter::create(folder(), tensors(), 2000);
  ASSERT_FALSE(second);
  EXPECT_NE(second.error().message.find("wanted a folder without *.safetensors"),
            std::string::npos);
  EXPECT_TRUE(Checkpoint::open(folder()));
}

TEST_F(CheckpointWriterTest, WrongUseIsRefusedByName) {
  auto writer = CheckpointWriter::create(folder() + "/w", tensors(), 1 << 20).value();
  EXPECT_NE(writer.write("other", {}).error().message.find("tensor other"), std::string::npos);
  const std::byte one[1] = {};
  EXPECT_NE(writer.write("norm", one).error().message.find("wanted the bytes of BF16 [129]"),
            std::string::npos);
  EXPECT_FALSE(CheckpointWriter::create(folder() + "/x", {{"a"}, {"a"}}, 1000));
  EXPECT_FALSE(CheckpointWriter::create(folder() + "/y", {}, 1000));
  std::ofstream(folder_ / "old.safetensors") << "x";
  EXPECT_NE(CheckpointWriter::create(folder(), tensors(), 1000).error().message.find("found old."),
            std::string::npos);
}

TEST_F(CheckpointWriterTest, TheFingerprintIsKeptAndForgottenWithTheFiles) {
  ThreadPool pool(2);
  write_all(folder(), 1 << 20);
  const fs::path note = folder_ / ".fathom-fingerprint";
  const auto first = cached_fingerprint(Checkpoint::open(folder()).value(), pool);
  ASSERT_TRUE(fs::exists(note));
  EXPECT_EQ(first, weights_fingerprint(Checkpoint::open(folder()).value(), pool));
  // A kept digest is used: one that was changed by hand comes back.
  std::string text = read_file(note.string()).value();
  text[text.size() - 2] = text[text.size() - 2] == '0' ? '1' : '0';
  ASSERT_TRUE(write_file_atomic(note.string(), text));
  EXPECT_NE(cached_fingerprint(Checkpoint::open(folder()).value(), pool), first);
  // Damaged notes are ignored.
  for (const std::string& damaged :
       {std::string("x"), text.substr(0, text.size() - 2), text + "0\n"}) {
    ASSERT_TRUE(write_file_atomic(note.string(), damaged));
    EXPECT_EQ(cached_fingerprint(Checkpoint::open(folder()).value(), pool), first);
  }
  // Other bytes, another digest, whatever the note says.
  const fs::path shard = folder_ / "model-00001-of-00001.safetensors";
  std::string bytes = read_file(shard.string()).value();
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  ASSERT_TRUE(write_file_atomic(shard.string(), bytes));
  EXPECT_NE(cached_fingerprint(Checkpoint::open(folder()).value(), pool), first);
}

// A folder in the place of the note keeps also the administrator from writing it.
TEST_F(CheckpointWriterTest, ANoteTellsWhatItHoldsAndNothingOfOtherFiles) {
  write_all(folder(), 1 << 20);
  ThreadPool pool(1);
  const auto checkpoint = Checkpoint::open(folder());
  ASSERT_TRUE(checkpoint);
  EXPECT_FALSE(noted_fingerprint(*checkpoint));
  const Sha256Digest digest = cached_fingerprint(*checkpoint, pool);
  EXPECT_EQ(noted_fingerprint(*checkpoint), digest);
  const std::string path = folder() + "/.fathom-fingerprint";
  std::string note = *read_file(path);
  char& digit = note[note.size() - 2];
  digit = digit == '0' ? '1' : '0';
  ASSERT_TRUE(write_file_atomic(path, note));
  ASSERT_TRUE(noted_fingerprint(*checkpoint));
  EXPECT_NE(noted_fingerprint(*checkpoint), digest);
  note[note.find("size ") + 5] = '0';
  ASSERT_TRUE(write_file_atomic(path, note));
  EXPECT_FALSE(noted_fingerprint(*checkpoint));
}

TEST_F(CheckpointWriterTest, TheFingerprintNeedsNoNote) {
  ThreadPool pool(1);
  write_all(folder(), 1 << 20);
  fs::create_directories(folder_ / ".fathom-fingerprint" / "x");
  const auto checkpoint = Checkpoint::open(folder()).value();
  EXPECT_EQ(cached_fingerprint(checkpoint, pool), weights_fingerprint(checkpoint, pool));
  EXPECT_EQ(n_files(folder_), 3);
}

TEST_F(CheckpointWriterTest, TheScanFindsEveryKindOfBadCode) {
  const std::vector<ExpectedTensor> all = {{"e4m3", DType::kE4m3, {100}},
                                           {"e8m0", DType::kE8m0, {100}},
                                           {"bf16", DType::kBf16, {100}},
                                           {"f32", DType::kF32, {100}},
                                           {"fine", DType::kI8, {100}}};
  auto writer = CheckpointWriter::create(folder(), all, 1 << 20).value();
  for (const ExpectedTensor& tensor : all) {
    auto bytes = content(tensor);
    const auto width = static_cast<size_t>(dtype_bytes(tensor.dtype));
    const uint32_t code = tensor.dtype == DType::kF32    ? 0xff800000u
                          : tensor.dtype == DType::kBf16 ? 0x7fc0u
                                                         : 0xffu;
    for (const size_t at : {size_t{7}, size_t{99}}) {
      std::memcpy(bytes.data() + at * width, &code, width);
    }
    if (tensor.dtype == DType::kE4m3) bytes[50] = std::byte{0x7f};
    ASSERT_TRUE(writer.write(tensor.name, bytes));
  }
  ASSERT_TRUE(writer.finish());
  ThreadPool pool(2);
  const auto problems = find_bad_codes(Checkpoint::open(folder()).value(), pool);
  ASSERT_EQ(problems.size(), 4u);
  EXPECT_NE(problems[0].find("tensor bf16: wanted finite BF16 values, found 2 NaN or infinite, the "
                             "first at element 7"),
            std::string::npos);
  EXPECT_NE(problems[1].find("found 3 NaN"), std::string::npos);
}

TEST(Fingerprint, TheGoldenModelHasNoBadCodes) {
  ThreadPool pool(2);
  const auto golden = Checkpoint::open(std::string(FATHOM_SOURCE_DIR) + "/tests/golden/t12");
  ASSERT_TRUE(golden) << golden.error().message;
  EXPECT_TRUE(find_bad_codes(*golden, pool).empty());
}

}  // namespace
}  // namespace fathom
