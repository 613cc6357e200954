// Goal: files that are pipes, that change, that two processes write or that a dead one left give a
// result or one line, and nothing stays behind. Method: the built program, some of it at once.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <boost/json.hpp>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <set>
#include <thread>

#include "model_copy.h"
#include "program.h"

namespace fathom {
namespace {

namespace fs = std::filesystem;
namespace json = boost::json;

using Words = std::vector<std::string>;

const std::string kT12 = std::string(FATHOM_SOURCE_DIR) + "/tests/golden/t12";
const std::string kModel = std::string(FATHOM_SOURCE_DIR) + "/models/fathom-34m";

class Files : public testing::Test {
 protected:
  Files() : folder_(fs::path(testing::TempDir()) / ("fathom_files_" + std::to_string(::getpid()))) {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  ~Files() override { fs::remove_all(folder_); }

  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  std::string pipe(const std::string& name) const {
    EXPECT_EQ(::mkfifo(path(name).c_str(), 0600), 0);
    return path(name);
  }

  static std::set<std::string> names(const fs::path& folder) {
    std::set<std::string> found;
    std::error_code code;
    for (const auto& entry : fs::directory_iterator(folder, code)) {
      found.insert(entry.path().filename().string());
    }
    return found;
  }

  // Sends a signal as soon as a temporary file is there; the outcome of the first run that it met
  // before the files had their names.
  Outcome stopped(const Words& args, const fs::path& folder, int signal) const {
    Outcome outcome;
    for (int attempt = 0; attempt < 20; ++attempt) {
      const auto meanwhile = [&](pid_t child) {
        for (int i = 0; i < 30'000; ++i) {
          const auto found = names(folder);
          const auto temporary = [](const std::string& name) { return name.ends_with(".tmp"); };
          if (std::ranges::any_of(found, temporary)) break;
          std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
        ::kill(child, signal);
      };
      outcome = run_program({.args = args, .meanwhile = meanwhile});
      const auto finished = [](const std::string& name) { return name.ends_with(".safetensors"); };
      const bool met = std::ranges::none_of(names(folder), finished);
      if (met && outcome.status == 128 + signal) break;
      fs::remove_all(folder);
    }
    EXPECT_EQ(outcome.status, 128 + signal) << outcome.err;
    return outcome;
  }

  const fs::path folder_;
};

void expect_line(const Outcome& outcome, const std::string& part) {
  EXPECT_EQ(outcome.status, 1) << outcome.err;
  EXPECT_EQ(outcome.out, "");
  EXPECT_TRUE(outcome.err.starts_with("fathom: ")) << outcome.err;
  EXPECT_EQ(std::ranges::count(outcome.err, '\n'), 1) << outcome.err;
  EXPECT_NE(outcome.err.find(part), std::string::npos) << outcome.err;
}

std::string fingerprint_of(const Outcome& outcome) {
  return json::parse(outcome.out).at("fingerprint").as_string().c_str();
}

TEST_F(Files, TwoWritersOfOneFolderNeverMix) {
  const auto synth = [&](const std::string& folder, const char* seed) {
    return Words{"synth",  "--plan", "t12",    "-o",        path(folder),
                 "--seed", seed,     "--json", "--threads", "1"};
  };
  const std::string alone[2] = {fingerprint_of(run_program({.args = synth("a", "1")})),
                                fingerprint_of(run_program({.args = synth("b", "2")}))};
  ASSERT_NE(alone[0], alone[1]);
  for (int round = 0; round < 6; ++round) {
    const std::string folder = "both" + std::to_string(round);
    Outcome outcomes[2];
    std::thread other([&] { outcomes[1] = run_program({.args = synth(folder, "2")}); });
    outcomes[0] = run_program({.args = synth(folder, "1")});
    other.join();
    const int winner = outcomes[0].status == 0 ? 0 : 1;
    EXPECT_EQ(outcomes[winner].status, 0) << outcomes[winner].err;
    EXPECT_EQ(fingerprint_of(outcomes[winner]), alone[winner]);
    expect_line(outcomes[1 - winner], path(folder));
    EXPECT_EQ(names(path(folder)), names(path("a")));
  }
}

TEST_F(Files, AStoppedSynthLeavesNothing) {
  const Words args = {"synth", "--plan", "n34", "-o", path("s"), "--max-shard", "1M"};
  ::signal(SIGHUP, SIG_DFL);  // what the program is started with
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGXCPU}) {
    const Outcome outcome = stopped(args, path("s"), signal);
    EXPECT_EQ(outcome.out, "");
    EXPECT_EQ(outcome.err, "fathom: " + path("s") + ": stopped; what was written is removed\n");
    EXPECT_FALSE(fs::exists(path("s")));
  }
}

TEST_F(Files, ASynthWhoseProgressNobodyReadsLeavesNothing) {
  const std::string command = std::string(FATHOM_BINARY) +
                              " synth --plan n34 --max-shard 1M --progress -o " + path("s") +
                              " 2>&1 >/dev/null | head -c 5";
  ::signal(SIGPIPE, SIG_DFL);  // what the program is started with
  FILE* shown = ::popen(command.c_str(), "r");
  ASSERT_NE(shown, nullptr);
  char text[16] = {};
  EXPECT_NE(std::fgets(text, sizeof(text), shown), nullptr);
  ::pclose(shown);
  EXPECT_FALSE(fs::exists(path("s")));
}

// Many small tensors: the index is the largest file, and the last to be written.
TEST_F(Files, AFailedSynthCanBeRunAgain) {
  std::ifstream file(kT12 + "/config.json");
  json::value config = json::parse(std::string(std::istreambuf_iterator<char>(file), {}));
  config.as_object()["text_config"].as_object()["n_routed_experts"] = 64;
  std::ofstream(path("plan.json")) << json::serialize(config);
  const Words args = {"synth", "--plan", path("plan.json"), "-o", path("s"), "--max-shard", "128K"};
  const auto largest = [&] {
    std::pair<uintmax_t, std::string> found;
    for (const auto& entry : fs::directory_iterator(path("s"))) {
      found = std::max(found, {entry.file_size(), entry.path().filename().string()});
    }
    return found;
  };
  ASSERT_EQ(run_program({.args = args}).status, 0);
  const auto [bytes, name] = largest();
  ASSERT_EQ(name, "model.safetensors.index.json");
  const std::set<std::string> wanted = names(path("s"));
  fs::remove_all(path("s"));
  for (const bool there : {false, true}) {
    if (there) fs::create_directories(path("s"));
    expect_line(run_program({.args = args, .file_bytes = bytes - 1}), path("s"));
    EXPECT_EQ(names(path("s")), std::set<std::string>());
  }
  const Outcome again = run_program({.args = args});
  EXPECT_EQ(again.status, 0) << again.err;
  EXPECT_EQ(names(path("s")), wanted);
}

TEST_F(Files, WhatAKilledSynthLeftIsRemovedByTheNext) {
  const Words args = {"synth", "--plan", "n34", "-o", path("s"), "--max-shard", "1M"};
  stopped(args, path("s"), SIGKILL);
  EXPECT_FALSE(names(path("s")).empty());
  const Outcome next = run_program({.args = {"synth", "--plan", "t12", "-o", path("s")}});
  EXPECT_EQ(next.status, 0) << next.err;
  EXPECT_EQ(run_program({.args = {"synth", "--plan", "t12", "-o", path("t")}}).status, 0);
  EXPECT_EQ(names(path("s")), names(path("t")));
}

TEST_F(Files, APipeIsReadAsAPromptAndRefusedAsAModel) {
  const Words run = {"run", "-m", kModel, "-n", "2", "--json", "-f"};
  Words args = run;
  args.push_back("/dev/stdin");
  const Outcome piped = run_program({.args = args, .input = "The river"});
  EXPECT_EQ(piped.status, 0) << piped.err;
  EXPECT_NE(piped.out.find("\"completion_tokens\":2"), std::string::npos) << piped.out;
  args.back() = pipe("prompt");
  expect_line(run_program({.args = args}), path("prompt") + ": wanted text from this pipe");
  args.back() = "/dev/zero";
  expect_line(run_program({.args = args}), "/dev/zero: wanted at most 268435456 bytes, found more");

  for (const char* name : {"config.json", "model-00001-of-00002.safetensors"}) {
    const ModelCopy copy("tests/golden/t12");
    copy.remove(name);
    ASSERT_EQ(::mkfifo(copy.file(name).c_str(), 0600), 0);
    expect_line(run_program({.args = {"run", "-m", copy.path(), "--ids", "1", "-n", "1"}}),
                copy.file(name) + ": expected a regular file");
  }
}

TEST_F(Files, AShardThatIsCutWhileItIsReadEndsTheProgramWithALine) {
  const std::string wanted = "fathom: a model file changed while it was read\n";
  Outcome outcome;
  for (const int seconds : {2, 10, 40}) {  // until it is loaded, on a busy machine too
    const ModelCopy copy("tests/golden/t12");
    const auto cut = [&](pid_t) {
      std::this_thread::sleep_for(std::chrono::seconds(seconds));
      fs::resize_file(copy.file("model-00002-of-00002.safetensors"), 1000);
    };
    outcome = run_program({.args = {"run", "-m", copy.path(), "--ids", "1,2,3", "-n", "1000000",
                                    "--context", "2M", "--ignore-eos", "--threads", "1", "--quiet"},
                           .meanwhile = cut});
    if (outcome.err == wanted) break;
  }
  EXPECT_EQ(outcome.status, 1);
  EXPECT_EQ(outcome.err, wanted);
}

// Address spaces that sanitizers cannot live with.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST_F(Files, WantOfMemoryIsALine) {
  std::ofstream(path("zeros")) << std::string(6'000'000, '\0');
  const Words tokenize = {"tokenize", "-m", kModel, "-f", path("zeros")};
  expect_line(run_program({.args = tokenize, .address_bytes = 100'000 << 10}), "memory: ");
  Words large = {"run", "-m", kModel, "-p", "x", "--context", "2097152"};
  expect_line(run_program({.args = large, .address_bytes = 300'000 << 10}),
              "fathom: --context 2097152: ");
  const Words run = {"run", "-m", kT12, "--ids", "1", "-n", "1"};
  for (uint64_t kibibytes = 56'000; kibibytes <= 90'000; kibibytes += 1'000) {
    SCOPED_TRACE(kibibytes);
    const Outcome outcome = run_program({.args = run, .address_bytes = kibibytes << 10});
    // The loader of programs ends with 127 where not even the libraries find room, and the runtime
    // ends by itself where it finds none to throw anything.
    const bool said = outcome.status == 0 || outcome.status == 1 || outcome.status == 127 ||
                      outcome.err == "terminate called without an active exception\n";
    EXPECT_TRUE(said) << outcome.status << " " << outcome.err;
    if (outcome.status == 1) expect_line(outcome, "fathom: ");
  }
}
#endif

TEST_F(Files, AProxyLiesInItsFolderUnderTheValuesOfItsPlan) {
  fs::create_directories(path("plans"));
  const auto plan = [&](int rows) {
    json::value config;
    std::ifstream file(kT12 + "/config.json");
    config = json::parse(std::string(std::istreambuf_iterator<char>(file), {}));
    config.as_object()["text_config"].as_object()["n_routed_experts"] = rows;
    std::ofstream(path("plans/own.json")) << json::serialize(config);
  };
  const Words bench = {"bench",
                       "--suite",
                       "decode",
                       "--context",
                       "4",
                       "--steps",
                       "2",
                       "--threads",
                       "1",
                       "--plan",
                       path("plans/own.json"),
                       "--proxy-dir",
                       path("px"),
                       "--json"};
  for (const int experts : {8, 4, 8}) {
    plan(experts);
    const Outcome outcome = run_program({.args = bench});
    EXPECT_EQ(outcome.status, 0) << outcome.err;
  }
  EXPECT_EQ(names(path("plans")), std::set<std::string>{"own.json"});
  const std::set<std::string> proxies = names(path("px"));
  EXPECT_EQ(proxies.size(), 2u);
  for (const std::string& name : proxies) EXPECT_TRUE(name.starts_with("own-")) << name;

  // A damaged one says what to do.
  plan(8);
  const auto oldest = [&](const std::string& name) {
    fs::resize_file(path("px/" + name + "/" + *names(path("px/" + name)).rbegin()), 100);
  };
  for (const std::string& name : proxies) oldest(name);
  const Outcome damaged = run_program({.args = bench});
  expect_line(damaged, "; remove " + path("px/own-"));

  // What would end a run is said before its work.
  Words bad = bench;
  bad.insert(bad.end(), {"--csv", path("no/such/folder.csv")});
  expect_line(run_program({.args = bad}), path("no/such/folder.csv") + ": cannot create");
  bad = bench;
  bad[10] = path("plans/none.json");
  expect_line(run_program({.args = bad}), path("plans/none.json") + ": cannot open");
}

}  // namespace
}  // namespace fathom
