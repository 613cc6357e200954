#include "cache/store/index.h"

#include <lmdb.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <optional>
#include <type_traits>
#include <utility>

#include "base/check.h"
#include "base/file.h"

namespace fathom {
namespace {

constexpr unsigned kMode = 0600;

struct Row {
  Sha256Digest key = {};
  Sha256Digest parent = {};
  uint64_t tenant_tag = 0;
  int64_t first_position = 0;
  int64_t created_us = 0;
  double cost = 0;
  uint32_t payload_bytes = 0;
  uint32_t n_uses = 0;
  uint64_t grade = 0;
  uint64_t checksum = 0;  // of place and all before it
};
static_assert(sizeof(Row) == kIndexRowBytes && std::is_trivially_copyable_v<Row>);

uint64_t number_of(const RecordPlace& place) { return uint64_t{place.segment} << 32 | place.page; }
RecordPlace place_of(uint64_t number) {
  return {static_cast<uint32_t>(number >> 32), static_cast<uint32_t>(number)};
}

uint64_t checksum_of(const Row& row, const RecordPlace& place) {
  return ::XXH3_64bits_withSeed(&row, offsetof(Row, checksum), number_of(place));
}

Row row_of(const IndexRow& from) {
  const TierBlock& block = from.head.block;
  Row row;
  row.key = block.key.digest;
  row.parent = block.parent.digest;
  row.tenant_tag = block.tenant_tag;
  row.first_position = block.first_position;
  row.created_us = from.head.created_us;
  row.cost = block.cost;
  row.payload_bytes = static_cast<uint32_t>(from.head.payload_bytes);
  row.n_uses = from.n_uses;
  row.grade = static_cast<uint64_t>(block.grade);
  row.checksum = checksum_of(row, from.head.place);
  return row;
}

std::optional<IndexRow> index_row(const MDB_val& key, const MDB_val& value) {
  if (key.mv_size != sizeof(uint64_t) || value.mv_size != sizeof(Row)) return std::nullopt;
  uint64_t number = 0;
  Row row;
  std::memcpy(&number, key.mv_data, sizeof(number));
  std::memcpy(&row, value.mv_data, sizeof(row));
  IndexRow result;
  RecordHead& head = result.head;
  head.place = place_of(number);
  if (row.checksum != checksum_of(row, head.place)) return std::nullopt;
  head.block.key.digest = row.key;
  head.block.parent.digest = row.parent;
  head.block.first_position = row.first_position;
  head.block.tenant_tag = row.tenant_tag;
  head.block.grade = static_cast<StateGrade>(row.grade);
  head.block.cost = row.cost;
  head.payload_bytes = row.payload_bytes;
  head.created_us = row.created_us;
  result.n_uses = row.n_uses;
  return result;
}

}  // namespace

struct StoreIndex::Environment {
  std::string path;
  MDB_env* env = nullptr;
  MDB_dbi rows = 0;

  Environment() = default;
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;
  ~Environment() {
    if (env != nullptr) ::mdb_env_close(env);
  }

  Error error(const char* action, int code) const {
    const std::string message = path + ": cannot " + action + ": " + ::mdb_strerror(code);
    const bool full = code == MDB_MAP_FULL || code == ENOSPC;
    return full ? exhausted(message) : io_error(message);
  }

