#pragma once

// The header of one safetensors file: 8 bytes of little-endian length, a JSON object
// name -> {dtype, shape, data_offsets}, then the data. Offsets count from the end of the header.
//
// A header is accepted only if the tensors cover the data without gap or overlap, each has exactly
// the bytes that its shape and dtype ask for, and no name stands twice. Everything is bounded by
// the size of the file, which is never read beyond its end.

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "tensor/dtype.h"

namespace fathom {

inline constexpr uint64_t kHeaderBytesMax = 100'000'000;

struct SafetensorsEntry {
  std::string name;
  DType dtype = DType::kBf16;
  std::vector<int64_t> shape;  // at most kMaxRank dimensions
  uint64_t begin = 0;          // in the file
  uint64_t end = 0;
};

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> tensors;  // by ascending position in the file
  std::map<std::string, std::string> metadata;
};

// `file` is the whole file; `where` names it in messages.
Result<SafetensorsHeader> parse_safetensors(std::span<const std::byte> file,
                                            const std::string& where);

// The header for tensors laid out one after another in the given order, with its length in front,
// padded so that the data starts on a multiple of 64 bytes. Their begin and end are ignored.
std::string format_safetensors(std::span<const SafetensorsEntry> tensors);

// A name from a file, fit for a one-line message.
std::string printable(std::string_view name);

}  // namespace fathom
