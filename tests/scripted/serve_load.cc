// serve_load JOB --port P ...: load on a scripted_server, every letter looked at. One line of JSON.
//   streams  N streams at once; how long all were open, how late letters came, memory a stream
//   starts   requests one after the other; from the first byte sent to the first step of the engine
//   cancels  clients that vanish at random instants, in the middle of their request or answer
// Instants of the engine come from the file that scripted_server --watch writes.
#include <fmt/format.h>
#include <sys/resource.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <fstream>
#include <memory>
#include <random>

#include "letter_stream.h"
#include "watch_file.h"

namespace fathom {
namespace {

namespace asio = boost::asio;
constexpr auto kAwait = asio::as_tuple(asio::use_awaitable);

struct Flags {
  int port = 0;
  int pid = 0;
  int64_t streams = 512;
  int64_t letters = 200;
  int64_t ramp_us = 300;  // between two streams' beginnings
  std::string watch;
  int64_t watch_streams = 4096;
  int64_t watch_letters = 2048;
  int64_t count = 1000;
  int64_t words = 0;
  int64_t at_once = 64;
  int64_t delay_us_max = 40'000;
  uint64_t seed = 1;
};

// Milliseconds; sorts.
std::string percentiles(std::vector<double>* values) {
  if (values->empty()) return "{\"n\":0}";
  std::ranges::sort(*values);
  const auto at = [&](double part) {
    return (*values)[static_cast<size_t>(part * static_cast<double>(values->size() - 1))];
  };
  return fmt::format(
      "{{\"n\":{},\"p50_ms\":{:.3f},\"p90_ms\":{:.3f},\"p99_ms\":{:.3f},\"max_ms\":{:.3f}}}",
      values->size(), at(0.5), at(0.9), at(0.99), at(1));
}

// The server's resident bytes; 0 where no process was named.
int64_t resident_bytes(int pid) {
  std::ifstream status("/proc/" + std::to_string(pid) + "/status");
  std::string line;
  while (std::getline(status, line)) {
    if (line.starts_with("VmRSS:")) return std::stol(line.substr(6)) * 1024;
  }
  return 0;
}

double cpu_seconds(int pid) {
  std::ifstream stat("/proc/" + std::to_string(pid) + "/stat");
  std::string word;
  double ticks = 0;
  for (int i = 1; i <= 15 && stat >> word; ++i) ticks += i >= 14 ? std::stod(word) : 0;
  return ticks / 100;
}

class StreamsJob {
 public:
  StreamsJob(const Flags& flags, WatchFile watch) : flags_(flags), watch_(std::move(watch)) {}

  int run() {
    const int64_t before = resident_bytes(flags_.pid);
    const double cpu_before = cpu_seconds(flags_.pid);
    const int64_t start_ns = monotonic_ns();
    asio::co_spawn(io_, begin_all(), asio::detached);
    io_.run();
    const double wall_s = static_cast<double>(monotonic_ns() - start_ns) * 1e-9;
    const double held_s = static_cast<double>(first_end_ns_ - all_ns_) * 1e-9;
    const double bytes = static_cast<double>(held_bytes_ - before);
    fmt::print(
        "{{\"streams\":{},\"whole\":{},\"letters\":{},\"held_s\":{:.1f},\"wall_s\":{:.1f},"
        "\"late\":{},\"bytes_a_stream\":{:.0f},\"server_cpu_s\":{:.2f}}}\n",
        flags_.streams, n_whole_, n_letters_, n_begun_ == flags_.streams ? held_s : 0, wall_s,
        percentiles(&late_ms_), bytes / static_cast<double>(flags_.streams),
        cpu_seconds(flags_.pid) - cpu_before);
    return n_whole_ == flags_.streams ? 0 : 1;
  }

 private:
  asio::awaitable<void> begin_all() {
    asio::steady_timer timer(io_);
    for (int64_t i = 0; i < flags_.streams; ++i) {
      asio::co_spawn(io_, one(i), asio::detached);
      timer.expires_after(std::chrono::microseconds(flags_.ramp_us));
      co_await timer.async_wait(kAwait);
    }
  }

  asio::awaitable<void> one(int64_t number) {
    LetterStream stream(io_, number, flags_.letters);
    stream.arrived = [&](int64_t k, int64_t ns) { note(number, k, ns); };
    const bool connected = co_await stream.connect(flags_.port);
    if (connected && co_await stream.ask()) co_await stream.read();
    if (first_end_ns_ == 0) first_end_ns_ = monotonic_ns();
    n_whole_ += stream.whole() ? 1 : 0;
  }

  // Letters count once all streams have begun and while none has ended.
  void note(int64_t number, int64_t k, int64_t ns) {
    ++n_letters_;
    if (k == 0 && ++n_begun_ == flags_.streams) {
      all_ns_ = ns;
      held_bytes_ = resident_bytes(flags_.pid);
    }
    if (n_begun_ < flags_.streams || first_end_ns_ != 0 || !watch_.has(number, k)) return;
    const int64_t drawn_ns = watch_.drawn(number, k);
    if (drawn_ns >= all_ns_) late_ms_.push_back(static_cast<double>(ns - drawn_ns) * 1e-6);
  }

