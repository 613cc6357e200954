#include <cstring>

#include "ops/cpu/cpu_ops.h"

namespace fathom {

void CpuOps::do_gather_rows(const GatherRowsArgs& args) {
  const int64_t row_bytes = args.in.stride[0] * dtype_bytes(args.in.dtype);
  auto* out = static_cast<std::byte*>(args.out.data);
  const auto* in = static_cast<const std::byte*>(args.in.data);
  for (const int64_t row : args.rows) {
    std::memcpy(out, in + row * row_bytes, static_cast<size_t>(row_bytes));
    out += row_bytes;
  }
}

}  // namespace fathom
