// eviction TIER FOLDER [--trace FILE SPLIT]: what eviction by recompute cost saves against the
// least recently used block at equal bytes. TIER: memory, host or disk; FOLDER: of the disk store,
// made and removed. Runs a generated trace of agents, or a recorded one, through the tier's own
// code with either rule, at sizes that are shares of what the trace computes, and prints a row of a
// table for each size. Cost: of the released plan's encoder, in floating-point operations.
#include <fmt/format.h>

#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <unordered_set>

#include "agent_trace.h"
#include "base/check.h"
#include "cache/host_tier.h"
#include "cache/prefix_cache.h"
#include "cache/store/disk_store.h"
#include "engine/block_cost.h"
#include "model/plans.h"

namespace fathom {
namespace {

constexpr int64_t kPayloadBytes = 64;  // stands for a block's, all of which have the same
constexpr double kShares[] = {0.2, 0.1, 0.05, 0.02};
constexpr int64_t kFlushEvery = 4;  // requests: about a second of the generated trace
constexpr size_t kReadsAtOnce = 1024;

class LeastRecentlyUsed final : public WorthRule {
 public:
  double base(double) const override { return ++clock_; }
  double gain(double, double) const override { return 0; }

 private:
  mutable double clock_ = 0;
};

// As the rule was before uses were bounded.
class AllUses final : public WorthRule {
 public:
  double base(double floor) const override { return floor; }
  double gain(double n_uses, double cost_per_byte) const override { return n_uses * cost_per_byte; }
};

BlockKey key_of(TraceBlock block) {
  BlockKey key;
  std::memcpy(key.digest.data(), &block, sizeof(block));
  return key;
}

// Something that keeps blocks; what it has it counts as used.
class Kept {
 public:
  virtual ~Kept() = default;
  // How many of the first blocks of the prompt it had; it is then given all of the request.
  virtual int64_t serve(std::span<const BlockKey> prompt, std::span<const BlockKey> all) = 0;
};

class InMemory final : public Kept {
 public:
  InMemory(int64_t n_blocks, const BlockCost& cost, const WorthRule& rule)
      : pool_(*KvPool::make(spec(), n_blocks, memory_)), cache_(pool_, memory_, cost, rule) {}

  int64_t serve(std::span<const BlockKey> prompt, std::span<const BlockKey> all) override {
    BlockLease lease = cache_.match(prompt);
    const int64_t n_hit = lease.n_blocks();
    const bool fits = cache_.grow(lease, static_cast<int64_t>(all.size())).has_value();
    if (fits) cache_.publish(lease, all);
    cache_.release(lease);
    return n_hit;
  }

 private:
  static KvSpec spec() {
    return *KvSpec::make({.n_layers = 1,
                          .head_dim = 32,
                          .index_head_dim = 32,
                          .sliding_window = 4,
                          .sources = {{0, 1}}});
  }

  HostMemory memory_;
  KvPool pool_;
  PrefixCache cache_;
};

// As the engine does: what is there is read, all else is put.
class InTier final : public Kept {
 public:
  InTier(std::unique_ptr<Tier> tier, const BlockCost& cost)
      : tier_(std::move(tier)), cost_(cost), read_(kReadsAtOnce * kPayloadBytes) {}

  int64_t serve(std::span<const BlockKey> prompt, std::span<const BlockKey> all) override {
    const int64_t n_hit = read(prompt.first(static_cast<size_t>(tier_->count(prompt))));
    const std::vector<std::byte> payload(kPayloadBytes, std::byte{1});
    for (auto i = static_cast<size_t>(n_hit); i < all.size(); ++i) {
      TierBlock block;
      block.key = all[i];
      if (i > 0) block.parent = all[i - 1];
      block.first_position = static_cast<int64_t>(i) * kBlockTokens;
      block.cost = cost_.first + cost_.slope * static_cast<double>(i);
      if (tier_->put(block, payload)) continue;
      tier_->flush();
      tier_->put(block, payload);
    }
    if (++n_served_ % kFlushEvery == 0) tier_->flush();
    return n_hit;
  }

 private:
  // How many came without a gap.
  int64_t read(std::span<const BlockKey> keys) {
    size_t n_come = 0;
    while (n_come < keys.size()) {
      const auto part = keys.subspan(n_come, std::min(kReadsAtOnce, keys.size() - n_come));
      std::vector<TierTicket> tickets;
      for (size_t i = 0; i < part.size(); ++i) {
        const auto into = std::span(read_).subspan(i * kPayloadBytes, kPayloadBytes);
        const auto ticket = tier_->get(part[i], into);
        FATHOM_CHECK(ticket.has_value());
        tickets.push_back(*ticket);
      }
      std::unordered_set<uint64_t> ok;
      for (size_t n = 0; n < part.size();) {
        for (const TierCompletion& ended : tier_->poll(1'000'000)) {
          ++n;
          if (ended.status == TierStatus::kOk) ok.insert(static_cast<uint64_t>(ended.ticket));
        }
      }
      for (const TierTicket ticket : tickets) {
        if (!ok.contains(static_cast<uint64_t>(ticket))) return static_cast<int64_t>(n_come);
        ++n_come;
      }
    }
    return static_cast<int64_t>(n_come);
  }

