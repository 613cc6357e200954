#pragma once

// Launches of the trainer's fused CUDA kernels. Plain pointers, so that .cu files need no torch
// header. bf16 tensors are uint16_t bit patterns, contiguous unless a row stride is named. Each
// kernel is held to the ATen form in ops.cc by `fathom-train selfcheck`. Every launch is on
// `stream` (a cudaStream_t) and reports its error through check_launch.

#include <cstdint>

namespace fathom::train::gpu {

using bf16_t = uint16_t;
using Stream = void*;

// Stops the program with the kernel's name if the last launch failed.
void check_launch(const char* name);

// spec/backbone.md 2.4. rows x dim, dim a multiple of 32 up to 512; x has row stride ldx.
// bwd adds the weight gradient to dw.
void rms_norm_fwd(const bf16_t* x, int64_t ldx, const bf16_t* w, bf16_t* y, int64_t rows, int dim,
                  Stream stream);
struct RmsNormGrad {
  const bf16_t* x;
  int64_t ldx;
  const bf16_t* w;
  const bf16_t* dy;
  bf16_t* dx;
  float* dw;
};
void rms_norm_bwd(const RmsNormGrad& p, int64_t rows, int dim, Stream stream);

// spec/backbone.md 2.5. Rotates the last `rope` of `dim` channels of rows x heads vectors; row r
// stands at position (r % length) * step of the cos/sin table [position][rope / 2][2].
struct Rope {
  const bf16_t* x;
  bf16_t* y;
  const float* table;
  int64_t rows;
  int heads, dim, rope, length, step;
  bool inverse;
};
void rope(const Rope& p, Stream stream);

// Quantise and dequantise blocks of the last axis; see quant.h for the kinds.
void fake_quant(int kind, const bf16_t* x, bf16_t* y, int64_t elements, Stream stream);

// spec/backbone.md 3.1, four streams of width dim (a multiple of 128 up to 512), n tokens.
struct HcRead {
  const bf16_t* streams;  // [n][4][dim]
  const float* pre;       // [n][4], the incoming pre-mix
  const bf16_t* w;        // [dim], the norm weight
  bf16_t* x;              // [n][dim], normed collapse
  float* r;               // [n], rsqrt of the flattened mean square
};
void hc_read_fwd(const HcRead& p, int64_t n, int dim, Stream stream);
struct HcReadGrad {
  const bf16_t* streams;
  const float* pre;
  const bf16_t* w;
  const bf16_t* dx;
  const bf16_t* dpass;  // gradient of the streams from their other readers, or null
  const float* cr;      // [n], factor of the streams from the flattened norm, or null
  bf16_t* dstreams;
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
  bf16_t* dmix;  // [n][24]
  float* cr;     // [n]
  float* dsum;
};
void hc_coef_bwd(const HcCoef& p, const HcCoefGrad& g, int width, int64_t n, Stream stream);

struct HcWrite {
  const bf16_t* streams;
  const bf16_t* y;  // [n][dim]
  const float* mixw;
};
void hc_write_fwd(const HcWrite& p, bf16_t* out, int64_t n, int dim, Stream stream);
struct HcWriteGrad {
  const bf16_t* dout;
  bf16_t* dstreams;
  bf16_t* dy;
  float* dmixw;
};
void hc_write_bwd(const HcWrite& p, const HcWriteGrad& g, int64_t n, int dim, Stream stream);

// spec/engram.md 7. kv [n][5 * dim]: four keys, then the value; w [4][dim] fp32.
void engram_fwd(const bf16_t* streams, const bf16_t* kv, const float* w, bf16_t* out, int64_t n,
                int dim, Stream stream);
struct EngramGrad {
  const bf16_t* streams;
  const bf16_t* kv;
  const float* w;
  const bf16_t* dout;
  bf16_t* dstreams;
  bf16_t* dkv;
  float* dw;  // added to
};
void engram_bwd(const EngramGrad& p, int64_t n, int dim, Stream stream);

// spec/backbone.md 3.10. wt [n][experts] is zero where not chosen; load [experts] is added to.
void route_fwd(const float* logits, const float* bias, float* wt, float* load, int64_t n,
               int experts, int top, float factor, Stream stream);
void route_bwd(const float* logits, const float* wt, const float* dwt, float* dlogits, int64_t n,
               int experts, float factor, Stream stream);

// gu [n][2][experts + 1][width]: gate, then up; the last expert is the shared one, weight 1.
struct Swiglu {
  const bf16_t* gu;
  const float* wt;
  int experts, width;
  float limit;
};
void swiglu_fwd(const Swiglu& p, bf16_t* h, int64_t n, Stream stream);
void swiglu_bwd(const Swiglu& p, const bf16_t* dh, bf16_t* dgu, float* dwt, int64_t n,
                Stream stream);

// logits [rows][vocab] become their gradient, scaled by weight[row]; nll [rows].
void cross_entropy(bf16_t* logits, const int64_t* target, const float* weight, float* nll,
                   int64_t rows, int vocab, Stream stream);

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
void attend_softmax(const Attend& p, bf16_t* sw, bf16_t* sg, float* lse, Stream stream);
// dp become score gradients in place; dsink [rows] before its sum over tokens.
struct AttendGrad {
  const bf16_t* pw;
  const bf16_t* pg;
  const bf16_t* out;
  const bf16_t* dout;
  const float* lse;
  bf16_t* dpw;
  bf16_t* dpg;
  float* dsink;
};
void attend_softmax_bwd(const Attend& p, const AttendGrad& g, Stream stream);

// spec/backbone.md 3.6 and 3.7: dots [token * heads][entries] bf16, weights [token][heads].
// selected [token][entries / 8]: the top `top` of the visible entries, ties to the smaller id.
struct IndexSelect {
  const bf16_t* dots;
  const float* weights;
  const uint8_t* pool;  // restricts the choice, or null
  uint8_t* selected;
  uint8_t* new_pool;  // the best `blocks` blocks of 8 with the newest pinned, or null
  int64_t tokens;
  int length, heads, entries, ratio, top, blocks;
};
void index_select(const IndexSelect& p, Stream stream);

}  // namespace fathom::train::gpu
