// Goal: tensors are found by name with the right bytes, and damaged files are refused in one line
// that names the file and the fault. Method: the golden checkpoint, and files built byte by byte.

#include "checkpoint/checkpoint.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "base/folder_testing.h"
#include "checkpoint/safetensors.h"

namespace fathom {
namespace {

namespace fs = std::filesystem;

const std::string kGolden = std::string(FATHOM_SOURCE_DIR) + "/tests/golden/t12";

std::string file_bytes(const std::string& json, size_t data_bytes) {
  std::string bytes(8, '\0');
  const uint64_t length = json.size();
  std::memcpy(bytes.data(), &length, 8);
  return bytes + json + std::string(data_bytes, 'x');
}

std::string error_of(const std::string& bytes) {
  const auto header = parse_safetensors(std::as_bytes(std::span(bytes)), "f");
  if (header) return "accepted";
  EXPECT_EQ(header.error().message.find('\n'), std::string::npos);
  return header.error().message;
}

std::string entry(const std::string& name, const std::string& shape, int begin, int end,
                  const std::string& dtype = "F32") {
  return "\"" + name + "\":{\"dtype\":\"" + dtype + "\",\"shape\":" + shape +
         ",\"data_offsets\":[" + std::to_string(begin) + "," + std::to_string(end) + "]}";
}

class CheckpointFiles : public FolderTest {
 protected:
  CheckpointFiles() { fs::create_directories(folder_); }
  void write(const std::string& name, const std::string& bytes) {
    std::ofstream(folder_ / name, std::ios::binary) << bytes;
  }
  std::string open_error() {
    const auto checkpoint = Checkpoint::open(folder_.string());
    return checkpoint ? "accepted" : checkpoint.error().message;
  }
};

TEST(Safetensors, AWellFormedFileIsReadByPosition) {
  const std::string json = "{\"__metadata__\":{\"note\":\"a \\\"b\\\"\"}," +
                           entry("b", "[2]", 4, 12) + "," + entry("a", "[]", 0, 4) + "," +
                           entry("none", "[0,5]", 4, 4) + "}  ";
  const std::string bytes = file_bytes(json, 12);
  const auto header = parse_safetensors(std::as_bytes(std::span(bytes)), "f");
  ASSERT_TRUE(header) << header.error().message;
  ASSERT_EQ(header->tensors.size(), 3u);
  EXPECT_EQ(header->tensors[0].name, "a");
  EXPECT_EQ(header->tensors[1].name, "none");
  EXPECT_EQ(header->tensors[2].begin, 8 + json.size() + 4);
  EXPECT_EQ(header->metadata.at("note"), "a \"b\"");
}

TEST(Safetensors, TruncatedAndOversizedHeadersAreRefused) {
  EXPECT_EQ(error_of("abc"), "f: wanted 8 bytes of header length, found a file of 3 bytes");
  std::string bytes = file_bytes("{}", 0);
  bytes[0] = 3;
  EXPECT_EQ(error_of(bytes), "f: wanted a header of at most 2 bytes, found a length of 3");
  bytes = file_bytes("{}", 0);
  std::memset(bytes.data(), 0xff, 8);
  EXPECT_NE(error_of(bytes).find("found a length of 18446744073709551615"), std::string::npos);
  const std::string good = file_bytes("{" + entry("a", "[1]", 0, 4) + "}", 4);
  EXPECT_EQ(error_of(good), "accepted");
  for (size_t n = 0; n < good.size(); ++n) EXPECT_NE(error_of(good.substr(0, n)), "accepted") << n;
}

TEST(Safetensors, GapsOverlapsAndLeftoversAreRefused) {
  EXPECT_EQ(error_of(file_bytes("{" + entry("a", "[1]", 4, 8) + "}", 8)),
            "f: tensor a: wanted data at byte 62, found a gap at byte 66");
  EXPECT_NE(
      error_of(file_bytes("{" + entry("a", "[2]", 0, 8) + "," + entry("b", "[2]", 4, 12) + "}", 12))
          .find("found an overlap"),
      std::string::npos);
  EXPECT_NE(error_of(file_bytes("{" + entry("a", "[1]", 0, 4) + "}", 5)).find("found 67"),
            std::string::npos);
}

TEST(Safetensors, OffsetsShapesAndTypesMustAgree) {
  EXPECT_EQ(error_of(file_bytes("{" + entry("a", "[2]", 0, 4) + "}", 4)),
            "f: tensor a: wanted the bytes of F32 [2], found 4 bytes");
  EXPECT_NE(error_of(file_bytes("{" + entry("a", "[1]", 0, 8) + "}", 4)).find("inside 4 bytes"),
            std::string::npos);
  EXPECT_NE(error_of(file_bytes("{" + entry("a", "[1]", 4, 0) + "}", 4)).find("inside 4 bytes"),
            std::string::npos);
  EXPECT_NE(error_of(file_bytes("{" + entry("a", "[1]", 0, 4, "F99") + "}", 4)).find("found F99"),
            std::string::npos);
  EXPECT_NE(error_of(file_bytes("{" + entry("a", "[1,1,1,1,1]", 0, 4) + "}", 4))
                .find("at most 4 dimensions"),
            std::string::npos);
  EXPECT_NE(error_of(file_bytes("{" + entry("a", "[-1]", 0, 4) + "}", 4)), "accepted");
  EXPECT_NE(error_of(file_bytes("{" + entry("a", "[1.5]", 0, 4) + "}", 4)), "accepted");
  // A product of dimensions that wraps around 64 bits to the right number.
  EXPECT_NE(error_of(file_bytes("{" + entry("a", "[4611686018427387905,4]", 0, 16) + "}", 16)),
            "accepted");
  EXPECT_NE(error_of(file_bytes("{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4))
                .find("two data_offsets, found 0"),
            std::string::npos);
}

TEST(Safetensors, AnythingElseThanTheGrammarIsRefused) {
  for (const char* json :
       {"", "[]", "{", "{\"a\":1}", "{\"a\":{\"dtype\":{}}}", "{\"a\":{\"dtype\":\"F32\",\"x\":1}}",
        "{\"a\":{\"shape\":\"F32\"}}", "{\"a\":null}", "{\"__metadata__\":{\"a\":1}}",
        "{\"__metadata__\":{\"a\":[]}}", "{} {}", "1",
        "{\"a\":{\"dtype\":\"F32\",\"dtype\":"
        "\"F32\"}}"}) {
    EXPECT_NE(error_of(file_bytes(json, 0)), "accepted") << json;
  }
  EXPECT_EQ(error_of(file_bytes(R"({"a":{"dtype":"F32","x":1}})", 0)),
            "f: tensor a: wanted dtype, shape and data_offsets, each once, found x");
  EXPECT_EQ(error_of(file_bytes(R"({"a":{"shape":[1.5]}})", 0)),
            "f: tensor a: wanted whole numbers, found 1.5");
  EXPECT_EQ(error_of(file_bytes(R"({"a":{"shape":null}})", 0)),
            "f: tensor a: wanted dtype, shape and data_offsets, found null");
  EXPECT_EQ(
      error_of(file_bytes("{" + entry("a", "[1]", 0, 4) + "," + entry("a", "[1]", 4, 8) + "}", 8)),
      "f: tensor a: wanted each name once, found it twice");
}

TEST(Safetensors, EveryBitFlipOfAHeaderIsRefusedOrHarmless) {
  const std::string good =
      file_bytes("{" + entry("a", "[1]", 0, 4) + "," + entry("b", "[2]", 4, 12) + "}", 12);
  for (size_t bit = 0; bit < (good.size() - 12) * 8; ++bit) {
    std::string bytes = good;
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << (bit % 8)));
    const auto header = parse_safetensors(std::as_bytes(std::span(bytes)), "f");
    if (!header) continue;
    // Only names and equally wide dtypes can differ.
    ASSERT_EQ(header->tensors.size(), 2u) << bit;
    EXPECT_EQ(header->tensors[0].end - header->tensors[0].begin, 4u);
    EXPECT_EQ(header->tensors[1].end, bytes.size());
  }
}

TEST(Safetensors, AFormattedHeaderIsReadBack) {
  const std::vector<SafetensorsEntry> tensors = {
      {.name = "w", .dtype = DType::kBf16, .shape = {3, 2}},
      {.name = "s", .dtype = DType::kE8m0, .shape = {}}};
  const std::string bytes = format_safetensors(tensors) + std::string(13, 'x');
  EXPECT_EQ((bytes.size() - 13) % 64, 0u);
  const auto header = parse_safetensors(std::as_bytes(std::span(bytes)), "f");
  ASSERT_TRUE(header) << header.error().message;
  EXPECT_EQ(header->tensors[0].shape, (std::vector<int64_t>{3, 2}));
  EXPECT_EQ(header->tensors[1].dtype, DType::kE8m0);
}

TEST(Checkpoint, TheGoldenFilesOpenWithTheirIndex) {
  const auto checkpoint = Checkpoint::open(kGolden);
  ASSERT_TRUE(checkpoint) << checkpoint.error().message;
  EXPECT_EQ(checkpoint->tensors().size(), 980u);
  EXPECT_EQ(checkpoint->files().size(), 2u);
  const Tensor embed = checkpoint->get("embed.weight").value();
  EXPECT_TRUE(has_shape(embed, {256, 128}));
  EXPECT_EQ(embed.dtype, DType::kBf16);
  EXPECT_EQ(checkpoint->get("embed").error().code, ErrorCode::kNotFound);
}

TEST_F(CheckpointFiles, WithoutAnIndexEveryShardIsRead) {
  write("b.safetensors", file_bytes("{" + entry("x", "[1]", 0, 4) + "}", 4));
  write("a.safetensors", file_bytes("{" + entry("y", "[2]", 0, 8) + "}", 8));
  const auto checkpoint = Checkpoint::open(folder_.string());
  ASSERT_TRUE(checkpoint) << checkpoint.error().message;
  EXPECT_EQ(checkpoint->tensors().size(), 2u);
  EXPECT_EQ(checkpoint->payload_bytes(), 12);
  write("c.safetensors", file_bytes("{" + entry("x", "[1]", 0, 4) + "}", 4));
  EXPECT_NE(open_error().find("tensor x: wanted each name once"), std::string::npos);
}

TEST_F(CheckpointFiles, AnEmptyOrMissingFolderIsRefused) {
  EXPECT_NE(open_error().find("wanted *.safetensors, found none"), std::string::npos);
  EXPECT_FALSE(Checkpoint::open((folder_ / "none").string()));
}

TEST_F(CheckpointFiles, AnIndexThatDisagreesIsRefused) {
  const char* index = "model.safetensors.index.json";
  write("a.safetensors", file_bytes("{" + entry("x", "[1]", 0, 4) + "}", 4));
  write("b.safetensors", file_bytes("{" + entry("y", "[1]", 0, 4) + "}", 4));
  write(index, R"({"weight_map": {"x": "a.safetensors", "y": "b.safetensors"}})");
  EXPECT_EQ(open_error(), "accepted");
  write(index, R"({"weight_map": {"x": "b.safetensors", "y": "b.safetensors"}})");
  EXPECT_NE(open_error().find("tensor x: wanted it in b.safetensors"), std::string::npos);
  write(index, R"({"weight_map": {"x": "a.safetensors", "z": "a.safetensors"}})");
  EXPECT_NE(open_error().find("tensor z"), std::string::npos);
  write(index, R"({"weight_map": {"x": "../a.safetensors"}})");
  EXPECT_NE(open_error().find("wanted a file name"), std::string::npos);
  write(index, "{\"weight_map\": {\"x\": \"" + std::string(100'000, 'a') + "\"}}");
  EXPECT_LT(open_error().size(), 1000u);
  write(index, R"({"weight_map": {"x": "missing.safetensors"}})");
  EXPECT_NE(open_error().find("missing.safetensors"), std::string::npos);
  write(index, R"({"weight_map": 5})");
  EXPECT_NE(open_error().find("weight_map: wanted an object"), std::string::npos);
  write(index, R"({"metadata": [], "weight_map": {}})");
  EXPECT_NE(open_error().find("metadata: wanted an object, found []"), std::string::npos);
  write(index, "{");
  EXPECT_NE(open_error().find("wanted JSON"), std::string::npos);
}

TEST_F(CheckpointFiles, AnIndexThatLeadsNowhereIsNotTakenForAbsent) {
  write("a.safetensors", file_bytes("{" + entry("x", "[1]", 0, 4) + "}", 4));
  EXPECT_EQ(open_error(), "accepted");
  for (const char* target : {"nothing", "model.safetensors.index.json"}) {
    const std::filesystem::path index = folder_ / "model.safetensors.index.json";
    std::filesystem::remove(index);
    std::filesystem::create_symlink(target, index);
    EXPECT_NE(open_error().find("found a link that leads nowhere"), std::string::npos);
  }
}

TEST_F(CheckpointFiles, TheTotalSizeIsANumberOfBytesOrAProblem) {
  write("a.safetensors", file_bytes("{" + entry("x", "[1]", 0, 4) + "}", 4));
  const std::vector<ExpectedTensor> expected = {{"x", DType::kF32, {1}}};
  const auto problems = [&](const std::string& total) {
    write("model.safetensors.index.json", R"({"metadata": {"total_size": )" + total +
                                              R"(}, "weight_map": {"x": "a.safetensors"}})");
    return Checkpoint::open(folder_.string())->compare(expected);
  };
  EXPECT_TRUE(problems("4").empty());
  EXPECT_TRUE(problems("4.0").empty());
  for (const std::string total :
       {"\"4\"", "5", "4.5", "-4", "null", "[4]", "18446744073709551615"}) {
    ASSERT_EQ(problems(total).size(), 1u) << total;
    EXPECT_NE(problems(total)[0].find("metadata.total_size: wanted 4, found "), std::string::npos);
  }
}

TEST_F(CheckpointFiles, ComparisonNamesWhatIsMissingExtraMisshapenOrOfAnotherType) {
  write("a.safetensors",
        file_bytes("{" + entry("extra", "[1]", 0, 4) + "," + entry("shape", "[2]", 4, 12) + "," +
                       entry("type", "[1]", 12, 16, "I32") + "}",
                   16));
  write("model.safetensors.index.json",
        R"({"metadata": {"total_size": 17}, "weight_map": {"extra": "a.safetensors",
            "shape": "a.safetensors"}})");
  const auto checkpoint = Checkpoint::open(folder_.string());
  ASSERT_TRUE(checkpoint) << checkpoint.error().message;
  const std::vector<ExpectedTensor> expected = {{"missing", DType::kBf16, {3, 4}},
                                                {"shape", DType::kF32, {1, 2}},
                                                {"type", DType::kF32, {1}}};
  const std::string f = folder_.string();
  EXPECT_EQ(checkpoint->compare(expected),
            (std::vector<std::string>{
                f + "/model.safetensors.index.json: tensor type: wanted an entry in weight_map, "
                    "found none",
                f + "/model.safetensors.index.json: metadata.total_size: wanted 16, found 17",
                f + ": tensor missing: wanted BF16 [3, 4], found nothing",
                f + "/a.safetensors: tensor shape: wanted F32 [1, 2], found F32 [2]",
                f + "/a.safetensors: tensor type: wanted F32 [1], found I32 [1]",
                f + "/a.safetensors: tensor extra: wanted no such tensor, found F32 [1]"}));
}

TEST_F(CheckpointFiles, ATensorThatStandsUnalignedIsReadable) {
  std::string bytes =
      file_bytes("{" + entry("a", "[1]", 0, 1, "U8") + "," + entry("b", "[2]", 1, 9) + "}", 1);
  const float values[2] = {1.5f, -2.0f};
  bytes.append(reinterpret_cast<const char*>(values), sizeof(values));
  write("a.safetensors", bytes);
  const auto checkpoint = Checkpoint::open((folder_ / "a.safetensors").string());
  ASSERT_TRUE(checkpoint) << checkpoint.error().message;
  const Tensor b = checkpoint->get("b").value();
  EXPECT_EQ(b.as<float>()[0], 1.5f);
  EXPECT_EQ(b.as<float>()[1], -2.0f);
}

}  // namespace
}  // namespace fathom
