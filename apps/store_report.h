#pragma once

// How `fathom store` tells what a store holds.

#include <boost/json.hpp>
#include <span>
#include <vector>

#include "cache/store/survey.h"

namespace fathom {

boost::json::object stat_json(const StoreSurvey& survey);
void print_stat(const StoreSurvey& survey);

boost::json::object block_json(const RecordHead& head);
void print_block(const RecordHead& head);

// The blocks from one that no other follows towards the first, as far as they are there.
struct StoreChain {
  RecordHead last;
  int64_t n_blocks = 0;
  int64_t payload_bytes = 0;
  int64_t first_position = 0;  // 0: a lookup reaches all of it
};
std::vector<StoreChain> chains_of(std::span<const IndexRow> rows);
boost::json::object chain_json(const StoreChain& chain);
void print_chain(const StoreChain& chain);

}  // namespace fathom
