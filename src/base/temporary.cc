#include "base/temporary.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <utility>

namespace fathom {
namespace {

namespace fs = std::filesystem;

constexpr int kAttempts = 100;

enum class Lock { kTaken, kHeldByAnother, kNotSupported };

// Some network file systems have no locks: names of one's own still keep writers apart there.
Lock try_lock(const FileDescriptor& file) {
  if (::flock(file.get(), LOCK_EX | LOCK_NB) == 0) return Lock::kTaken;
  return errno == EWOULDBLOCK ? Lock::kHeldByAnother : Lock::kNotSupported;
}

std::string own_name(const std::string& path) {
  static std::atomic<unsigned> number = 0;
  return path + "." + std::to_string(::getpid()) + "-" + std::to_string(number++) + ".tmp";
}

bool is_digits(std::string_view text) {
  return !text.empty() &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

// Ends as own_name says.
bool is_own_name(std::string_view name) {
  constexpr std::string_view kEnd = ".tmp";
  if (!name.ends_with(kEnd)) return false;
  name.remove_suffix(kEnd.size());
  const size_t dot = name.rfind('.');
  if (dot == std::string_view::npos) return false;
  const std::string_view numbers = name.substr(dot + 1);
  const size_t dash = numbers.find('-');
  return dash != std::string_view::npos && is_digits(numbers.substr(0, dash)) &&
         is_digits(numbers.substr(dash + 1));
}

// Somebody may have removed the name between opening and locking.
bool still_named(const FileDescriptor& file, const std::string& path) {
  struct stat open = {};
  struct stat named = {};
  return ::fstat(file.get(), &open) == 0 && ::stat(path.c_str(), &named) == 0 &&
         open.st_ino == named.st_ino && open.st_dev == named.st_dev;
}

// A last link may lead to nothing.
std::string behind_links(const std::string& named) {
  fs::path path = named;
  std::error_code failure;
  for (int i = 0; i < kAttempts && fs::is_symlink(fs::symlink_status(path, failure)); ++i) {
    path = path.parent_path() / fs::read_symlink(path, failure);
  }
  return path.string();
}

// The file that a name leads to; 0: none.
uint64_t file_number(const std::string& path) {
  struct stat status = {};
  return ::stat(path.c_str(), &status) == 0 ? static_cast<uint64_t>(status.st_ino) : 0;
}

struct Published {
  uint64_t number = 0;
  std::string path;
  bool is_there() const { return number != 0 && file_number(path) == number; }
};

// Lines of a file's number and its name. A rename keeps the number, so that only what the dead
// process wrote is taken for its own.
std::vector<Published> read_announced(const std::string& folder, const std::string& marker) {
  std::ifstream lines(marker);
  std::vector<Published> files;
  uint64_t number = 0;
  std::string name;
  while (lines >> number && lines.get() == ' ' && std::getline(lines, name)) {
    files.push_back({number, (fs::path(folder) / name).string()});
  }
  return files;
}

// All of them are there, or none.
void remove_unfinished(const std::string& folder, const std::string& marker) {
  const std::vector<Published> files = read_announced(folder, marker);
  if (files.empty() || files.back().is_there()) return;
  for (const Published& file : files) {
    if (file.is_there()) ::unlink(file.path.c_str());
  }
}

}  // namespace

Result<TemporaryFile> TemporaryFile::create(const std::string& named) {
  // A rename would put the file in the place of a device, a pipe or a link.
  std::error_code failure;
  const fs::file_status status = fs::status(named, failure);
  if (fs::exists(status) && !fs::is_regular_file(status)) {
    return io_error(named + ": expected a regular file");
  }
  const std::string path = behind_links(named);
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    std::string name = own_name(path);
    FileDescriptor file(::open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
    if (!file.is_open() && errno == EEXIST) continue;
    if (!file.is_open()) return file_error(path, "create");
    // Not taken: remove_abandoned of another process was quicker.
    if (try_lock(file) == Lock::kHeldByAnother || !still_named(file, name)) continue;
    return TemporaryFile(std::move(file), path, std::move(name));
  }
  return io_error(path + ": wanted a new name for a temporary file, found all taken");
}

TemporaryFile::TemporaryFile(FileDescriptor file, std::string path, std::string name)
    : file_(std::move(file)), path_(std::move(path)), name_(std::move(name)) {}

TemporaryFile::TemporaryFile(TemporaryFile&& other) noexcept
    : file_(std::move(other.file_)),
      path_(std::move(other.path_)),
      name_(std::exchange(other.name_, {})) {}

TemporaryFile& TemporaryFile::operator=(TemporaryFile&& other) noexcept {
  std::swap(file_, other.file_);
  std::swap(path_, other.path_);
  std::swap(name_, other.name_);
  return *this;
}

TemporaryFile::~TemporaryFile() {
  if (!name_.empty()) ::unlink(name_.c_str());
}

Result<void> TemporaryFile::sync() const {
  if (::fsync(file_.get()) != 0) return file_error(name_, "sync");
  return {};
}

Result<void> TemporaryFile::publish() {
  if (::rename(name_.c_str(), path_.c_str()) != 0) return file_error(path_, "rename to");
  name_.clear();
  if (!file_.close()) return file_error(path_, "close");
  return {};
}

Result<NewFolders> NewFolders::make(const std::string& path) {
  std::error_code failure;
  std::vector<fs::path> missing;
  for (fs::path at = path; !at.empty() && !fs::exists(at, failure); at = at.parent_path()) {
    missing.push_back(at);
  }
  NewFolders folders;
  for (auto at = missing.rbegin(); at != missing.rend(); ++at) {
    if (fs::create_directory(*at, failure)) folders.made_.push_back(at->string());
    if (failure) return io_error(path + ": cannot create: " + failure.message());
  }
  if (fs::is_directory(path, failure)) return folders;
  return io_error(path + ": cannot create: wanted a folder, found another file");
}

NewFolders& NewFolders::operator=(NewFolders&& other) noexcept {
  std::swap(made_, other.made_);
  return *this;
}

NewFolders::~NewFolders() {
  for (auto at = made_.rbegin(); at != made_.rend(); ++at) ::rmdir(at->c_str());
}

void remove_abandoned(const std::string& folder, const std::string& prefix) {
  std::error_code failure;
  for (fs::directory_iterator it(folder.empty() ? "." : folder, failure), end;
       !failure && it != end; it.increment(failure)) {
    const std::string name = it->path().filename().string();
    if (!name.starts_with(prefix) || !is_own_name(name)) continue;
    const std::string path = it->path().string();
    const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC));
    if (file.is_open() && try_lock(file) == Lock::kTaken) ::unlink(path.c_str());
  }
}

