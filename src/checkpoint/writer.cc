#include "checkpoint/writer.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <iterator>
#include <map>
#include <mutex>
#include <optional>
#include <unordered_map>

#include "base/file.h"
#include "base/temporary.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/safetensors.h"

namespace fathom {
namespace {

namespace fs = std::filesystem;

// An upper bound of what format_safetensors spends on one tensor beside its name.
constexpr int64_t kEntryBytesMax = 192;
constexpr size_t kShardsMax = 1000;  // all are open at once

// Wider elements first: then every tensor of a shard is aligned without padding.
void order_by_width(std::vector<size_t>& shard, const std::vector<ExpectedTensor>& tensors) {
  std::stable_sort(shard.begin(), shard.end(), [&](size_t a, size_t b) {
    return dtype_bytes(tensors[a].dtype) > dtype_bytes(tensors[b].dtype);
  });
}

std::vector<std::vector<size_t>> split_shards(const std::vector<ExpectedTensor>& tensors,
                                              int64_t max_bytes) {
  std::vector<std::vector<size_t>> shards;
  int64_t used = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const int64_t bytes =
        tensors[i].bytes() + static_cast<int64_t>(tensors[i].name.size()) + kEntryBytesMax;
    if (shards.empty() || used + bytes > max_bytes) {
      shards.emplace_back();
      used = kEntryBytesMax;  // length, braces and padding
    }
    used += bytes;
    shards.back().push_back(i);
  }
  for (auto& shard : shards) order_by_width(shard, tensors);
  return shards;
}

std::string shard_name(size_t shard, size_t n_shards) {
  char name[64];
  std::snprintf(name, sizeof(name), "model-%05zu-of-%05zu.safetensors", shard + 1, n_shards);
  return name;
}

Result<void> write_at(int fd, int64_t offset, std::span<const std::byte> bytes,
                      const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t n = ::pwrite(fd, bytes.data(), bytes.size(), offset);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return file_error(path, "write");
    bytes = bytes.subspan(static_cast<size_t>(n));
    offset += n;
  }
  return {};
}

// Room on the disk is taken before the first tensor is made, where the file system can do that.
Result<void> reserve(int fd, int64_t bytes, const std::string& path) {
  if (bytes == 0) return {};
  if (::fallocate(fd, 0, 0, bytes) == 0) return {};
  if (errno == ENOSPC || errno == EFBIG) return file_error(path, "reserve the room");
  if (::ftruncate(fd, bytes) != 0) return file_error(path, "set the size");
  return {};
}

Result<FolderLock> prepare_folder(const std::string& folder) {
  FATHOM_ASSIGN_OR_RETURN(FolderLock lock, FolderLock::take(folder));
  remove_abandoned(folder);
  std::error_code failure;
  for (fs::directory_iterator it(folder, failure), end; !failure && it != end;
       it.increment(failure)) {
    if (it->path().extension() != ".safetensors") continue;
    return invalid(folder + ": wanted a folder without *.safetensors, found " +
                   it->path().filename().string());
  }
  if (failure) return io_error(folder + ": cannot list: " + failure.message());
  return lock;
}

// Which bytes of a tensor are there. Neighbours are joined, so pieces in order take no room.
class WrittenBytes {
 public:
  // False, and nothing is taken, where some byte of [begin, end) is there already.
  bool add(int64_t begin, int64_t end) {
    if (begin == end) return true;
    const std::lock_guard lock(mutex_);
    const auto next = ranges_.lower_bound(begin);
    if (next != ranges_.end() && next->first < end) return false;
    const bool has_last = next != ranges_.begin();
    const auto last = has_last ? std::prev(next) : next;
    if (has_last && last->second > begin) return false;
    total_ += end - begin;
    if (next != ranges_.end() && next->first == end) {
      end = next->second;
      ranges_.erase(next);
    }
    if (has_last && last->second == begin) {
      last->second = end;
    } else {
      ranges_.emplace(begin, end);
    }
    return true;
  }

  int64_t total() const {
    const std::lock_guard lock(mutex_);
    return total_;
  }

 private:
  mutable std::mutex mutex_;
  std::map<int64_t, int64_t> ranges_;  // begin and end, disjoint
  int64_t total_ = 0;
};

}  // namespace

struct CheckpointWriter::State {
  struct Shard {
    TemporaryFile file;
    std::string name;  // in the folder, when it is finished
  };
  struct Place {
    size_t shard = 0;
    int64_t offset = 0;
    WrittenBytes written;
  };

