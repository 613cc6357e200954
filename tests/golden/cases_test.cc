// Goal: the engine is the reference's function. Method: `fathom check` on the stored cases of T12,
// and the same with faults put in, which must be found.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "base/file.h"
#include "eval/case_check.h"
#include "ops/backends.h"

namespace fathom {
namespace {

namespace fs = std::filesystem;

const std::string kModel = std::string(FATHOM_SOURCE_DIR) + "/tests/golden/t12";

Result<CaseReport> check(const std::string& model) {
  const auto ops = make_backend({.n_threads = 2});
  return check_cases(model, **ops,
                     {.cases = kModel + "/cases", .manifest = kModel + "/manifest.json"});
}

TEST(StoredCases, AllOfT12Agree) {
  const Result<CaseReport> report = check(kModel);
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_TRUE(report->problems.empty()) << report->problems.front();
  EXPECT_EQ(report->cases, 10);
  EXPECT_EQ(report->passed, 10);
  EXPECT_GT(report->compared, 2000);
  EXPECT_GT(report->ties, 0);
  EXPECT_EQ(report->undecided, 0);
}

// One bit of one weight of the last layer changes the logits: the comparison must notice.
TEST(StoredCases, ADamagedWeightIsFound) {
  const fs::path copy =
      fs::path(testing::TempDir()) / ("fathom_damaged_t12_" + std::to_string(::getpid()));
  fs::remove_all(copy);
  fs::create_directories(copy);
  for (const auto& entry : fs::directory_iterator(kModel)) {
    if (entry.is_regular_file()) fs::copy(entry.path(), copy / entry.path().filename());
  }
  const std::string shard = (copy / "model-00001-of-00002.safetensors").string();
  fs::permissions(shard, fs::perms::owner_write, fs::perm_options::add);
  size_t offset = 0;
  {
    const auto checkpoint = Checkpoint::open(copy.string());
    ASSERT_TRUE(checkpoint);
    const Tensor weight = *checkpoint->get("layers.2.attn.wkv.weight");
    offset = static_cast<size_t>(static_cast<const std::byte*>(weight.data) -
                                 checkpoint->files()[0].bytes().data());
  }
  std::string bytes = *read_file(shard);
  ASSERT_LT(offset, bytes.size());
  for (size_t i = 0; i < 64; ++i) bytes[offset + i] = static_cast<char>(bytes[offset + i] ^ 0x80);
  ASSERT_TRUE(write_file_atomic(shard, bytes));
  const Result<CaseReport> report = check(copy.string());
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_FALSE(report->problems.empty());
  fs::remove_all(copy);
}

// What is stored under a name that no case has is compared with nothing.
TEST(StoredCases, AnUnknownNameIsAProblem) {
  const fs::path folder =
      fs::path(testing::TempDir()) / ("fathom_renamed_cases_" + std::to_string(::getpid()));
  fs::remove_all(folder);
  fs::create_directories(folder);
  std::string bytes = *read_file(kModel + "/cases/decode.safetensors");
  const size_t at = bytes.find("\"L04.topk_ids\"");
  ASSERT_NE(at, std::string::npos);
  bytes[at + 1] = 'Z';
  ASSERT_TRUE(write_file_atomic((folder / "decode.safetensors").string(), bytes));
  const auto ops = make_backend({.n_threads = 2});
  const auto report =
      check_cases(kModel, **ops, {.cases = folder.string(), .manifest = kModel + "/manifest.json"});
  fs::remove_all(folder);
  ASSERT_TRUE(report) << report.error().message;
  ASSERT_EQ(report->problems.size(), 1u);
  EXPECT_EQ(report->problems[0],
            "case decode: Z04.topk_ids: wanted a name that such a case has for a model of 12 "
            "layers, found another");
  EXPECT_EQ(report->failed, 1);
}

// A token that the model does not have: the runner knows no file, the message must.
TEST(StoredCases, ACaseThatCannotRunIsNamedByItsFile) {
  const fs::path folder =
      fs::path(testing::TempDir()) / ("fathom_bad_case_" + std::to_string(::getpid()));
  fs::remove_all(folder);
  fs::create_directories(folder);
  std::string bytes = *read_file(kModel + "/cases/decode.safetensors");
  const auto stored = Checkpoint::open(kModel + "/cases/decode.safetensors");
  ASSERT_TRUE(stored);
  const auto* tokens = static_cast<const std::byte*>(stored->get("tokens")->data);
  bytes[static_cast<size_t>(tokens - stored->files()[0].bytes().data()) + 1] = '\x7f';
  const std::string file = (folder / "decode.safetensors").string();
  ASSERT_TRUE(write_file_atomic(file, bytes));
  const auto ops = make_backend({.n_threads = 1});
  const auto report = check_cases(kModel, **ops, {.cases = folder.string(), .manifest = ""});
  fs::remove_all(folder);
  ASSERT_FALSE(report);
  EXPECT_TRUE(
      report.error().message.starts_with(file + ": token id at position 0: wanted 0 to 255"))
      << report.error().message;
}

TEST(StoredCases, AFolderWithoutCasesIsAnError) {
  const auto ops = make_backend({.n_threads = 1});
  EXPECT_FALSE(check_cases(kModel, **ops, {.cases = kModel, .manifest = ""}));
}

}  // namespace
}  // namespace fathom