  std::unique_ptr<Tier> tier_;
  BlockCost cost_;
  std::vector<std::byte> read_;
  int64_t n_served_ = 0;
};

struct Trace {
  std::vector<TraceRequest> requests;
  int64_t n_blocks = 0;    // of all prompts and answers
  int64_t n_distinct = 0;  // of those
};

Trace trace_of(std::vector<TraceRequest> requests) {
  Trace trace = {.requests = std::move(requests)};
  std::unordered_set<TraceBlock> seen;
  for (const TraceRequest& request : trace.requests) {
    seen.insert(request.prompt.begin(), request.prompt.end());
    seen.insert(request.answer.begin(), request.answer.end());
    trace.n_blocks += static_cast<int64_t>(request.prompt.size() + request.answer.size());
  }
  trace.n_distinct = static_cast<int64_t>(seen.size());
  return trace;
}

struct Work {
  double again = 0;  // operations for blocks that had been computed before
  double first = 0;  // for all others, whatever is kept
};

Work run(const Trace& trace, const BlockCost& cost, Kept& kept) {
  Work work;
  std::unordered_set<TraceBlock> seen;
  std::vector<BlockKey> keys;
  for (const TraceRequest& request : trace.requests) {
    keys.clear();
    for (const TraceBlock block : request.prompt) keys.push_back(key_of(block));
    for (const TraceBlock block : request.answer) keys.push_back(key_of(block));
    const int64_t n_hit = kept.serve(std::span(keys).first(request.prompt.size()), keys);
    for (size_t i = 0; i < request.prompt.size(); ++i) {
      const bool is_new = seen.insert(request.prompt[i]).second;
      if (static_cast<int64_t>(i) < n_hit) continue;
      const double operations = cost.first + cost.slope * static_cast<double>(i);
      (is_new ? work.first : work.again) += operations;
    }
    seen.insert(request.answer.begin(), request.answer.end());
  }
  return work;
}

std::unique_ptr<Kept> make_kept(const std::string& tier, const std::string& folder,
                                int64_t n_blocks, const BlockCost& cost, const WorthRule& rule) {
  if (tier == "memory") return std::make_unique<InMemory>(n_blocks, cost, rule);
  if (tier == "host") {
    const int64_t bytes = n_blocks * (kPayloadBytes + HostTier::overhead_bytes());
    return std::make_unique<InTier>(std::make_unique<HostTier>(bytes, rule), cost);
  }
  StoreOptions options = {.folder = folder};
  options.identity.block_bytes = kPayloadBytes;
  options.max_bytes = n_blocks * kPageBytes;
  options.segment_bytes = options.max_bytes / 64 / kPageBytes * kPageBytes;
  options.queue_bytes = int64_t{8} << 20;
  options.worth = &rule;
  auto store = DiskStore::open(options);
  FATHOM_CHECK(store.has_value());
  return std::make_unique<InTier>(std::move(*store), cost);
}

void compare(const std::string& tier, const std::string& folder, const Trace& trace) {
  const BlockCost cost = block_cost(encoder_cost(*named_plan("released")));
  fmt::print("{} requests, {} blocks, {} of them different\n\n", trace.requests.size(),
             trace.n_blocks, trace.n_distinct);
  fmt::print(
      "| {} blocks | computed once | again, least recently used | again, by cost | less | "
      "again, by cost and all uses |\n",
      tier);
  fmt::print("| ---: | ---: | ---: | ---: | ---: | ---: |\n");
  for (const double share : kShares) {
    const auto n_blocks = static_cast<int64_t>(share * static_cast<double>(trace.n_distinct));
    const LeastRecentlyUsed least_recent;
    const AllUses all_uses;
    const WorthRule* rules[] = {&least_recent, &kRecomputeWorth, &all_uses};
    Work work[3];
    for (int i = 0; i < 3; ++i) {
      auto kept = make_kept(tier, folder, n_blocks, cost, *rules[i]);
      work[i] = run(trace, cost, *kept);
      kept.reset();
      std::filesystem::remove_all(folder);
    }
    fmt::print("| {} | {:.3e} | {:.3e} | {:.3e} | {:.1f} % | {:.3e} |\n", n_blocks, work[0].first,
               work[0].again, work[1].again, 100 * (1 - work[1].again / work[0].again),
               work[2].again);
    std::fflush(stdout);
  }
}

}  // namespace
}  // namespace fathom

int main(int argc, char** argv) {
  const std::string tier = argc > 2 ? argv[1] : "";
  const bool recorded = argc == 6 && std::strcmp(argv[3], "--trace") == 0;
  if ((tier != "memory" && tier != "host" && tier != "disk") || !(recorded || argc == 3)) {
    std::fputs("usage: eviction memory|host|disk FOLDER [--trace FILE SPLIT]\n", stderr);
    return 2;
  }
  if (!recorded) {
    fathom::compare(tier, argv[2], fathom::trace_of(fathom::generate_agent_trace({})));
    return 0;
  }
  auto requests = fathom::read_trace(argv[4], std::atol(argv[5]));
  if (!requests) {
    std::fprintf(stderr, "eviction: %s\n", requests.error().message.c_str());
    return 1;
  }
  fathom::compare(tier, argv[2], fathom::trace_of(std::move(*requests)));
  return 0;
}
