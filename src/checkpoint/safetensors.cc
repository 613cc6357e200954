#include "checkpoint/safetensors.h"

#include <algorithm>
#include <boost/json/basic_parser_impl.hpp>
#include <charconv>
#include <cstring>
#include <iterator>
#include <limits>
#include <optional>

#include "base/check.h"
#include "tensor/tensor.h"

namespace fathom {
namespace {

namespace json = boost::json;

constexpr size_t kNameBytesMax = 1024;
constexpr uint64_t kUnset = std::numeric_limits<uint64_t>::max();

std::optional<DType> dtype_from(std::string_view name) {
  for (const DType dtype : {DType::kBf16, DType::kF32, DType::kE4m3, DType::kE8m0, DType::kI8,
                            DType::kU8, DType::kI32, DType::kI64}) {
    if (dtype_name(dtype) == name) return dtype;
  }
  return std::nullopt;
}

// One tensor as it stands in the header, before it is checked.
struct RawEntry {
  std::string name;
  std::string dtype;
  bool has_dtype = false;
  bool has_shape = false;
  std::vector<uint64_t> shape;
  std::vector<uint64_t> offsets;
};

// Receives the parser's events. The grammar is three levels deep, so the depth and the last keys
// say where an event belongs; whatever does not belong is the first and only error.
class HeaderEvents {
 public:
  // NOLINTBEGIN(readability-identifier-naming): names that Boost.JSON's parser looks for
  static constexpr size_t max_object_size = size_t(-1);
  static constexpr size_t max_array_size = size_t(-1);
  static constexpr size_t max_key_size = size_t(-1);
  static constexpr size_t max_string_size = size_t(-1);
  // NOLINTEND(readability-identifier-naming)

  std::vector<RawEntry> entries;
  std::map<std::string, std::string> metadata;
  std::string problem;

  bool on_document_begin(json::error_code&) { return true; }
  bool on_document_end(json::error_code&) { return true; }

  bool on_object_begin(json::error_code& code) {
    if (depth_ >= 2 || list_ != nullptr)
      return fail(code, "a flat description of a tensor", "an object inside it");
    ++depth_;
    return true;
  }
  bool on_object_end(size_t, json::error_code&) {
    --depth_;
    return true;
  }

  bool on_key_part(json::string_view part, size_t, json::error_code& code) {
    return collect(part, code);
  }
  bool on_key(json::string_view part, size_t, json::error_code& code) {
    if (!collect(part, code)) return false;
    std::string key = std::exchange(text_, {});
    if (depth_ == 2) {
      field_ = std::move(key);
      return in_metadata_ ? unique_metadata(code) : known_field(code);
    }
    in_metadata_ = key == "__metadata__";
    if (in_metadata_ && has_metadata_) return fail(code, "__metadata__ once", "it twice");
    has_metadata_ = has_metadata_ || in_metadata_;
    if (!in_metadata_) entries.push_back({.name = std::move(key)});
    return true;
  }

  bool on_string_part(json::string_view part, size_t, json::error_code& code) {
    return collect(part, code);
  }
  bool on_string(json::string_view part, size_t, json::error_code& code) {
    if (!collect(part, code)) return false;
    std::string value = std::exchange(text_, {});
    if (depth_ == 2 && in_metadata_) {
      metadata[field_] = std::move(value);
      return true;
    }
    if (depth_ != 2 || list_ != nullptr || field_ != "dtype")
      return fail(code, kFieldsWanted, printable(value));
    entries.back().dtype = std::move(value);
    return true;
  }

  bool on_array_begin(json::error_code& code) {
    if (depth_ != 2 || in_metadata_ || list_ != nullptr) return fail(code, kFieldsWanted, "a list");
    if (field_ == "shape") list_ = &entries.back().shape;
    if (field_ == "data_offsets") list_ = &entries.back().offsets;
    return list_ != nullptr || fail(code, kFieldsWanted, "a list as " + printable(field_));
  }
  bool on_array_end(size_t, json::error_code&) {
    list_ = nullptr;
    return true;
  }

  bool on_number_part(json::string_view, json::error_code&) { return true; }
  bool on_int64(int64_t value, json::string_view, json::error_code& code) {
    if (list_ == nullptr || value < 0) {
      return fail(code, "whole numbers in shape and data_offsets", std::to_string(value));
    }
    if (list_->size() >= kMaxRank) {
      return fail(code, "at most " + std::to_string(kMaxRank) + " dimensions", "more");
    }
    list_->push_back(static_cast<uint64_t>(value));
    return true;
  }
  bool on_uint64(uint64_t value, json::string_view, json::error_code& code) {
    return fail(code, "numbers below 2^63", std::to_string(value));
  }
  bool on_double(double value, json::string_view, json::error_code& code) {
    char digits[32];
    const auto end = std::to_chars(std::begin(digits), std::end(digits), value).ptr;
    return fail(code, "whole numbers", std::string(digits, end));
  }
  bool on_bool(bool value, json::error_code& code) {
    return fail(code, kFieldsWanted, value ? "true" : "false");
  }
  bool on_null(json::error_code& code) { return fail(code, kFieldsWanted, "null"); }
  bool on_comment_part(json::string_view, json::error_code&) { return true; }
  bool on_comment(json::string_view, json::error_code&) { return true; }

