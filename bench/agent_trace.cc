#include "agent_trace.h"

#include <algorithm>
#include <boost/json.hpp>
#include <cmath>
#include <fstream>
#include <random>

namespace fathom {
namespace {

constexpr int64_t kTokensOfBlock = 64;

uint64_t mixed(uint64_t value) {  // splitmix64
  value += 0x9e3779b97f4a7c15;
  value = (value ^ value >> 30U) * 0xbf58476d1ce4e5b9;
  value = (value ^ value >> 27U) * 0x94d049bb133111eb;
  return value ^ value >> 31U;
}

// A text that grows. The name of a block follows from the one before and the text that fills it.
class Context {
 public:
  void add(uint64_t text, int64_t n_tokens) {
    while (n_tokens > 0) {
      const int64_t n = std::min(n_tokens, kTokensOfBlock - n_partial_);
      n_partial_ += n;
      n_tokens -= n;
      text_ = mixed(text_ ^ mixed(text + static_cast<uint64_t>(n_tokens)));
      if (n_partial_ < kTokensOfBlock) continue;
      blocks_.push_back(text_);
      n_partial_ = 0;
    }
  }
  const std::vector<TraceBlock>& blocks() const { return blocks_; }
  int64_t n_tokens() const {
    return static_cast<int64_t>(blocks_.size()) * kTokensOfBlock + n_partial_;
  }

 private:
  std::vector<TraceBlock> blocks_;
  uint64_t text_ = 0;  // of all tokens so far
  int64_t n_partial_ = 0;
};

class Generator {
 public:
  explicit Generator(const AgentTraceOptions& options) : options_(options), random_(options.seed) {
    double sum = 0;
    for (int64_t i = 1; i <= options.projects; ++i) {
      sum += 1.0 / static_cast<double>(i);
      project_odds_.push_back(sum);
    }
  }

  std::vector<TraceRequest> run() {
    std::exponential_distribution<double> pause(options_.sessions_per_hour / 3600);
    // Sessions that began before are under way when the trace does.
    for (double at = -options_.seconds; at < options_.seconds; at += pause(random_)) session(at);
    std::ranges::stable_sort(requests_, {}, &TraceRequest::at_s);
    return std::move(requests_);
  }

 private:
  double log_normal(double median, double sigma) {
    return median * std::exp(sigma * std::normal_distribution<double>(0, 1)(random_));
  }
  bool happens(double share) { return std::uniform_real_distribution<double>()(random_) < share; }
  int64_t turns(double mean) { return 1 + std::geometric_distribution<int64_t>(1 / mean)(random_); }
  int64_t tokens(double median, double sigma, double most) {
    return 1 + static_cast<int64_t>(std::min(most, log_normal(median, sigma)));
  }
  uint64_t fresh() { return mixed(++n_texts_ ^ options_.seed << 32U) | kFresh; }

  void add_request(double at, const Context& asked, const Context& answered) {
    if (at < 0 || at >= options_.seconds) return;
    TraceRequest request = {.at_s = at, .prompt = asked.blocks(), .answer = {}};
    const auto n = static_cast<ptrdiff_t>(asked.blocks().size());
    request.answer.assign(answered.blocks().begin() + n, answered.blocks().end());
    requests_.push_back(std::move(request));
  }

  // A turn at `at`: something is asked, and answered at a hundred tokens a second. When.
  double turn(Context& context, double at) {
    context.add(fresh(), tokens(options_.added_median, options_.added_sigma, 20'000));
    const Context asked = context;
    const int64_t n = tokens(options_.answer_median, options_.answer_sigma, 8000);
    context.add(fresh(), n);
    add_request(at, asked, context);
    return at + static_cast<double>(n) / 100;
  }

  double agent(double at, int64_t project) {
    Context context;
    const auto kinds = static_cast<uint64_t>(options_.agent_kinds);
    context.add(kAgent + random_() % kinds, options_.agent_tokens);
    context.add(kProject + static_cast<uint64_t>(project), options_.project_tokens);
    for (int64_t n = turns(options_.agent_turns_mean); n > 0; --n) {
      at = turn(context, at) + log_normal(options_.tool_s_median, options_.tool_sigma);
    }
    return at;
  }

  void begin(Context& context, int64_t project) const {
    context = {};
    context.add(kSystem, options_.system_tokens);
    context.add(kProject + static_cast<uint64_t>(project), options_.project_tokens);
  }

  void session(double at) {
    const double odds = std::uniform_real_distribution<double>(0, project_odds_.back())(random_);
    const int64_t project = std::ranges::lower_bound(project_odds_, odds) - project_odds_.begin();
    Context context;
    begin(context, project);
    for (int64_t n = turns(options_.turns_mean); n > 0; --n) {
      at = turn(context, at);
      const bool thinks = happens(options_.think_share);
      if (!thinks && happens(options_.agent_share)) at = agent(at, project);
      at += thinks ? log_normal(options_.think_s_median, options_.think_sigma)
                   : log_normal(options_.tool_s_median, options_.tool_sigma);
      if (context.n_tokens() <= options_.context_tokens) continue;
      begin(context, project);
      context.add(fresh(), options_.summary_tokens);
    }
  }

  static constexpr uint64_t kSystem = 1;
  static constexpr uint64_t kAgent = 1000;
  static constexpr uint64_t kProject = 1'000'000;
  static constexpr uint64_t kFresh = uint64_t{1} << 63U;

  const AgentTraceOptions options_;
  std::mt19937_64 random_;
  std::vector<double> project_odds_;  // cumulative
  uint64_t n_texts_ = 0;
  std::vector<TraceRequest> requests_;
};

}  // namespace

std::vector<TraceRequest> generate_agent_trace(const AgentTraceOptions& options) {
  return Generator(options).run();
}

Result<std::vector<TraceRequest>> read_trace(const std::string& path, int64_t split) {
  std::ifstream file(path);
  if (!file) return io_error(path + ": cannot read");
  std::vector<TraceRequest> requests;
  for (std::string line; std::getline(file, line);) {
    boost::system::error_code failure;
    const boost::json::value value = boost::json::parse(line, failure);
    const std::string where = path + ": line " + std::to_string(requests.size() + 1);
    if (failure || !value.is_object()) return invalid(where + ": wanted a JSON object");
    const auto* at = value.as_object().if_contains("timestamp");
    const auto* ids = value.as_object().if_contains("hash_ids");
    if (at == nullptr || !at->is_number() || ids == nullptr || !ids->is_array()) {
      return invalid(where + ": wanted timestamp and hash_ids");
    }
    TraceRequest request = {.at_s = at->to_number<double>() * 1e-3, .prompt = {}, .answer = {}};
    for (const boost::json::value& id : ids->as_array()) {
      if (!id.is_number()) return invalid(where + ": wanted numbers in hash_ids");
      for (int64_t part = 0; part < split; ++part) {
        const auto name = static_cast<uint64_t>(id.to_number<int64_t>() * split + part);
        request.prompt.push_back(mixed(name));
      }
    }
    requests.push_back(std::move(request));
  }
  return requests;
}

}  // namespace fathom
