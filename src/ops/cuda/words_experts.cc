#include <cstring>

#include "ops/cuda/cuda_ops.h"
#include "ops/cuda/dense_decode.h"
#include "ops/cuda/experts.h"
#include "ops/cuda/experts_decode.h"
#include "ops/cuda/experts_prefill.h"
#include "ops/cuda/route.h"

// The router and the experts.

namespace fathom {
namespace {

// Places in Scratch.
constexpr size_t kRouteScores = 0;
constexpr size_t kSlots = 0;
constexpr size_t kPairs = 1;
constexpr size_t kHidden = 2;
constexpr size_t kCodes = 3;
constexpr size_t kRouted = 4;
constexpr size_t kShared = 5;
constexpr size_t kTiles = 6;
constexpr size_t kPieces = 7;

uint16_t* bf16(const Tensor& t) { return static_cast<uint16_t*>(t.data); }
float* f32(const Tensor& t) { return static_cast<float*>(t.data); }

bool takes_a8(const Weight& w) {
  return w.format == WeightFormat::kFp8Block32 || w.format == WeightFormat::kFp4Row32;
}

cuda::WeightPointers pointers(const Weight& w) {
  return {w.data.data, static_cast<const uint8_t*>(w.scale.data)};
}

// w1 of an expert, standing for all of a table.
bool alike(const Weight& a, const Weight& b) {
  return a.format == b.format && a.data.stride[0] == b.data.stride[0] && a.out() == b.out();
}

// Choices of all rows, ordered by expert; one piece of memory.
struct Slots {
  int32_t* row = nullptr;          // [n]
  int32_t* of = nullptr;           // [N, k]
  float* weight = nullptr;         // [n]
  cuda::RowTile* tiles = nullptr;  // [n_tiles]
  int64_t n = 0;
  int64_t n_tiles = 0;

