#include "cache/store/recover.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <utility>

#include "base/check.h"
#include "base/file.h"
#include "base/temporary.h"
#include "cache/store/seal.h"
#include "cache/store/survey.h"

namespace fathom {
namespace {

namespace fs = std::filesystem;

constexpr const char* kCard = "store.fathom";
constexpr uint64_t kMaxCardBytes = 4096;
constexpr int64_t kScanBytes = int64_t{4} << 20;
constexpr int64_t kIndexBytesMin = int64_t{64} << 20;
constexpr int64_t kIndexBytesOfRow = 512;  // pages half full, and those of the commit before

// Nothing of anybody's is there: a lock and what an interrupted start left do not count.
Result<void> expect_empty(const StoreOptions& options) {
  remove_abandoned(options.folder, std::string(kCard) + ".");
  const std::set<std::string> ignored = {".fathom-writer", "lost+found"};
  std::error_code failure;
  for (fs::directory_iterator it(options.folder, failure), end; !failure && it != end;
       it.increment(failure)) {
    const std::string name = it->path().filename().string();
    if (ignored.contains(name)) continue;
    return invalid(options.folder + ": wanted " + kCard + " or an empty folder, found " + name);
  }
  if (failure) return io_error(options.folder + ": cannot list: " + failure.message());
  return {};
}

struct SegmentFile {
  std::string path;
  int64_t bytes = 0;  // whole pages
  bool sound_head = false;
};
using SegmentFiles = std::map<uint32_t, SegmentFile>;

class Recovery {
 public:
  explicit Recovery(StoreState& state)
      : state_(state), queue_(state.disk.queue(1)), buffer_(scan_bytes()) {}

  Result<Recovered> run();

 private:
  int64_t scan_bytes() const { return std::max(kScanBytes, state_.slot_bytes); }
  const StoreIdentity& identity() const { return state_.options.identity; }

  Result<void> find_segments();
  Result<StoreIndex> open_index();
  void take_rows(const std::vector<IndexRow>& rows);
  bool is_there(const IndexRow& row) const;
  Result<void> scan(uint32_t number);
  Result<void> read(const FileDescriptor& file, int64_t at, int64_t bytes, const std::string& path);
  int64_t adopt_records(uint32_t number, int64_t at, std::span<const std::byte> bytes);
  void adopt(const RecordHead& head);
  void continue_last(Recovered& recovered);
  void add(const IndexRow& row);

