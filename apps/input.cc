#include "apps/input.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <utility>

#include "base/descriptor.h"
#include "base/file.h"

namespace fathom {
namespace {

constexpr size_t kPieceBytes = 65536;

Error too_much(const std::string& where, uint64_t max_bytes) {
  return exhausted(where + ": wanted at most " + std::to_string(max_bytes) + " bytes, found more");
}

Result<std::string> read_to_end(const FileDescriptor& file, const std::string& path,
                                uint64_t max_bytes) {
  std::string text;
  char piece[kPieceBytes];
  while (true) {
    const ssize_t n = ::read(file.get(), piece, sizeof(piece));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return file_error(path, "read");
    if (n == 0) return text;
    text.append(piece, static_cast<size_t>(n));
    if (text.size() > max_bytes) return too_much(path, max_bytes);
  }
}

// Opening did not wait for a writer; reading should.
bool wait_when_reading(const FileDescriptor& file) {
  const int flags = ::fcntl(file.get(), F_GETFL);
  return flags >= 0 && ::fcntl(file.get(), F_SETFL, flags & ~O_NONBLOCK) == 0;
}

}  // namespace

void hold_standard_streams() {
  for (int number = 0; number <= 2; ++number) {
    if (::fcntl(number, F_GETFD) >= 0 || errno != EBADF) continue;
    // The lowest free number is this one. It can be used the wrong way round only.
    [[maybe_unused]] const int held = ::open("/dev/null", number == 0 ? O_WRONLY : O_RDONLY);
  }
}

Result<std::optional<std::string>> InputLines::next() {
  char piece[kPieceBytes];
  while (true) {
    const size_t end = read_.find('\n', seen_);
    if (end != std::string::npos) {
      std::optional<std::string> line = read_.substr(0, end);
      read_.erase(0, end + 1);
      seen_ = 0;
      return line;
    }
    seen_ = read_.size();
    if (seen_ > line_bytes_max_) return too_much("standard input: a line", line_bytes_max_);
    if (at_end_ && read_.empty()) return std::optional<std::string>();
    if (at_end_) {
      seen_ = 0;
      return std::optional<std::string>(std::exchange(read_, {}));
    }
    const ssize_t n = ::read(0, piece, sizeof(piece));
    if (n < 0 && errno == EINTR) {
      read_.clear();
      seen_ = 0;
      return Error{ErrorCode::kCancelled, "standard input: stopped"};
    }
    if (n < 0) return file_error("standard input", "read");
    at_end_ = n == 0;
    read_.append(piece, static_cast<size_t>(n));
  }
}

Result<std::string> read_standard_input(uint64_t max_bytes) {
  std::string text;
  char piece[kPieceBytes];
  // A terminal is not read again behind its end: what is typed then belongs to somebody else.
  while (std::feof(stdin) == 0 && std::ferror(stdin) == 0) {
    text.append(piece, std::fread(piece, 1, sizeof(piece), stdin));
    if (text.size() > max_bytes) return too_much("standard input", max_bytes);
  }
  if (std::ferror(stdin) != 0) return file_error("standard input", "read");
  return text;
}

Result<std::string> read_text(const std::string& path, uint64_t max_bytes) {
  if (path == "-") return read_standard_input(max_bytes);
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file.is_open()) return file_error(path, "open");
  struct stat status = {};
  if (::fstat(file.get(), &status) != 0) return file_error(path, "stat");
  const bool pipe = S_ISFIFO(status.st_mode);
  if (S_ISDIR(status.st_mode)) return invalid(path + ": wanted a file or a pipe, found a folder");
  if (!pipe && !S_ISCHR(status.st_mode)) return read_file(path, max_bytes);
  if (!wait_when_reading(file)) return file_error(path, "read");
  FATHOM_ASSIGN_OR_RETURN(std::string text, read_to_end(file, path, max_bytes));
  if (pipe && text.empty()) {
    return invalid(path + ": wanted text from this pipe, found none, or nobody who writes to it");
  }
  return text;
}

}  // namespace fathom
