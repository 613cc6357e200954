#include "train/corpus/gzip.h"

#include <zlib.h>

#include <limits>

#include "base/check.h"

namespace fathom::train {
namespace {

constexpr int kWindowBits = 15 + 16;  // 16: a gzip header
constexpr size_t kPieceBytes = 1 << 16;

struct Inflation {
  z_stream stream = {};
  Inflation() { FATHOM_CHECK(inflateInit2(&stream, kWindowBits) == Z_OK); }
  ~Inflation() { inflateEnd(&stream); }
  Inflation(const Inflation&) = delete;
  Inflation& operator=(const Inflation&) = delete;
};

// Where a member stands in its file.
struct Place {
  const std::string& where;
  size_t begin = 0;

  Error error(size_t byte, const std::string& wanted_and_found) const {
    return invalid(where + ": byte " + std::to_string(begin + byte) + ": wanted " +
                   wanted_and_found);
  }
};

// Unpacks the member that `packed` begins with and says how many bytes it takes.
Result<size_t> add_member(std::string_view packed, const Place& place, size_t max_bytes,
                          std::string& out) {
  FATHOM_CHECK(packed.size() <= std::numeric_limits<uInt>::max());
  if (!packed.starts_with("\x1f\x8b")) {
    return place.error(0, place.begin == 0 ? "a gzip file, found another kind"
                                           : "the end or another gzip member, found other bytes");
  }
  Inflation inflation;
  z_stream& stream = inflation.stream;
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(packed.data()));
  stream.avail_in = static_cast<uInt>(packed.size());
  int state = Z_OK;
  while (state == Z_OK) {
    const size_t had = out.size();
    out.resize(had + kPieceBytes);
    stream.next_out = reinterpret_cast<Bytef*>(out.data() + had);
    stream.avail_out = kPieceBytes;
    state = inflate(&stream, Z_NO_FLUSH);
    out.resize(out.size() - stream.avail_out);
    if (out.size() > max_bytes) {
      return place.error(stream.total_in,
                         "at most " + std::to_string(max_bytes) + " bytes unpacked, found more");
    }
  }
  const size_t used = packed.size() - stream.avail_in;
  if (state == Z_STREAM_END) return used;
  if (state == Z_BUF_ERROR) return place.error(used, "the rest of a gzip member, found the end");
  return place.error(used, std::string("sound gzip data, found: ") +
                               (stream.msg == nullptr ? "a dictionary" : stream.msg));
}

}  // namespace

std::string gzipped(const std::string& text) {
  std::string out(compressBound(text.size()) + 64, '\0');
  z_stream stream{};
  deflateInit2(&stream, 9, Z_DEFLATED, kWindowBits, 9, Z_DEFAULT_STRATEGY);
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  deflate(&stream, Z_FINISH);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

Result<std::string> gunzip(std::string_view packed, const std::string& where, size_t max_bytes) {
  std::string out;
  size_t at = 0;
  do {
    FATHOM_ASSIGN_OR_RETURN(const size_t used,
                            add_member(packed.substr(at), {where, at}, max_bytes, out));
    at += used;
  } while (packed.find_first_not_of('\0', at) != std::string_view::npos);
  return out;
}

}  // namespace fathom::train
