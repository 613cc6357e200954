#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <cerrno>
#include <iostream>

#include "apps/chat_prompt.h"
#include "apps/common.h"
#include "apps/generation_flags.h"
#include "apps/input.h"
#include "apps/numbers.h"
#include "apps/progress.h"
#include "apps/verb.h"
#include "text/output_parser.h"

namespace fathom {
namespace {

// Set by ctrl-C; an answer that is being written ends at the next token.
std::atomic<bool> interrupted = false;

// A byte for each ctrl-C: one that comes just before a wait for input ends that wait too.
int wake[2] = {-1, -1};

void on_interrupt(int /*signal*/) {
  const int before = errno;
  interrupted = true;
  [[maybe_unused]] const ssize_t n = ::write(wake[1], "", 1);  // full: there is a byte already
  errno = before;
}

void forget_interrupts() {
  char byte = 0;
  while (::read(wake[0], &byte, 1) == 1) {
  }
  interrupted = false;
}

// False where ctrl-C came first. A terminal gives one line a read, so none waits in a buffer.
bool wait_for_line() {
  pollfd sources[2] = {{0, POLLIN, 0}, {wake[0], POLLIN, 0}};
  while (::poll(sources, 2, -1) < 0 && errno == EINTR) {
  }
  return (sources[1].revents & POLLIN) == 0;
}

Error stopped() { return {ErrorCode::kCancelled, "standard input: stopped"}; }

constexpr uint64_t kLineBytesMax = uint64_t{1} << 28;

constexpr const char* kHelp =
    "/help       this text\n"
    "/reset      forget the conversation\n"
    "/think      reason before answering, on or off\n"
    "/effort N   1 to 100\n"
    "/exit       leave (or /quit, or ctrl-D)\n"
    "ctrl-C stops the answer, not the program.\n";

class ChatVerb final : public Verb {
 public:
  // The released model's settings: temperature 1, top-p 0.95.
  ChatVerb() { generation_.values.sampling.top_p = 0.95; }

  const char* name() const override { return "chat"; }
  const char* help() const override { return "Talk in a terminal; /help inside"; }

  void add_options(CLI::App& app) override {
    app.add_option("--system", system_, "System message");
    app.add_option("--effort", request_.effort, "Reasoning effort")
        ->check(whole_number(1, 100))
        ->capture_default_str();
    app.add_flag("--no-think", no_think_, "Answer without reasoning");
    generation_.add_to(app);
    flags_.add_to(app);
    output_.add_words(app);
  }

  std::string hint(const TypedOptions& typed) const override {
    return output_.quiet ? std::string() : generation_.hint(typed);
  }

  int run() override {
    const Result<void> done = talk();
    return done ? 0 : fail(done.error());
  }

 private:
  Result<void> talk() {
    request_.thinking = !no_think_;
    FATHOM_ASSIGN_OR_RETURN(session_, open_session(flags_, output_, true, {}));
    FATHOM_ASSIGN_OR_RETURN(sequence_, session_.runner->open());
    if (::pipe2(wake, O_CLOEXEC | O_NONBLOCK) != 0) return io_error("chat: cannot make a pipe");
    struct sigaction action = {};
    action.sa_handler = on_interrupt;  // without SA_RESTART: reading a line ends too
    sigaction(SIGINT, &action, nullptr);
    reset();
    const bool terminal = ::isatty(0) != 0;
    if (terminal) std::cout << "/help tells what there is.\n";
    InputLines lines(kLineBytesMax);
    while (!lines.at_end()) {  // a last line may end without a newline
      forget_interrupts();
      if (terminal) std::cout << "> " << std::flush;
      const Result<std::optional<std::string>> line =
          terminal && !wait_for_line() ? stopped() : lines.next();
      if (!line && line.error().code == ErrorCode::kCancelled) {
        std::cout << "\n(/exit or ctrl-D leaves)\n";
        continue;
      }
      if (!line) return line.error();
      if (!*line || **line == "/exit" || **line == "/quit") break;
      if ((*line)->empty() || command(**line)) continue;
      Result<void> done = answer(**line);
      if (done) continue;
      // The turn did not happen; what was said before stays.
      request_.messages.pop_back();
      if (done.error().code == ErrorCode::kCancelled) {
        std::cout << "\n(stopped)\n";
      } else if (terminal) {
        std::cout << done.error().message << "; /reset forgets the conversation\n";
      } else {
        return done;
      }
    }
    if (terminal) std::cout << "\n";
    return {};
  }

