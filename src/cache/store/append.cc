#include "cache/store/append.h"

#include <algorithm>
#include <utility>

namespace fathom {
namespace {

constexpr int64_t kBufferBytes = int64_t{8} << 20;
constexpr int64_t kWriteBytes = int64_t{1} << 20;
constexpr int kWritesUnderWay = 8;

}  // namespace

SegmentAppender::SegmentAppender(Disk& disk, const AppendTarget& target)
    : disk_(disk),
      target_(target),
      queue_(disk.queue(kWritesUnderWay)),
      buffer_(std::max(kBufferBytes, record_bytes(target.identity.block_bytes))) {}

SegmentAppender::~SegmentAppender() {
  if (number_ == 0 || flushed_ == end_) return;
  file_ = FileDescriptor();
  // Where this fails the next start finds records without rows, or none.
  const auto undone = flushed_ == 0 ? disk_.remove(path()) : disk_.truncate(path(), flushed_);
  static_cast<void>(undone);
}

Result<void> SegmentAppender::begin_segment() {
  file_ = FileDescriptor();
  number_ = target_.next_segment++;
  end_ = kPageBytes;
  flushed_ = 0;
  FATHOM_ASSIGN_OR_RETURN(file_, disk_.open(path(), true));
  PageMemory page(kPageBytes);
  seal_segment(number_, target_.identity, page.bytes());
  IoRequest request = {IoKind::kWrite, file_.get(), 0, page.bytes(), 0};
  FATHOM_RETURN_IF_ERROR(run_all(*queue_, 1, {&request, 1}, path()));
  return disk_.sync_folder(target_.folder);
}

Result<void> SegmentAppender::write() {
  std::vector<IoRequest> requests;
  for (int64_t done = 0; done < buffered_; done += kWriteBytes) {
    const int64_t bytes = std::min(kWriteBytes, buffered_ - done);
    requests.push_back({IoKind::kWrite, file_.get(), end_ + done, buffer_.at(done, bytes), 0});
  }
  end_ += buffered_;
  buffered_ = 0;
  FATHOM_RETURN_IF_ERROR(run_all(*queue_, kWritesUnderWay, requests, path()));
  IoRequest sync = {IoKind::kSync, file_.get(), 0, {}, 0};
  FATHOM_RETURN_IF_ERROR(run_all(*queue_, 1, {&sync, 1}, path()));
  flushed_ = end_;
  return {};
}

Result<void> SegmentAppender::add(const IndexRow& row, std::span<const std::byte> record) {
  const auto bytes = static_cast<int64_t>(record.size());
  const bool fits = number_ != 0 && end_ + buffered_ + bytes <= target_.segment_bytes;
  const bool has_buffer = buffered_ + bytes <= static_cast<int64_t>(buffer_.bytes().size());
  if (buffered_ > 0 && (!fits || !has_buffer)) FATHOM_RETURN_IF_ERROR(write());
  if (!fits) FATHOM_RETURN_IF_ERROR(begin_segment());
  IndexRow placed = row;
  placed.head.place = {number_, static_cast<uint32_t>((end_ + buffered_) / kPageBytes)};
  const auto copy = buffer_.at(buffered_, bytes);
  std::ranges::copy(record, copy.begin());
  place_record(placed.head.place, copy);
  buffered_ += bytes;
  rows_.push_back(placed);
  return {};
}

Result<std::vector<IndexRow>> SegmentAppender::flush() {
  if (buffered_ > 0) FATHOM_RETURN_IF_ERROR(write());
  return std::exchange(rows_, {});
}

}  // namespace fathom
