// Goal: the verbs work where the system gives a thread a small stack. Method: the built program
// under a limit of 256 KiB, which is the size of its threads' stacks too.
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>

#include "program.h"

namespace fathom {
namespace {

namespace fs = std::filesystem;

using Words = std::vector<std::string>;

// A sanitizer's frames are several times as large.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr uint64_t kStackBytes = 2 << 20;
#else
constexpr uint64_t kStackBytes = 256 << 10;
#endif

std::string nested(size_t depth) { return std::string(depth, '[') + "1" + std::string(depth, ']'); }

class SmallStack : public testing::Test {
 protected:
  SmallStack() : folder_(fs::temp_directory_path() / ("fathom_stack_" + std::to_string(getpid()))) {
    fs::create_directories(folder_);
  }
  ~SmallStack() override { fs::remove_all(folder_); }

  std::string path(const std::string& name) const { return (folder_ / name).string(); }

  static void expect_done(const Words& args, const std::string& input = {}) {
    const Outcome outcome = run_program({.args = args, .input = input, .stack_bytes = kStackBytes});
    EXPECT_EQ(outcome.status, 0) << args.front() << ": " << outcome.err;
  }

  const fs::path folder_;
};

// bench is left out: it computes as run does, and measures for seconds.
TEST_F(SmallStack, IsEnoughForTheVerbs) {
  const std::string t12 = std::string(FATHOM_SOURCE_DIR) + "/tests/golden/t12";
  fs::create_directories(path("cases"));
  fs::copy_file(t12 + "/cases/short.safetensors", path("cases/short.safetensors"));
  expect_done({"run", "-m", t12, "--ids", "1,2,3,4,5,6,7,8", "-n", "3", "--threads", "2"});
  expect_done({"run", "-p", "Once upon a time", "-n", "2", "--threads", "2"});
  expect_done({"chat", "-n", "2", "--quiet"}, "hello\n");
  expect_done({"tokenize"}, std::string(30'000, 'a') + "\n");
  expect_done({"prompt"}, R"({"messages":[{"role":"user","content":"hi"}]})");
  expect_done({"inspect", t12});
  expect_done({"check", t12, "--cases", path("cases")});
  expect_done({"synth", "--plan", "t12", "-o", path("synth"), "--quiet"});
  expect_done({"eval", "--suite", "text", "--tokens", "64", "--window", "32", "--sets", "go-net"});
}

TEST_F(SmallStack, IsEnoughForTheServer) {
  const Outcome outcome = run_program({.args = {"serve", "--listen", "127.0.0.1:0"},
                                       .stack_bytes = kStackBytes,
                                       .meanwhile = [](pid_t child) {
                                         ::sleep(1);
                                         ::kill(child, SIGTERM);
                                       }});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
}

TEST_F(SmallStack, IsEnoughToRefuseWhatIsDeep) {
  const Outcome outcome =
      run_program({.args = {"prompt"},
                   .input = R"({"messages":[{"role":"user","content":)" + nested(20'000) + "}]}",
                   .stack_bytes = kStackBytes});
  EXPECT_EQ(outcome.status, 1) << outcome.err;
  EXPECT_NE(outcome.err.find("values inside each other"), std::string::npos) << outcome.err;
}

}  // namespace
}  // namespace fathom