Result<FolderLock> FolderLock::take(const std::string& folder) {
  const std::string path = (fs::path(folder) / ".fathom-writer").string();
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    FileDescriptor file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
    if (!file.is_open()) return file_error(path, "create");
    const Lock lock = try_lock(file);
    if (lock == Lock::kHeldByAnother) break;
    // The last holder removed the file that was opened here: the next one counts.
    if (!still_named(file, path)) continue;
    if (lock == Lock::kTaken) {
      remove_unfinished(folder, path);
      if (::ftruncate(file.get(), 0) != 0) return file_error(path, "write");
    }
    return FolderLock(std::move(file), path);
  }
  return exhausted(folder + ": wanted to write there alone, found another process writing");
}

Result<void> FolderLock::announce(const std::vector<Announced>& files) const {
  std::string text;
  for (const Announced& announced : files) {
    FATHOM_CHECK(announced.name.find('\n') == std::string::npos);
    text += std::to_string(file_number(announced.file->name())) + " " + announced.name + "\n";
  }
  const auto size = static_cast<ssize_t>(text.size());
  const bool written = ::ftruncate(file_.get(), 0) == 0 &&
                       ::pwrite(file_.get(), text.data(), text.size(), 0) == size &&
                       ::fsync(file_.get()) == 0;
  if (!written) return file_error(path_, "write");
  return {};
}

FolderLock::FolderLock(FileDescriptor file, std::string path)
    : file_(std::move(file)), path_(std::move(path)) {}

FolderLock& FolderLock::operator=(FolderLock&& other) noexcept {
  std::swap(file_, other.file_);
  std::swap(path_, other.path_);
  return *this;
}

FolderLock::~FolderLock() {
  if (file_.is_open()) ::unlink(path_.c_str());
}

}  // namespace fathom
