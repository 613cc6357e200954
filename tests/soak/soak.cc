// soak --port P --pid PID --store FOLDER --key KEY...: mixed load on a server, and a line of CSV
// once every ten seconds about what its process holds. Status 1 where a request failed, an answer
// was another one than before, or something grew: the 95 % interval of the slope of its memory,
// after two fifths of the time, goes beyond a hundredth of it an hour; a sample saw more
// descriptors or bytes of the store than its bounds allow; or connections stayed when all clients
// had gone.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <thread>

#include "base/clock.h"
#include "mixed_load.h"
#include "process.h"
#include "slope.h"

namespace fathom {
namespace {

constexpr double kSampleSeconds = 10;
constexpr double kWarmUp = 0.4;        // of the samples
constexpr double kGrowthMax = 0.01;    // of the mean, an hour
constexpr double kSettleSeconds = 30;  // for the server to see that clients have gone

struct Flags {
  int port = 0;
  int pid = 0;
  std::string store;
  int64_t store_bytes_max = 0;
  int64_t segment_bytes = 0;
  std::vector<std::string> keys;
  int clients = 6;
  double seconds = 3600;
  std::string csv;
};

void wait_until(double at) {
  const double left = at - steady_seconds();
  if (left > 0) std::this_thread::sleep_for(std::chrono::duration<double>(left));
}

class Soak {
 public:
  explicit Soak(const Flags& flags) : flags_(flags), load_(flags.port, flags.keys) {}

  bool run() {
    std::ofstream csv(flags_.csv);
    csv << "seconds,resident_bytes,anonymous_bytes,sockets,store_files,other_files,store_bytes\n";
    // The first requests open what stays open.
    {
      std::jthread first([this](const std::stop_token& stop) { load_.run(0, stop); });
      wait_until(steady_seconds() + kSampleSeconds);
    }
    before_ = settled();
    const double begin = steady_seconds();
    std::vector<std::jthread> clients;
    for (int i = 0; i < flags_.clients; ++i) {
      clients.emplace_back([this, i](const std::stop_token& stop) { load_.run(i, stop); });
    }
    while (steady_seconds() - begin < flags_.seconds) {
      wait_until(begin + kSampleSeconds * static_cast<double>(samples_.size() + 1));
      const Holding now = holding_of(flags_.pid, flags_.store);
      samples_.push_back(now);
      csv << fmt::format("{:.0f},{},{},{},{},{},{}\n", steady_seconds() - begin, now.resident_bytes,
                         now.anonymous_bytes, now.sockets, now.store_files, now.other_files,
                         now.store_bytes)
          << std::flush;
    }
    for (std::jthread& client : clients) client.request_stop();
    clients.clear();
    after_ = settled();
    return judge();
  }

 private:
  // When no client is there.
  Holding settled() const {
    const double end = steady_seconds() + kSettleSeconds;
    Holding now = holding_of(flags_.pid, flags_.store);
    while (steady_seconds() < end) {
      std::this_thread::sleep_for(std::chrono::milliseconds(500));
      now = holding_of(flags_.pid, flags_.store);
      if (now.sockets == before_.sockets) break;
    }
    return now;
  }

  bool expect(bool holds, const std::string& line) {
    fmt::print("{} {}\n", holds ? "ok  " : "FAIL", line);
    return holds;
  }

  bool expect_flat(const std::string& what, int64_t Holding::*member) {
    std::vector<double> values;
    for (const Holding& sample : samples_) values.push_back(static_cast<double>(sample.*member));
    const auto n = static_cast<size_t>(kWarmUp * static_cast<double>(values.size()));
    const std::span<const double> rest = std::span(values).subspan(n);
    const Slope slope = slope_of(rest, kSampleSeconds);
    double mean = 0;
    for (const double value : rest) mean += value / static_cast<double>(rest.size());
    constexpr double kMb = 1e6;
    return expect(
        slope.high * 3600 <= kGrowthMax * mean,
        fmt::format("{}: mean {:.1f} MB, slope {:+.2f} MB/h [{:+.2f}, {:+.2f}], wanted "
                    "at most {:+.2f}",
                    what, mean / kMb, slope.per_second * 3600 / kMb, slope.low * 3600 / kMb,
                    slope.high * 3600 / kMb, kGrowthMax * mean / kMb));
  }

  bool expect_most(const std::string& what, int64_t Holding::*member, int64_t bound) {
    int64_t least = INT64_MAX;
    int64_t most = 0;
    for (const Holding& sample : samples_) {
      least = std::min(least, sample.*member);
      most = std::max(most, sample.*member);
    }
    return expect(most <= bound,
                  fmt::format("{}: {} to {}, wanted at most {}", what, least, most, bound));
  }

  bool judge() {
    const MixedCounts& counts = load_.counts();
    fmt::print("load: prompts {} turns {} repeats {} cancels {} bad-requests {} looks {} busy {}\n",
               counts.prompts.load(), counts.turns.load(), counts.repeats.load(),
               counts.cancels.load(), counts.bad_requests.load(), counts.looks.load(),
               counts.busy.load());
    const int64_t n_segments = flags_.store_bytes_max / flags_.segment_bytes + 1;
    bool ok = expect(counts.failed == 0, fmt::format("failed requests: {}{}", counts.failed.load(),
                                                     " " + load_.first_fault()));
    ok &= expect(counts.wrong == 0 && counts.repeats > 0,
                 fmt::format("answers that differ from the first: {} of {}", counts.wrong.load(),
                             counts.repeats.load()));
    ok &= expect_flat("resident", &Holding::resident_bytes);
    ok &= expect_flat("anonymous", &Holding::anonymous_bytes);
    ok &= expect_most("descriptors of no socket and not of the store", &Holding::other_files,
                      before_.other_files);
    // Segments, one that was removed and is still read, the index and the lock.
    ok &= expect_most("descriptors of the store", &Holding::store_files, n_segments + 3);
    // Each client has a connection and one that it leaves; what was left goes within moments.
    ok &= expect_most("sockets", &Holding::sockets, before_.sockets + 4 * flags_.clients);
    ok &= expect(after_.sockets == before_.sockets,
                 fmt::format("sockets without clients: {}, wanted {} as before", after_.sockets,
                             before_.sockets));
    ok &= expect_most("bytes of the store", &Holding::store_bytes,
                      flags_.store_bytes_max + flags_.segment_bytes);
    return ok;
  }

  const Flags flags_;
  MixedLoad load_;
  Holding before_;
  Holding after_;
  std::vector<Holding> samples_;
};

}  // namespace
}  // namespace fathom

int main(int argc, char** argv) {
  fathom::Flags flags;
  CLI::App app("Mixed load on a server, and what its process holds");
  app.add_option("--port", flags.port)->required();
  app.add_option("--pid", flags.pid)->required();
  app.add_option("--store", flags.store, "Folder of its store, as the kernel names it")->required();
  app.add_option("--store-bytes", flags.store_bytes_max, "Its bound")->required();
  app.add_option("--segment-bytes", flags.segment_bytes, "The most that one file has")->required();
  app.add_option("--key", flags.keys, "A tenant's, each")->required();
  app.add_option("--clients", flags.clients);
  app.add_option("--seconds", flags.seconds, "At least 420")->check(CLI::Range(420.0, 1e6));
  app.add_option("--csv", flags.csv)->required();
  CLI11_PARSE(app, argc, argv);
  return fathom::Soak(flags).run() ? 0 : 1;
}