  const Flags flags_;
  WatchFile watch_;
  asio::io_context io_{1};
  int64_t n_begun_ = 0;
  int64_t n_whole_ = 0;
  int64_t n_letters_ = 0;
  int64_t all_ns_ = 0;
  int64_t first_end_ns_ = 0;
  int64_t held_bytes_ = 0;
  std::vector<double> late_ms_;
};

int run_starts(const Flags& flags, WatchFile watch) {
  asio::io_context io(1);
  std::vector<double> waits_ms;
  int64_t n_whole = 0;
  asio::co_spawn(
      io,
      [&]() -> asio::awaitable<void> {
        for (int64_t i = 0; i < flags.count; ++i) {
          LetterStream stream(io, i, 1);
          stream.n_words = flags.words;
          if (!co_await stream.connect(flags.port)) co_return;
          const int64_t sent_ns = monotonic_ns();
          if (!co_await stream.ask()) co_return;
          co_await stream.read();
          if (!stream.whole() || !watch.has(i, 0)) co_return;
          ++n_whole;
          waits_ms.push_back(static_cast<double>(watch.started(i) - sent_ns) * 1e-6);
        }
      },
      asio::detached);
  io.run();
  fmt::print("{{\"starts\":{},\"words\":{},\"whole\":{},\"sent_to_step\":{}}}\n", flags.count,
             flags.words, n_whole, percentiles(&waits_ms));
  return n_whole == flags.count ? 0 : 1;
}

class CancelsJob {
 public:
  explicit CancelsJob(const Flags& flags) : flags_(flags), random_(flags.seed) {}

  int run() {
    for (int64_t i = 0; i < flags_.at_once; ++i) asio::co_spawn(io_, lane(), asio::detached);
    io_.run();
    fmt::print(
        "{{\"cancels\":{},\"seed\":{},\"in_request\":{},\"before_a_letter\":{},"
        "\"in_answer\":{},\"after\":{},\"wrong\":{}}}\n",
        n_done_, flags_.seed, n_in_request_, n_before_, n_in_answer_, n_after_, n_wrong_);
    return n_done_ == flags_.count && n_wrong_ == 0 ? 0 : 1;
  }

 private:
  asio::awaitable<void> lane() {
    while (n_begun_ < flags_.count) co_await one(n_begun_++);
  }

  asio::awaitable<void> one(int64_t number) {
    LetterStream stream(io_, number, flags_.letters);
    const auto below = [&](int64_t n) {
      return static_cast<int64_t>(random_() % static_cast<uint64_t>(n));
    };
    Vanishing how = {.after_us = below(flags_.delay_us_max), .reset = below(2) == 0};
    if (below(10) == 0) how.part = static_cast<double>(below(100)) / 100;
    const bool asked = co_await stream.vanish(flags_.port, how);
    ++n_done_;
    const int64_t n = stream.n_arrived();
    int64_t& count = how.part < 1          ? n_in_request_
                     : n == 0              ? n_before_
                     : n == flags_.letters ? n_after_
                                           : n_in_answer_;
    ++count;
    n_wrong_ += asked && stream.right() ? 0 : 1;
  }

  const Flags flags_;
  asio::io_context io_{1};
  std::mt19937_64 random_;
  int64_t n_begun_ = 0;
  int64_t n_done_ = 0;
  int64_t n_in_request_ = 0;
  int64_t n_before_ = 0;
  int64_t n_in_answer_ = 0;
  int64_t n_after_ = 0;
  int64_t n_wrong_ = 0;
};

int run(const std::string& job, const Flags& flags) {
  rlimit files{};
  ::getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &files);
  if (job == "cancels") return CancelsJob(flags).run();
  Result<WatchFile> watch = WatchFile::open(flags.watch, flags.watch_streams, flags.watch_letters);
  if (!watch) {
    fmt::print(stderr, "serve_load: {}\n", watch.error().message);
    return 1;
  }
  if (job == "starts") return run_starts(flags, std::move(*watch));
  return StreamsJob(flags, std::move(*watch)).run();
}

}  // namespace
}  // namespace fathom

int main(int argc, char** argv) {
  fathom::Flags flags;
  std::string job;
  CLI::App app("Load on a scripted server");
  app.add_option("JOB", job)->required()->check(CLI::IsMember({"streams", "starts", "cancels"}));
  app.add_option("--port", flags.port)->required();
  app.add_option("--pid", flags.pid, "Of the server, for its memory and time");
  app.add_option("--streams", flags.streams)->capture_default_str();
  app.add_option("--letters", flags.letters)->capture_default_str();
  app.add_option("--ramp-us", flags.ramp_us)->capture_default_str();
  app.add_option("--watch", flags.watch);
  app.add_option("--watch-streams", flags.watch_streams)->capture_default_str();
  app.add_option("--watch-letters", flags.watch_letters)->capture_default_str();
  app.add_option("--count", flags.count)->capture_default_str();
  app.add_option("--words", flags.words, "Of each prompt of starts, more")->capture_default_str();
  app.add_option("--at-once", flags.at_once)->capture_default_str();
  app.add_option("--delay-us-max", flags.delay_us_max)->capture_default_str();
  app.add_option("--seed", flags.seed)->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  return fathom::run(job, flags);
}
