#include "cache/store/segment_scan.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/descriptor.h"
#include "cache/store/disk.h"

namespace fathom {
namespace {

constexpr int64_t kWindowBytes = int64_t{4} << 20;

// How many bytes came; fewer at the end of the file, and before a page that cannot be read.
int64_t read_at(int fd, int64_t at, std::span<std::byte> into) {
  int64_t done = 0;
  while (done < static_cast<int64_t>(into.size())) {
    const auto rest = into.subspan(static_cast<size_t>(done));
    const ssize_t n = ::pread(fd, rest.data(), rest.size(), at + done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return done;
    done += n;
  }
  return done;
}

class Scan {
 public:
  Scan(FileDescriptor file, uint32_t number, const StoreIdentity& identity,
       const SegmentVisit& visit)
      : file_(std::move(file)), number_(number), identity_(identity), visit_(visit) {}

  Result<SegmentScan> run(int64_t bytes);

 private:
  bool fill(int64_t at);
  bool take(int64_t& at);
  std::string head_fault(std::span<const std::byte> page) const;
  void lack(int64_t at, int64_t bytes, const std::string& why);

  FileDescriptor file_;
  const uint32_t number_;
  const StoreIdentity& identity_;
  const SegmentVisit& visit_;
  std::vector<std::byte> window_;
  std::span<const std::byte> ahead_;  // what was read and begins at the place that is looked at
  int64_t n_read_ = 0;                // of the file, from its begin
  SegmentScan scan_;
};

void Scan::lack(int64_t at, int64_t bytes, const std::string& why) {
  const bool goes_on = !scan_.gaps.empty() && scan_.gaps.back().end == at;
  if (goes_on) {
    scan_.gaps.back().end += bytes;
  } else {
    scan_.gaps.push_back({at, at + bytes, why});
  }
}

bool Scan::fill(int64_t at) {
  const int64_t most = std::max(kWindowBytes, record_bytes(identity_.block_bytes));
  window_.resize(static_cast<size_t>(std::min(most, scan_.bytes - at)));
  const int64_t n = read_at(file_.get(), at, window_);
  ahead_ = std::span(window_).first(static_cast<size_t>(n));
  const int64_t fresh = std::max(int64_t{0}, at + n - n_read_);
  n_read_ += fresh;
  return !visit_.progress || visit_.progress(fresh);
}

// Goes over the record, or the page that is none, at `at`. False: a visit stopped.
bool Scan::take(int64_t& at) {
  auto head = open_record(ahead_, identity_);
  const bool early = !head && head.error().code == ErrorCode::kExhausted;
  const bool more = at + static_cast<int64_t>(ahead_.size()) < scan_.bytes;
  if (early && more) {
    if (!fill(at)) return false;
    head = open_record(ahead_, identity_);
  }
  const RecordPlace here = {number_, static_cast<uint32_t>(at / kPageBytes)};
  int64_t bytes = std::min(kPageBytes, scan_.bytes - at);
  if (head && head->place == here) {
    bytes = record_bytes(head->payload_bytes);
    const auto record = ahead_.first(static_cast<size_t>(bytes));
    const auto padding =
        record.subspan(static_cast<size_t>(kRecordHeadBytes + head->payload_bytes));
    const bool clean =
        std::ranges::all_of(padding, [](std::byte value) { return value == std::byte{0}; });
    if (!clean) scan_.soiled.push_back(here);
    scan_.records.push_back(*head);
    if (visit_.record && !visit_.record(*head, record)) return false;
  } else if (ahead_.empty()) {
    lack(at, bytes, "cannot be read");
  } else {
    lack(at, bytes, head ? "record: another place's" : head.error().message);
  }
  ahead_ = ahead_.subspan(std::min(ahead_.size(), static_cast<size_t>(bytes)));
  at += bytes;
  return true;
}

std::string Scan::head_fault(std::span<const std::byte> page) const {
  const auto sound = check_segment(number_, identity_, page);
  if (!sound) return sound.error().message;
  std::vector<std::byte> wanted(static_cast<size_t>(kPageBytes));
  seal_segment(number_, identity_, wanted);
  return std::ranges::equal(page, wanted) ? "" : "wanted zeros behind its header, found others";
}

Result<SegmentScan> Scan::run(int64_t bytes) {
  const Error stopped = {ErrorCode::kCancelled, "stopped"};
  scan_.bytes = bytes;
  if (!fill(0)) return stopped;
  const auto page = ahead_.first(std::min(ahead_.size(), static_cast<size_t>(kPageBytes)));
  scan_.head_fault = head_fault(page);
  ahead_ = ahead_.subspan(page.size());
  int64_t at = kPageBytes;
  while (at < bytes) {
    if (ahead_.empty() && !fill(at)) return stopped;
    if (!take(at)) return stopped;
  }
  return std::move(scan_);
}

Result<FileDescriptor> open_to_read(const std::string& path) {
  FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file.is_open()) return file_error(path, "open");
  return file;
}

}  // namespace

Result<SegmentScan> scan_segment(const std::string& path, uint32_t number,
                                 const StoreIdentity& identity, const SegmentVisit& visit) {
  FATHOM_ASSIGN_OR_RETURN(FileDescriptor file, open_to_read(path));
  struct stat status = {};
  if (::fstat(file.get(), &status) != 0) return file_error(path, "stat");
  if (!S_ISREG(status.st_mode)) return invalid(path + ": expected a regular file");
  return Scan(std::move(file), number, identity, visit).run(status.st_size);
}

Result<std::vector<std::byte>> read_record(const std::string& path, const RecordHead& head,
                                           const StoreIdentity& identity) {
  FATHOM_ASSIGN_OR_RETURN(const FileDescriptor file, open_to_read(path));
  std::vector<std::byte> record(static_cast<size_t>(record_bytes(head.payload_bytes)));
  const int64_t at = head.place.page * kPageBytes;
  const int64_t n = read_at(file.get(), at, record);
  const auto found = open_record(std::span(record).first(static_cast<size_t>(n)), identity);
  const std::string where = path + ": byte " + std::to_string(at) + ": ";
  if (!found) return invalid(where + found.error().message);
  if (found->place != head.place || !same_block(*found, head)) {
    return invalid(where + "record: another one's");
  }
  return record;
}

}  // namespace fathom
