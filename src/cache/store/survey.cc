#include "cache/store/survey.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <set>
#include <unordered_map>

#include "base/file.h"

namespace fathom {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kCardBytesMax = 4096;
constexpr uint64_t kIndexBytesMax = uint64_t{1} << 36;
constexpr int kIndexTries = 4;
constexpr size_t kTagDigits = 16;
constexpr size_t kShownKeyDigits = 16;

Result<StoreIdentity> read_identity(const std::string& folder) {
  std::error_code failure;
  if (!fs::exists(folder, failure)) return not_found(folder + ": no such folder");
  if (!fs::is_directory(folder, failure)) return invalid(folder + ": expected a folder");
  const std::string path = card_path(folder);
  const auto card = read_file(path, kCardBytesMax);
  if (!card && card.error().code == ErrorCode::kNotFound) {
    return invalid(folder + ": wanted a store, found no store.fathom");
  }
  if (!card) return card.error();
  auto identity = parse_card(*card);
  if (!identity) return invalid(path + ": " + identity.error().message);
  return identity;
}

Result<void> find_segments(StoreSurvey& survey) {
  std::error_code failure;
  for (fs::directory_iterator it(survey.folder, failure), end; !failure && it != end;
       it.increment(failure)) {
    const int64_t number = segment_number(it->path().filename().string());
    std::error_code gone;
    const auto bytes = number > 0 ? it->file_size(gone) : 0;
    if (number <= 0 || gone == std::errc::no_such_file_or_directory) continue;
    if (gone) return io_error(it->path().string() + ": cannot stat: " + gone.message());
    survey.segments[static_cast<uint32_t>(number)] = static_cast<int64_t>(bytes);
  }
  if (failure) return io_error(survey.folder + ": cannot list: " + failure.message());
  return {};
}

// A process that has the store open may write the file while it is read: what comes of that fails
// its checks, and is read again.
Result<void> read_rows(StoreSurvey& survey) {
  const std::string path = survey.folder + "/index.mdb";
  for (int i = 0; i < kIndexTries; ++i) {
    const auto file = read_file(path, kIndexBytesMax);
    if (!file && file.error().code == ErrorCode::kNotFound) {
      survey.index_fault = path + ": wanted the index, found none";
      return {};
    }
    if (!file) return file.error();
    survey.index_bytes = static_cast<int64_t>(file->size());
    auto rows = read_index(std::as_bytes(std::span(*file)));
    survey.index_fault = rows ? "" : path + ": " + rows.error().message;
    if (!rows) continue;
    survey.rows = std::move(*rows);
    return {};
  }
  return {};
}

}  // namespace

int64_t StoreSurvey::bytes() const {
  int64_t sum = index_bytes;
  for (const auto& [number, size] : segments) sum += size;
  return sum;
}

std::span<const IndexRow> StoreSurvey::rows_of(uint32_t segment) const {
  const auto of = [](const IndexRow& row) { return row.head.place.segment; };
  const std::span<const IndexRow> all = rows;
  const auto before = [&](const IndexRow& row, uint32_t one) { return of(row) < one; };
  const auto behind = [&](uint32_t one, const IndexRow& row) { return one < of(row); };
  const auto first = std::lower_bound(all.begin(), all.end(), segment, before);
  const auto last = std::upper_bound(first, all.end(), segment, behind);
  return all.subspan(static_cast<size_t>(first - all.begin()), static_cast<size_t>(last - first));
}

Result<StoreSurvey> survey_store(const std::string& folder) {
  StoreSurvey survey;
  survey.folder = folder;
  FATHOM_ASSIGN_OR_RETURN(survey.identity, read_identity(folder));
  // Rows first: a segment that goes meanwhile has none that stay.
  FATHOM_RETURN_IF_ERROR(read_rows(survey));
  FATHOM_RETURN_IF_ERROR(find_segments(survey));
  return survey;
}

std::string card_path(const std::string& folder) { return folder + "/store.fathom"; }

std::string short_key(const BlockKey& key) { return to_hex(key.digest).substr(0, kShownKeyDigits); }

Result<BlockKey> find_key(const StoreSurvey& survey, const std::string& digits) {
  std::set<BlockKey> found;
  for (const IndexRow& row : survey.rows) {
    const BlockKey& key = row.head.block.key;
    if (to_hex(key.digest).starts_with(digits)) found.insert(key);
  }
  const std::string where = survey.folder + ": block " + digits + ": ";
  if (found.empty()) return not_found(where + "wanted one, found none");
  if (found.size() == 1) return *found.begin();
  return invalid(where + "wanted one, found " + std::to_string(found.size()));
}

Result<std::vector<IndexRow>> chain_to(const StoreSurvey& survey, const BlockKey& key) {
  std::unordered_map<BlockKey, const IndexRow*, BlockKeyHash> by_key;
  for (const IndexRow& row : survey.rows) by_key[row.head.block.key] = &row;
  std::vector<IndexRow> chain;
  BlockKey next = key;
  // No ring of parents is followed for ever.
  while (chain.size() <= survey.rows.size()) {
    const auto row = by_key.find(next);
    if (row == by_key.end()) {
      return not_found(survey.folder + ": block " + short_key(next) + ": wanted it before block " +
                       (chain.empty() ? "any" : short_key(chain.back().head.block.key)) +
                       ", found none");
    }
    chain.push_back(*row->second);
    if (chain.back().head.block.first_position == 0) {
      std::ranges::reverse(chain);
      return chain;
    }
    next = chain.back().head.block.parent;
  }
  return invalid(survey.folder + ": block " + short_key(key) +
                 ": wanted a first block, found none");
}

StoreTotals totals_of(std::span<const IndexRow> rows) {
  StoreTotals totals;
  for (const IndexRow& row : rows) {
    ++totals.n_blocks;
    totals.payload_bytes += row.head.payload_bytes;
    totals.record_bytes += record_bytes(row.head.payload_bytes);
  }
  return totals;
}

std::string tag_text(uint64_t tenant_tag) {
  std::array<char, kTagDigits> digits = {};
  const auto end = std::to_chars(digits.data(), digits.data() + kTagDigits, tenant_tag, 16).ptr;
  const std::string text(digits.data(), end);
  return std::string(kTagDigits - text.size(), '0') + text;
}

Result<uint64_t> parse_tag(std::string_view text) {
  uint64_t tag = 0;
  std::from_chars(text.data(), text.data() + text.size(), tag, 16);
  if (tag_text(tag) == text) return tag;
  return invalid("wanted 16 hexadecimal digits, found '" + std::string(text) + "'");
}

}  // namespace fathom
