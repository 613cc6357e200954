// Goal: what --json prints is JSON whatever came in, and what it cannot hold is refused or marked.
// Method: the built program; a strict reader.
#include <gtest/gtest.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <boost/json.hpp>
#include <filesystem>

#include "model_copy.h"
#include "program.h"

namespace fathom {
namespace {

namespace fs = std::filesystem;
namespace json = boost::json;

const std::string kModel = std::string(FATHOM_SOURCE_DIR) + "/models/fathom-34m";

json::value strictly(const Outcome& outcome) {
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  json::error_code code;
  json::value value = json::parse(outcome.out, code);
  EXPECT_FALSE(code) << outcome.out;
  return value;
}

TEST(Output, BytesThatAreNoTextAreMarkedInJsonAndKeptInIds) {
  const Outcome outcome = run_program({.args = {"tokenize", "-m", kModel, "--json"},
                                       .input = "a\xff"
                                                "b\xe2\x82"});
  const json::value value = strictly(outcome);
  EXPECT_EQ(value.at("text").as_string(),
            "a\xef\xbf\xbd"
            "b\xef\xbf\xbd");
  std::string ids;
  for (const json::value& id : value.at("ids").as_array()) {
    ids += (ids.empty() ? "" : ",") + json::serialize(id);
  }
  const Outcome back = run_program({.args = {"tokenize", "-m", kModel, "--decode", "-p", ids}});
  EXPECT_TRUE(back.out.starts_with("a")) << back.out;

  const json::value parsed = strictly(
      run_program({.args = {"prompt", "--parse", "--no-think", "--json"}, .input = "x\xff"}));
  EXPECT_EQ(parsed.at("content").as_string(), "x\xef\xbf\xbd");
}

// A line comes out as it went in, with one member more: a number stays the number it is.
TEST(Output, LinesKeepWhatTheyHold) {
  const std::string lines[] = {R"({"text":"a","x":1e400})",
                               R"({ "y": 0.12345678901234567890123, "text": "a", "z":[1] } )",
                               R"({"n":123456789012345678901234567890,"text":"é\ud83d\ude00"})"};
  for (const std::string& line : lines) {
    const Outcome outcome =
        run_program({.args = {"tokenize", "-m", kModel, "--jsonl"}, .input = line + "\n"});
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    const std::string kept = line.substr(0, line.rfind('}'));
    EXPECT_TRUE(outcome.out.starts_with(kept + ",\"ids\":[")) << outcome.out;
    EXPECT_TRUE(outcome.out.ends_with("]}\n")) << outcome.out;
  }
  const Outcome again = run_program(
      {.args = {"tokenize", "-m", kModel, "--jsonl"}, .input = "{\"ids\":[65,66],\"x\":1e400}\n"});
  EXPECT_TRUE(again.out.starts_with("{\"ids\":[65,66],\"x\":1e400,\"text\":\"")) << again.out;
}

class HeldOut : public testing::Test {
 protected:
  HeldOut()
      : folder_(fs::path(testing::TempDir()) / ("fathom_held_" + std::to_string(::getpid()))) {
    fs::create_directories(folder_);
  }
  ~HeldOut() override { fs::remove_all(folder_); }

  std::string write(const char* name, const std::string& text) const {
    const std::string path = (folder_ / name).string();
    const gzFile file = ::gzopen(path.c_str(), "wb");
    ::gzwrite(file, text.data(), static_cast<unsigned>(text.size()));
    ::gzclose(file);
    return path;
  }
  Outcome eval(std::vector<std::string> more) const {
    std::vector<std::string> args = {"eval", "-m", kModel, "--cases", folder_.string(), "--suite"};
    args.insert(args.end(), more.begin(), more.end());
    return run_program({.args = args});
  }

  const fs::path folder_;
};

TEST_F(HeldOut, OneWindowHasNoInterval) {
  write("a.txt.gz", "one line of text\nand another\n");
  const json::value value = strictly(eval({"text", "--json"}));
  const json::value& row = value.at("rows").at(0);
  EXPECT_TRUE(row.at("low").is_null());
  EXPECT_TRUE(row.at("high").is_null());
  EXPECT_TRUE(row.at("value").is_double());
  const Outcome table = eval({"text"});
  EXPECT_NE(table.out.find("[unknown, unknown]"), std::string::npos) << table.out;
}

TEST_F(HeldOut, TextThatIsTooShortForANeedleIsNamed) {
  const auto refused = [&](const std::string& path, const std::string& part) {
    const Outcome outcome = eval({"needle", "--needle-cases", "1"});
    EXPECT_EQ(outcome.status, 1);
    EXPECT_EQ(std::ranges::count(outcome.err, '\n'), 1) << outcome.err;
    EXPECT_TRUE(outcome.err.starts_with("fathom: " + path + ": " + part)) << outcome.err;
  };
  const std::string lineless = write("a.txt.gz", "no newline");
  refused(lineless, "wanted text with lines, found ");
  const std::string few = write("a.txt.gz", "one line of text\nand another\n");
  refused(few, "wanted at least ");
}

TEST_F(HeldOut, TheFolderBesideTheModelIsFoundHoweverItIsSpelled) {
  for (const std::string& model :
       {kModel, kModel + "/", kModel + "//", kModel + "/.", kModel + "/../fathom-34m"}) {
    SCOPED_TRACE(model);
    const Outcome outcome = run_program(
        {.args = {"eval", "-m", model, "--suite", "text", "--sets", "go-net", "--tokens", "20"}});
    EXPECT_EQ(outcome.status, 0) << outcome.err;
  }
}

}  // namespace
}  // namespace fathom
