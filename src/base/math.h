#pragma once

// Transcendental functions of our own: the C library's differ by machine, and every backend path
// must give the same bits. Only IEEE operations and std::fma are used, in one fixed order.

#include <cstdint>

namespace fathom {

float exp_f32(float x);                            // within 1 ulp; 0 below -104, inf above 88.8
float log1p_f32(float x);                          // x >= 0; within 1 ulp
float sigmoid(float x);                            // 1 / (1 + exp(-x))
float rsqrt(float x);                              // 1 / sqrt(x), both correctly rounded
void sincos_f32(float x, float* sin, float* cos);  // any finite x up to 2^21, within 1 ulp

}  // namespace fathom
