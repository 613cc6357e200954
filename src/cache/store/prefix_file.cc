#include "cache/store/prefix_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <memory>
#include <unordered_set>

#include "base/clock.h"
#include "base/file.h"
#include "base/temporary.h"
#include "cache/store/append.h"
#include "cache/store/seal.h"
#include "cache/store/segment_scan.h"
#include "tensor/kv_spec.h"

namespace fathom {
namespace {

constexpr const char* kTitle = "fathom prefix file 1\n";
constexpr mode_t kOwnerOnly = 0600;
constexpr int64_t kIndexBytesMin = int64_t{64} << 20;
constexpr int64_t kIndexBytesOfRow = 512;

struct PrefixHead {
  StoreIdentity identity;
  int64_t n_blocks = 0;
  BlockKey last;
};

std::string head_text(const PrefixHead& head) {
  return kTitle + store_card(head.identity) + "blocks " + std::to_string(head.n_blocks) +
         "\nlast " + to_hex(head.last.digest) + "\n";
}

// The first page.
std::string head_page(const PrefixHead& head) {
  std::string page = head_text(head);
  page += "check " + to_hex(sha256(std::as_bytes(std::span(page)))) + "\n";
  page.resize(static_cast<size_t>(kPageBytes), '\0');
  return page;
}

// What stands behind `name` in its line.
std::string value_of(const std::string& text, const std::string& name) {
  const size_t at = text.find("\n" + name + " ");
  if (at == std::string::npos) return "";
  const size_t begin = at + name.size() + 2;
  return text.substr(begin, text.find('\n', begin) - begin);
}

Result<PrefixHead> parse_head(std::span<const std::byte> bytes) {
  if (static_cast<int64_t>(bytes.size()) < kPageBytes) {
    return invalid("wanted a prefix file, found one of " + std::to_string(bytes.size()) + " bytes");
  }
  const std::string page(reinterpret_cast<const char*>(bytes.data()),
                         static_cast<size_t>(kPageBytes));
  if (!page.starts_with(kTitle)) return invalid("wanted a prefix file of format 1, found another");
  const size_t card = std::strlen(kTitle);
  const size_t blocks = page.find("\nblocks ");
  const size_t check = page.find("\ncheck ");
  const bool whole = blocks != std::string::npos && check != std::string::npos && blocks >= card;
  const std::string text = page.substr(0, whole ? check + 1 : 0);
  const Sha256Digest digest = sha256(std::as_bytes(std::span(text)));
  if (!whole || value_of(page, "check") != to_hex(digest)) {
    return invalid("byte 0: first page: checksum differs");
  }
  PrefixHead head;
  FATHOM_ASSIGN_OR_RETURN(head.identity, parse_card(page.substr(card, blocks + 1 - card)));
  const std::string number = value_of(page, "blocks");
  std::from_chars(number.data(), number.data() + number.size(), head.n_blocks);
  FATHOM_ASSIGN_OR_RETURN(head.last.digest, parse_digest(value_of(page, "last")));
  if (head_page(head) != page) return invalid("byte 0: first page: wanted no more, found others");
  return head;
}

bool is_clean(std::span<const std::byte> record, const RecordHead& head) {
  const auto padding = record.subspan(static_cast<size_t>(kRecordHeadBytes + head.payload_bytes));
  return std::ranges::all_of(padding, [](std::byte value) { return value == std::byte{0}; });
}

Result<void> write_all(const TemporaryFile& file, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(file.fd(), bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return file_error(file.name(), "write");
    bytes = bytes.subspan(static_cast<size_t>(n));
  }
  return {};
}

Error stopped(const std::string& what) {
  return {ErrorCode::kCancelled, what + ": stopped; nothing was changed"};
}

// A file that was opened and whose first page is sound.
class PrefixFile {
 public:
  static Result<PrefixFile> open(const std::string& path) {
    FATHOM_ASSIGN_OR_RETURN(MappedFile file, MappedFile::open(path));
    auto head = parse_head(file.bytes());
    if (!head) return invalid(path + ": " + head.error().message);
    return PrefixFile(std::move(file), *std::move(head));
  }
  const PrefixHead& head() const { return head_; }
  int64_t bytes() const { return static_cast<int64_t>(file_.bytes().size()); }
  std::string at(int64_t byte) const {
    return file_.path() + ": byte " + std::to_string(byte) + ": ";
  }

