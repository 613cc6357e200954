#include "tenant_lookups.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <random>
#include <unordered_map>
#include <vector>

#include "base/check.h"
#include "cache/host_tier.h"
#include "cache/prefix_cache.h"
#include "cache/prefix_tiers.h"
#include "cache/session_cache.h"
#include "cache/store/disk_store.h"

namespace fathom {
namespace {

constexpr size_t kTenants = 24;
constexpr int64_t kTexts = 30;
constexpr int64_t kDepth = 10;  // blocks of a text
constexpr int64_t kPoolBlocks = 2000;
constexpr int64_t kHeldBytes = int64_t{8} << 20;  // of states, and of the host tier
constexpr int64_t kSegmentBytes = int64_t{1} << 20;
constexpr int64_t kStoreBytes = 16 * kSegmentBytes;
constexpr int64_t kPutShare = 10;  // a put in so many look-ups
constexpr int64_t kRestarts = 10;
constexpr int64_t kReads = 16;
constexpr std::array<int64_t, 3> kBranches = {-1, 3, 7};  // -1: none, the text's exact keys
constexpr std::array<int64_t, 4> kPartials = {0, 1, 37, 63};

// Some are beginnings of others, some differ in one bit or in a zero byte at their end.
std::string salt_of(size_t tenant) {
  std::string salt(tenant % 4, 'a');
  if (tenant % 4 == 3) salt.back() = static_cast<char>('a' ^ (1 << tenant / 4));
  if (tenant % 4 < 3) salt += std::string(tenant / 4, '\0');
  return salt;
}

// All texts begin alike, then a fifth of them does.
int64_t class_of(int64_t text, int64_t depth) {
  if (depth < 2) return 0;
  return depth < 5 ? 1 + text % 5 : 100 + text;
}

uint64_t mixed(uint64_t value) {  // splitmix64
  value += 0x9e3779b97f4a7c15;
  value = (value ^ value >> 30U) * 0xbf58476d1ce4e5b9;
  value = (value ^ value >> 27U) * 0x94d049bb133111eb;
  return value ^ value >> 31U;
}

std::vector<int32_t> tokens_of(int64_t text) {
  std::vector<int32_t> ids;
  for (int64_t at = 0; at < kDepth * kBlockTokens; ++at) {
    const auto key = static_cast<uint64_t>(class_of(text, at / kBlockTokens) * 100'000 + at);
    ids.push_back(static_cast<int32_t>(mixed(key) % 50'000));
  }
  return ids;
}

// What was computed, whoever it was computed for.
using ContentId = uint64_t;
ContentId content_of(int64_t text, int64_t branch, int64_t n_tokens) {
  const int64_t depth = (n_tokens - 1) / kBlockTokens;
  const int64_t parts = class_of(text, depth) << 32 | (branch + 1) << 24 | n_tokens;
  return mixed(static_cast<uint64_t>(parts));
}

void fill(std::span<std::byte> bytes, size_t tenant, ContentId content) {
  uint64_t state = mixed(content + tenant);
  for (size_t at = 0; at < bytes.size(); at += sizeof(state)) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    std::memcpy(bytes.data() + at, &state, std::min(sizeof(state), bytes.size() - at));
  }
}

KvSpec spec() {
  return *KvSpec::make({.n_layers = 1,
                        .head_dim = 32,
                        .index_head_dim = 32,
                        .sliding_window = 4,
                        .sources = {{0, 1}}});
}

// What a process has in memory, and a store that is open.
struct Caches {
  explicit Caches(const StoreOptions& options)
      : pool(*KvPool::make(spec(), kPoolBlocks, memory)),
        blocks(pool, memory, {.first = 1, .slope = 0.01}),
        sessions({.max_bytes = kHeldBytes / 8}),
        host(kHeldBytes) {
    auto opened = DiskStore::open(options);
    FATHOM_CHECK(opened.has_value());
    disk = std::move(*opened);
    const int64_t bytes = options.identity.block_bytes;
    host_tiers = std::make_unique<PrefixTiers>(std::vector<Tier*>{&host}, bytes, kReads);
    disk_tiers = std::make_unique<PrefixTiers>(std::vector<Tier*>{disk.get()}, bytes, kReads);
  }

  std::span<const std::byte> bytes_of(BlockId id) const {
    const uint8_t* at = pool.base() + static_cast<int64_t>(id) * pool.block_bytes();
    return std::as_bytes(std::span(at, static_cast<size_t>(pool.block_bytes())));
  }

  HostMemory memory;
  KvPool pool;
  PrefixCache blocks;
  SessionCache sessions;
  HostTier host;
  std::unique_ptr<DiskStore> disk;
  std::unique_ptr<PrefixTiers> host_tiers;
  std::unique_ptr<PrefixTiers> disk_tiers;
};

class Lookups {
 public:
  explicit Lookups(const LookupPlan& plan);
  LookupCounts run();

 private:
  // A tenant with a text, or a beginning of it.
  struct Caller {
    size_t tenant = 0;
    int64_t text = 0;
    size_t branch = 0;  // of kBranches
    int64_t n_blocks = 0;
    LookupTier tier = {};
  };
  Caller next_caller();
  const KeyChain& chain(const Caller& who) const {
    return chains_[(who.tenant * kTexts + static_cast<size_t>(who.text)) * kBranches.size() +
                   who.branch];
  }
  std::span<const BlockKey> keys(const Caller& who) const {
    return chain(who).keys().first(static_cast<size_t>(who.n_blocks));
  }
  ContentId block_content(const Caller& who, int64_t index) const {
    const bool bounded = chain(who).grade(index) == StateGrade::kBounded;
    return content_of(who.text, bounded ? kBranches[who.branch] : -1, (index + 1) * kBlockTokens);
  }
  uint64_t& had(const Caller& who, ContentId content) {
    return had_[static_cast<size_t>(who.tier)][content];
  }

  void add_chains(const BlockKey& root, const std::vector<int32_t>& tokens);
  void put(const Caller& who);
  void put_blocks(const Caller& who);
  void put_state(const Caller& who);
  void look(const Caller& who);
  void look_for_state(const Caller& who);
  bool is_tempted(const Caller& who);
  void judge(const Caller& who, ContentId content, std::span<const std::byte> bytes);

  const LookupPlan plan_;
  StoreOptions options_;
  std::mt19937_64 random_;
  std::array<BlockKey, kTenants> roots_ = {};
  std::vector<std::vector<int32_t>> texts_;
  std::vector<KeyChain> chains_;
  std::unique_ptr<Caches> caches_;
  // By tier: who has put it, a bit a tenant.
  std::array<std::unordered_map<ContentId, uint64_t>, kLookupTiers> had_;
  std::vector<std::byte> block_;
  int64_t now_us_ = 0;
  LookupCounts counts_;
};

Lookups::Lookups(const LookupPlan& plan) : plan_(plan), random_(plan.seed) {
  options_.folder = plan.folder;
  options_.identity.block_bytes = spec().block_bytes();
  options_.segment_bytes = kSegmentBytes;
  options_.max_bytes = kStoreBytes;
  block_.resize(static_cast<size_t>(options_.identity.block_bytes));
  for (int64_t text = 0; text < kTexts; ++text) texts_.push_back(tokens_of(text));
  for (size_t tenant = 0; tenant < kTenants; ++tenant) {
    KeyRoot root = {.encoder_version = "1"};
    root.tenant_salt = salt_of(plan.one_salt ? 0 : tenant);
    roots_[tenant] = root_key(root);
    for (const std::vector<int32_t>& tokens : texts_) add_chains(roots_[tenant], tokens);
  }
}

void Lookups::add_chains(const BlockKey& root, const std::vector<int32_t>& tokens) {
  for (const int64_t branch : kBranches) {
    KeyChain chain(root);
    if (branch >= 0) {
      chain.extend(std::span(tokens).first(static_cast<size_t>(branch * kBlockTokens)), {});
      chain.branch(branch);
    }
    chain.extend(tokens, {});
    chains_.push_back(std::move(chain));
  }
}

Lookups::Caller Lookups::next_caller() {
  Caller who;
  who.tenant = random_() % kTenants;
  who.text = static_cast<int64_t>(random_() % kTexts);
  who.branch = random_() % 4 == 0 ? 1 + random_() % 2 : 0;
  who.n_blocks = 1 + static_cast<int64_t>(random_() % kDepth);
  who.tier = static_cast<LookupTier>(random_() % kLookupTiers);
  return who;
}

LookupCounts Lookups::run() {
  int64_t restart_at = 0;
  for (int64_t n = 0; n < plan_.n_lookups; now_us_ += 1000) {
    if (n == restart_at) {
      if (caches_) caches_->disk->flush();
      caches_.reset();
      caches_ = std::make_unique<Caches>(options_);
      counts_.restarts += n > 0 ? 1 : 0;
      restart_at += std::max<int64_t>(1, plan_.n_lookups / (kRestarts + 1));
    }
    const Caller who = next_caller();
    if (random_() % kPutShare == 0) {
      put(who);
      continue;
    }
    ++n;
    LookupCounts::Tier& tier = counts_.tiers.at(static_cast<size_t>(who.tier));
    ++tier.lookups;
    tier.tempted += is_tempted(who) ? 1 : 0;
    who.tier == LookupTier::kSessions ? look_for_state(who) : look(who);
  }
  caches_.reset();
  std::filesystem::remove_all(plan_.folder);
  return counts_;
}

bool Lookups::is_tempted(const Caller& who) {
  for (int64_t i = 0; i < who.n_blocks; ++i) {
    const uint64_t tenants = had(who, block_content(who, i));
    if ((tenants >> who.tenant & 1) == 0) return tenants != 0;
  }
  return false;
}

void Lookups::judge(const Caller& who, ContentId content, std::span<const std::byte> bytes) {
  LookupCounts::Tier& tier = counts_.tiers.at(static_cast<size_t>(who.tier));
  ++tier.hits;
  std::vector<std::byte> wanted(bytes.size());
  fill(wanted, who.tenant, content);
  if (std::ranges::equal(wanted, bytes)) {
    tier.wrong += (had(who, content) >> who.tenant & 1) == 0 ? 1 : 0;
    return;
  }
  for (size_t other = 0; other < kTenants; ++other) {
    fill(wanted, other, content);
    if (!std::ranges::equal(wanted, bytes)) continue;
    ++tier.foreign;
    return;
  }
  ++tier.wrong;
}

void Lookups::put(const Caller& who) {
  who.tier == LookupTier::kSessions ? put_state(who) : put_blocks(who);
  for (int64_t i = 0; i < who.n_blocks; ++i) {
    had(who, block_content(who, i)) |= uint64_t{1} << who.tenant;
  }
}

void Lookups::put_blocks(const Caller& who) {
  const auto wanted = keys(who);
  if (who.tier == LookupTier::kMemory) {
    BlockLease lease = caches_->blocks.match(wanted);
    FATHOM_CHECK(caches_->blocks.grow(lease, who.n_blocks).has_value());
    for (int64_t i = lease.n_shared(); i < who.n_blocks; ++i) {
      fill(block_, who.tenant, block_content(who, i));
      const auto id = static_cast<int64_t>(lease.blocks[static_cast<size_t>(i)]);
      caches_->memory.write(caches_->pool.base() + id * caches_->pool.block_bytes(), block_.data(),
                            caches_->pool.block_bytes());
    }
    caches_->blocks.publish(lease, wanted);
    caches_->blocks.release(lease);
    return;
  }
  PrefixTiers& tiers = who.tier == LookupTier::kHost ? *caches_->host_tiers : *caches_->disk_tiers;
  for (int64_t i = 0; i < who.n_blocks; ++i) {
    TierBlock block;
    block.key = wanted[static_cast<size_t>(i)];
    block.parent = i == 0 ? roots_[who.tenant] : wanted[static_cast<size_t>(i - 1)];
    block.first_position = i * kBlockTokens;
    block.tenant_tag = tenant_tag(roots_[who.tenant]);
    block.grade = chain(who).grade(i);
    fill(block_, who.tenant, block_content(who, i));
    tiers.put(block, block_, 1);
  }
}

void Lookups::look(const Caller& who) {
  const auto wanted = keys(who);
  if (who.tier == LookupTier::kMemory) {
    BlockLease lease = caches_->blocks.match(wanted);
    for (int64_t i = 0; i < lease.n_blocks(); ++i) {
      judge(who, block_content(who, i), caches_->bytes_of(lease.blocks[static_cast<size_t>(i)]));
    }
    caches_->blocks.release(lease);
    return;
  }
  PrefixTiers& tiers = who.tier == LookupTier::kHost ? *caches_->host_tiers : *caches_->disk_tiers;
  const RestoreId id = tiers.begin(wanted);
  while (!tiers.progress(id).done) {
    tiers.poll(100'000, [&](const RestoredBlock& block) {
      judge(who, block_content(who, block.index), block.bytes);
    });
  }
  tiers.end(id);
}

// Behind the last block but one, and some tokens of the last.
void Lookups::put_state(const Caller& who) {
  const int64_t n_full = who.n_blocks - 1;
  const int64_t n_partial = kPartials[random_() % kPartials.size()];
  const int64_t n_tokens = n_full * kBlockTokens + n_partial;
  if (n_tokens == 0) return;
  const int64_t branch = kBranches[who.branch];
  const bool bounded = 0 <= branch && branch * kBlockTokens < n_tokens;
  const auto& tokens = texts_[static_cast<size_t>(who.text)];
  const SessionPlace place = {
      .parent = n_full == 0 ? roots_[who.tenant] : keys(who)[static_cast<size_t>(n_full - 1)],
      .grade = bounded ? StateGrade::kBounded : StateGrade::kExact,
      .n_tokens = n_tokens,
      .partial_ids = std::span(tokens).subspan(static_cast<size_t>(n_full * kBlockTokens),
                                               static_cast<size_t>(n_partial)),
      .images = {},
      .owner = who.tenant};
  const ContentId content = content_of(who.text, bounded ? branch : -1, n_tokens) + 1;
  SessionState state = {.windows = std::vector<std::byte>(300), .partial = {}};
  fill(state.windows, who.tenant, content);
  if (caches_->sessions.touch(session_name(place), now_us_)) return;
  caches_->sessions.keep(place, std::move(state), now_us_);
  had(who, content) |= uint64_t{1} << who.tenant;
}

void Lookups::look_for_state(const Caller& who) {
  const auto n_tokens = static_cast<size_t>(who.n_blocks * kBlockTokens);
  const SessionQuery query = {
      .root = roots_[who.tenant],
      .keys = keys(who),
      .tokens = std::span(texts_[static_cast<size_t>(who.text)]).first(n_tokens),
      .images = {},
      .takes_bounded = random_() % 2 == 0};
  const auto found = caches_->sessions.find(query);
  if (!found) return;
  // Bounded state behind an exact key is of a branch that begins there.
  int64_t branch = found->grade == StateGrade::kBounded ? kBranches[who.branch] : -1;
  if (found->grade == StateGrade::kBounded && branch * kBlockTokens >= found->n_tokens) branch = -1;
  if (found->grade == StateGrade::kBounded && branch < 0) branch = found->n_tokens / kBlockTokens;
  judge(who, content_of(who.text, branch, found->n_tokens) + 1, found->state->windows);
  caches_->sessions.use(found->name, now_us_);
}

}  // namespace

LookupCounts run_tenant_lookups(const LookupPlan& plan) { return Lookups(plan).run(); }

const char* lookup_tier_name(LookupTier tier) {
  constexpr std::array<const char*, kLookupTiers> kNames = {"memory", "sessions", "host", "disk"};
  return kNames.at(static_cast<size_t>(tier));
}

}  // namespace fathom
