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

// In double, for tables that are made once: errors of some 1e-15, so that the float nearest to a
// result is the right one except where the true value lies that close to the middle of two.
double log_f64(double x);                      // x > 0 and normal
double pow_f64(double base, double exponent);  // base > 0; the result a normal number

}  // namespace fathom
