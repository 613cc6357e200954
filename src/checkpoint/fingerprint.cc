#include "checkpoint/fingerprint.h"

#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <filesystem>

#include "checkpoint/safetensors.h"

namespace fathom {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kPieceBytes = 16 << 20;
constexpr uint64_t kNoteBytesMax = 1 << 20;

// A run of one tensor's bytes: the unit of parallel work.
struct Piece {
  size_t tensor = 0;
  int64_t begin = 0;
  int64_t end = 0;
};

std::span<const std::byte> bytes_of(const Tensor& view, int64_t begin, int64_t end) {
  return {static_cast<const std::byte*>(view.data) + begin, static_cast<size_t>(end - begin)};
}

std::vector<Piece> cut(const Checkpoint& checkpoint) {
  std::vector<Piece> pieces;
  for (size_t i = 0; i < checkpoint.tensors().size(); ++i) {
    const int64_t bytes = checkpoint.tensors()[i].view.bytes();
    for (int64_t begin = 0; begin < bytes; begin += kPieceBytes) {
      pieces.push_back({i, begin, std::min(bytes, begin + kPieceBytes)});
    }
  }
  return pieces;
}

void put_number(Sha256& hash, uint64_t value) {
  std::byte bytes[8];
  for (int i = 0; i < 8; ++i) bytes[i] = static_cast<std::byte>(value >> (8 * i));
  hash.update(bytes);
}

void put_text(Sha256& hash, std::string_view text) {
  put_number(hash, text.size());
  hash.update(std::as_bytes(std::span(text)));
}

// What identifies the files' content without reading it.
std::string file_note(const Checkpoint& checkpoint) {
  std::string note = "fathom fingerprint 1\n";
  for (const MappedFile& file : checkpoint.files()) {
    struct stat status = {};
    if (::stat(file.path().c_str(), &status) != 0) return {};
    note += fs::path(file.path()).filename().string() + " size " + std::to_string(status.st_size) +
            " modified " + std::to_string(status.st_mtim.tv_sec) + "." +
            std::to_string(status.st_mtim.tv_nsec) + " inode " + std::to_string(status.st_ino) +
            "\n";
  }
  return note;
}

std::string note_path(const Checkpoint& checkpoint) {
  std::error_code failure;
  const fs::path folder = fs::is_directory(checkpoint.path(), failure)
                              ? fs::path(checkpoint.path())
                              : fs::path(checkpoint.path()).parent_path();
  return (folder / ".fathom-fingerprint").string();
}

bool from_hex(std::string_view text, Sha256Digest& digest) {
  if (text.size() != 2 * digest.size()) return false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    const bool decimal = c >= '0' && c <= '9';
    if (!decimal && (c < 'a' || c > 'f')) return false;
    const int nibble = decimal ? c - '0' : c - 'a' + 10;
    digest[i / 2] = static_cast<uint8_t>(digest[i / 2] << 4 | nibble);
  }
  return true;
}

template <typename T, typename IsBad>
int64_t count_in(std::span<const std::byte> bytes, IsBad is_bad) {
  int64_t n = 0;
  for (size_t at = 0; at + sizeof(T) <= bytes.size(); at += sizeof(T)) {
    T code;
    std::memcpy(&code, bytes.data() + at, sizeof(T));
    n += is_bad(code) ? 1 : 0;
  }
  return n;
}

int64_t count_bad(DType dtype, std::span<const std::byte> bytes) {
  switch (dtype) {
    case DType::kE4m3:
      return count_in<uint8_t>(bytes, [](uint8_t code) { return (code & 0x7f) == 0x7f; });
    case DType::kE8m0:
      return count_in<uint8_t>(bytes, [](uint8_t code) { return code == 0xff; });
    case DType::kBf16:
      return count_in<uint16_t>(bytes, [](uint16_t code) { return (code & 0x7f80) == 0x7f80; });
    case DType::kF32:
      return count_in<uint32_t>(bytes,
                                [](uint32_t code) { return (code & 0x7f800000u) == 0x7f800000u; });
    case DType::kI8:
    case DType::kU8:
    case DType::kI32:
    case DType::kI64:
      return 0;  // every code is a number
  }
  return 0;
}

int64_t first_bad(const Tensor& view) {
  const int64_t width = dtype_bytes(view.dtype);
  for (int64_t i = 0; i < view.elements(); ++i) {
    if (count_bad(view.dtype, bytes_of(view, i * width, (i + 1) * width)) > 0) return i;
  }
  return -1;
}

}  // namespace

