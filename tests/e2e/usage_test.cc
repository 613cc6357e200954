// Goal: wrong usage is one line with what was wanted and what was found, exit status 2, before any
// work; a setting of a file is as good as a flag. Method: the built program.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>

#include "program.h"

namespace fathom {
namespace {

using Words = std::vector<std::string>;

const std::string kT12 = std::string(FATHOM_SOURCE_DIR) + "/tests/golden/t12";
const std::string kModel = std::string(FATHOM_SOURCE_DIR) + "/models/fathom-34m";

struct Use {
  Words args;
  Words parts;  // of the line
};

void expect_usage(const Outcome& outcome, const Words& parts) {
  EXPECT_EQ(outcome.status, 2);
  EXPECT_EQ(outcome.out, "");
  EXPECT_TRUE(outcome.err.starts_with("fathom: usage: ")) << outcome.err;
  EXPECT_EQ(std::ranges::count(outcome.err, '\n'), 1) << outcome.err;
  EXPECT_TRUE(std::regex_search(outcome.err, std::regex("; see fathom( [a-z]+)? --help\n$")))
      << outcome.err;
  for (const std::string& part : parts) {
    EXPECT_NE(outcome.err.find(part), std::string::npos) << part << " in " << outcome.err;
  }
}

void expect_all_usage(const std::vector<Use>& uses) {
  for (const Use& use : uses) {
    SCOPED_TRACE(use.args.empty() ? "no verb" : use.args[0] + " " + use.args.back());
    const Outcome outcome = run_program({.args = use.args});
    expect_usage(outcome, use.parts);
    const bool has_verb = !use.args.empty() &&
                          outcome.err.find("verb: wanted") == std::string::npos &&
                          !use.args[0].starts_with("-");
    const std::string verb = has_verb ? use.args[0] + " " : "";
    EXPECT_TRUE(outcome.err.ends_with("; see fathom " + verb + "--help\n")) << outcome.err;
  }
}

TEST(Usage, WrongFlagsAreNamed) {
  expect_all_usage({
      {{}, {"verb: wanted one of run, chat, ", "bench", "found nothing"}},
      {{"frob"}, {"verb: wanted one of run, chat, tokenize, ", "found frob"}},
      {{"--frob"}, {"found --frob"}},
      {{"fr\x1b[1mob\n"}, {"found \"fr\\x1B[1mob\\x0A\""}},
      {{"run", "--frob"}, {"--frob"}},
      {{"run", "-p", "a", "-f", "b"}, {"wanted one of --", "found both"}},
      {{"run", "-p", "a", "--ids", "1"}, {"wanted one of --", "found both"}},
      {{"run", "-p", "a", "-n"}, {"-n: wanted a value, found none"}},
      {{"run", "-p", "a", "-n", "1", "-n", "2"}, {"-n: wanted it once, found it 2 times"}},
      {{"run", "-p", "a", "-m", "x", "-m", "y"}, {"-m: wanted it once, found it 2 times"}},
      {{"run", "-p", "a", "--mode", "fast"}, {"--mode", "fast"}},
      {{"run", "-p", "a", "--backend", "abacus"}, {"--backend", "abacus"}},
      {{"run", "-p", "a", "--index-scores", "fp8"}, {"--index-scores", "fp8"}},
      {{"run", "-p", "a", "--config", "/no/such.toml"}, {"/no/such.toml: cannot open"}},
      {{"tokenize", "--frob"}, {"--frob"}},
      {{"tokenize", "-p", "a", "-f", "/nonexist"}, {"wanted one of --", "found both"}},
      {{"tokenize", "--jsonl", "-p", "a"}, {"wanted one of --", "found both"}},
      {{"tokenize", "--jsonl", "-f", "a"}, {"wanted one of --", "found both"}},
      {{"tokenize", "--jsonl", "--json"}, {"wanted one of --", "found both"}},
      {{"tokenize", "--jsonl", "--decode"}, {"wanted one of --", "found both"}},
      {{"prompt", "--frob"}, {"--frob"}},
      {{"inspect", "--frob"}, {"--frob"}},
      {{"inspect", "--plan", "t99"}, {"--plan", "t99"}},
      {{"inspect", "-m", kT12, "--plan", "t12"}, {"wanted one of --", "found both"}},
      {{"synth", "--plan", "t12"}, {"--out: wanted a value on the command line or in the file"}},
      {{"synth", "-o", "x"}, {"--plan: wanted a value"}},
      {{"check", "--frob"}, {"--frob"}},
      {{"check", kT12, "-m", kT12}, {"wanted one of", "found both"}},
      {{"inspect", "-m", kT12, kModel}, {"wanted no word more, found " + kModel}},
      {{"inspect", kT12, kModel}, {"wanted no word more, found " + kModel}},
      {{"inspect", kT12, "-m", kModel}, {"-m: wanted it once, found it 2 times"}},
      {{"check", kT12, kModel}, {"wanted no word more, found " + kModel}},
      {{"prompt", "-f", "a", "b"}, {"wanted no word more, found b"}},
      {{"prompt", "a", "-f", "b"}, {"-f: wanted it once, found it 2 times"}},
      {{"run", "hello"}, {"wanted no word more, found hello; a text goes behind -p"}},
      {{"run", "--temprature", "1"}, {"unknown option --temprature, the nearest is --temperature"}},
      {{"run", "--tempature=1"}, {"unknown option --tempature, the nearest is --temperature"}},
      {{"run", "--colour"}, {"unknown option --colour; see"}},
      {{"run", "-z"}, {"unknown option -z; see"}},
      {{"chat", "hello"}, {"wanted no word more, found hello"}},
      {{"tokenize", "hello"}, {"wanted no word more, found hello"}},
      {{"tokenize", "--decode", "-p", "1,,2"},
       {"-p: wanted token ids with commas", "found nothing"}},
      {{"tokenize", "--decode", "-p", "1,x"}, {"-p: wanted token ids with commas", "found x"}},
      {{"serve", "--listen", "8000"},
       {"--listen: wanted HOST:PORT with a port of 0 to 65535, found 8000"}},
      {{"train"}, {"train: wanted a job, one of data, tokenizer, run, ", ", found nothing"}},
      {{"train", "--frob"}, {"train: wanted a job, one of ", ", found --frob"}},
      {{"eval", "--suite", "frob"}, {"frob"}},
      {{"eval", "--suite", "text,text"}, {"--suite: wanted each suite once, found text twice"}},
      {{"eval", "--suite", "text", "--suite", "text"}, {"found text twice"}},
      {{"eval", "--sets", "a,b,a"}, {"--sets: wanted each set once, found a twice"}},
      {{"bench", "--suite", "cpu,ops,cpu"}, {"--suite: wanted each suite once, found cpu twice"}},
      {{"bench", "--backend", "abacus"},
       {"--backend: wanted one of auto, cpu, cuda, found abacus"}},
      {{"bench", "--batch", "0x2"}, {"--batch: wanted 1 to 4096, found 0x2"}},
      {{"bench", "--suite", "frob"}, {"frob"}},
      {{"bench", "-m", kT12, "--plan", "t12"}, {"wanted one of --", "found both"}},
  });
}

TEST(Usage, OptionsStandBehindTheVerb) {
  expect_usage(run_program({.args = {"--config", "c.toml", "run", "-p", "a"}}),
               {"wanted the verb first, found --config"});
}

// An empty value, such as that of a variable which is not set, stands for nothing else.
TEST(Usage, EmptyValuesAreRefused) {
  const auto empty = [](const char* name) {
    return Words{std::string(name) + ": wanted a value, found an empty one"};
  };
  std::vector<Use> uses = {
      {{"run", "-p", "a", "-m", ""}, empty("-m")},
      {{"run", "-p", "a", "--config", ""}, empty("--config")},
      {{"run", "-p", "a", "--stop", "b", "--stop", ""}, empty("--stop")},
      {{"run", "-f", ""}, empty("-f")},
      {{"run", "-p", "a", "--grammar", ""}, empty("--grammar")},
      {{"run", "-p", "a", "--json-schema", ""}, empty("--json-schema")},
      {{"tokenize", "-f", ""}, empty("-f")},
      {{"prompt", ""}, {"wanted a value, found an empty one"}},
      {{"inspect", ""}, {"wanted a value, found an empty one"}},
      {{"check", kT12, "--cases", ""}, empty("--cases")},
      {{"synth", "--plan", "t12", "-o", ""}, empty("-o")},
      {{"eval", "--sets", ""}, empty("--sets")},
      {{"bench", "--csv", ""}, empty("--csv")},
      {{"bench", "--proxy-dir", ""}, empty("--proxy-dir")},
  };
  for (const char* name : {"--keys", "--new-key", "--tls-cert", "--tls-key", "--name", "--listen",
                           "--store", "--shared"}) {
    uses.push_back({{"serve", name, ""}, empty(name)});
  }
  for (const char* option : {"--model", "--stop", "--config", "--file", "-m"}) {
    uses.push_back({{"run", std::string(option) + "=", "--json"}, empty(option)});
  }
  uses.push_back({{"serve", "--windows", ""}, {"--windows: wanted redis://", "found nothing"}});
  uses.push_back({{"run", "--seed=", "--json"}, {"--seed: wanted 0 to ", "found nothing"}});
  uses.push_back({{"run", "-n=", "2"}, {"-n: wanted 0 to ", "found nothing"}});
  uses.push_back({{"synth", "--plan", "t12", "--out=", "--json"}, empty("--out")});
  uses.push_back({{"inspect", "--plan=", "--json"}, {"--plan: wanted "}});
  expect_all_usage(uses);
  const Outcome no_text = run_program({.args = {"tokenize", "-p", ""}});
  EXPECT_EQ(no_text.status, 0) << no_text.err;
}

// What stands behind = is the value, also where it is empty or looks like an option.
TEST(Usage, ValuesBehindAnEqualsSignAreTheOptionsOwn) {
  const auto text_of = [](const Words& args) {
    const Outcome outcome = run_program({.args = args});
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    return outcome.out.substr(outcome.out.find("\"text\""));
  };
  const Words tokenize = {"tokenize", "-m", kModel, "--json"};
  const std::vector<std::pair<Words, std::string>> uses = {{{"--prompt="}, ""},
                                                           {{"-p="}, ""},
                                                           {{"-p=The"}, "The"},
                                                           {{"--prompt=--plain"}, "--plain"},
                                                           {{"-p", "--plain"}, "--plain"},
                                                           {{"-p==x"}, "=x"},
                                                           {{"--prompt=", "--plain"}, ""}};
  for (const auto& [words, text] : uses) {
    SCOPED_TRACE(words.front());
    Words args = tokenize;
    args.insert(args.end(), words.begin(), words.end());
    EXPECT_EQ(text_of(args), "\"text\":\"" + text + "\"}\n");
  }
  const Outcome nothing =
      run_program({.args = {"run", "-m", kModel, "-p", "The", "--regex=", "--json"}});
  EXPECT_EQ(nothing.status, 0) << nothing.err;
  EXPECT_TRUE(nothing.out.starts_with("{\"text\":\"\",")) << nothing.out;
  expect_all_usage({
      {{"run", "-p", "a", "--json=xyz"}, {"--json: wanted no value, found xyz"}},
      {{"run", "-p", "a", "--json=2"}, {"--json: wanted no value, found 2"}},
      {{"run", "-p", "a", "--quiet="}, {"--quiet: wanted no value, found "}},
      {{"bench", "--suite", "cpu,"}, {"--suite: wanted a list", "an empty element in cpu,"}},
      {{"bench", "--suite=,"}, {"--suite: wanted a list"}},
      {{"eval", "--sets=a,,b"}, {"--sets: wanted a list"}},
  });
}

// An option that changes nothing beside the others is a slip, and is said to be one.
TEST(Usage, FlagsWithoutEffectAreRefused) {
  expect_all_usage({
      {{"run", "-p", "a", "--effort", "5"}, {"wanted --effort with --chat", "found it alone"}},
      {{"run", "--ids", "1", "--chat"}, {"wanted one of --", "found both"}},
      {{"run", "--ids", "1", "--stop", "a"}, {"wanted one of --", "found both"}},
      {{"run", "-p", "a", "--quiet", "--progress"}, {"wanted one of --", "found both"}},
      {{"chat", "--json"}, {"unknown option --json"}},
      {{"serve", "--json"}, {"wanted --json with --new-key"}},
      {{"serve", "--role", "admin"}, {"wanted --role with --new-key"}},
      {{"serve", "--new-key", "a", "--role", "boss"}, {"wanted user, metrics or admin"}},
      {{"serve", "--store-size", "1G"}, {"wanted --store-size with --store"}},
      {{"serve", "--store-age", "9"}, {"wanted --store-age with --store"}},
      {{"serve", "--store-key", "k"}, {"wanted --store-key with --store"}},
      {{"serve", "--shared-size", "1G"}, {"wanted --shared-size with --shared"}},
      {{"serve", "--windows-ms", "9"}, {"wanted --windows-ms with --windows"}},
      {{"serve", "--windows", "redis://h", "--session-bytes", "0"},
       {"--windows: wanted it with --session-bytes above 0, found 0"}},
      {{"serve", "--windows", "h:6379"}, {"--windows: wanted redis://", "found another scheme"}},
      {{"tokenize", "--decode", "--plain"}, {"wanted one of --", "found both"}},
      {{"prompt", "--tools"}, {"wanted --tools with --parse"}},
      {{"prompt", "--no-think"}, {"wanted --no-think with --parse"}},
      {{"prompt", "--parse", "-m", kModel}, {"wanted one of --", "found both"}},
      {{"check", kT12, "--context", "9"}, {"unknown option --context"}},
      {{"check", kT12, "--mode", "exact"}, {"unknown option --mode"}},
      {{"eval", "--mode", "deploy"}, {"unknown option --mode"}},
      {{"eval", "--suite", "text", "--seed", "1"}, {"--seed: wanted it with --suite needle"}},
      {{"eval", "--suite", "index", "--needle-cases", "1"}, {"--needle-cases: wanted it with"}},
      {{"eval", "--suite", "needle", "--tokens", "9"}, {"--tokens: wanted it with --suite text"}},
      {{"bench", "--suite", "cpu", "--context", "9"}, {"--context: wanted it with --suite decode"}},
      {{"bench", "--suite", "prefill", "--steps", "9"}, {"--steps: wanted it with --suite decode"}},
      {{"bench", "--suite", "cpu,ops", "-m", kT12}, {"--model: wanted it with --suite decode"}},
      {{"bench", "-m", kT12, "--proxy-dir", "x"}, {"wanted one of --", "found both"}},
      {{"bench", "--invented"}, {"--invented: wanted --suite without prefill"}},
      {{"run", "-p", "a", "--restore", "exact"}, {"--restore: wanted it with chat or serve"}},
      {{"bench", "--invented", "--suite", "decode", "--context", "1048576", "--steps", "1048576"},
       {"--context and --steps: wanted at most 2097144 positions together, found 2097152"}},
      {{"bench", "--numerics", "fast"}, {"--numerics: wanted fast with --backend cuda"}},
  });
}

// Choosing among tokens at temperature 0 is no slip of a script that goes through temperatures.
TEST(Usage, SamplingWithoutTemperatureIsNoted) {
  const Words run = {"run", "-m", kT12, "--ids", "1", "-n", "1", "--top-p", "0.5"};
  const Outcome noted = run_program({.args = run});
  EXPECT_EQ(noted.status, 0);
  EXPECT_EQ(noted.err, "fathom: note: --top-p: has no effect at temperature 0\n");
  for (const Words& more : {Words{"--quiet"}, Words{"--temperature", "1"}}) {
    Words args = run;
    args.insert(args.end(), more.begin(), more.end());
    EXPECT_EQ(run_program({.args = args}).err, "");
  }
}

// A seed of a file is for the runs that choose.
TEST(Usage, SamplingOfAFileWithoutTemperatureIsNotNoted) {
  const std::string file = testing::TempDir() + "/fathom_seed_" + std::to_string(::getpid());
  std::ofstream(file) << "seed = 3\n";
  const Outcome outcome = run_program({.args = {"run", "-m", kT12, "--ids", "1", "-n", "1",
                                                "--config", file, "--temperature", "0"}});
  std::filesystem::remove(file);
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(outcome.err, "");
}

TEST(Usage, VersionTellsOfCuda) {
  const Outcome version = run_program({.args = {"--version"}});
  EXPECT_EQ(version.status, 0);
  EXPECT_NE(version.out.find("cuda"), std::string::npos) << version.out;
  EXPECT_TRUE(std::regex_search(version.out, std::regex("\ncompiler (GCC|.*Clang) [0-9]+")))
      << version.out;
}

TEST(Usage, HelpNamesTheWordsOfTheScript) {
  const Outcome help = run_program({.args = {"--help"}});
  EXPECT_EQ(help.status, 0);
  EXPECT_NE(help.out.find("setup [--cuda] [--train]"), std::string::npos) << help.out;
  EXPECT_NE(help.out.find("test [--all]"), std::string::npos) << help.out;
}

// What a value is for is told by its name, and nothing of the library shows.
TEST(Usage, HelpNamesFilesAndSwitches) {
  const auto help = [](const char* verb) { return run_program({.args = {verb, "--help"}}).out; };
  for (const char* verb : {"run", "chat", "tokenize", "prompt", "check", "eval", "bench"}) {
    SCOPED_TRACE(verb);
    EXPECT_EQ(help(verb).find("{false}"), std::string::npos) << help(verb);
  }
  for (const auto& [verb, option] :
       std::vector<std::pair<const char*, const char*>>{{"run", "--file"},
                                                        {"run", "--json-schema"},
                                                        {"run", "--grammar"},
                                                        {"tokenize", "--file"},
                                                        {"prompt", "--file"},
                                                        {"bench", "--csv"}}) {
    const std::string text = help(verb);
    EXPECT_TRUE(std::regex_search(text, std::regex(std::string(option) + " FILE"))) << text;
  }
}

// Only decimal digits are a number: other notations and slips are never read as something else.
TEST(Usage, NumbersAreReadStrictly) {
  for (const char* ids :
       {"", "1,,2", "1,2,", ",1", "0x10", "010", "+5", "1 2", "abc", "1.5", "99999999999"}) {
    SCOPED_TRACE(ids);
    expect_usage(run_program({.args = {"run", "-m", kT12, "--ids", ids, "-n", "1"}}),
                 {"--ids: wanted token ids with commas between, each at most 2147483647, found "});
  }
  for (const char* seed : {"", "-1", "99999999999999999999999", "0x1", "01", "1e3", " 1"}) {
    SCOPED_TRACE(seed);
    const Words parts = {"--seed: wanted 0 to 18446744073709551615, found "};
    expect_usage(run_program({.args = {"run", "--ids", "1", "--seed", seed}}), parts);
    expect_usage(run_program({.args = {"synth", "--plan", "t12", "-o", "x", "--seed", seed}}),
                 parts);
  }
  const Words run = {"run", "-m", kT12, "--ids", "1"};
  const auto with = [&](const char* flag, const char* value) {
    Words args = run;
    args.push_back(flag);
    args.push_back(value);
    return args;
  };
  expect_all_usage({
      {with("-n", "-3"), {"-n: wanted 0 to 1099511627776, found -3"}},
      {with("--max-tokens", "x"), {"--max-tokens: wanted 0 to ", "found x"}},
      {with("--threads", "-1"), {"--threads: wanted 0 to 4096, found -1"}},
      {with("--threads", "0x2"), {"--threads: wanted 0 to 4096, found 0x2"}},
      {with("--context", "0"), {"--context: wanted 1 to 2097152, ", "found 0"}},
      {with("--context", "2097153"), {"--context: wanted 1 to 2097152, ", "found 2097153"}},
      {with("--context", "12Q"), {"--context: wanted 1 to ", "found 12Q"}},
      {with("--context", "9999999999999T"), {"--context: wanted 1 to ", "found 9999999999999T"}},
      {with("--effort", "101"), {"--effort: wanted 0 to 100, found 101"}},
      {with("--temperature", ""), {"--temperature: wanted 0 to 100, found nothing"}},
      {with("--temperature", "1e300"), {"--temperature: wanted 0 to 100, found 1e300"}},
      {with("--temperature", "inf"), {"--temperature: wanted 0 to 100, found inf"}},
      {with("--top-p", "2"), {"--top-p: wanted 0 to 1, found 2"}},
      {with("--top-p", "nan"), {"--top-p: wanted 0 to 1, found nan"}},
      {with("--top-k", "-1"), {"--top-k: wanted 0 to 1000000000, found -1"}},
      {with("--min-p", "1,5"), {"--min-p: wanted 0 to 1, found 1,5"}},
      {with("--repetition-penalty", "0"), {"--repetition-penalty: wanted 0.01 to 100, found 0"}},
      {{"chat", "--context", "1000000000000"}, {"--context: wanted 1 to 2097152, "}},
      {{"chat", "--effort", "0"}, {"--effort: wanted 1 to 100, found 0"}},
      {{"synth", "--plan", "t12", "-o", "x", "--max-shard", "1"}, {"--max-shard: wanted 65536 to"}},
      {{"eval", "--window", "1"}, {"--window: wanted 2 to 1048576, found 1"}},
      {{"bench", "--steps", "0"}, {"--steps: wanted 1 to 1048576, found 0"}},
  });
}

TEST(Usage, WhatIsGivenEmptyIsNotReadFromStandardInput) {
  const std::string typed = "this must not be read";
  const Outcome ids = run_program({.args = {"tokenize", "-m", kModel, "-p", ""}, .input = typed});
  EXPECT_EQ(ids.status, 0) << ids.err;
  EXPECT_EQ(ids.out, "\n");
  const Outcome text =
      run_program({.args = {"run", "-m", kModel, "-p", "", "-n", "1", "--json"}, .input = typed});
  EXPECT_EQ(text.status, 0) << text.err;
  EXPECT_NE(text.out.find("\"prompt_tokens\":1,"), std::string::npos) << text.out;
}

TEST(Usage, HelpTellsTheRangeOfEveryNumber) {
  const std::string help = run_program({.args = {"--help-all"}}).out;
  const std::regex number(R"((INT|UINT|FLOAT)(:(INT in \[)?-?[0-9.]+ (to|-) [0-9])?)");
  int n_numbers = 0;
  std::istringstream lines(help);
  for (std::string line; std::getline(lines, line);) {
    std::smatch match;
    const bool option = line.find_first_not_of(' ') == line.find('-');
    if (!option || !std::regex_search(line, match, number)) continue;
    ++n_numbers;
    EXPECT_TRUE(match[2].matched) << line;
  }
  EXPECT_GT(n_numbers, 30) << help;
}

// Rows of the table of docs/cli.md: what stands there is there, and nothing else.
TEST(Usage, ThePageOfTheCommandLineSaysWhatThereIs) {
  std::ifstream page(std::string(FATHOM_SOURCE_DIR) + "/docs/cli.md");
  const std::string listed = run_program({.args = {"frob"}}).err;
  std::string verbs;
  const std::regex row(R"(^\| `(\w+)` \|[^|]*\|([^|]*)\|)");
  const std::regex flag(R"(--[a-z][a-z-]*|`-[a-z])");
  for (std::string line; std::getline(page, line);) {
    std::smatch match;
    if (!std::regex_search(line, match, row)) continue;
    const std::string verb = match[1];
    verbs += (verbs.empty() ? "" : ", ") + verb;
    const std::string help = run_program({.args = {verb, "--help"}}).out;
    const std::string options = match[2];
    for (auto it = std::sregex_iterator(options.begin(), options.end(), flag);
         it != std::sregex_iterator(); ++it) {
      std::string name = it->str();
      if (name[0] == '`') name.erase(0, 1);
      EXPECT_NE(help.find(name), std::string::npos) << verb << " " << name;
    }
  }
  EXPECT_FALSE(verbs.empty());
  const auto sorted = [](std::string text) {
    std::set<std::string> words;
    std::istringstream stream(text);
    for (std::string word; std::getline(stream, word, ' ');) {
      words.insert(word.substr(0, word.find(',')));
    }
    return words;
  };
  const size_t begin = listed.find("one of ") + 7;
  EXPECT_EQ(sorted(verbs), sorted(listed.substr(begin, listed.find(", found") - begin)));
}

class ConfigFileTest : public testing::Test {
 protected:
  ConfigFileTest()
      : path_(testing::TempDir() + "/fathom_config_" + std::to_string(::getpid()) + ".toml") {}
  ~ConfigFileTest() override { std::filesystem::remove(path_); }