 private:
  static constexpr const char* kFieldsWanted = "dtype, shape and data_offsets";

  bool fail(json::error_code& code, const std::string& wanted, const std::string& found) {
    const std::string tensor =
        in_metadata_ || entries.empty() ? "header" : "tensor " + printable(entries.back().name);
    problem = tensor + ": wanted " + wanted + ", found " + found;
    code = json::error::syntax;
    return false;
  }
  bool collect(json::string_view part, json::error_code& code) {
    if (!in_metadata_ && text_.size() + part.size() > kNameBytesMax) {
      return fail(code, "names of at most " + std::to_string(kNameBytesMax) + " bytes",
                  "a longer one");
    }
    text_.append(part.data(), part.size());
    return true;
  }
  bool unique_metadata(json::error_code& code) {
    return !metadata.contains(field_) ||
           fail(code, "each metadata key once", printable(field_) + " twice");
  }
  bool known_field(json::error_code& code) {
    RawEntry& entry = entries.back();
    const bool repeated = (field_ == "dtype" && std::exchange(entry.has_dtype, true)) ||
                          (field_ == "shape" && std::exchange(entry.has_shape, true)) ||
                          (field_ == "data_offsets" && !entry.offsets.empty());
    const bool known = field_ == "dtype" || field_ == "shape" || field_ == "data_offsets";
    return (known && !repeated) || fail(code, "dtype, shape and data_offsets, each once",
                                        printable(field_) + (known ? " twice" : ""));
  }