  static int64_t words(int64_t n, int64_t n_tiles) { return 3 * n + 3 * n_tiles; }
  Slots(int32_t* memory, int64_t n_slots, int64_t tile_count)
      : row(memory),
        of(memory + n_slots),
        weight(reinterpret_cast<float*>(memory + 2 * n_slots)),
        tiles(reinterpret_cast<cuda::RowTile*>(memory + 3 * n_slots)),
        n(n_slots),
        n_tiles(tile_count) {}
};

void group(const ExpertsArgs& args, const Slots& slots, cudaStream_t stream) {
  cuda::launch_group({.slot_row = slots.row,
                      .slot_of = slots.of,
                      .slot_weight = slots.weight,
                      .tiles = slots.tiles,
                      .ids = static_cast<const int32_t*>(args.ids.data),
                      .weights = f32(args.weights),
                      .id_stride = args.ids.stride[0],
                      .weight_stride = args.weights.stride[0],
                      .n_rows = args.x.n_rows(),
                      .k = args.ids.dim(1),
                      .n_experts = static_cast<int64_t>(args.experts.size()),
                      .max_tiles = slots.n_tiles},
                     stream);
}

}  // namespace

void CudaOps::do_route(const RouteArgs& args) {
  const int64_t n_rows = args.x.n_rows();
  const int64_t n_experts = args.gate.out();
  if (n_rows == 0) return;
  auto* scores = scratch_.get<float>(kRouteScores, n_rows * n_experts);
  if (memory_->failed()) return;
  cuda::launch_product({.out = scores,
                        .out_stride = n_experts,
                        .x = cuda::product_rows(args.x),
                        .w = cuda::product_weight(args.gate),
                        .n_rows = n_rows,
                        .n_out = n_experts,
                        .in = args.gate.in()},
                       stream());
  if (probing()) {
    cuda::launch_sqrt_softplus(scores, n_rows * n_experts, stream());
    show("moe.scores", made(scores, DType::kF32, {n_rows, n_experts}));
  }
  cuda::launch_route({.ids = static_cast<int32_t*>(args.ids.data),
                      .weights = f32(args.weights),
                      .id_stride = args.ids.stride[0],
                      .weight_stride = args.weights.stride[0],
                      .scores = scores,
                      .raw = !probing(),
                      .bias = f32(args.bias),
                      .bias_image = f32(args.bias_image),
                      .image_mask = static_cast<const uint8_t*>(args.image_mask.data),
                      .n_rows = n_rows,
                      .n_experts = n_experts,
                      .k = args.ids.dim(1),
                      .scale = args.scale},
                     stream());
  show("moe.ids", args.ids);
  show("moe.weights", args.weights);
  done("route");
}

const cuda::WeightPointers* CudaOps::expert_table(std::span<const ExpertWeights> experts) {
  std::vector<cuda::WeightPointers> host;
  host.reserve(3 * experts.size());
  for (const ExpertWeights& e : experts) {
    FATHOM_CHECK(alike(e.w1, experts[0].w1) && alike(e.w3, experts[0].w1));
    FATHOM_CHECK(alike(e.w2, experts[0].w2));
    host.insert(host.end(), {pointers(e.w1), pointers(e.w3), pointers(e.w2)});
  }
  const auto n_bytes = static_cast<int64_t>(host.size() * sizeof(host[0]));
  ExpertTable& table = expert_tables_[experts.data()];
  const bool known = table.host.size() == host.size() &&
                     std::memcmp(table.host.data(), host.data(), static_cast<size_t>(n_bytes)) == 0;
  if (known) return reinterpret_cast<const cuda::WeightPointers*>(table.device.data());
  if (!recording_.active()) memory_->check(cudaStreamSynchronize(stream()), "experts");
  Result<Buffer> device = memory_->allocate(n_bytes, "table of experts");
  if (!device) {
    memory_->fail(device.error());
    return nullptr;
  }
  table.device = std::move(*device);
  table.host = std::move(host);
  memory_->write(table.device.data(), table.host.data(), n_bytes);
  return reinterpret_cast<const cuda::WeightPointers*>(table.device.data());
}

// The products of one kind of expert over its slots.
struct cuda::ExpertPass {
  const Activation* x = nullptr;
  cuda::ProductWeight w1;  // and w3 in the next plane
  cuda::ProductWeight w2;
  int64_t width = 0;                // of w2's input
  bool quantised = false;           // w2 takes the A8 form
  const int32_t* x_rows = nullptr;  // [n] or null
  const float* weight = nullptr;    // [n] or null
  const cuda::RowTile* tiles = nullptr;
  int64_t max_tiles = 0;
  int64_t n = 0;            // slots
  uint16_t* out = nullptr;  // [n, D]
};

void CudaOps::run_experts(const cuda::ExpertPass& pass, float limit) {
  const int64_t hidden = pass.x->width();
  const int64_t n_values = pass.n * pass.width;
  auto* pair = scratch_.get<uint16_t>(kPairs, 2 * n_values);
  auto* input = scratch_.get<uint16_t>(kHidden, n_values);
  auto* codes = scratch_.get<uint8_t>(kCodes, n_values + n_values / 32 + 1);
  if (memory_->failed()) return;
  cuda::launch_product({.out_bf16 = pair,
                        .out_stride = pass.width,
                        .plane_stride = n_values,
                        .planes = 2,
                        .x = cuda::product_rows(*pass.x),
                        .x_rows = pass.x_rows,
                        .w = pass.w1,
                        .tiles = pass.tiles,
                        .max_tiles = pass.max_tiles,
                        .n_rows = pass.n,
                        .n_out = pass.width,
                        .in = hidden},
                       stream());
  uint8_t* scales = codes + n_values;
  cuda::launch_swiglu({.out = input,
                       .codes = pass.quantised ? codes : nullptr,
                       .scales = pass.quantised ? scales : nullptr,
                       .gate = pair,
                       .up = pair + n_values,
                       .weight = pass.weight,
                       .n = pass.n,
                       .width = pass.width,
                       .limit = limit},
                      stream());
  cuda::launch_product({.out_bf16 = pass.out,
                        .out_stride = hidden,
                        .x = {.bf16 = input,
                              .codes = codes,
                              .scales = scales,
                              .bf16_stride = pass.width,
                              .code_stride = pass.width,
                              .scale_stride = pass.width / 32},
                        .w = pass.w2,
                        .tiles = pass.tiles,
                        .max_tiles = pass.max_tiles,
                        .n_rows = pass.n,
                        .n_out = hidden,
                        .in = pass.width},
                       stream());
}

namespace {

// The room of a grouping in one piece of ints.
cuda::Routes routes_in(int32_t* room, int64_t n_experts, int64_t n_pairs) {
  cuda::Routes routes;
  routes.active = room;
  routes.n_active = room + n_experts;
  routes.offsets = routes.n_active + 1;
  routes.pair_row = routes.offsets + n_experts + 1;
  routes.pair_weight = reinterpret_cast<float*>(routes.pair_row + n_pairs);
  routes.row_pairs = routes.pair_row + 2 * n_pairs;
  return routes;
}

// Pairs of an expert that are brought at a time: about as many as it has.
int columns_for(int64_t n_pairs, int64_t n_experts) {
  const int64_t each = (n_pairs + n_experts - 1) / n_experts;
  return each <= 8 ? 8 : each <= 16 ? 16 : 32;
}

constexpr int64_t kPieceRows = 1024;  // of one grouping
constexpr int kManyPairs = 24;        // of an expert

}  // namespace

// Rows of one grouping, and the room that its kernels share.
struct cuda::ExpertsPiece {
  const cuda::FastExperts* packed = nullptr;
  Activation x;
  Tensor ids;      // [rows, k]
  Tensor weights;  // [rows, k]
  int rows = 0;
  int k = 0;
  int experts = 0;
  int hidden = 0;
  int width = 0;
  float limit = 0;
  cuda::Routes routes;
  uint8_t* codes = nullptr;  // [pairs and rows, width]: of the pairs, then of the shared expert
  uint8_t* scales = nullptr;
  uint16_t* routed = nullptr;  // [pairs, hidden]
  // For many pairs an expert; null: there are few, or the kernels for them are not to be taken.
  cuda::ExpertTile* tiles = nullptr;
  int* n_tiles = nullptr;
  uint8_t* pieces = nullptr;
  uint16_t* shared = nullptr;  // [rows, hidden]