  // Rows whose number is in [begin, end].
  Result<std::vector<IndexRow>> between(uint64_t begin, uint64_t end) const;
  int remove_between(MDB_txn* txn, uint64_t begin, uint64_t end) const;
  int write(MDB_txn* txn, const Change& change) const;
  int write_uses(MDB_txn* txn, const RecordPlace& place, uint32_t n_uses) const;
};

Result<std::vector<IndexRow>> StoreIndex::Environment::between(uint64_t begin, uint64_t end) const {
  MDB_txn* txn = nullptr;
  int code = ::mdb_txn_begin(env, nullptr, MDB_RDONLY, &txn);
  if (code != 0) return error("read", code);
  MDB_cursor* cursor = nullptr;
  code = ::mdb_cursor_open(txn, rows, &cursor);
  std::vector<IndexRow> found;
  bool sound = true;
  if (code == 0) {
    uint64_t number = begin;
    MDB_val key = {sizeof(number), &number};
    MDB_val value = {};
    code = ::mdb_cursor_get(cursor, &key, &value, MDB_SET_RANGE);
    while (code == 0 && sound) {
      const auto row = index_row(key, value);
      sound = row.has_value();
      if (!sound || number_of(row->head.place) > end) break;
      found.push_back(*row);
      code = ::mdb_cursor_get(cursor, &key, &value, MDB_NEXT);
    }
    ::mdb_cursor_close(cursor);
  }
  ::mdb_txn_abort(txn);
  if (!sound) return invalid(path + ": a row fails its checksum");
  if (code != 0 && code != MDB_NOTFOUND) return error("read", code);
  return found;
}

int StoreIndex::Environment::remove_between(MDB_txn* txn, uint64_t begin, uint64_t end) const {
  MDB_cursor* cursor = nullptr;
  int code = ::mdb_cursor_open(txn, rows, &cursor);
  if (code != 0) return code;
  uint64_t number = begin;
  MDB_val key = {sizeof(number), &number};
  MDB_val value = {};
  code = ::mdb_cursor_get(cursor, &key, &value, MDB_SET_RANGE);
  while (code == 0) {
    std::memcpy(&number, key.mv_data, sizeof(number));
    if (number > end) break;
    code = ::mdb_cursor_del(cursor, 0);
    // After a removal the cursor stands at the next row.
    if (code == 0) code = ::mdb_cursor_get(cursor, &key, &value, MDB_GET_CURRENT);
    if (code == EINVAL) code = MDB_NOTFOUND;
  }
  ::mdb_cursor_close(cursor);
  return code == MDB_NOTFOUND ? 0 : code;
}

int StoreIndex::Environment::write(MDB_txn* txn, const Change& change) const {
  for (const RecordPlace& place : change.remove) {
    uint64_t number = number_of(place);
    MDB_val key = {sizeof(number), &number};
    const int code = ::mdb_del(txn, rows, &key, nullptr);
    if (code != 0 && code != MDB_NOTFOUND) return code;
  }
  for (const uint32_t segment : change.remove_segments) {
    const uint64_t begin = number_of({segment, 0});
    const int code = remove_between(txn, begin, begin | UINT32_MAX);
    if (code != 0) return code;
  }
  for (const IndexRow& added : change.add) {
    uint64_t number = number_of(added.head.place);
    Row row = row_of(added);
    MDB_val key = {sizeof(number), &number};
    MDB_val value = {sizeof(row), &row};
    const int code = ::mdb_put(txn, rows, &key, &value, 0);
    if (code != 0) return code;
  }
  for (const auto& [place, n_uses] : change.n_uses) {
    const int code = write_uses(txn, place, n_uses);
    if (code != 0 && code != MDB_NOTFOUND) return code;
  }
  return 0;
}

int StoreIndex::Environment::write_uses(MDB_txn* txn, const RecordPlace& place,
                                        uint32_t n_uses) const {
  uint64_t number = number_of(place);
  MDB_val key = {sizeof(number), &number};
  MDB_val value = {};
  const int code = ::mdb_get(txn, rows, &key, &value);
  if (code != 0) return code;
  std::optional<IndexRow> row = index_row(key, value);
  if (!row) return MDB_NOTFOUND;
  row->n_uses = n_uses;
  Row changed = row_of(*row);
  value = {sizeof(changed), &changed};
  return ::mdb_put(txn, rows, &key, &value, 0);
}

StoreIndex::StoreIndex(std::unique_ptr<Environment> environment)
    : environment_(std::move(environment)) {}
StoreIndex::StoreIndex(StoreIndex&& other) noexcept = default;
StoreIndex& StoreIndex::operator=(StoreIndex&& other) noexcept = default;
StoreIndex::~StoreIndex() = default;

Result<StoreIndex> StoreIndex::open(const std::string& path, int64_t max_bytes) {
  if (std::filesystem::exists(path)) {
    FATHOM_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::open(path));
    if (auto sound = check_index_file(file.bytes()); !sound) {
      return invalid(path + ": " + sound.error().message);
    }
  }
  auto environment = std::make_unique<Environment>();
  environment->path = path;
  int code = ::mdb_env_create(&environment->env);
  if (code != 0) return environment->error("open", code);
  code = ::mdb_env_set_mapsize(environment->env, static_cast<size_t>(max_bytes));
  // One process has the folder, and threads of it take turns: there is nothing to lock.
  const unsigned flags = MDB_NOSUBDIR | MDB_NOLOCK | MDB_NORDAHEAD;
  if (code == 0) code = ::mdb_env_open(environment->env, path.c_str(), flags, kMode);
  if (code != 0) return environment->error("open", code);
  MDB_txn* txn = nullptr;
  code = ::mdb_txn_begin(environment->env, nullptr, 0, &txn);
  if (code != 0) return environment->error("open", code);
  code = ::mdb_dbi_open(txn, nullptr, MDB_INTEGERKEY, &environment->rows);
  if (code != 0) {
    ::mdb_txn_abort(txn);
    return environment->error("open", code);
  }
  code = ::mdb_txn_commit(txn);
  if (code != 0) return environment->error("open", code);
  return StoreIndex(std::move(environment));
}

Result<std::vector<IndexRow>> StoreIndex::rows() const {
  return environment_->between(0, UINT64_MAX);
}

Result<std::vector<IndexRow>> StoreIndex::rows_of(uint32_t segment) const {
  const uint64_t begin = number_of({segment, 0});
  return environment_->between(begin, begin | UINT32_MAX);
}

Result<void> StoreIndex::commit(const Change& change) {
  MDB_txn* txn = nullptr;
  int code = ::mdb_txn_begin(environment_->env, nullptr, 0, &txn);
  if (code != 0) return environment_->error("write", code);
  code = environment_->write(txn, change);
  if (code != 0) {
    ::mdb_txn_abort(txn);
    return environment_->error("write", code);
  }
  code = ::mdb_txn_commit(txn);
  if (code != 0) return environment_->error("write", code);
  return {};
}

Result<std::vector<IndexRow>> read_index(std::span<const std::byte> file) {
  std::vector<std::span<const std::byte>> found;
  FATHOM_RETURN_IF_ERROR(check_index_file(file, &found));
  std::vector<IndexRow> rows;
  rows.reserve(found.size());
  for (const std::span<const std::byte> bytes : found) {
    std::array<std::byte, kIndexKeyBytes + kIndexRowBytes> copy =
        {};  // LMDB's values are not const
    std::ranges::copy(bytes, copy.begin());
    const auto row =
        index_row({kIndexKeyBytes, copy.data()}, {kIndexRowBytes, copy.data() + kIndexKeyBytes});
    if (!row) return invalid("a row fails its checksum");
    rows.push_back(*row);
  }
  return rows;
}

int64_t StoreIndex::file_bytes() const {
  MDB_envinfo info = {};
  ::mdb_env_info(environment_->env, &info);
  MDB_stat stat = {};
  ::mdb_env_stat(environment_->env, &stat);
  return static_cast<int64_t>((info.me_last_pgno + 1) * stat.ms_psize);
}

}  // namespace fathom
