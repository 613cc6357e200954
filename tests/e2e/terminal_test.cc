// Goal: the program behaves in a terminal and in a pipe as docs/cli.md says. Method: the built
// program on the shipped model, in a pseudo-terminal and between pipes.
#include <gtest/gtest.h>

#include <utility>

#include "program.h"

namespace fathom {
namespace {

const std::string kModel = std::string(FATHOM_SOURCE_DIR) + "/models/fathom-34m";

// More than one chunk of prefill.
std::string long_text() {
  std::string text;
  for (int i = 0; i < 200; ++i) text += "The river runs past the mill. ";
  return text;
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

using Words = std::vector<std::string>;

// What is typed waits in the terminal until the program reads.
Outcome run_with_typed_text(const Words& args, const std::string& text) {
  bool typed = false;
  return run_in_terminal(args, [&](const std::string& /*shown*/) {
    return std::exchange(typed, true) ? std::string() : text;
  });
}

TEST(Terminal, InterruptStopsTheAnswerNotTheProgram) {
  int step = 0;
  size_t seen = 0;
  const Outcome outcome = run_in_terminal(
      {"chat", "-m", kModel, "--no-think", "--ignore-eos", "-n", "100000", "--context", "200000"},
      [&](const std::string& shown) -> std::string {
        const std::string fresh = shown.substr(seen);
        const auto next = [&](const char* typed) {
          ++step;
          seen = shown.size();
          return std::string(typed);
        };
        if (step == 0 && has(fresh, "> ")) return next("Tell me a story.\n");
        // Echo and progress come first; an answer is there when more than those was shown.
        if (step == 1 && fresh.size() > 400) return next("\x03");
        if (step == 2 && has(fresh, "(stopped)") && fresh.ends_with("> ")) return next("\x03");
        if (step == 3 && has(fresh, "leaves)") && fresh.ends_with("> ")) return next("/effort 7\n");
        if (step == 4 && has(fresh, "effort 7") && fresh.ends_with("> ")) return next("/exit\n");
        return "";
      });
  EXPECT_EQ(step, 5) << outcome.out;
  EXPECT_EQ(outcome.status, 0) << outcome.out;
}

TEST(Terminal, ControlDLeavesTheChat) {
  const Outcome outcome = run_in_terminal({"chat", "-m", kModel}, [&](const std::string& shown) {
    return shown.ends_with("> ") ? std::string("\x04") : std::string();
  });
  EXPECT_EQ(outcome.status, 0) << outcome.out;
}

// Once is enough, at an empty prompt before and after answers.
TEST(Terminal, OneControlDLeavesTheChatAfterAnAnswerToo) {
  int asked = 0;
  int left = 0;
  const Outcome outcome = run_in_terminal(
      {"chat", "-m", kModel, "--no-think", "-n", "3"}, [&](const std::string& shown) {
        if (!shown.ends_with("> ")) return std::string();
        if (asked++ == 0) return std::string("hello\n");
        return ++left == 1 ? std::string("\x04") : std::string();
      });
  EXPECT_EQ(outcome.status, 0) << outcome.out;
  EXPECT_EQ(left, 1) << outcome.out;
  const std::string cut = "fathom: note: the answer was cut at 3 tokens (-n)";
  EXPECT_TRUE(has(outcome.out, cut)) << outcome.out;
}

// A terminal takes the first one as the end of a line that has no newline.
TEST(Terminal, ControlDBehindTextAnswersItAndLeaves) {
  bool typed = false;
  const Outcome outcome = run_in_terminal(
      {"chat", "-m", kModel, "--no-think", "-n", "3", "--quiet"}, [&](const std::string& shown) {
        const bool now = !typed && shown.ends_with("> ");
        typed = typed || now;
        return std::string(now ? "hello\x04\x04" : "");
      });
  EXPECT_EQ(outcome.status, 0) << outcome.out;
  EXPECT_FALSE(outcome.out.ends_with("> ")) << outcome.out;
}

TEST(Terminal, RunSaysWhatCutAnAnswer) {
  const auto run = [](std::vector<std::string> more) {
    std::vector<std::string> args = {"run", "-m", kModel, "-p", "The river", "--ignore-eos"};
    args.insert(args.end(), more.begin(), more.end());
    const Outcome outcome = run_program({.args = args});
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    return outcome.err;
  };
  EXPECT_EQ(run({}), "fathom: note: the answer was cut at 256 tokens (-n)\n");
  EXPECT_EQ(run({"--quiet"}), "");
  EXPECT_EQ(run({"-n", "9"}), "");  // as it was asked for
  const std::string full =
      "fathom: note: the answer was cut where the context of 16 tokens "
      "(--context) was full\n";
  EXPECT_EQ(run({"--context", "16"}), full);
  EXPECT_EQ(run({"--context", "16", "-n", "100"}), full);
  EXPECT_EQ(run({"--context", "16", "--json", "--quiet"}), "");
}

TEST(Terminal, QuietSilencesTheReasoning) {
  std::vector<std::string> args = {"run", "-m", kModel, "--chat", "-p", "What is a river?",
                                   "-n",  "40"};
  const Outcome shown = run_program({.args = args});
  EXPECT_EQ(shown.status, 0) << shown.err;
  EXPECT_GT(shown.err.size(), 1u);  // the template asks for reasoning first
  EXPECT_TRUE(shown.err.ends_with('\n')) << shown.err;
  args.push_back("--quiet");
  const Outcome quiet = run_program({.args = args});
  EXPECT_EQ(quiet.status, 0);
  EXPECT_EQ(quiet.err, "");
  EXPECT_EQ(quiet.out, shown.out);
}

TEST(Terminal, EvalSaysHowLongItTakes) {
  const std::vector<std::string> args = {"eval",   "-m",     kModel,           "--suite", "needle",
                                         "--sets", "go-net", "--needle-cases", "100000"};
  bool said = false;
  const Outcome outcome = run_in_terminal(args, [&](const std::string& shown) {
    const bool now = has(shown, "fathom: note: eval: at most 51200000 tokens, about ");
    return !std::exchange(said, now) && now ? std::string("\x03") : std::string();
  });
  EXPECT_TRUE(has(outcome.out, " minutes from now; --suite, --sets, ")) << outcome.out;
  EXPECT_EQ(outcome.status, 128 + 2);  // the signal of ctrl-C
}

TEST(Terminal, LoadingAndPrefillShowProgress) {
  const std::vector<std::string> args = {"run", "-m", kModel, "-p", long_text(), "-n", "1"};
  const auto nothing = [](const std::string&) { return std::string(); };
  const Outcome shown = run_in_terminal(args, nothing);
  EXPECT_EQ(shown.status, 0);
  EXPECT_TRUE(has(shown.out, "loading [")) << shown.out;
  EXPECT_TRUE(has(shown.out, "prefill [")) << shown.out;
  EXPECT_TRUE(has(shown.out, "tokens/s")) << shown.out;
  EXPECT_FALSE(has(shown.out, "bytes/s")) << shown.out;
  EXPECT_TRUE(has(shown.out, "s left")) << shown.out;
  std::vector<std::string> quiet = args;
  quiet.push_back("--quiet");
  const Outcome silent = run_in_terminal(quiet, nothing);
  EXPECT_EQ(silent.status, 0);
  EXPECT_FALSE(has(silent.out, "loading [") || has(silent.out, "prefill [")) << silent.out;
}

TEST(Terminal, BenchShowsWhatItMeasures) {
  const Outcome outcome =
      run_program({.args = {"bench", "--suite", "decode,prefill,tokenizer", "-m", kModel,
                            "--context", "600", "--steps", "3", "--progress"}});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  for (const char* part :
       {"bench machine [", "loading [", "bench prefill [", "bench decode [", "bench tokenizer ["}) {
    EXPECT_TRUE(has(outcome.err, part)) << part << " in " << outcome.err;
  }
}

TEST(Terminal, ProgressStaysOutOfPipesUnlessAskedFor) {
  const std::vector<std::string> args = {"run", "-m", kModel, "-p", long_text(), "-n", "1"};
  const Outcome plain = run_program({.args = args});
  EXPECT_EQ(plain.status, 0);
  EXPECT_EQ(plain.err, "");
  std::vector<std::string> asked = args;
  asked.push_back("--progress");
  const Outcome shown = run_program({.args = asked});
  EXPECT_TRUE(has(shown.err, "loading [") && has(shown.err, "prefill [")) << shown.err;
  EXPECT_EQ(shown.out, plain.out);
}

// What is typed behind it is not read: the terminal may belong to another program by then.
TEST(Terminal, OneControlDEndsThePrompt) {
  for (const Words& args : {Words{"run", "-m", kModel, "-n", "1"}, Words{"tokenize", "-m", kModel},
                            Words{"run", "-m", kModel, "-n", "1", "-f", "-"}}) {
    SCOPED_TRACE(args[0] + " " + args.back());
    const Outcome outcome = run_with_typed_text(args, "The\n\x04");
    EXPECT_EQ(outcome.status, 0) << outcome.out;
  }
  const Outcome run = run_with_typed_text({"run", "-m", kModel, "-n", "1"}, "The\n\x04");
  EXPECT_TRUE(has(run.out, "fathom: note: reads the prompt from the terminal; ctrl-D ")) << run.out;
}

TEST(Terminal, ChatSaysWhatACommandDid) {
  const Outcome outcome = run_program(
      {.args = {"chat", "-m", kModel}, .input = "/reset\n/foo\n/effort 200\n/effort 9\n"});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_TRUE(outcome.out.starts_with("conversation forgotten\nunknown command /foo\n/help "))
      << outcome.out;
  EXPECT_TRUE(has(outcome.out, "\n/effort: wanted 1 to 100; effort 75\neffort 9\n")) << outcome.out;
}

TEST(Terminal, ChatEndsAtItsLastWord) {
  for (const char* word : {"/exit\n", "/quit\n", "/quit"}) {
    const Outcome outcome =
        run_program({.args = {"chat", "-m", kModel}, .input = std::string(word) + "\n/foo\n"});
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    EXPECT_EQ(outcome.out, "");
  }
}

// What was decoded is looked at in a terminal and is a file's in a pipe.
TEST(Terminal, DecodedTextEndsALineInATerminalOnly) {
  const std::vector<std::string> args = {"tokenize", "-m", kModel, "--decode", "-p", "65,66"};
  const std::string text = run_program({.args = args}).out;
  EXPECT_FALSE(text.empty() || text.ends_with('\n')) << text;
  const Outcome shown = run_in_terminal(args, [](const std::string&) { return std::string(); });
  EXPECT_EQ(shown.out, text + "\r\n");
}

TEST(Terminal, RunReadsAPipe) {
  const Outcome piped =
      run_program({.args = {"run", "-m", kModel, "-n", "8"}, .input = "def add(a, b):"});
  const Outcome flag =
      run_program({.args = {"run", "-m", kModel, "-n", "8", "-p", "def add(a, b):"}});
  EXPECT_EQ(piped.status, 0) << piped.err;
  EXPECT_GT(piped.out.size(), 1u);
  EXPECT_EQ(piped.out, flag.out);
  const Outcome dash =
      run_program({.args = {"run", "-m", kModel, "-n", "8", "-f", "-"}, .input = "def add(a, b):"});
  EXPECT_EQ(dash.out, flag.out);
}

// The reader goes away: the program ends by the signal that says so, without a word.
TEST(Terminal, AClosedPipeEndsTheProgramQuietly) {
  const Outcome outcome =
      run_program({.args = {"tokenize", "--jsonl", "-m", kModel}, .input = "{\"text\":\"a\"}\n"});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  const std::string command = std::string(FATHOM_BINARY) + " run -m " + kModel +
                              " -p 'The river' --ignore-eos -n 400 2>&1 | head -c 1 | wc -c";
  FILE* pipe = ::popen(command.c_str(), "r");
  ASSERT_NE(pipe, nullptr);
  char counted[16] = {};
  ASSERT_NE(std::fgets(counted, sizeof(counted), pipe), nullptr);
  ::pclose(pipe);
  EXPECT_EQ(std::atoi(counted), 1);
}

}  // namespace
}  // namespace fathom