  // Every record, unsealed where there is a sealer. False: stop.
  using Visit = std::function<Result<void>(const RecordHead& head, std::span<std::byte> record)>;
  Result<void> visit(const Sealer* sealer, const Visit& visit) const;

 private:
  PrefixFile(MappedFile file, PrefixHead head) : file_(std::move(file)), head_(head) {}
  Result<void> check_link(const RecordHead& head, const RecordHead* before, int64_t i) const;

  MappedFile file_;
  PrefixHead head_;
};

// That block i follows the one before it.
Result<void> PrefixFile::check_link(const RecordHead& head, const RecordHead* before,
                                    int64_t i) const {
  const TierBlock& block = head.block;
  const std::string what = "block " + short_key(block.key) + ": wanted ";
  if (block.first_position != i * kBlockTokens) {
    return invalid(what + "position " + std::to_string(i * kBlockTokens) + ", found " +
                   std::to_string(block.first_position));
  }
  if (before == nullptr) return {};
  if (block.parent != before->block.key) {
    return invalid(what + "block " + short_key(before->block.key) + " before it, found " +
                   short_key(block.parent));
  }
  const bool back_to_exact =
      before->block.grade == StateGrade::kBounded && block.grade == StateGrade::kExact;
  if (back_to_exact) return invalid(what + "a bounded one behind a bounded one, found an exact");
  if (block.tenant_tag == before->block.tenant_tag) return {};
  return invalid(what + "tenant " + tag_text(before->block.tenant_tag) + ", found " +
                 tag_text(block.tenant_tag));
}

Result<void> PrefixFile::visit(const Sealer* sealer, const Visit& visit) const {
  std::vector<std::byte> copy;
  std::optional<RecordHead> before;
  int64_t at = kPageBytes;
  for (int64_t i = 0; i < head_.n_blocks; ++i) {
    const auto rest = file_.bytes().subspan(static_cast<size_t>(at));
    const auto head = open_record(rest, head_.identity);
    if (!head) return invalid(this->at(at) + head.error().message);
    const auto record = rest.first(static_cast<size_t>(record_bytes(head->payload_bytes)));
    const RecordPlace here = {0, static_cast<uint32_t>(at / kPageBytes)};
    if (head->place != here) return invalid(this->at(at) + "record: another place's");
    if (!is_clean(record, *head)) {
      return invalid(this->at(at) + "record: wanted zeros behind the payload, found others");
    }
    const auto linked = check_link(*head, before ? &*before : nullptr, i);
    if (!linked) return invalid(this->at(at) + linked.error().message);
    copy.assign(record.begin(), record.end());
    if (sealer != nullptr && !unseal_record(*sealer, copy)) {
      return invalid(this->at(at) + "record: not sealed with the file's key");
    }
    FATHOM_RETURN_IF_ERROR(visit(*head, copy));
    before = *head;
    at += static_cast<int64_t>(record.size());
  }
  if (at != bytes()) {
    return invalid(this->at(at) + "wanted the end of the file behind " +
                   std::to_string(head_.n_blocks) + " blocks, found more");
  }
  if (before && before->block.key == head_.last) return {};
  return invalid(this->at(at) + "wanted block " + short_key(head_.last) + " last, found " +
                 (before ? short_key(before->block.key) : "none"));
}

class Import {
 public:
  Import(StoreSurvey survey, PrefixFile file, const ImportOptions& options, Disk& disk)
      : survey_(std::move(survey)), file_(std::move(file)), options_(options), disk_(disk) {}

  Result<PrefixReport> run();

 private:
  Result<void> check_model() const;
  Result<void> open_keys();
  Result<void> add_blocks(const std::unordered_set<BlockKey, BlockKeyHash>& missing);

