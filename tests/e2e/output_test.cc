// Goal: what --json prints is JSON whatever came in, and what it cannot hold is refused or marked.
// Method: the built program; a strict reader.
#include <gtest/gtest.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <boost/json.hpp>
#include <filesystem>
#include <regex>

#include "model_copy.h"
#include "program.h"

namespace fathom {
namespace {

namespace fs = std::filesystem;
namespace json = boost::json;

const std::string kT12 = std::string(FATHOM_SOURCE_DIR) + "/tests/golden/t12";
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
  EXPECT_EQ(back.out,
            "a\xff"
            "b\xe2\x82");

  const json::value parsed = strictly(
      run_program({.args = {"prompt", "--parse", "--no-think", "--json"}, .input = "x\xff"}));
  EXPECT_EQ(parsed.at("content").as_string(), "x\xef\xbf\xbd");
}

TEST(Output, AnAnswerHasTheFormThatAFlagGives) {
  const json::value value = strictly(
      run_program({.args = {"run", "-m", kModel, "--json", "-n", "30", "--temperature", "1",
                            "--ignore-eos", "-p", "x", "--regex", "(yes|no), [0-9]{2}"}}));
  const std::string text(value.at("text").as_string());
  EXPECT_TRUE(text.starts_with("yes, ") || text.starts_with("no, ")) << text;
  EXPECT_EQ(text.size(), text.find(',') + 4) << text;
  EXPECT_EQ(value.at("finish_reason").as_string(), "stop");
  const Outcome wrong =
      run_program({.args = {"run", "-m", kModel, "-p", "x", "--regex", "a(?=b)"}});
  EXPECT_EQ(wrong.status, 2);
  EXPECT_NE(wrong.err.find("byte 1: wanted no look-around"), std::string::npos) << wrong.err;
  const Outcome schema =
      run_program({.args = {"run", "-m", kModel, "-p", "x", "--json-schema", "/dev/stdin"},
                   .input = R"({"type":"object","minProperties":1})"});
  EXPECT_EQ(schema.status, 1);
  EXPECT_EQ(schema.err,
            "fathom: /dev/stdin: --json-schema.minProperties: wanted a keyword that can be "
            "enforced, found one "
            "that cannot\n");
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

// A folder with one short case of t12, whose tolerances stand in the model's manifest.
class OneCase {
 public:
  OneCase()
      : folder_(fs::path(testing::TempDir()) / ("fathom_case_" + std::to_string(::getpid()))) {
    const std::string name = "decode_fp32score.safetensors";
    fs::create_directories(folder_);
    fs::copy_file(kT12 + "/cases/" + name, folder_ / name, fs::copy_options::overwrite_existing);
  }
  ~OneCase() { fs::remove_all(folder_); }
  std::string path() const { return folder_.string(); }

 private:
  const fs::path folder_;
};

// Figures are written as people write them, whatever their size.
TEST(Output, FiguresHaveNoCapitalExponent) {
  const Outcome run =
      run_program({.args = {"run", "-m", kModel, "-p", "The river", "-n", "4", "--json"}});
  const json::value value = strictly(run);
  EXPECT_TRUE(value.at("decode_tokens_per_s").is_double());
  const OneCase cases;
  const Outcome check = run_program({.args = {"check", kT12, "--cases", cases.path(), "--json"}});
  EXPECT_TRUE(strictly(check).at("worst").at("error").is_double());
  for (const std::string& text : {run.out, check.out}) {
    EXPECT_FALSE(std::regex_search(text, std::regex("[0-9]E"))) << text;
    EXPECT_EQ(std::ranges::count(text, '\n'), 1) << text;
  }
}

// Every id has text in `text`, and all of `text` comes from the ids, also where the stop string
// begins within an id.
TEST(Output, IdsAreThoseOfTheTextBeforeAStopString) {
  const auto answer = [](std::vector<std::string> more) {
    std::vector<std::string> args = {"run", "-m", kModel, "-p", "Hello", "-n", "24", "--json"};
    args.insert(args.end(), more.begin(), more.end());
    return strictly(run_program({.args = args}));
  };
  const auto decoded = [](const json::array& ids, size_t n) {
    std::string list;
    for (size_t i = 0; i < n; ++i) list += (i == 0 ? "" : ",") + json::serialize(ids[i]);
    return run_program({.args = {"tokenize", "-m", kModel, "--decode", "-p", list}}).out;
  };
  const json::value whole = answer({});
  const std::string all(whole.at("text").as_string());
  int within = 0;
  for (size_t at = 0; at + 3 < all.size(); at += 5) {
    const std::string stop = all.substr(at, 3);
    SCOPED_TRACE("stop " + stop);
    const json::value cut = answer({"--stop", stop});
    const std::string text(cut.at("text").as_string());
    const json::array& ids = cut.at("ids").as_array();
    EXPECT_EQ(text, all.substr(0, all.find(stop)));
    EXPECT_EQ(cut.at("finish_reason").as_string(), "stop");
    EXPECT_EQ(cut.at("completion_tokens").as_int64(), static_cast<int64_t>(ids.size()));
    const std::string given = decoded(ids, ids.size());
    EXPECT_TRUE(given.starts_with(text)) << given;
    within += given.size() > text.size();
    if (ids.empty()) continue;
    EXPECT_LT(decoded(ids, ids.size() - 1).size(), text.size());
  }
  EXPECT_GT(within, 0) << "no stop string began within an id";
}

TEST(Output, CheckEndsWithItsVerdictInWords) {
  const Outcome none = run_program({.args = {"check", "-m", kModel}});
  EXPECT_EQ(none.status, 0);
  EXPECT_TRUE(
      none.out.ends_with("the model is sound: a verb would load it; there are no stored "
                         "cases to compare it with\n"))
      << none.out;
  const ModelCopy copy("tests/golden/t12", true);
  const OneCase stored;
  const Outcome cases =
      run_program({.args = {"check", copy.path(), "--cases", stored.path(), "--progress"}});
  EXPECT_EQ(cases.status, 0) << cases.err;
  EXPECT_TRUE(cases.out.ends_with("it agrees with every stored case\n")) << cases.out;
  EXPECT_NE(cases.err.find("checking ["), std::string::npos) << cases.err;
  copy.edit_json("config.json", [](json::object& config) {
    config.at("text_config").as_object()["n_routed_experts"] = 3;
  });
  const Outcome broken = run_program({.args = {"check", copy.path()}});
  EXPECT_EQ(broken.status, 1);
  EXPECT_TRUE(
      std::regex_search(broken.out, std::regex("the model is not sound: [0-9]+ problems?\n$")))
      << broken.out;
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

TEST_F(HeldOut, TheTableNamesItsColumns) {
  write("a.txt.gz", "one line of text\nand another\n");
  const Outcome table = eval({"text"});
  EXPECT_EQ(table.status, 0) << table.err;
  EXPECT_TRUE(std::regex_search(
      table.out, std::regex("^name +value  95 % interval +n  unit\ntext/a +[0-9.]+  \\[")))
      << table.out;
}

TEST_F(HeldOut, TextWithoutATokenToPredictIsRefused) {
  for (const char* suite : {"text", "index"}) {
    const std::string path = write("a.txt.gz", "a");
    const Outcome outcome = eval({suite, "--json"});
    EXPECT_EQ(outcome.status, 1);
    EXPECT_EQ(outcome.out, "");
    EXPECT_EQ(outcome.err, "fathom: " + path +
                               ": wanted text of at least 2 tokens, of which the first is not "
                               "predicted, found 1\n");
  }
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

Outcome read_back(const std::string& output, std::vector<std::string> more = {}) {
  more.insert(more.begin(), {"prompt", "--parse"});
  return run_program({.args = more, .input = output});
}

// The tail of a message may be shown or not: `run --chat` does not, a log of ids would.
TEST(Output, ParsedTextMayHaveItsEndTokenOrNot) {
  const std::string end = "<｜end▁of▁sentence｜>";
  for (const std::string& tail : {std::string(), end, end + "\n"}) {
    const json::value parsed = strictly(read_back("ok</think>a" + tail, {"--json"}));
    EXPECT_EQ(parsed.at("content").as_string(), "a");
    EXPECT_EQ(parsed.at("reasoning").as_string(), "ok");
    EXPECT_TRUE(parsed.at("error").is_null());
    EXPECT_EQ(read_back("ok</think>a" + tail).out, "reasoning: ok\ncontent: a\n");
  }
  const json::value behind = strictly(read_back("ok</think>a" + end + "b", {"--json"}));
  EXPECT_EQ(behind.at("error").as_string(), "text_after_end");
}

TEST(Output, ParsedTextNamesItsErrorInWordsToo) {
  const std::string cut =
      "ok</think>a\n\n<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"x\">\n"
      "<｜DSML｜ parameter name=\"city\" string=\"true\">Os";
  const Outcome words = read_back(cut, {"--tools"});
  EXPECT_EQ(words.status, 0) << words.err;
  EXPECT_TRUE(words.out.ends_with("\nerror: parameter_format\n")) << words.out;
  EXPECT_EQ(read_back("no end").out, "reasoning: no end\ncontent: \nerror: missing_think_end\n");
}

}  // namespace
}  // namespace fathom