Sha256Digest weights_fingerprint(const Checkpoint& checkpoint, ThreadPool& pool) {
  const std::vector<Piece> pieces = cut(checkpoint);
  std::vector<Sha256Digest> digests(pieces.size());
  pool.parallel_for(static_cast<int64_t>(pieces.size()), 1, [&](int64_t begin, int64_t end) {
    for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) {
      const Tensor& view = checkpoint.tensors()[pieces[i].tensor].view;
      digests[i] = sha256(bytes_of(view, pieces[i].begin, pieces[i].end));
    }
  });
  Sha256 all;
  size_t next = 0;
  put_number(all, checkpoint.tensors().size());
  for (size_t t = 0; t < checkpoint.tensors().size(); ++t) {
    const StoredTensor& tensor = checkpoint.tensors()[t];
    put_text(all, tensor.name);
    put_text(all, dtype_name(tensor.view.dtype));
    put_number(all, static_cast<uint64_t>(tensor.view.rank));
    for (int i = 0; i < tensor.view.rank; ++i) {
      put_number(all, static_cast<uint64_t>(tensor.view.dim(i)));
    }
    for (; next < pieces.size() && pieces[next].tensor == t; ++next) {
      all.update(std::as_bytes(std::span(digests[next])));
    }
  }
  return all.finish();
}

std::optional<Sha256Digest> noted_fingerprint(const Checkpoint& checkpoint) {
  const std::string note = file_note(checkpoint);
  const Result<std::string> kept = read_file(note_path(checkpoint), kNoteBytesMax);
  if (note.empty() || !kept || !kept->starts_with(note) || !kept->ends_with('\n')) return {};
  const std::string_view rest = std::string_view(*kept).substr(note.size());
  Sha256Digest digest = {};
  if (!from_hex(rest.substr(0, rest.size() - 1), digest)) return {};
  return digest;
}

Sha256Digest cached_fingerprint(const Checkpoint& checkpoint, ThreadPool& pool) {
  if (const auto noted = noted_fingerprint(checkpoint)) return *noted;
  const std::string note = file_note(checkpoint);
  const Sha256Digest digest = weights_fingerprint(checkpoint, pool);
  if (!note.empty()) {
    // A folder that cannot be written to costs the time of the next computation, nothing else.
    (void)write_file_atomic(note_path(checkpoint), note + to_hex(digest) + "\n");
  }
  return digest;
}

std::vector<std::string> find_bad_codes(
    const Checkpoint& checkpoint, ThreadPool& pool,
    const std::function<void(int64_t done, int64_t all)>& progress) {
  const std::vector<Piece> pieces = cut(checkpoint);
  std::vector<int64_t> counts(pieces.size());
  const auto count = [&](size_t i) {
    const Tensor& view = checkpoint.tensors()[pieces[i].tensor].view;
    counts[i] = count_bad(view.dtype, bytes_of(view, pieces[i].begin, pieces[i].end));
  };
  constexpr size_t kBatch = 64;  // pieces between two calls of progress
  int64_t done = 0;
  for (size_t first = 0; first < pieces.size(); first += kBatch) {
    const size_t last = std::min(first + kBatch, pieces.size());
    pool.parallel_for(static_cast<int64_t>(last - first), 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) count(first + static_cast<size_t>(i));
    });
    for (size_t i = first; i < last; ++i) done += pieces[i].end - pieces[i].begin;
    if (progress) progress(done, checkpoint.payload_bytes());
  }
  std::vector<int64_t> by_tensor(checkpoint.tensors().size());
  for (size_t i = 0; i < pieces.size(); ++i) by_tensor[pieces[i].tensor] += counts[i];
  std::vector<std::string> problems;
  for (size_t t = 0; t < by_tensor.size(); ++t) {
    if (by_tensor[t] == 0) continue;
    const StoredTensor& tensor = checkpoint.tensors()[t];
    problems.push_back(checkpoint.files()[static_cast<size_t>(tensor.file)].path() + ": tensor " +
                       printable(tensor.name) + ": wanted finite " +
                       std::string(dtype_name(tensor.view.dtype)) + " values, found " +
                       std::to_string(by_tensor[t]) + " NaN or infinite, the first at element " +
                       std::to_string(first_bad(tensor.view)));
  }
  return problems;
}

}  // namespace fathom