  std::string folder;
  std::optional<NewFolders> folders;  // made for this writer, which has not finished
  std::optional<FolderLock> lock;
  std::vector<ExpectedTensor> tensors;
  std::unordered_map<std::string, size_t> by_name;
  std::vector<Shard> shards;
  std::unique_ptr<Place[]> places;

  struct Other {
    TemporaryFile file;
    std::string name;
  };
  std::vector<Other> others;           // what add_file wrote, then the index
  std::vector<std::string> published;  // by a finish() that has not ended well

  ~State() {
    shards.clear();
    others.clear();
    for (const std::string& path : published) ::unlink(path.c_str());
    lock.reset();
    folders.reset();
  }

  std::string path_of(const std::string& name) const { return (fs::path(folder) / name).string(); }

  // Bytes of all shards, and of the index about.
  uint64_t bytes_wanted() const {
    uint64_t bytes = 0;
    for (const ExpectedTensor& tensor : tensors) {
      bytes += static_cast<uint64_t>(tensor.bytes()) + 2 * tensor.name.size() + kEntryBytesMax;
    }
    return bytes;
  }

  Result<void> announce() const {
    std::vector<FolderLock::Announced> files;
    for (const Shard& shard : shards) files.push_back({&shard.file, shard.name});
    for (const Other& other : others) files.push_back({&other.file, other.name});
    return lock->announce(files);
  }

  Result<void> publish(TemporaryFile& file, const std::string& name) {
    FATHOM_RETURN_IF_ERROR(file.publish());
    published.push_back(path_of(name));
    return {};
  }

  Result<void> open_shard(const std::vector<size_t>& members, const std::string& name) {
    FATHOM_ASSIGN_OR_RETURN(TemporaryFile file, TemporaryFile::create(path_of(name)));
    std::vector<SafetensorsEntry> entries;
    for (const size_t i : members) {
      entries.push_back(
          {.name = tensors[i].name, .dtype = tensors[i].dtype, .shape = tensors[i].shape});
    }
    const std::string header = format_safetensors(entries);
    int64_t offset = static_cast<int64_t>(header.size());
    for (const size_t i : members) {
      places[i].shard = shards.size();
      places[i].offset = offset;
      offset += tensors[i].bytes();
    }
    shards.push_back({.file = std::move(file), .name = name});
    const TemporaryFile& shard = shards.back().file;
    FATHOM_RETURN_IF_ERROR(reserve(shard.fd(), offset, shard.name()));
    return write_at(shard.fd(), 0, std::as_bytes(std::span(header)), shard.name());
  }

  std::string index_json() const {
    int64_t total = 0;
    std::vector<std::pair<std::string, std::string>> lines;
    for (size_t i = 0; i < tensors.size(); ++i) {
      total += tensors[i].bytes();
      lines.emplace_back(tensors[i].name, shards[places[i].shard].name);
    }
    std::sort(lines.begin(), lines.end());
    std::string json = "{\n  \"metadata\": {\n    \"total_size\": " + std::to_string(total) +
                       "\n  },\n  \"weight_map\": {";
    const char* separator = "\n";
    for (const auto& [name, file] : lines) {
      json += separator;
      json += "    \"" + name + "\": \"" + file + "\"";
      separator = ",\n";
    }
    return json + "\n  }\n}\n";
  }
};

CheckpointWriter::CheckpointWriter(std::unique_ptr<State> state) : state_(std::move(state)) {}
CheckpointWriter::CheckpointWriter(CheckpointWriter&&) noexcept = default;
CheckpointWriter& CheckpointWriter::operator=(CheckpointWriter&&) noexcept = default;
CheckpointWriter::~CheckpointWriter() = default;

