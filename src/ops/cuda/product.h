#pragma once

// Products of rows and weights with the CPU's summation tree (ops/cpu/dot.h): 16 lanes of a warp
// are the 16 virtual lanes of one output. Bit for bit what ops/cpu gives. spec/backbone.md 2.3
//
// A fast kernel of a format takes its place beside this one, behind the same arguments.

#include <cuda_runtime_api.h>

#include "tensor/tensor.h"

namespace fathom::cuda {

// Rows [begin, end) of the product meet the weight `expert` of a table.
struct RowTile {
  int32_t expert = 0;
  int32_t begin = 0;
  int32_t end = 0;
};
inline constexpr int kTileRows = 8;  // rows of a RowTile at most

struct WeightPointers {
  const void* data = nullptr;
  const uint8_t* scale = nullptr;
};

// A matrix of any stored form, or one for each expert of a table, all of one shape and form.
struct ProductWeight {
  WeightFormat format = WeightFormat::kBf16;
  WeightPointers one;
  WeightPointers other;                   // of the second plane, where there is no table
  const WeightPointers* table = nullptr;  // on the device; row `expert` holds `matrices` of them
  int matrices = 1;                       // of a table row; grid plane z takes matrix `first + z`
  int first = 0;
  int64_t data_stride = 0;   // bytes of a row
  int64_t scale_stride = 0;  // bytes of a row of scales
};

// Rows by their A8 form or by their bf16 values: what the format takes, unless `as_bf16`.
struct ProductRows {
  const uint16_t* bf16 = nullptr;
  const uint8_t* codes = nullptr;
  const uint8_t* scales = nullptr;
  int64_t bf16_stride = 0;  // elements
  int64_t code_stride = 0;
  int64_t scale_stride = 0;
  bool as_bf16 = false;
};

struct ProductArgs {
  float* out = nullptr;          // [n_rows, O] fp32, or
  uint16_t* out_bf16 = nullptr;  // rounded once
  int64_t out_stride = 0;
  int64_t plane_stride = 0;  // elements between the outputs of two planes
  int planes = 1;
  ProductRows x;
  const int32_t* x_rows = nullptr;  // product row r reads row x_rows[r] of x; null: row r
  ProductWeight w;
  const RowTile* tiles = nullptr;  // on the device, max_tiles of them, empty ones last
  int64_t max_tiles = 0;
  int64_t n_rows = 0;  // where there are no tiles
  int64_t n_out = 0;   // O
  int64_t in = 0;      // I
  int64_t groups = 1;  // group g of x, I wide, meets rows [g O/groups, (g+1) O/groups)
};
void launch_product(const ProductArgs& args, cudaStream_t stream);

// The same bits from a kernel that reads the weight as fast as memory gives it, for rows by their
// bf16 values and widths that are multiples of 256; false, and nothing done, for any other product.
bool launch_wide_product(const ProductArgs& args, cudaStream_t stream);

// A weight, or rows, as the words have them.
ProductWeight product_weight(const Weight& w);
ProductRows product_rows(const Activation& x);

}  // namespace fathom::cuda
