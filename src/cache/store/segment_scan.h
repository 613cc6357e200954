#pragma once

// Reading a segment whole, without the index: every sound record in its place, and what lies
// between them. Only reads, through the page cache.
//
// Thread rule: one scan, one thread.

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "cache/store/record.h"

namespace fathom {

struct SegmentGap {
  int64_t begin = 0;  // bytes of the file
  int64_t end = 0;
  std::string why;  // what the first page of it lacks to be a record
};

struct SegmentScan {
  int64_t bytes = 0;                // of the file
  std::string head_fault;           // of its first page; empty: sound
  std::vector<RecordHead> records;  // in the order of their places
  // Records in `records` behind whose payload something else than zeros stands.
  std::vector<RecordPlace> soiled;
  std::vector<SegmentGap> gaps;
};

struct SegmentVisit {
  // Each sound record in its place, whole. False: stop.
  std::function<bool(const RecordHead& head, std::span<const std::byte> record)> record;
  // Bytes that were read since the last call. False: stop.
  std::function<bool(int64_t bytes)> progress;
};

// kNotFound: no such file; kIo: it cannot be opened; kCancelled: a visit stopped it. Pages that
// cannot be read are a gap.
Result<SegmentScan> scan_segment(const std::string& path, uint32_t number,
                                 const StoreIdentity& identity, const SegmentVisit& visit = {});

// The record of the file that `head` tells of; fails as open_record does, and where it is another.
Result<std::vector<std::byte>> read_record(const std::string& path, const RecordHead& head,
                                           const StoreIdentity& identity);

}  // namespace fathom