std::span<const ExpectedTensor> CheckpointWriter::tensors() const { return state_->tensors; }
Result<CheckpointWriter> CheckpointWriter::create(const std::string& folder,
                                                  std::vector<ExpectedTensor> tensors,
                                                  int64_t max_shard_bytes) {
  auto state = std::make_unique<State>();
  state->folder = folder;
  FATHOM_ASSIGN_OR_RETURN(state->folders, NewFolders::make(folder));
  FATHOM_ASSIGN_OR_RETURN(state->lock, prepare_folder(folder));
  state->tensors = std::move(tensors);
  state->places = std::make_unique<State::Place[]>(state->tensors.size());
  for (size_t i = 0; i < state->tensors.size(); ++i) {
    const bool is_new = state->by_name.emplace(state->tensors[i].name, i).second;
    if (!is_new) return invalid(folder + ": tensor " + state->tensors[i].name + ": found it twice");
  }
  FATHOM_RETURN_IF_ERROR(check_room(folder, state->bytes_wanted()));
  const auto shards = split_shards(state->tensors, max_shard_bytes);
  if (shards.empty() || shards.size() > kShardsMax) {
    return invalid(folder + ": wanted 1 to " + std::to_string(kShardsMax) + " shards, found " +
                   std::to_string(shards.size()));
  }
  for (size_t i = 0; i < shards.size(); ++i) {
    FATHOM_RETURN_IF_ERROR(state->open_shard(shards[i], shard_name(i, shards.size())));
  }
  return CheckpointWriter(std::move(state));
}

Result<void> CheckpointWriter::write(size_t tensor, int64_t offset,
                                     std::span<const std::byte> bytes) {
  FATHOM_CHECK(tensor < state_->tensors.size());
  const auto size = static_cast<int64_t>(bytes.size());
  FATHOM_CHECK(offset >= 0);
  FATHOM_CHECK(size <= state_->tensors[tensor].bytes() - offset);
  State::Place& place = state_->places[tensor];
  const TemporaryFile& shard = state_->shards[place.shard].file;
  if (!place.written.add(offset, offset + size)) {
    return invalid(state_->folder + ": tensor " + state_->tensors[tensor].name + ": bytes " +
                   std::to_string(offset) + " to " + std::to_string(offset + size) +
                   ": wanted each byte once, found some of them written before");
  }
  return write_at(shard.fd(), place.offset + offset, bytes, shard.name());
}

Result<void> CheckpointWriter::write(std::string_view name, std::span<const std::byte> bytes) {
  const auto found = state_->by_name.find(std::string(name));
  if (found == state_->by_name.end()) {
    return invalid(state_->folder + ": tensor " + printable(name) +
                   ": wanted one of the announced names, found a new one");
  }
  const ExpectedTensor& tensor = state_->tensors[found->second];
  if (static_cast<int64_t>(bytes.size()) != tensor.bytes()) {
    return invalid(state_->folder + ": tensor " + tensor.name + ": wanted the bytes of " +
                   describe_tensor(tensor.dtype, tensor.shape) + ", found " +
                   std::to_string(bytes.size()) + " bytes");
  }
  return write(found->second, 0, bytes);
}

Result<void> CheckpointWriter::finish(const std::function<Result<void>()>& accept) {
  for (size_t i = 0; i < state_->tensors.size(); ++i) {
    const int64_t written = state_->places[i].written.total();
    if (written == state_->tensors[i].bytes()) continue;
    return invalid(state_->folder + ": tensor " + state_->tensors[i].name + ": wanted " +
                   std::to_string(state_->tensors[i].bytes()) + " bytes to be written, found " +
                   std::to_string(written));
  }
  constexpr const char* kIndex = "model.safetensors.index.json";
  FATHOM_RETURN_IF_ERROR(add_file(kIndex, state_->index_json()));
  for (const State::Shard& shard : state_->shards) FATHOM_RETURN_IF_ERROR(shard.file.sync());
  for (const State::Other& other : state_->others) FATHOM_RETURN_IF_ERROR(other.file.sync());
  FATHOM_RETURN_IF_ERROR(state_->announce());
  for (State::Shard& shard : state_->shards) {
    FATHOM_RETURN_IF_ERROR(state_->publish(shard.file, shard.name));
  }
  // The index goes last: a folder with an index is complete.
  for (State::Other& other : state_->others) {
    FATHOM_RETURN_IF_ERROR(state_->publish(other.file, other.name));
  }
  sync_folder(state_->folder);
  if (accept) FATHOM_RETURN_IF_ERROR(accept());
  state_->published.clear();
  state_->folders->keep();
  return {};
}

Result<void> CheckpointWriter::add_file(const std::string& name, std::string_view content) {
  FATHOM_ASSIGN_OR_RETURN(TemporaryFile file, TemporaryFile::create(state_->path_of(name)));
  FATHOM_RETURN_IF_ERROR(write_at(file.fd(), 0, std::as_bytes(std::span(content)), file.name()));
  state_->others.push_back({std::move(file), name});
  return {};
}

}  // namespace fathom
