#pragma once

// For tests of tiers: blocks whose bytes follow from their keys.

#include <array>
#include <cstring>
#include <vector>

#include "cache/tier.h"

namespace fathom {

// Block `depth` of chain `chain`.
inline BlockKey chain_key(uint64_t chain, int64_t depth) {
  const std::array<uint64_t, 2> parts = {chain, static_cast<uint64_t>(depth)};
  return {sha256(std::as_bytes(std::span(parts)))};
}

inline TierBlock chain_block(uint64_t chain, int64_t depth) {
  TierBlock block;
  block.key = chain_key(chain, depth);
  block.parent = chain_key(chain, depth - 1);
  block.first_position = depth * 64;
  block.tenant_tag = chain;
  return block;
}

inline std::vector<std::byte> payload_of_key(const BlockKey& key, int64_t bytes) {
  uint64_t state = 0;
  std::memcpy(&state, key.digest.data(), sizeof(state));
  std::vector<std::byte> payload(static_cast<size_t>(bytes));
  for (std::byte& byte : payload) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    byte = static_cast<std::byte>(state >> 56U);
  }
  return payload;
}

}  // namespace fathom
