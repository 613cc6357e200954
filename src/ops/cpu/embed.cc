#include <cstring>

#include "ops/cpu/cpu_ops.h"
#include "tensor/codecs.h"

namespace fathom {

void CpuOps::do_embed(const EmbedArgs& args) {
  const int64_t n = args.residual.dim(1);
  const int64_t hidden = args.residual.dim(2);
  const size_t bytes = static_cast<size_t>(hidden) * sizeof(Bf16);
  for (int64_t row = 0; row < args.ids.dim(0); ++row) {
    const int32_t id = args.ids.as<int32_t>()[row];
    FATHOM_CHECK(id >= 0 && id < args.table.dim(0));
    Bf16* out = args.residual.row<Bf16>(row);
    for (int64_t s = 0; s < n; ++s) {
      std::memcpy(out + s * hidden, args.table.row<Bf16>(id), bytes);
    }
  }
}

}  // namespace fathom
