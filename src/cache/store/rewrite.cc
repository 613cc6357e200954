#include "cache/store/rewrite.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <utility>

#include "base/file.h"
#include "base/temporary.h"
#include "cache/store/segment_scan.h"

namespace fathom {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kIndexBytesMin = int64_t{64} << 20;
constexpr int64_t kIndexBytesOfRow = 512;

class Rewrite {
 public:
  Rewrite(StoreSurvey survey, const RewriteOptions& options, Disk& disk)
      : survey_(std::move(survey)), options_(options), disk_(disk) {}

  Result<RewriteReport> run();

 private:
  std::string path_of(uint32_t segment) const {
    return survey_.folder + "/" + segment_name(segment);
  }
  std::string index_path() const { return survey_.folder + "/index.mdb"; }
  bool goes(const RecordHead& head) const {
    return options_.erase_tenant.has_value() && head.block.tenant_tag == *options_.erase_tenant;
  }
  Result<StoreIndex> open_index(const std::string& path) const;
  bool has_dead_bytes(uint32_t segment, int64_t bytes) const;
  Result<bool> is_to_go(uint32_t segment, int64_t bytes);
  Result<void> segment(uint32_t number, StoreIndex& index, SegmentAppender& out);
  Result<void> renew_index(StoreIndex index);

  StoreSurvey survey_;
  const RewriteOptions& options_;
  Disk& disk_;
  RewriteReport report_;
};

Result<StoreIndex> Rewrite::open_index(const std::string& path) const {
  const auto n_rows = static_cast<int64_t>(survey_.rows.size());
  const int64_t bytes = kIndexBytesMin + 2 * survey_.index_bytes + n_rows * kIndexBytesOfRow;
  return StoreIndex::open(path, bytes / kPageBytes * kPageBytes);
}

bool Rewrite::has_dead_bytes(uint32_t segment, int64_t bytes) const {
  return bytes != kPageBytes + totals_of(survey_.rows_of(segment)).record_bytes;
}

// To erase, what a damaged place holds may be the tenant's, too.
Result<bool> Rewrite::is_to_go(uint32_t segment, int64_t bytes) {
  if (!options_.erase_tenant) return has_dead_bytes(segment, bytes);
  FATHOM_ASSIGN_OR_RETURN(const SegmentScan scan,
                          scan_segment(path_of(segment), segment, survey_.identity));
  const auto n_erased =
      std::ranges::count_if(scan.records, [this](const auto& head) { return goes(head); });
  report_.n_erased += n_erased;
  return n_erased > 0 || !scan.gaps.empty() || !scan.soiled.empty() || !scan.head_fault.empty();
}

Result<void> Rewrite::segment(uint32_t number, StoreIndex& index, SegmentAppender& out) {
  const std::string path = path_of(number);
  for (const IndexRow& row : survey_.rows_of(number)) {
    if (goes(row.head)) continue;
    const auto record = read_record(path, row.head, survey_.identity);
    if (!record && record.error().code != ErrorCode::kInvalid) return record.error();
    ++(record ? report_.n_moved : report_.n_bad);
    if (record) FATHOM_RETURN_IF_ERROR(out.add(row, *record));
  }
  FATHOM_ASSIGN_OR_RETURN(const std::vector<IndexRow> moved, out.flush());
  if (!moved.empty()) FATHOM_RETURN_IF_ERROR(index.commit({.add = moved}));
  FATHOM_RETURN_IF_ERROR(disk_.remove(path));
  FATHOM_RETURN_IF_ERROR(disk_.sync_folder(survey_.folder));
  FATHOM_RETURN_IF_ERROR(index.commit({.remove_segments = {number}}));
  ++report_.n_rewritten;
  return {};
}

// Pages that LMDB has freed keep their old bytes until it needs them.
Result<void> Rewrite::renew_index(StoreIndex index) {
  const std::string fresh = index_path() + ".new";
  FATHOM_ASSIGN_OR_RETURN(std::vector<IndexRow> rows, index.rows());
  // Those whose file is lost are left.
  std::erase_if(rows, [this](const IndexRow& row) { return goes(row.head); });
  if (fs::exists(fresh)) FATHOM_RETURN_IF_ERROR(disk_.remove(fresh));
  {
    FATHOM_ASSIGN_OR_RETURN(StoreIndex renewed, open_index(fresh));
    FATHOM_RETURN_IF_ERROR(renewed.commit({.add = rows}));
  }
  std::error_code failure;
  fs::rename(fresh, index_path(), failure);
  if (failure) return io_error(index_path() + ": cannot replace: " + failure.message());
  return disk_.sync_folder(survey_.folder);
}

Result<RewriteReport> Rewrite::run() {
  if (!survey_.index_fault.empty()) {
    return invalid(survey_.index_fault + "; a start of the store makes it anew");
  }
  report_.bytes_before = survey_.bytes();
  report_.n_segments = static_cast<int64_t>(survey_.segments.size());
  FATHOM_ASSIGN_OR_RETURN(StoreIndex index, open_index(index_path()));
  const uint32_t last = survey_.segments.empty() ? 0 : survey_.segments.rbegin()->first;
  SegmentAppender out(disk_, {survey_.folder, survey_.identity, last + 1, options_.segment_bytes});
  int64_t all = 0;
  int64_t done = 0;
  for (const auto& [number, bytes] : survey_.segments) all += bytes;
  for (const auto& [number, bytes] : survey_.segments) {
    if (options_.progress && !options_.progress(done, all)) {
      return Error{ErrorCode::kCancelled, survey_.folder + ": stopped; run it again to go on"};
    }
    FATHOM_ASSIGN_OR_RETURN(const bool is_to_go, this->is_to_go(number, bytes));
    if (is_to_go) FATHOM_RETURN_IF_ERROR(segment(number, index, out));
    done += bytes;
  }
  if (options_.erase_tenant) FATHOM_RETURN_IF_ERROR(renew_index(std::move(index)));
  FATHOM_ASSIGN_OR_RETURN(const StoreSurvey after, survey_store(survey_.folder));
  report_.bytes_after = after.bytes();
  return report_;
}

}  // namespace

Result<RewriteReport> rewrite_store(const std::string& folder, const RewriteOptions& options) {
  // Whose folder it is comes before the lock, which is a file in it; what it holds comes behind.
  if (const auto survey = survey_store(folder); !survey) return survey.error();
  FATHOM_ASSIGN_OR_RETURN(const FolderLock lock, FolderLock::take(folder));
  FATHOM_ASSIGN_OR_RETURN(StoreSurvey survey, survey_store(folder));
  const std::unique_ptr<Disk> own =
      options.disk == nullptr ? system_disk(folder, DiskRoad::kBest) : nullptr;
  return Rewrite(std::move(survey), options, own ? *own : *options.disk).run();
}

}  // namespace fathom