  int depth_ = 0;
  bool in_metadata_ = false;
  bool has_metadata_ = false;
  std::string text_;
  std::string field_;
  std::vector<uint64_t>* list_ = nullptr;
};

// Elements of a shape, or kUnset if they do not fit below `limit`.
uint64_t count_elements(const std::vector<uint64_t>& shape, uint64_t limit) {
  uint64_t n = 1;
  for (const uint64_t d : shape) {
    if (d != 0 && n > limit / d) return kUnset;
    n *= d;
  }
  return n;
}

// A described tensor against its own shape and the size of the data.
Result<SafetensorsEntry> check_entry(const RawEntry& raw, uint64_t data_begin, uint64_t data_bytes,
                                     const std::string& where) {
  const std::string at = where + ": tensor " + printable(raw.name) + ": ";
  const std::optional<DType> dtype = dtype_from(raw.dtype);
  if (!dtype) {
    return invalid(at + "wanted a dtype of BF16, F32, F8_E4M3, F8_E8M0, I8, U8, I32, I64, found " +
                   (raw.has_dtype ? printable(raw.dtype) : "nothing"));
  }
  if (!raw.has_shape) return invalid(at + "wanted shape, found nothing");
  if (raw.offsets.size() != 2) {
    return invalid(at + "wanted two data_offsets, found " + std::to_string(raw.offsets.size()));
  }
  const auto [begin, end] = std::pair(raw.offsets[0], raw.offsets[1]);
  if (begin > end || end > data_bytes) {
    return invalid(at + "wanted data_offsets inside " + std::to_string(data_bytes) +
                   " bytes of data, found [" + std::to_string(begin) + ", " + std::to_string(end) +
                   "]");
  }
  const auto element = static_cast<uint64_t>(dtype_bytes(*dtype));
  const uint64_t n = count_elements(raw.shape, data_bytes / element + 1);
  if (n == kUnset || n * element != end - begin) {
    const std::vector<int64_t> shape(raw.shape.begin(), raw.shape.end());
    return invalid(at + "wanted the bytes of " + raw.dtype + " " + shape_text(shape) + ", found " +
                   std::to_string(end - begin) + " bytes");
  }
  return SafetensorsEntry{.name = raw.name,
                          .dtype = *dtype,
                          .shape = {raw.shape.begin(), raw.shape.end()},
                          .begin = data_begin + begin,
                          .end = data_begin + end};
}

Result<void> check_names(const std::vector<SafetensorsEntry>& tensors, const std::string& where) {
  std::vector<std::string_view> names;
  for (const SafetensorsEntry& tensor : tensors) names.push_back(tensor.name);
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  if (twice == names.end()) return {};
  return invalid(where + ": tensor " + printable(*twice) +
                 ": wanted each name once, found it twice");
}

Result<void> check_coverage(const std::vector<SafetensorsEntry>& tensors, uint64_t data_begin,
                            uint64_t file_bytes, const std::string& where) {
  uint64_t expected = data_begin;
  for (const SafetensorsEntry& tensor : tensors) {
    if (tensor.begin != expected) {
      const char* what = tensor.begin < expected ? "an overlap" : "a gap";
      return invalid(where + ": tensor " + printable(tensor.name) + ": wanted data at byte " +
                     std::to_string(expected) + ", found " + what + " at byte " +
                     std::to_string(tensor.begin));
    }
    expected = tensor.end;
  }
  if (expected == file_bytes) return {};
  return invalid(where + ": wanted " + std::to_string(expected) +
                 " bytes for all tensors of the header, found " + std::to_string(file_bytes));
}

Result<uint64_t> header_end(std::span<const std::byte> file, const std::string& where) {
  uint64_t header_bytes = 0;
  if (file.size() < sizeof(header_bytes)) {
    return invalid(where + ": wanted 8 bytes of header length, found a file of " +
                   std::to_string(file.size()) + " bytes");
  }
  std::memcpy(&header_bytes, file.data(), sizeof(header_bytes));
  const uint64_t room = file.size() - sizeof(header_bytes);
  if (header_bytes > std::min(room, kHeaderBytesMax)) {
    return invalid(where + ": wanted a header of at most " +
                   std::to_string(std::min(room, kHeaderBytesMax)) + " bytes, found a length of " +
                   std::to_string(header_bytes));
  }
  return sizeof(header_bytes) + header_bytes;
}

}  // namespace

std::string printable(std::string_view name) {
  constexpr size_t kShown = 160;
  std::string text(name.substr(0, kShown));
  for (char& c : text) {
    if (c < ' ' || c == 0x7f) c = '?';
  }
  if (name.size() > kShown) text += "...";
  return text;
}

Result<SafetensorsHeader> parse_safetensors(std::span<const std::byte> file,
                                            const std::string& where) {
  FATHOM_ASSIGN_OR_RETURN(const uint64_t data_begin, header_end(file, where));
  json::basic_parser<HeaderEvents> parser(json::parse_options{});
  json::error_code code;
  const char* text = reinterpret_cast<const char*>(file.data()) + sizeof(uint64_t);
  const size_t length = data_begin - sizeof(uint64_t);
  const size_t used = parser.write_some(false, text, length, code);
  const HeaderEvents& events = parser.handler();
  if (code) {
    return invalid(where + ": " +
                   (events.problem.empty() ? "header: wanted JSON, found: " + code.message()
                                           : events.problem));
  }
  if (!std::all_of(text + used, text + length, [](char c) { return c == ' '; })) {
    return invalid(where + ": header: wanted spaces after the JSON object, found more text");
  }
  SafetensorsHeader header;
  header.metadata = events.metadata;
  for (const RawEntry& raw : events.entries) {
    FATHOM_ASSIGN_OR_RETURN(SafetensorsEntry entry,
                            check_entry(raw, data_begin, file.size() - data_begin, where));
    header.tensors.push_back(std::move(entry));
  }
  FATHOM_RETURN_IF_ERROR(check_names(header.tensors, where));
  // Empty tensors sort before the one that starts at the same byte.
  std::stable_sort(header.tensors.begin(), header.tensors.end(), [](const auto& a, const auto& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  FATHOM_RETURN_IF_ERROR(check_coverage(header.tensors, data_begin, file.size(), where));
  return header;
}

std::string format_safetensors(std::span<const SafetensorsEntry> tensors) {
  std::string text = "{";
  uint64_t offset = 0;
  for (const SafetensorsEntry& tensor : tensors) {
    FATHOM_CHECK(printable(tensor.name) == tensor.name);
    FATHOM_CHECK(tensor.name.find_first_of("\"\\") == std::string::npos);
    uint64_t bytes = static_cast<uint64_t>(dtype_bytes(tensor.dtype));
    std::string shape;
    for (const int64_t d : tensor.shape) {
      bytes *= static_cast<uint64_t>(d);
      shape += (shape.empty() ? "" : ",") + std::to_string(d);
    }
    if (text.size() > 1) text += ',';
    text += "\"" + tensor.name + "\":{\"dtype\":\"" + std::string(dtype_name(tensor.dtype)) +
            "\",\"shape\":[" + shape + "],\"data_offsets\":[" + std::to_string(offset) + "," +
            std::to_string(offset + bytes) + "]}";
    offset += bytes;
  }
  text += '}';
  while ((sizeof(uint64_t) + text.size()) % 64 != 0) text += ' ';
  const uint64_t length = text.size();
  std::string header(sizeof(length), '\0');
  std::memcpy(header.data(), &length, sizeof(length));
  return header + text;
}

}  // namespace fathom
