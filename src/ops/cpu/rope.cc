#include "ops/cpu/rope.h"

#include "ops/cpu/cpu_ops.h"
#include "ops/cpu/lanes.h"

namespace fathom {

void CpuOps::do_rope(const RopeArgs& args) {
  const int64_t half = args.inv_freq.dim(0);
  pool_.parallel_for(args.rows->n_rows(), cpu::row_grain(32 * half),
                     [&](int64_t begin, int64_t end) {
                       for (int64_t row = begin; row < end; ++row) {
                         cpu::rotation_at(args.rows->position(row), args.inv_freq.as<float>(), half,
                                          args.cos.row<float>(row), args.sin.row<float>(row));
                       }
                     });
}

}  // namespace fathom
