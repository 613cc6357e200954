// Any bytes are a file: the header is refused in one line, or every tensor lies inside the file and
// is written back as an equal header.

#include <cstdint>
#include <cstdlib>

#include "base/check.h"
#include "checkpoint/safetensors.h"
#include "tensor/tensor.h"

namespace {

using namespace fathom;

void check_header(const SafetensorsHeader& header, size_t file_bytes) {
  uint64_t last = 0;
  for (const SafetensorsEntry& tensor : header.tensors) {
    FATHOM_CHECK(tensor.begin <= tensor.end);
    FATHOM_CHECK(tensor.end <= file_bytes);
    FATHOM_CHECK(tensor.begin >= last);
    last = tensor.end;
    uint64_t bytes = static_cast<uint64_t>(dtype_bytes(tensor.dtype));
    for (const int64_t d : tensor.shape) bytes *= static_cast<uint64_t>(d);
    FATHOM_CHECK(bytes == tensor.end - tensor.begin);
    (void)shape_text(tensor.shape);
  }
}

bool is_plain(const SafetensorsEntry& tensor) {
  return printable(tensor.name) == tensor.name &&
         tensor.name.find_first_of("\"\\") == std::string::npos && tensor.name != "__metadata__";
}

// Writing the accepted tensors and reading them again changes nothing but positions.
void check_round_trip(const SafetensorsHeader& header) {
  uint64_t data_bytes = 0;
  for (const SafetensorsEntry& tensor : header.tensors) {
    if (!is_plain(tensor)) return;
    data_bytes += tensor.end - tensor.begin;
  }
  const std::string file = format_safetensors(header.tensors) + std::string(data_bytes, '\0');
  const auto again = parse_safetensors(std::as_bytes(std::span(file)), "again");
  FATHOM_CHECK(again.has_value());
  FATHOM_CHECK(again->tensors.size() == header.tensors.size());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto header = parse_safetensors({reinterpret_cast<const std::byte*>(data), size}, "f");
  if (!header) {
    FATHOM_CHECK(header.error().message.find('\n') == std::string::npos);
    return 0;
  }
  check_header(*header, size);
  check_round_trip(*header);
  return 0;
}
