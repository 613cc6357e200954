#pragma once

// Launches of the trainer's fused CUDA kernels. Plain pointers, so that .cu files need no torch
// header. bf16 tensors are uint16_t bit patterns, contiguous unless a row stride is named. Each
// kernel is held to the ATen form in ops.cc by `fathom-train selfcheck`. Every launch is on
// `stream` (a cudaStream_t) and reports its error through check_launch.

#include <cstdint>

namespace fathom::train::gpu {

using Bf16 = uint16_t;
using Stream = void*;

// Stops the program with the kernel's name if the last launch failed.
void check_launch(const char* name);
// Waits until everything launched has finished.
void synchronize();

// spec/backbone.md 2.4. rows x dim, dim a multiple of 32 up to 512; x has row stride ldx.
// bwd adds the weight gradient to dw.
struct RmsNorm {
  const Bf16* x;
  int64_t ldx;
  const Bf16* w;
  Bf16* y;
};
void rms_norm_fwd(const RmsNorm& p, int64_t rows, int dim, Stream stream);
struct RmsNormGrad {
  const Bf16* x;
  int64_t ldx;
  const Bf16* w;
  const Bf16* dy;
  Bf16* dx;
  float* dw;
};
void rms_norm_bwd(const RmsNormGrad& p, int64_t rows, int dim, Stream stream);

// spec/backbone.md 2.5. Rotates the last `rope` of `dim` channels of rows x heads vectors; row r
// stands at position (r % length) * step of the cos/sin table [position][rope / 2][2].
struct Rope {
  const Bf16* x;
  Bf16* y;
  const float* table;
  int64_t rows;
  int heads, dim, rope, length, step;
  bool inverse;
};
void rope(const Rope& p, Stream stream);

// Quantise and dequantise blocks of the last axis; see quant.h for the kinds.
void fake_quant(int kind, const Bf16* x, Bf16* y, int64_t elements, Stream stream);

// spec/backbone.md 3.1, four streams of width dim (a multiple of 128 up to 512), n tokens.
struct HcRead {
  const Bf16* streams;  // [n][4][dim]
  const float* pre;     // [n][4], the incoming pre-mix
  const Bf16* w;        // [dim], the norm weight
  Bf16* x;              // [n][dim], normed collapse
  float* r;             // [n], rsqrt of the flattened mean square
};
void hc_read_fwd(const HcRead& p, int64_t n, int dim, Stream stream);
struct HcReadGrad {
  const Bf16* streams;
  const float* pre;
  const Bf16* w;
  const Bf16* dx;
  const Bf16* dpass;  // gradient of the streams from their other readers, or null
  const float* cr;    // [n], factor of the streams from the flattened norm, or null
  Bf16* dstreams;
  float* dpre;  // [n][4]
  float* dw;    // [dim], added to
};
void hc_read_bwd(const HcReadGrad& p, int64_t n, int dim, Stream stream);

// mix [n][48] is the projection by the high and the low part of fn; logits are scale * mix * r +
// base. pre [n][4]; post and comb in mixw [n][20].
struct HcCoef {
  const float* mix;
  const float* r;
  const float* scale;  // [3]
  const float* base;   // [24]
  float eps;
  int iterations;
};
void hc_coef_fwd(const HcCoef& p, float* pre, float* mixw, int64_t n, Stream stream);
// dsum [n][27]: gradients of base, then of scale, before their sum over tokens.
struct HcCoefGrad {
  const float* dpre;
  const float* dmixw;
  Bf16* dmix;  // [n][24]
  float* cr;   // [n]
  float* dsum;
};
void hc_coef_bwd(const HcCoef& p, const HcCoefGrad& g, int width, int64_t n, Stream stream);

struct HcWrite {
  const Bf16* streams;
  const Bf16* y;  // [n][dim]
  const float* mixw;
};
void hc_write_fwd(const HcWrite& p, Bf16* out, int64_t n, int dim, Stream stream);
struct HcWriteGrad {
  const Bf16* dout;
  Bf16* dstreams;
  Bf16* dy;
  float* dmixw;
};
void hc_write_bwd(const HcWrite& p, const HcWriteGrad& g, int64_t n, int dim, Stream stream);

// spec/engram.md 7. kv [n][5 * dim]: four keys, then the value; w [4][dim] fp32.
struct Engram {
  const Bf16* streams;
  const Bf16* kv;
  const float* w;
  Bf16* out;
};
void engram_fwd(const Engram& p, int64_t n, int dim, Stream stream);
struct EngramGrad {
  const Bf16* streams;
  const Bf16* kv;
  const float* w;
  const Bf16* dout;
  Bf16* dstreams;
  Bf16* dkv;
  float* dw;  // added to
};
void engram_bwd(const EngramGrad& p, int64_t n, int dim, Stream stream);

// spec/backbone.md 3.10. wt [n][experts] is zero where not chosen; load [experts] is added to.
struct Route {
  const float* logits;
  const float* bias;
  float* wt;
  float* load;
  int experts, top;
  float factor;
};
void route_fwd(const Route& p, int64_t n, Stream stream);
struct RouteGrad {
  const float* logits;
  const float* wt;
  const float* dwt;
  float* dlogits;
  int experts;
  float factor;
};
void route_bwd(const RouteGrad& p, int64_t n, Stream stream);

// gu [n][2][experts + 1][width]: gate, then up; the last expert is the shared one, weight 1.
struct Swiglu {
  const Bf16* gu;
  const float* wt;
  int experts, width;
  float limit;
};
void swiglu_fwd(const Swiglu& p, Bf16* h, int64_t n, Stream stream);
struct SwigluGrad {
  const Bf16* dh;
  Bf16* dgu;
  float* dwt;
};
void swiglu_bwd(const Swiglu& p, const SwigluGrad& g, int64_t n, Stream stream);

// logits [rows][vocab] become their gradient, scaled by weight[row]; nll [rows].
struct CrossEntropy {
  Bf16* logits;
  const int64_t* target;
  const float* weight;
  float* nll;
  int vocab;
};
void cross_entropy(const CrossEntropy& p, int64_t rows, Stream stream);

// spec/backbone.md 3.8, dense masked form. Rows are (token, head). sw [rows][2 * window]: keys of
// the block before and of the token's own block of `window` tokens; sg [rows][entries] or null.
struct Attend {
  const float* sink;    // [heads]
  const uint8_t* mask;  // [token][entries / 8] bits, or null: all visible entries
  int64_t tokens;       // all sequences together
  int length, heads, dim, window, entries, ratio;
  float scale;
};
// Scores become probabilities in place; lse [rows].
void attend_softmax(const Attend& p, Bf16* sw, Bf16* sg, float* lse, Stream stream);
// dp become score gradients in place; dsink [rows] before its sum over tokens.
struct AttendGrad {
  const Bf16* pw;
  const Bf16* pg;
  const Bf16* out;
  const Bf16* dout;
  const float* lse;
  Bf16* dpw;
  Bf16* dpg;
  float* dsink;
};
void attend_softmax_bwd(const Attend& p, const AttendGrad& g, Stream stream);

// spec/backbone.md 3.6 and 3.7: dots [token * heads][entries] bf16, weights [token][heads].
// selected [token][entries / 8]: the top `top` of the visible entries, ties to the smaller id.
struct IndexSelect {
  const Bf16* dots;
  const float* weights;
  const uint8_t* pool;  // restricts the choice, or null
  uint8_t* selected;
  uint8_t* new_pool;  // the best `blocks` blocks of 8 with the newest pinned, or null
  int64_t tokens;
  int length, heads, entries, ratio, top, blocks;
};
void index_select(const IndexSelect& p, Stream stream);

}  // namespace fathom::train::gpu
