#include "apps/store_report.h"

#include <algorithm>
#include <array>
#include <iostream>
#include <map>
#include <unordered_map>
#include <unordered_set>

#include "apps/common.h"
#include "base/clock.h"
#include "base/hash.h"
#include "cache/store/disk.h"

namespace fathom {
namespace {

namespace json = boost::json;

constexpr int64_t kHourUs = int64_t{3600} * 1'000'000;
constexpr std::array<int64_t, 4> kAgeHours = {1, 6, 24, 72};

struct Share {
  int64_t blocks = 0;
  int64_t payload_bytes = 0;
  void add(const RecordHead& head) {
    ++blocks;
    payload_bytes += head.payload_bytes;
  }
};

std::array<Share, kAgeHours.size() + 1> by_age(const StoreSurvey& survey) {
  const int64_t now_us = unix_microseconds();
  std::array<Share, kAgeHours.size() + 1> shares;
  for (const IndexRow& row : survey.rows) {
    const int64_t hours = (now_us - row.head.created_us) / kHourUs;
    const auto age = std::ranges::upper_bound(kAgeHours, hours) - kAgeHours.begin();
    shares.at(static_cast<size_t>(age)).add(row.head);
  }
  return shares;
}

std::map<uint64_t, Share> by_tenant(const StoreSurvey& survey) {
  std::map<uint64_t, Share> shares;
  for (const IndexRow& row : survey.rows) shares[row.head.block.tenant_tag].add(row.head);
  return shares;
}

// Bytes of segments that no row names.
int64_t dead_bytes(const StoreSurvey& survey, const StoreTotals& totals) {
  const auto n_segments = static_cast<int64_t>(survey.segments.size());
  return std::max(int64_t{0}, survey.bytes() - survey.index_bytes - totals.record_bytes -
                                  n_segments * kPageBytes);
}

std::string age_name(size_t i) {
  if (i == kAgeHours.size()) return "older";
  return "below " + std::to_string(kAgeHours.at(i)) + " h";
}

void print_share(const std::string& title, const Share& share) {
  if (share.blocks == 0) return;
  std::cout << title << ": " << share.blocks << " blocks, " << share.payload_bytes << " bytes\n";
}

double age_seconds(const RecordHead& head) {
  return static_cast<double>(unix_microseconds() - head.created_us) / 1e6;
}

}  // namespace

json::object stat_json(const StoreSurvey& survey) {
  const StoreTotals totals = totals_of(survey.rows);
  json::array ages;
  const auto shares = by_age(survey);
  for (size_t i = 0; i < shares.size(); ++i) {
    const json::value bound = i < kAgeHours.size() ? json::value(kAgeHours.at(i)) : nullptr;
    ages.push_back(json::object{{"below_hours", bound},
                                {"blocks", shares.at(i).blocks},
                                {"payload_bytes", shares.at(i).payload_bytes}});
  }
  json::array tenants;
  for (const auto& [tag, share] : by_tenant(survey)) {
    tenants.push_back(json::object{{"tenant", tag_text(tag)},
                                   {"blocks", share.blocks},
                                   {"payload_bytes", share.payload_bytes}});
  }
  return {{"folder", survey.folder},
          {"format", store_format(survey.identity)},
          {"sealed", survey.identity.seal.has_value()},
          {"weights", to_hex(survey.identity.weights)},
          {"spec", to_hex(survey.identity.spec)},
          {"block_bytes", survey.identity.block_bytes},
          {"bytes", survey.bytes()},
          {"index_bytes", survey.index_bytes},
          {"segments", survey.segments.size()},
          {"blocks", totals.n_blocks},
          {"payload_bytes", totals.payload_bytes},
          {"dead_bytes", dead_bytes(survey, totals)},
          {"by_age", std::move(ages)},
          {"by_tenant", std::move(tenants)}};
}

void print_stat(const StoreSurvey& survey) {
  const StoreTotals totals = totals_of(survey.rows);
  std::cout << one_line(survey.folder) << "\n"
            << "format       " << store_format(survey.identity) << ", blocks of at most "
            << survey.identity.block_bytes << " bytes, "
            << (survey.identity.seal ? "sealed" : "in clear") << "\n"
            << "weights      " << to_hex(survey.identity.weights) << "\n"
            << "spec         " << to_hex(survey.identity.spec) << "\n"
            << "bytes        " << survey.bytes() << " in " << survey.segments.size()
            << " segments and the index (" << survey.index_bytes << ")\n"
            << "blocks       " << totals.n_blocks << " of " << totals.payload_bytes
            << " bytes; dead bytes " << dead_bytes(survey, totals) << "\n";
  const auto shares = by_age(survey);
  for (size_t i = 0; i < shares.size(); ++i) print_share("age " + age_name(i), shares.at(i));
  for (const auto& [tag, share] : by_tenant(survey)) print_share("tenant " + tag_text(tag), share);
}

json::object block_json(const RecordHead& head) {
  return {{"key", to_hex(head.block.key.digest)},
          {"parent", to_hex(head.block.parent.digest)},
          {"position", head.block.first_position},
          {"age_s", age_seconds(head)},
          {"bytes", head.payload_bytes},
          {"tenant", tag_text(head.block.tenant_tag)},
          {"exact", head.block.grade == StateGrade::kExact}};
}

void print_block(const RecordHead& head) {
  std::cout << short_key(head.block.key) << " position " << head.block.first_position << " age "
            << static_cast<int64_t>(age_seconds(head)) << " s bytes " << head.payload_bytes
            << " tenant " << tag_text(head.block.tenant_tag) << "\n";
}

std::vector<StoreChain> chains_of(std::span<const IndexRow> rows) {
  std::unordered_map<BlockKey, const RecordHead*, BlockKeyHash> by_key;
  std::unordered_set<BlockKey, BlockKeyHash> parents;
  for (const IndexRow& row : rows) {
    by_key[row.head.block.key] = &row.head;
    parents.insert(row.head.block.parent);
  }
  std::vector<StoreChain> chains;
  for (const auto& [key, last] : by_key) {
    if (parents.contains(key)) continue;
    StoreChain chain = {.last = *last};
    auto at = by_key.find(key);
    // A chain cannot have more blocks than there are: no ring of parents is followed for ever.
    while (at != by_key.end() && chain.n_blocks < static_cast<int64_t>(by_key.size())) {
      ++chain.n_blocks;
      chain.payload_bytes += at->second->payload_bytes;
      chain.first_position = at->second->block.first_position;
      if (chain.first_position == 0) break;
      at = by_key.find(at->second->block.parent);
    }
    chains.push_back(chain);
  }
  std::ranges::sort(chains, {}, [](const StoreChain& chain) { return chain.last.place; });
  return chains;
}

json::object chain_json(const StoreChain& chain) {
  return {{"key", to_hex(chain.last.block.key.digest)},
          {"blocks", chain.n_blocks},
          {"first_position", chain.first_position},
          {"position", chain.last.block.first_position},
          {"age_s", age_seconds(chain.last)},
          {"bytes", chain.payload_bytes},
          {"tenant", tag_text(chain.last.block.tenant_tag)}};
}

void print_chain(const StoreChain& chain) {
  std::cout << short_key(chain.last.block.key) << " blocks " << chain.n_blocks << " from position "
            << chain.first_position << " age " << static_cast<int64_t>(age_seconds(chain.last))
            << " s bytes " << chain.payload_bytes << " tenant "
            << tag_text(chain.last.block.tenant_tag) << "\n";
}

}  // namespace fathom
