// Goal: a caller's clock tells nothing of what another tenant has cached. Method: a server in this
// process with two keys; alice asks a prompt or another one, by a shuffled coin; then eve asks that
// prompt, and the time until her first token is what a classifier sees: sooner means cached. Its
// area under the ROC curve is near one half for eve, and near 1 where alice herself asks again,
// without which the first figure would say nothing.
#include <gtest/gtest.h>

#include <algorithm>
#include <boost/json.hpp>
#include <random>

#include "base/clock.h"
#include "served.h"

namespace fathom {
namespace {

namespace json = boost::json;

constexpr char kPath[] = "/v1/completions";
constexpr int kPromptTokens = 66;  // a block, and a state behind it
constexpr double kAucMax = 0.55;   // docs/design/operate.md
constexpr double kAucOfOwn = 0.95;

// The share of pairs in which the cached one came sooner, equal ones as half.
double area(const std::vector<double>& cached, const std::vector<double>& fresh) {
  double sooner = 0;
  for (const double a : cached) {
    for (const double b : fresh) sooner += a < b ? 1 : a == b ? 0.5 : 0;
  }
  return sooner / static_cast<double>(cached.size() * fresh.size());
}

class TimingIsolation : public testing::Test {
 protected:
  void SetUp() override {
    std::string file;
    for (const char* name : {"alice", "eve"}) {
      const NewKey made = *make_key(name);
      headers_[name] = "Authorization: Bearer " + made.key + "\r\n";
      file += made.table;
    }
    served_ = std::make_unique<Served>(ServerOptions{.keys = *read_keys(file, "keys")},
                                       ServedEngine{.session_bytes = int64_t{1} << 26});
  }

  std::string call() {
    json::array ids;
    for (int i = 0; i < kPromptTokens; ++i) ids.emplace_back(random_() % 4000);
    return "{\"prompt\":" + json::serialize(ids) +
           R"(,"max_tokens":1,"temperature":0,"stream":true,)"
           R"("stream_options":{"include_usage":true}})";
  }

  // Seconds until the first event; `cached` is what usage then says.
  double ask(const std::string& name, const std::string& body, int64_t* cached) {
    HttpClient client(served_->port());
    const double began_s = steady_seconds();
    client.send(post_text(kPath, body, headers_.at(name)));
    const bool began = client.read_until("data: ");
    const double seconds = steady_seconds() - began_s;
    const auto reply = began ? client.read_reply() : std::nullopt;
    const std::string field = "\"prompt_cache_hit_tokens\":";
    const size_t at = reply ? reply->body.rfind(field) : std::string::npos;
    if (at == std::string::npos) {
      ADD_FAILURE() << client.unread();
      return seconds;
    }
    *cached = std::stol(reply->body.substr(at + field.size()));
    return seconds;
  }

  // Of `n_each` prompts that alice had asked and as many that she had not.
  double area_for(const std::string& name, int n_each) {
    std::vector<bool> coins(static_cast<size_t>(2 * n_each));
    std::fill(coins.begin(), coins.begin() + n_each, true);
    std::shuffle(coins.begin(), coins.end(), random_);
    std::vector<double> seconds[2];
    for (const bool asked : coins) {
      const std::string body = call();
      int64_t cached = 0;
      ask("alice", asked ? body : call(), &cached);
      EXPECT_EQ(cached, 0);
      seconds[asked ? 1 : 0].push_back(ask(name, body, &cached));
      EXPECT_EQ(cached > 0, asked && name == "alice");
    }
    const double found = area(seconds[1], seconds[0]);
    std::printf("| %s | %d | %.3f |\n", name.c_str(), n_each, found);
    return found;
  }

  std::map<std::string, std::string> headers_;
  std::unique_ptr<Served> served_;
  std::mt19937 random_{7};
};

TEST_F(TimingIsolation, AnotherTenantsCacheDoesNotShowInTheTimeToTheFirstToken) {
  EXPECT_GT(area_for("alice", 40), kAucOfOwn);
  EXPECT_LE(area_for("eve", 500), kAucMax);
}

}  // namespace
}  // namespace fathom