  StoreSurvey survey_;
  PrefixFile file_;
  const ImportOptions& options_;
  Disk& disk_;
  std::unique_ptr<const Sealer> to_store_;
  std::unique_ptr<const Sealer> from_file_;
  PrefixReport report_;
};

Result<void> Import::check_model() const {
  StoreIdentity wanted = survey_.identity;
  wanted.seal = file_.head().identity.seal;
  const auto same = check_card(store_card(file_.head().identity), wanted);
  if (same) return {};
  return invalid(file_.at(0) + "wanted a prefix for " + survey_.folder + ": " +
                 same.error().message);
}

Result<void> Import::open_keys() {
  const StoreIdentity& of_file = file_.head().identity;
  FATHOM_ASSIGN_OR_RETURN(to_store_,
                          open_seal(card_path(survey_.folder), survey_.identity, options_.key));
  const std::string where = file_.at(0) + "file";
  if (!of_file.seal) {
    if (options_.file_key) FATHOM_RETURN_IF_ERROR(open_seal(where, of_file, options_.file_key));
    return {};
  }
  if (!to_store_ && !options_.clear) {
    return invalid(where + ": wanted a sealed store for what is sealed, or --clear, found " +
                   survey_.folder + " in clear");
  }
  const auto& key = options_.file_key ? options_.file_key : options_.key;
  FATHOM_ASSIGN_OR_RETURN(from_file_, open_seal(where, of_file, key));
  return {};
}

Result<void> Import::add_blocks(const std::unordered_set<BlockKey, BlockKeyHash>& missing) {
  const auto n_rows = static_cast<int64_t>(survey_.rows.size() + missing.size());
  const int64_t index_bytes = kIndexBytesMin + 2 * survey_.index_bytes + n_rows * kIndexBytesOfRow;
  FATHOM_RETURN_IF_ERROR(
      check_room(survey_.folder, static_cast<uint64_t>(file_.bytes() + kIndexBytesOfRow * n_rows)));
  FATHOM_ASSIGN_OR_RETURN(
      StoreIndex index,
      StoreIndex::open(survey_.folder + "/index.mdb", index_bytes / kPageBytes * kPageBytes));
  const uint32_t last = survey_.segments.empty() ? 0 : survey_.segments.rbegin()->first;
  SegmentAppender out(disk_, {survey_.folder, survey_.identity, last + 1, options_.segment_bytes});
  const int64_t now_us = unix_microseconds();
  const auto add = [&](const RecordHead& head, std::span<std::byte> record) -> Result<void> {
    if (!missing.contains(head.block.key)) return {};
    RecordHead fresh = head;
    fresh.created_us = now_us;
    seal_record(fresh, survey_.identity, record, to_store_.get());
    ++report_.n_added;
    report_.payload_bytes += head.payload_bytes;
    return out.add({fresh, 0}, record);
  };
  FATHOM_RETURN_IF_ERROR(file_.visit(from_file_.get(), add));
  FATHOM_ASSIGN_OR_RETURN(const std::vector<IndexRow> rows, out.flush());
  return index.commit({.add = rows});
}

Result<PrefixReport> Import::run() {
  if (!survey_.index_fault.empty()) {
    return invalid(survey_.index_fault + "; a start of the store makes it anew");
  }
  FATHOM_RETURN_IF_ERROR(check_model());
  FATHOM_RETURN_IF_ERROR(open_keys());
  report_.last = file_.head().last;
  report_.n_blocks = file_.head().n_blocks;
  report_.file_bytes = file_.bytes();
  report_.sealed = file_.head().identity.seal.has_value();
  std::unordered_set<BlockKey, BlockKeyHash> missing;
  int64_t done = kPageBytes;
  const auto look = [&](const RecordHead& head, std::span<std::byte> record) -> Result<void> {
    missing.insert(head.block.key);
    done += static_cast<int64_t>(record.size());
    if (options_.progress && !options_.progress(done, file_.bytes())) return stopped("import");
    return {};
  };
  FATHOM_RETURN_IF_ERROR(file_.visit(from_file_.get(), look));
  for (const IndexRow& row : survey_.rows) missing.erase(row.head.block.key);
  if (!missing.empty()) FATHOM_RETURN_IF_ERROR(add_blocks(missing));
  return report_;
}

// The records of a chain, one after the other, as they are to stand in the file.
class Export {
 public:
  Export(const StoreSurvey& survey, std::vector<IndexRow> chain, const ExportOptions& options)
      : survey_(survey), chain_(std::move(chain)), options_(options) {}

