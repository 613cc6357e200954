#include "cache/store/shared_folder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <optional>
#include <string_view>
#include <utility>

#include "base/descriptor.h"
#include "base/file.h"
#include "base/temporary.h"
#include "cache/store/disk.h"

namespace fathom {
namespace {

namespace fs = std::filesystem;

constexpr char kCard[] = "/shared.fathom";
constexpr uint64_t kCardBytesMax = 4096;
constexpr int64_t kAbandonedUs = int64_t{3600} * 1'000'000;

int64_t us_of(const timespec& time) { return time.tv_sec * 1'000'000 + time.tv_nsec / 1000; }

timespec time_of(int64_t us) {
  return {.tv_sec = us / 1'000'000, .tv_nsec = us % 1'000'000 * 1000};
}

std::optional<BlockKey> key_of(std::string_view name) {
  BlockKey key;
  if (name.size() != 2 * key.digest.size()) return std::nullopt;
  for (size_t i = 0; i < key.digest.size(); ++i) {
    const char* begin = name.data() + 2 * i;
    std::from_chars(begin, begin + 2, key.digest.at(i), 16);
  }
  if (to_hex(key.digest) != name) return std::nullopt;
  return key;
}

// Gives the file its last name. False: another one has it.
Result<bool> publish_first(const TemporaryFile& file, const std::string& path) {
  if (::link(file.name().c_str(), path.c_str()) == 0) return true;
  if (errno == EEXIST) return false;
  return file_error(path, "link");
}

Result<void> write_all(const TemporaryFile& file, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(file.fd(), bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return file_error(file.name(), "write");
    bytes = bytes.subspan(static_cast<size_t>(n));
  }
  return {};
}

Result<void> expect_empty(const std::string& folder) {
  std::error_code failure;
  for (const auto& entry : fs::directory_iterator(folder, failure)) {
    const std::string name = entry.path().filename().string();
    // Another process may be making the card at this moment.
    if (name.starts_with(kCard + 1)) continue;
    return invalid(folder + ": wanted an empty folder or a shared store, found " + name);
  }
  if (failure) return io_error(folder + ": cannot read: " + failure.message());
  return {};
}

Result<void> make_card(const std::string& folder, const StoreIdentity& identity) {
  FATHOM_RETURN_IF_ERROR(expect_empty(folder));
  const std::string path = folder + kCard;
  FATHOM_ASSIGN_OR_RETURN(const TemporaryFile file, TemporaryFile::create(path));
  const std::string card = store_card(identity);
  FATHOM_RETURN_IF_ERROR(write_all(file, std::as_bytes(std::span(card))));
  FATHOM_RETURN_IF_ERROR(file.sync());
  const auto published = publish_first(file, path);
  return published ? Result<void>() : published.error();
}

}  // namespace

Result<SharedFolder> SharedFolder::open(const std::string& path, const StoreIdentity& identity) {
  std::error_code failure;
  if (!fs::exists(path, failure)) {
    fs::create_directory(path, failure);
    if (failure) return io_error(path + ": cannot create: " + failure.message());
  }
  if (!fs::is_directory(path, failure)) return invalid(path + ": expected a folder");
  const std::string card_path = path + kCard;
  FATHOM_ASSIGN_OR_RETURN(const bool has_card, has_file(card_path));
  if (!has_card) FATHOM_RETURN_IF_ERROR(make_card(path, identity));
  FATHOM_ASSIGN_OR_RETURN(const std::string card, read_file(card_path, kCardBytesMax));
  if (const auto same = check_card(card, identity); !same) {
    return invalid(card_path + ": " + same.error().message);
  }
  return SharedFolder(path);
}

RecordPlace SharedFolder::place_of(const BlockKey& key) {
  RecordPlace place;
  std::memcpy(&place.segment, key.digest.data(), sizeof(place.segment));
  std::memcpy(&place.page, key.digest.data() + sizeof(place.segment), sizeof(place.page));
  return place;
}

std::string SharedFolder::folder_of(int64_t shard) const {
  const auto byte = static_cast<uint8_t>(shard);
  return path_ + "/" + to_hex({&byte, 1});
}

std::string SharedFolder::path_of(const BlockKey& key) const {
  return folder_of(shard_of(key)) + "/" + to_hex(key.digest);
}

int64_t SharedFolder::shard_change_us(int64_t shard) const {
  struct stat status = {};
  if (::stat(folder_of(shard).c_str(), &status) != 0) return -1;
  return us_of(status.st_mtim);
}

Result<SharedListing> SharedFolder::list(int64_t shard, const Keys& known, int64_t now_us) const {
  SharedListing listing;
  const std::string folder = folder_of(shard);
  std::error_code failure;
  for (const auto& entry : fs::directory_iterator(folder, failure)) {
    const std::string path = entry.path().string();
    const std::string name = entry.path().filename().string();
    const auto key = key_of(name);
    if (key && known.count(*key) != 0) {
      listing.known.push_back(*key);
      continue;
    }
    struct stat status = {};
    if (::stat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) continue;
    if (key && shard_of(*key) == shard) {
      listing.files.push_back({.key = *key,
                               .bytes = status.st_size,
                               .created_us = us_of(status.st_mtim),
                               .used_us = us_of(status.st_atim)});
    } else if (name.ends_with(".tmp")) {
      if (us_of(status.st_mtim) + kAbandonedUs < now_us) {
        ::unlink(path.c_str());
      } else {
        listing.temporary_bytes += status.st_size;
      }
    }
  }
  if (failure && failure != std::errc::no_such_file_or_directory) {
    return io_error(folder + ": cannot read: " + failure.message());
  }
  return listing;
}

Result<bool> SharedFolder::publish(const BlockKey& key, std::span<const std::byte> record,
                                   int64_t created_us) const {
  const std::string folder = folder_of(shard_of(key));
  if (::mkdir(folder.c_str(), 0777) != 0 && errno != EEXIST) return file_error(folder, "create");
  const std::string path = path_of(key);
  FATHOM_ASSIGN_OR_RETURN(const TemporaryFile file, TemporaryFile::create(path));
  FATHOM_RETURN_IF_ERROR(write_all(file, record));
  const timespec times[2] = {time_of(created_us), time_of(created_us)};
  if (::futimens(file.fd(), times) != 0) return file_error(file.name(), "date");
  FATHOM_RETURN_IF_ERROR(file.sync());
  return publish_first(file, path);
}

Result<std::vector<std::byte>> SharedFolder::read(const BlockKey& key, int64_t max_bytes) const {
  const std::string path = path_of(key);
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (!file.is_open()) return file_error(path, "open");
  struct stat status = {};
  if (::fstat(file.get(), &status) != 0) return file_error(path, "read");
  if (!S_ISREG(status.st_mode) || status.st_size > max_bytes) {
    return invalid(path + ": wanted a file of at most " + std::to_string(max_bytes) + " bytes");
  }
  std::vector<std::byte> bytes(static_cast<size_t>(status.st_size));
  size_t n_read = 0;
  while (n_read < bytes.size()) {
    const ssize_t n = ::pread(file.get(), bytes.data() + n_read, bytes.size() - n_read,
                              static_cast<off_t>(n_read));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return file_error(path, "read");
    if (n == 0) break;
    n_read += static_cast<size_t>(n);
  }
  bytes.resize(n_read);
  return bytes;
}

Result<SharedFile> SharedFolder::look(const BlockKey& key) const {
  const std::string path = path_of(key);
  struct stat status = {};
  if (::stat(path.c_str(), &status) != 0) return file_error(path, "look at");
  return SharedFile{.key = key,
                    .bytes = status.st_size,
                    .created_us = us_of(status.st_mtim),
                    .used_us = us_of(status.st_atim)};
}

void SharedFolder::touch(const BlockKey& key, int64_t now_us) const {
  timespec times[2] = {time_of(now_us), {}};
  times[1].tv_nsec = UTIME_OMIT;
  ::utimensat(AT_FDCWD, path_of(key).c_str(), times, AT_SYMLINK_NOFOLLOW);
}

void SharedFolder::remove(const BlockKey& key) const { ::unlink(path_of(key).c_str()); }

}  // namespace fathom
