#pragma once

// Appending records to new segments of a store that nobody has open. Thread rule: one thread, which
// holds the folder's lock.

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/descriptor.h"
#include "cache/store/disk.h"
#include "cache/store/index.h"

namespace fathom {

struct AppendTarget {
  std::string folder;
  StoreIdentity identity;
  uint32_t next_segment = 1;  // and those after it are not there
  int64_t segment_bytes = int64_t{256} << 20;
};

class SegmentAppender {
 public:
  SegmentAppender(Disk& disk, const AppendTarget& target);
  // Takes away what was not flushed.
  ~SegmentAppender();
  SegmentAppender(const SegmentAppender&) = delete;
  SegmentAppender& operator=(const SegmentAppender&) = delete;

  // A complete record, whose head is the row's. Its place is the appender's to choose, all else of
  // it stays: its time and its sealing, too.
  Result<void> add(const IndexRow& row, std::span<const std::byte> record);
  // Makes what was added durable. The rows of all that was since the last time, for the index.
  Result<std::vector<IndexRow>> flush();

 private:
  std::string path() const { return target_.folder + "/" + segment_name(number_); }
  Result<void> begin_segment();
  Result<void> write();

  Disk& disk_;
  AppendTarget target_;
  std::unique_ptr<IoQueue> queue_;
  PageMemory buffer_;
  int64_t buffered_ = 0;  // bytes of records that follow end_
  std::vector<IndexRow> rows_;
  uint32_t number_ = 0;  // 0: none
  FileDescriptor file_;
  int64_t end_ = 0;      // of what was written
  int64_t flushed_ = 0;  // of what is durable
};

}  // namespace fathom