  int64_t pairs() const { return int64_t{rows} * k; }
  const uint8_t* x_codes() const { return static_cast<const uint8_t*>(x.codes.data); }
  const uint8_t* x_scales() const { return static_cast<const uint8_t*>(x.scales.data); }
};

void CudaOps::run_shared(const cuda::ExpertsPiece& p) {
  uint8_t* codes = p.codes + p.pairs() * p.width;
  uint8_t* scales = p.scales + p.pairs() * (p.width / 32);
  const cuda::DensePairDecode pair = {.product = {.units = p.packed->shared_pair_units,
                                                  .x = p.x_codes(),
                                                  .x_scales = p.x_scales(),
                                                  .m = p.rows,
                                                  .n = 2 * p.width,
                                                  .k = p.hidden},
                                      .codes = codes,
                                      .scales = scales,
                                      .limit = p.limit};
  dense_pair_fast(pair, "experts");
  dense_fast({.units = p.packed->shared_down_units,
              .x = codes,
              .x_scales = scales,
              .out = p.shared,
              .m = p.rows,
              .n = p.hidden,
              .k = p.width},
             "experts");
}

namespace {

// From here on the kernels for many rows are the faster ones.
bool many_pairs(const cuda::ExpertsPiece& p) {
  return p.pairs() >= int64_t{kManyPairs} * p.experts && p.hidden >= p.width;
}

cudaError_t run_routed(const cuda::ExpertsPiece& p, cudaStream_t stream) {
  const cuda::ExpertsDecode product = {
      .gate_up_units = p.packed->gate_up_units,
      .gate_up_scales = p.packed->gate_up_scales,
      .down_units = p.packed->down_units,
      .down_scales = p.packed->down_scales,
      .experts = p.experts,
      .d = p.hidden,
      .width = p.width,
      .routes = p.routes,
      .settled = true,  // the shared expert's kernels stand between
      .max_active = static_cast<int>(std::min<int64_t>(p.experts, p.pairs())),
      .columns = columns_for(p.pairs(), p.experts),
      .x = p.x_codes(),
      .x_scales = p.x_scales(),
      .limit = p.limit,
      .hidden = p.codes,
      .hidden_scales = p.scales,
      .out = p.routed};
  if (p.pieces != nullptr && many_pairs(p)) {
    return cuda::experts_prefill({.product = product,
                                  .pairs = static_cast<int>(p.pairs()),
                                  .tiles = p.tiles,
                                  .n_tiles = p.n_tiles,
                                  .pieces = p.pieces},
                                 stream);
  }
  const cudaError_t status = cuda::experts_gate_up(product, stream);
  return status != cudaSuccess ? status : cuda::experts_down(product, stream);
}

}  // namespace

void CudaOps::room_for_many(cuda::ExpertsPiece& p) {
  const auto pairs = static_cast<int>(p.pairs());
  const int most = cuda::ExpertsPrefill::most_tiles(pairs, p.experts);
  p.tiles = scratch_.get<cuda::ExpertTile>(kTiles, most + 1);
  if (p.tiles == nullptr) return;
  p.n_tiles = reinterpret_cast<int*>(p.tiles + most);
  p.pieces = scratch_.get<uint8_t>(
      kPieces, static_cast<int64_t>(cuda::ExpertsPrefill::piece_bytes(pairs, p.experts, p.hidden)));
}

// Routed and shared experts on tensor cores, in pieces of rows: what a row gives does not depend on
// the piece. False where the layer was not packed.
bool CudaOps::experts_fast(const ExpertsArgs& args) {
  cuda::ExpertsPiece piece = {.packed = fast() ? fast_.experts(args.experts) : nullptr,
                              .k = static_cast<int>(args.ids.dim(1)),
                              .experts = static_cast<int>(args.experts.size()),
                              .hidden = static_cast<int>(args.x.width()),
                              .width = static_cast<int>(args.shared.w2.in()),
                              .limit = args.swiglu_limit};
  if (piece.packed == nullptr || piece.k > 8 || piece.experts > 1024 || args.swiglu_limit <= 0 ||
      args.experts[0].w2.in() != piece.width) {
    return false;
  }
  const int64_t n_rows = args.x.n_rows();
  const int64_t most = std::min(n_rows, kPieceRows);
  const int64_t pairs = most * piece.k;
  const int64_t codes = (pairs + most) * piece.width;
  auto* room = scratch_.get<int32_t>(kSlots, 2 * piece.experts + 2 + 3 * pairs);
  piece.codes = scratch_.get<uint8_t>(kCodes, codes + codes / 32);
  piece.scales = piece.codes + codes;
  piece.routed = scratch_.get<uint16_t>(kRouted, pairs * piece.hidden);
  piece.shared = scratch_.get<uint16_t>(kShared, most * piece.hidden);
  piece.rows = static_cast<int>(most);
  if (many_pairs(piece)) room_for_many(piece);
  for (int64_t row = 0; row < n_rows && !memory_->failed(); row += most) {
    const int64_t end = std::min(row + most, n_rows);
    piece.rows = static_cast<int>(end - row);
    piece.x = args.x.rows(row, end);
    piece.ids = args.ids.rows(row, end);
    piece.weights = args.weights.rows(row, end);
    piece.routes = routes_in(room, piece.experts, piece.pairs());
    memory_->check(cuda::group_routes({.ids = static_cast<const int32_t*>(piece.ids.data),
                                       .weights = f32(piece.weights),
                                       .rows = piece.rows,
                                       .k = piece.k,
                                       .experts = piece.experts,
                                       .routes = piece.routes},
                                      stream()),
                   "experts");
    run_shared(piece);
    memory_->check(run_routed(piece, stream()), "experts");
    memory_->check(cuda::combine_experts({.row_pairs = piece.routes.row_pairs,
                                          .pairs = piece.routed,
                                          .shared = piece.shared,
                                          .y = bf16(args.y.rows(row, end)),
                                          .rows = piece.rows,
                                          .k = piece.k,
                                          .d = piece.hidden},
                                         stream()),
                   "experts");
  }
  done("experts");
  return true;
}

void CudaOps::do_experts(const ExpertsArgs& args) {
  const int64_t n_rows = args.x.n_rows();
  const int64_t hidden = args.x.width();
  const int64_t k = args.ids.dim(1);
  const int64_t n_slots = n_rows * k;
  FATHOM_CHECK(k <= cuda::kMaxChosen);
  if (n_rows == 0) return;
  if (experts_fast(args)) return;
  const int64_t n_tiles = cuda::max_tiles(n_slots, static_cast<int64_t>(args.experts.size()));
  const cuda::WeightPointers* table = expert_table(args.experts);
  auto* room = scratch_.get<int32_t>(kSlots, Slots::words(n_slots, n_tiles));
  auto* routed = scratch_.get<uint16_t>(kRouted, n_slots * hidden);
  auto* shared = scratch_.get<uint16_t>(kShared, n_rows * hidden);
  if (memory_->failed()) return;
  const Slots slots(room, n_slots, n_tiles);
  group(args, slots, stream());
  const auto of_table = [&](const Weight& w, int first) {
    cuda::ProductWeight weight = cuda::product_weight(w);
    weight.table = table;
    weight.matrices = 3;
    weight.first = first;
    return weight;
  };
  const ExpertWeights& any = args.experts[0];
  run_experts({.x = &args.x,
               .w1 = of_table(any.w1, 0),
               .w2 = of_table(any.w2, 2),
               .width = any.w2.in(),
               .quantised = takes_a8(any.w2),
               .x_rows = slots.row,
               .weight = slots.weight,
               .tiles = slots.tiles,
               .max_tiles = n_tiles,
               .n = n_slots,
               .out = routed},
              args.swiglu_limit);
  FATHOM_CHECK(alike(args.shared.w1, args.shared.w3));
  cuda::ExpertPass pass = {.x = &args.x,
                           .w1 = cuda::product_weight(args.shared.w1),
                           .w2 = cuda::product_weight(args.shared.w2),
                           .width = args.shared.w2.in(),
                           .quantised = takes_a8(args.shared.w2),
                           .n = n_rows,
                           .out = shared};
  pass.w1.other = pointers(args.shared.w3);
  run_experts(pass, args.swiglu_limit);
  show("moe.shared_out", made(shared, DType::kBf16, {n_rows, hidden}));
  cuda::launch_combine({.y = bf16(args.y),
                        .y_stride = args.y.stride[0],
                        .routed = routed,
                        .shared = shared,
                        .slot_of = slots.of,
                        .n_rows = n_rows,
                        .k = k,
                        .hidden = hidden},
                       stream());
  done("experts");
  show("moe.out", args.y);
}

}  // namespace fathom
