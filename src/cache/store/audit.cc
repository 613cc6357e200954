#include "cache/store/audit.h"

#include <algorithm>
#include <set>

#include "cache/store/disk.h"
#include "cache/store/seal.h"
#include "cache/store/segment_scan.h"

namespace fathom {
namespace {

class Audit {
 public:
  // `sealer`: null where payloads are not to be unsealed.
  Audit(StoreSurvey survey, const AuditOptions& options, std::unique_ptr<const Sealer> sealer)
      : survey_(std::move(survey)), options_(options), sealer_(std::move(sealer)) {}

  Result<AuditReport> run();

 private:
  struct Problem {
    std::string text;
    std::optional<RecordPlace> row;  // it stands as long as the index has it
  };

  std::string path_of(uint32_t segment) const {
    return survey_.folder + "/" + segment_name(segment);
  }
  void say(uint32_t segment, int64_t at, const std::string& what, const RecordHead* row = nullptr);
  Result<void> segment(uint32_t number);
  void judge(uint32_t number, const SegmentScan& scan);
  void row(const IndexRow& row, const SegmentScan& scan);
  void gaps(uint32_t number, const SegmentScan& scan);
  Result<void> drop_outdated();

  StoreSurvey survey_;
  const AuditOptions& options_;
  const std::unique_ptr<const Sealer> sealer_;
  int64_t done_ = 0;
  int64_t all_ = 0;
  std::vector<Problem> problems_;
  AuditReport report_;
};

void Audit::say(uint32_t segment, int64_t at, const std::string& what, const RecordHead* row) {
  std::string text = path_of(segment) + ": byte " + std::to_string(at) + ": " + what;
  if (row != nullptr) text += " (block " + short_key(row->block.key) + ")";
  problems_.push_back({text, row != nullptr ? std::optional(row->place) : std::nullopt});
}

void Audit::row(const IndexRow& row, const SegmentScan& scan) {
  const RecordHead& wanted = row.head;
  const int64_t at = wanted.place.page * kPageBytes;
  const auto found = std::ranges::lower_bound(scan.records, wanted.place, {}, &RecordHead::place);
  if (found != scan.records.end() && found->place == wanted.place) {
    ++report_.n_blocks;
    if (!same_block(*found, wanted)) {
      say(wanted.place.segment, at, "record: wanted what the index says, found another block",
          &wanted);
    }
    return;
  }
  const auto gap = std::ranges::find_if(
      scan.gaps, [&](const SegmentGap& item) { return item.begin <= at && at < item.end; });
  const std::string why = gap == scan.gaps.end() ? "record: wanted one, found the end of the file"
                          : gap->begin == at     ? gap->why
                                                 : "record: wanted one, found none";
  say(wanted.place.segment, at, why, &wanted);
}

// Of a gap that no row names nobody has lost anything. Without an index it cannot be told from one
// that had a row.
void Audit::gaps(uint32_t number, const SegmentScan& scan) {
  const auto rows = survey_.rows_of(number);
  for (const SegmentGap& gap : scan.gaps) {
    const bool named = std::ranges::any_of(rows, [&](const IndexRow& row) {
      const int64_t at = row.head.place.page * kPageBytes;
      return gap.begin <= at && at < gap.end;
    });
    if (named) continue;
    if (survey_.index_fault.empty()) {
      report_.torn_bytes += gap.end - gap.begin;
    } else {
      say(number, gap.begin, gap.why);
    }
  }
}

void Audit::judge(uint32_t number, const SegmentScan& scan) {
  const auto rows = survey_.rows_of(number);
  // A file that was just made may not have its first page yet.
  const bool begun = scan.bytes > kPageBytes || !rows.empty();
  if (!scan.head_fault.empty() && begun) say(number, 0, "segment: " + scan.head_fault);
  for (const RecordPlace& place : scan.soiled) {
    say(number, place.page * kPageBytes, "record: wanted zeros behind the payload, found others");
  }
  for (const IndexRow& item : rows) row(item, scan);
  gaps(number, scan);
  for (const RecordHead& head : scan.records) {
    const auto of = [](const IndexRow& item) { return item.head.place; };
    report_.n_unindexed += std::ranges::binary_search(rows, head.place, {}, of) ? 0 : 1;
  }
}

Result<void> Audit::segment(uint32_t number) {
  const std::string path = path_of(number);
  SegmentVisit visit;
  visit.progress = [&](int64_t bytes) {
    done_ += bytes;
    return !options_.progress || options_.progress(std::min(done_, all_), all_);
  };
  std::vector<std::byte> copy;
  std::vector<RecordPlace> unsealable;
  visit.record = [&](const RecordHead& head, std::span<const std::byte> record) {
    if (!sealer_) return true;
    copy.assign(record.begin(), record.end());
    if (!unseal_record(*sealer_, copy)) unsealable.push_back(head.place);
    return true;
  };
  const auto scan = scan_segment(path, number, survey_.identity, visit);
  if (scan) {
    ++report_.n_segments;
    report_.bytes += scan->bytes;
    judge(number, *scan);
    for (const RecordPlace& place : unsealable) {
      say(number, place.page * kPageBytes, "record: not sealed with the store's key");
    }
    return {};
  }
  if (scan.error().code == ErrorCode::kCancelled) return scan.error();
  // It went since the folder was listed; its rows will be found gone, too.
  if (scan.error().code != ErrorCode::kNotFound) problems_.push_back({scan.error().message, {}});
  for (const IndexRow& item : survey_.rows_of(number)) row(item, {});
  return {};
}

// Another process may have removed rows since they were read, and then their bytes.
Result<void> Audit::drop_outdated() {
  const auto of_row = [](const Problem& problem) { return problem.row.has_value(); };
  if (std::ranges::none_of(problems_, of_row)) return {};
  FATHOM_ASSIGN_OR_RETURN(const StoreSurvey now, survey_store(survey_.folder));
  if (!now.index_fault.empty()) return {};
  std::set<RecordPlace> places;
  for (const IndexRow& item : now.rows) places.insert(item.head.place);
  std::erase_if(problems_, [&](const Problem& problem) {
    return problem.row.has_value() && !places.contains(*problem.row);
  });
  return {};
}

Result<AuditReport> Audit::run() {
  if (!survey_.index_fault.empty()) problems_.push_back({survey_.index_fault, {}});
  for (const auto& [number, bytes] : survey_.segments) all_ += bytes;
  std::set<uint32_t> missing;
  for (const IndexRow& item : survey_.rows) {
    const uint32_t number = item.head.place.segment;
    if (survey_.segments.contains(number) || !missing.insert(number).second) continue;
    problems_.push_back({path_of(number) + ": wanted the segment of " +
                             std::to_string(survey_.rows_of(number).size()) +
                             " rows, found no file",
                         item.head.place});
  }
  for (const auto& [number, bytes] : survey_.segments) {
    FATHOM_RETURN_IF_ERROR(segment(number));
  }
  FATHOM_RETURN_IF_ERROR(drop_outdated());
  for (Problem& problem : problems_) report_.problems.push_back(std::move(problem.text));
  return std::move(report_);
}

}  // namespace

Result<AuditReport> audit_store(const std::string& folder, const AuditOptions& options) {
  FATHOM_ASSIGN_OR_RETURN(StoreSurvey survey, survey_store(folder));
  std::unique_ptr<const Sealer> sealer;
  if (options.key) {
    FATHOM_ASSIGN_OR_RETURN(sealer, open_seal(card_path(folder), survey.identity, options.key));
  }
  return Audit(std::move(survey), options, std::move(sealer)).run();
}

}  // namespace fathom