  StoreState& state_;
  std::unique_ptr<IoQueue> queue_;
  PageMemory buffer_;
  SegmentFiles files_;
  std::map<uint32_t, int64_t> ends_;  // of the last record that is known
  std::set<uint32_t> with_rows_;
  StoreIndex::Change change_;
  StoreReport report_;
};

Result<void> Recovery::read(const FileDescriptor& file, int64_t at, int64_t bytes,
                            const std::string& path) {
  IoRequest request = {IoKind::kRead, file.get(), at, buffer_.at(0, bytes), 0};
  return run_all(*queue_, 1, {&request, 1}, path);
}

Result<void> Recovery::find_segments() {
  std::error_code failure;
  for (fs::directory_iterator it(state_.options.folder, failure), end; !failure && it != end;
       it.increment(failure)) {
    const int64_t number = segment_number(it->path().filename().string());
    if (number <= 0) continue;
    const std::string path = it->path().string();
    FATHOM_ASSIGN_OR_RETURN(const int64_t size, state_.disk.size(path));
    files_[static_cast<uint32_t>(number)] = {path, size / kPageBytes * kPageBytes, false};
  }
  if (failure) return io_error(state_.options.folder + ": cannot list: " + failure.message());
  for (auto& [number, segment] : files_) {
    if (segment.bytes == 0) continue;
    FATHOM_ASSIGN_OR_RETURN(const FileDescriptor file, state_.disk.open(segment.path, false));
    if (!read(file, 0, kPageBytes, segment.path)) continue;
    const auto sound = check_segment(number, identity(), buffer_.at(0, kPageBytes));
    segment.sound_head = sound.has_value();
    if (!sound && sound.error().code == ErrorCode::kInvalid) {
      return invalid(segment.path + ": " + sound.error().message);
    }
  }
  return {};
}

Result<StoreIndex> Recovery::open_index() {
  const std::string path = state_.options.folder + "/index.mdb";
  const int64_t n_rows = state_.options.max_bytes / kPageBytes;
  const int64_t max_bytes = (kIndexBytesMin + n_rows * kIndexBytesOfRow) / kPageBytes * kPageBytes;
  const bool was_there = fs::exists(path);
  auto index = StoreIndex::open(path, max_bytes);
  if (index) {
    auto rows = index->rows();
    if (rows) {
      take_rows(*rows);
      report_.index_rebuilt = !was_there && !files_.empty();
      return index;
    }
    report_.index_fault = rows.error().message;
  } else if (index.error().code == ErrorCode::kInvalid) {
    report_.index_fault = index.error().message;
  } else {
    return index.error();
  }
  // It says nothing that the segments do not say.
  report_.index_rebuilt = true;
  index = io_error(path);
  FATHOM_RETURN_IF_ERROR(state_.disk.remove(path));
  return StoreIndex::open(path, max_bytes);
}

bool Recovery::is_there(const IndexRow& row) const {
  const RecordHead& head = row.head;
  const auto file = files_.find(head.place.segment);
  if (file == files_.end() || head.place.page == 0) return false;
  if (head.payload_bytes > identity().block_bytes) return false;
  return head.place.page * kPageBytes + record_bytes(head.payload_bytes) <= file->second.bytes;
}

void Recovery::add(const IndexRow& row) {
  const RecordHead& head = row.head;
  CatalogEntry entry;
  entry.place = head.place;
  entry.payload_bytes = static_cast<uint32_t>(head.payload_bytes);
  entry.n_uses = row.n_uses;
  // A clock that was put back must not make records that never grow old.
  entry.created_us = std::min(head.created_us, state_.now_us());
  entry.cost = head.block.cost;
  state_.catalog.add(head.block.key, entry);
}

void Recovery::take_rows(const std::vector<IndexRow>& rows) {
  for (const IndexRow& row : rows) {
    const RecordPlace& place = row.head.place;
    if (!is_there(row)) {
      ++report_.n_lost;
      change_.remove.push_back(place);
      continue;
    }
    with_rows_.insert(place.segment);
    int64_t& end = ends_[place.segment];
    end = std::max(end, place.page * kPageBytes + record_bytes(row.head.payload_bytes));
    // A record that was being copied when the process died; rows come in order, the copy is later.
    const CatalogEntry* earlier = state_.catalog.find(row.head.block.key);
    if (earlier != nullptr) {
      change_.remove.push_back(earlier->place);
      state_.catalog.remove(row.head.block.key);
    } else {
      ++report_.n_rows;
    }
    add(row);
  }
}

void Recovery::adopt(const RecordHead& head) {
  int64_t& end = ends_[head.place.segment];
  end = std::max(end, head.place.page * kPageBytes + record_bytes(head.payload_bytes));
  if (state_.catalog.find(head.block.key) != nullptr) return;
  const IndexRow row = {head, 0};
  add(row);
  change_.add.push_back(row);
  ++report_.n_adopted;
}

// Adopts the whole records in bytes that lie at `at`; how many bytes were looked at, at least a
// page.
int64_t Recovery::adopt_records(uint32_t number, int64_t at, std::span<const std::byte> bytes) {
  const auto size = static_cast<int64_t>(bytes.size());
  int64_t done = 0;
  while (done < size) {
    const auto head = open_record(bytes.subspan(static_cast<size_t>(done)), identity());
    const RecordPlace here = {number, static_cast<uint32_t>((at + done) / kPageBytes)};
    if (head && head->place == here) {
      adopt(*head);
      done += record_bytes(head->payload_bytes);
      continue;
    }
    const bool ends_early = !head && head.error().code == ErrorCode::kExhausted;
    if (ends_early && done > 0) return done;
    done += kPageBytes;
  }
  return done;
}

Result<void> Recovery::scan(uint32_t number) {
  const SegmentFile& segment = files_.at(number);
  int64_t at = std::max(kPageBytes, ends_[number]);
  if (at >= segment.bytes) return {};
  FATHOM_ASSIGN_OR_RETURN(const FileDescriptor file, state_.disk.open(segment.path, false));
  while (at < segment.bytes) {
    const int64_t bytes = std::min(scan_bytes(), segment.bytes - at);
    // What the disk refuses to read is lost, no more.
    const bool ok = read(file, at, bytes, segment.path).has_value();
    at += ok ? adopt_records(number, at, buffer_.at(0, bytes)) : state_.slot_bytes;
  }
  return {};
}

// The last segment goes on where its last record ends; without what a dead writer left behind it.
void Recovery::continue_last(Recovered& recovered) {
  if (files_.empty()) return;
  const auto& [number, segment] = *files_.rbegin();
  recovered.next_segment = number + 1;
  const int64_t end = std::max(kPageBytes, ends_[number]);
  const bool has_room = end + state_.slot_bytes <= state_.options.segment_bytes;
  if (!segment.sound_head || !has_room || segment.bytes < end) return;
  if (segment.bytes > end && !state_.disk.truncate(segment.path, end)) return;
  recovered.active = number;
  recovered.active_end = end;
  state_.catalog.set_file_bytes(number, end);
}

Result<Recovered> Recovery::run() {
  FATHOM_RETURN_IF_ERROR(find_segments());
  for (const auto& [number, segment] : files_) {
    state_.catalog.add_segment(number, segment.bytes);
    report_.n_damaged_segments += segment.sound_head || segment.bytes == 0 ? 0 : 1;
  }
  FATHOM_ASSIGN_OR_RETURN(StoreIndex index, open_index());
  for (const auto& [number, segment] : files_) {
    const bool is_last = number == files_.rbegin()->first;
    if (!is_last && with_rows_.contains(number)) continue;
    FATHOM_RETURN_IF_ERROR(scan(number));
    FATHOM_RETURN_IF_ERROR(index.commit(std::exchange(change_, {})));
  }
  if (!change_.is_empty()) FATHOM_RETURN_IF_ERROR(index.commit(change_));
  Recovered recovered = {std::move(index), 1, 0, 0, {}};
  continue_last(recovered);
  for (const auto& [number, segment] : files_) {
    if (number != recovered.active) state_.catalog.seal(number);
  }
  recovered.report = std::move(report_);
  return recovered;
}

}  // namespace

Result<Claim> claim_folder(const StoreOptions& options) {
  const std::string path = card_path(options.folder);
  StoreIdentity identity = options.identity;
  identity.seal.reset();
  if (!fs::exists(path)) {
    FATHOM_RETURN_IF_ERROR(expect_empty(options));
    if (options.key) identity.seal = make_seal(*options.key);
    FATHOM_RETURN_IF_ERROR(write_file_atomic(path, store_card(identity)));
  } else {
    FATHOM_ASSIGN_OR_RETURN(const std::string card, read_file(path, kMaxCardBytes));
    const auto found = parse_card(card);
    if (!found) return invalid(path + ": " + found.error().message);
    identity.seal = found->seal;
    if (auto same = check_card(card, identity); !same) {
      return invalid(path + ": " + same.error().message);
    }
  }
  FATHOM_ASSIGN_OR_RETURN(auto sealer, open_seal(path, identity, options.key));
  return Claim{identity, std::move(sealer)};
}

Result<Recovered> recover(StoreState& state) { return Recovery(state).run(); }

}  // namespace fathom