  Result<PrefixReport> write(const std::string& path);

 private:
  Result<std::vector<std::byte>> record_of(const IndexRow& row, int64_t at) const;

  const StoreSurvey& survey_;
  const std::vector<IndexRow> chain_;
  const ExportOptions& options_;
  PrefixHead head_;
  std::unique_ptr<const Sealer> sealer_;
};

Result<std::vector<std::byte>> Export::record_of(const IndexRow& row, int64_t at) const {
  const std::string path = survey_.folder + "/" + segment_name(row.head.place.segment);
  FATHOM_ASSIGN_OR_RETURN(std::vector<std::byte> record,
                          read_record(path, row.head, survey_.identity));
  const RecordPlace here = {0, static_cast<uint32_t>(at / kPageBytes)};
  if (sealer_ == nullptr) {
    place_record(here, record);
    return record;
  }
  if (!unseal_record(*sealer_, record)) {
    return invalid(path + ": block " + short_key(row.head.block.key) +
                   ": not sealed with the store's key");
  }
  RecordHead head = row.head;
  head.place = here;
  seal_record(head, head_.identity, record);
  return record;
}

Result<PrefixReport> Export::write(const std::string& path) {
  head_ = {survey_.identity, static_cast<int64_t>(chain_.size()), chain_.back().head.block.key};
  if (options_.clear) {
    FATHOM_ASSIGN_OR_RETURN(sealer_,
                            open_seal(card_path(survey_.folder), survey_.identity, options_.key));
    head_.identity.seal.reset();
  }
  PrefixReport report;
  report.last = head_.last;
  report.n_blocks = head_.n_blocks;
  report.sealed = head_.identity.seal.has_value();
  const int64_t all = kPageBytes + totals_of(chain_).record_bytes;
  FATHOM_ASSIGN_OR_RETURN(TemporaryFile file, TemporaryFile::create(path));
  if (::fchmod(file.fd(), kOwnerOnly) != 0) return file_error(file.name(), "protect");
  const std::string page = head_page(head_);
  FATHOM_RETURN_IF_ERROR(write_all(file, std::as_bytes(std::span(page))));
  report.file_bytes = kPageBytes;
  for (const IndexRow& row : chain_) {
    FATHOM_ASSIGN_OR_RETURN(const std::vector<std::byte> record, record_of(row, report.file_bytes));
    FATHOM_RETURN_IF_ERROR(write_all(file, record));
    report.file_bytes += static_cast<int64_t>(record.size());
    report.payload_bytes += row.head.payload_bytes;
    if (options_.progress && !options_.progress(report.file_bytes, all)) return stopped("export");
  }
  FATHOM_RETURN_IF_ERROR(file.sync());
  FATHOM_RETURN_IF_ERROR(file.publish());
  return report;
}

}  // namespace

Result<PrefixReport> export_prefix(const std::string& folder, const std::string& block,
                                   const std::string& path, const ExportOptions& options) {
  FATHOM_ASSIGN_OR_RETURN(const StoreSurvey survey, survey_store(folder));
  if (!survey.index_fault.empty()) {
    return invalid(survey.index_fault + "; a start of the store makes it anew");
  }
  FATHOM_ASSIGN_OR_RETURN(const BlockKey key, find_key(survey, block));
  FATHOM_ASSIGN_OR_RETURN(std::vector<IndexRow> chain, chain_to(survey, key));
  return Export(survey, std::move(chain), options).write(path);
}

Result<PrefixReport> import_prefix(const std::string& folder, const std::string& path,
                                   const ImportOptions& options) {
  if (const auto survey = survey_store(folder); !survey) return survey.error();
  FATHOM_ASSIGN_OR_RETURN(PrefixFile file, PrefixFile::open(path));
  FATHOM_ASSIGN_OR_RETURN(const FolderLock lock, FolderLock::take(folder));
  FATHOM_ASSIGN_OR_RETURN(StoreSurvey survey, survey_store(folder));
  const std::unique_ptr<Disk> own =
      options.disk == nullptr ? system_disk(folder, DiskRoad::kBest) : nullptr;
  return Import(std::move(survey), std::move(file), options, own ? *own : *options.disk).run();
}

}  // namespace fathom
