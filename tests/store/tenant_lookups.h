#pragma once

// Look-ups of many tenants who have the same texts, at each tier of what is kept: blocks in the
// pool's memory (PrefixCache), states of turns (SessionCache), the host tier and the disk store,
// these two through PrefixTiers as the engine asks them. Salts are alike but for a byte or their
// length. What is kept says for whom it was computed, so that a block of another tenant's is seen
// by its bytes; keys are not compared.

#include <array>
#include <cstdint>
#include <string>

namespace fathom {

enum class LookupTier : uint8_t { kMemory, kSessions, kHost, kDisk };
inline constexpr int64_t kLookupTiers = 4;

struct LookupPlan {
  std::string folder;  // of the disk store; made and removed
  int64_t n_lookups = 0;
  uint64_t seed = 0;
  bool one_salt = false;  // as if nobody had one: others' blocks are found then
};

struct LookupCounts {
  struct Tier {
    int64_t lookups = 0;
    int64_t tempted = 0;  // others had put more of the text at that tier than the one who looked
    int64_t hits = 0;     // blocks, or states, that came
    int64_t foreign = 0;  // of those, computed for another tenant
    int64_t wrong = 0;    // for nobody, or what the tenant never put there
  };
  std::array<Tier, kLookupTiers> tiers = {};
  int64_t restarts = 0;  // after which the disk alone has anything
};

// The same seed asks the same; what the disk has made safe by then differs.
LookupCounts run_tenant_lookups(const LookupPlan& plan);

const char* lookup_tier_name(LookupTier tier);

}  // namespace fathom