  Outcome with(const std::string& text, Words args) const {
    std::ofstream(path_) << text;
    args.push_back("--config");
    args.push_back(path_);
    return run_program({.args = args});
  }

  const std::string path_;
};

TEST_F(ConfigFileTest, WhatIsNoTomlOrNoSettingIsRefused) {
  const Words run = {"run", "-m", kT12, "--ids", "1", "-n", "1"};
  const std::vector<std::pair<std::string, std::string>> files = {
      {"threads=[1,2\n", "line "},
      {"=\n", "line 1: wanted TOML, found: "},
      {"threads=1\n]\n", "line 2: wanted TOML, found: "},
      {"threads=1\nthreads=2\n", "line 2: wanted TOML, found: "},
      {"threads=1\n[rnu]\nthreads=9\n", "line 2: wanted a section named as a verb, found \"rnu\""},
      {"threds=1\n", "line 1: wanted a flag of run, found \"threds\""},
      {"[run]\n\nthreds=1\n", "line 3: wanted a flag of run, found \"threds\""},
      {"[bench]\nthreds=1\n", "line 2: wanted a flag of bench, found \"threds\""},
      {"[run.deeper]\nthreads=1\n", "wanted a flag of run, found \"deeper\""},
      {"config=\"x\"\n", "wanted a flag of run, found \"config\""},
      {"threads=\"x\"\n", "line 1: --threads: wanted 0 to 4096, found x"},
      {"threads=true\n", "line 1: threads: wanted a string, a number"},
      {"threads=[1,2]\n", "line 1: threads: wanted one value, found 2"},
      {"n=1\nmax-tokens=2\n", "wanted --max-tokens once, found it twice"},
      {"json=\"yes\"\n", "line 1: json: wanted true or false"},
      {"seed=-1\n", "line 1: --seed: wanted 0 to 18446744073709551615, found -1"},
  };
  for (const auto& [text, part] : files) {
    SCOPED_TRACE(text);
    expect_usage(with(text, run), {path_ + ": ", part});
  }
}

// What another value wins over is a slip all the same.
TEST_F(ConfigFileTest, ValuesThatAreNotUsedAreCheckedToo) {
  const Words run = {"run", "-m",        kT12, "--ids",     "1",  "-n",
                     "1",   "--threads", "1",  "--context", "8K", "--json"};
  const std::vector<std::pair<std::string, std::string>> files = {
      {"threads=\"x\"\n", "line 1: --threads: wanted 0 to 4096, found x"},
      {"threads=5000\n", "line 1: --threads: wanted 0 to 4096, found 5000"},
      {"threads=true\n", "line 1: threads: wanted a string, a number"},
      {"threads=[1,2]\n", "line 1: threads: wanted one value, found 2"},
      {"context=\"12Q\"\n", "line 1: --context: wanted 1 to "},
      {"json=\"yes\"\n", "line 1: json: wanted true or false"},
      {"ids=\"1,,2\"\n", "line 1: --ids: wanted token ids"},
      {"prompt=true\n", "line 1: prompt: wanted a string, a number"},  // excluded by --ids
      {"threads=-1\n[run]\nthreads=1\n", "line 1: --threads: wanted 0 to 4096, found -1"},
      {"[run]\ntop-p=2\n", "line 2: --top-p: wanted 0 to 1, found 2"},
      {"[bench]\nsteps=0\n", "line 2: --steps: wanted 1 to 1048576, found 0"},
  };
  for (const auto& [text, part] : files) {
    SCOPED_TRACE(text);
    expect_usage(with(text, run), {path_ + ": ", part});
  }
  const std::string sound =
      "threads=2\ncontext=\"4K\"\njson=false\nids=\"7\"\nprompt=\"x\"\n[bench]\nsteps=1\n";
  const Outcome outcome = with(sound, run);
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(outcome.out.front(), '{');
}

TEST_F(ConfigFileTest, ItGivesWhatTheCommandLineDoesNot) {
  const Words run = {"run", "-m", kT12};
  const Outcome plain =
      run_program({.args = {"run", "-m", kT12, "--ids", "1,2", "-n", "3", "--json"}});
  ASSERT_EQ(plain.status, 0) << plain.err;
  const auto ids = [](const Outcome& outcome) {
    return outcome.out.substr(0, outcome.out.find("\"finish_reason\""));
  };
  for (const char* text :
       {"ids=\"1,2\"\nmax-tokens=3\njson=true\n",
        "max-tokens=7\n[run]\nids=\"1,2\"\nn=3\njson=true\n[bench]\nsteps=1\n",
        "# a comment\n\"ids\"='1,2' # another\nmax-tokens = 3\njson = true\nquiet = false\n"}) {
    SCOPED_TRACE(text);
    const Outcome outcome = with(text, run);
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    EXPECT_EQ(ids(outcome), ids(plain));
  }
  // The command line wins, also over what it excludes.
  const Outcome wins = with("max-tokens=9\nprompt=\"x\"\n",
                            {"run", "-m", kT12, "--ids", "1,2", "-n", "3", "--json"});
  EXPECT_EQ(wins.status, 0) << wins.err;
  EXPECT_EQ(ids(wins), ids(plain));
  const Outcome model = with("plan=\"released\"\n", {"inspect", "-m", kT12, "--json"});
  EXPECT_NE(model.out.find("\"parameters\":3986200,"), std::string::npos) << model.out;
  expect_usage(with("prompt=\"x\"\nids=\"1\"\n", run), {"wanted one of --", "found both"});
  // A section's keys win over what they exclude at the top.
  const Outcome section =
      with("model=\"/nowhere\"\n[inspect]\nplan=\"t12\"\n", {"inspect", "--json"});
  EXPECT_EQ(section.status, 0) << section.err;
  EXPECT_NE(section.out.find("\"model\":\"t12\""), std::string::npos) << section.out;
}

// A file serves many uses: what has no effect in this one is passed over. On the command line it is
// wrong usage, and what it needs may stand in the file.
TEST_F(ConfigFileTest, WhatHasNoEffectIsPassedOver) {
  const Words run = {"run", "-m", kModel, "-p", "a", "-n", "1"};
  EXPECT_EQ(with("effort=5\n", run).status, 0);
  Words effort = run;
  effort.insert(effort.end(), {"--effort", "5"});
  EXPECT_EQ(with("chat=true\n", effort).status, 0);
  expect_usage(with("threads=1\n", effort), {"wanted --effort with --chat"});
  EXPECT_EQ(with("[eval]\nneedle-cases=1\n",
                 {"eval", "-m", kModel, "--suite", "text", "--sets", "go-net", "--tokens", "9"})
                .status,
            0);
}

TEST_F(ConfigFileTest, ItGivesRequiredFlagsAndPositions) {
  const std::string folder = path_ + ".model";
  const Outcome made = with("plan=\"t12\"\nout=\"" + folder + "\"\n", {"synth"});
  EXPECT_EQ(made.status, 0) << made.err;
  const Outcome looked = with("model=\"" + folder + "\"\n", {"inspect"});
  EXPECT_EQ(looked.status, 0) << looked.err;
  EXPECT_TRUE(looked.out.starts_with(folder + "\n")) << looked.out;
  const Outcome checked = with("[check]\nmodel=\"" + folder + "\"\n", {"check"});
  EXPECT_EQ(checked.status, 0) << checked.err;
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace fathom