  void reset() {
    request_.messages.clear();
    if (system_.empty()) return;
    ChatMessage message = user_message(system_);
    message.role = Role::kSystem;
    request_.messages.push_back(std::move(message));
  }

  // True if the line was a command.
  bool command(const std::string& line) {
    if (line.front() != '/') return false;
    if (line == "/reset") {
      reset();
      std::cout << "conversation forgotten\n";
    } else if (line == "/think") {
      request_.thinking = !request_.thinking;
      std::cout << "reasoning " << (request_.thinking ? "on\n" : "off\n");
    } else if (line.starts_with("/effort ")) {
      const int64_t effort = parse_whole(std::string_view(line).substr(8)).value_or(0);
      const bool known = effort >= 1 && effort <= 100;
      if (known) request_.effort = static_cast<int>(effort);
      std::cout << (known ? "" : "/effort: wanted 1 to 100; ") << "effort " << request_.effort
                << "\n";
    } else {
      if (line != "/help") std::cout << "unknown command " << shown_value(line) << "\n";
      std::cout << kHelp;
    }
    return true;
  }

  // Keeps the state of what this prompt has in common with what was processed.
  Result<void> feed(const std::vector<int32_t>& ids) {
    const std::vector<int32_t>& old = sequence_.tokens;
    const size_t limit = std::min({ids.size() - 1, old.size(), size_t(sequence_.length)});
    size_t common = 0;
    while (common < limit && ids[common] == old[common]) ++common;
    if (common < old.size()) {
      session_.runner->rewind(sequence_, static_cast<int64_t>(common), flags_.restore_grade());
    }
    return session_.runner->append(sequence_, std::span(ids).subspan(common));
  }

  Result<void> answer(const std::string& line) {
    request_.messages.push_back(user_message(line));
    FATHOM_ASSIGN_OR_RETURN(const std::vector<int32_t> ids, chat_ids(session_.loaded, request_));
    FATHOM_RETURN_IF_ERROR(feed(ids));
    interrupted = false;
    OutputParser parser(output_settings(request_));
    ParsedOutput parsed;
    const auto show = [&](const std::vector<OutputDelta>& deltas) {
      accumulate(&parsed, deltas);
      for (const OutputDelta& delta : deltas) print(delta);
    };
    ProgressLine progress(output_.show_progress(), "prefill", "tokens");
    const GenerateEvents events = {
        .prefill = [&](int64_t done,
                       int64_t all) { return progress.update(done, all), !interrupted; },
        .text =
            [&](std::string_view piece) {
              progress.clear();
              show(parser.feed(piece));
              return !interrupted && !parser.done();
            }};
    FATHOM_ASSIGN_OR_RETURN(const Generated result,
                            generate(*session_.runner, sequence_, &*session_.loaded.tokenizer,
                                     generation_.options(session_.loaded.model->config()), events));
    show(parser.finish());
    std::cout << (in_reasoning_ ? "\x1b[0m\n" : "\n") << std::flush;
    in_reasoning_ = false;
    if (result.stop_reason == StopReason::kCancelled && interrupted) std::cout << "(stopped)\n";
    const std::string cut = generation_.cut_note(result, flags_.context);
    if (!cut.empty() && !output_.quiet) note(cut);
    remember(parsed);
    return {};
  }

  void remember(const ParsedOutput& parsed) {
    ChatMessage message = user_message(parsed.content);
    message.role = Role::kAssistant;
    message.reasoning = parsed.reasoning.value_or("");
    request_.messages.push_back(std::move(message));
  }

  // Reasoning is dim where standard output is a terminal.
  void print(const OutputDelta& delta) {
    const bool reasoning = delta.kind == OutputDelta::Kind::kReasoning;
    const bool colour = ::isatty(1) != 0;
    if (colour && reasoning != in_reasoning_) std::cout << (reasoning ? "\x1b[2m" : "\x1b[0m\n");
    if (!colour && in_reasoning_ && !reasoning) std::cout << "\n";
    in_reasoning_ = reasoning;
    std::cout << delta.text << std::flush;
  }

  ModelFlags flags_;
  OutputFlags output_;
  GenerationFlags generation_;
  std::string system_;
  ChatRequest request_;
  Session session_;
  Sequence sequence_;
  bool no_think_ = false;
  bool in_reasoning_ = false;
};

}  // namespace

std::unique_ptr<Verb> make_chat() { return std::make_unique<ChatVerb>(); }

}  // namespace fathom
