#include "base/math.h"

#include <cmath>

#include "base/math_inline.h"

namespace fathom {

float exp_f32(float x) { return exp_f32_inline(x); }

float sigmoid(float x) { return 1.0f / (1.0f + exp_f32(-x)); }

float rsqrt(float x) { return 1.0f / std::sqrt(x); }

namespace {

constexpr double kLog2High = 0x1.62e42fefa3800p-1;  // 41 bits: times an exponent it is exact
constexpr double kLog2Low = 0x1.ef35793c76730p-45;

// log(1 + f) = 2 atanh(f / (2 + f)) for 1 + f in [sqrt(1/2), sqrt 2).
double log_near_one(double f) {
  const double s = f / (2.0 + f);
  const double z = s * s;
  double p = 1.0 / 21.0;
  for (int i = 19; i >= 3; i -= 2) p = std::fma(p, z, 1.0 / i);
  return 2.0 * std::fma(s * z, p, s);
}

}  // namespace

double log_f64(double x) {
  int k = 0;
  double m = std::frexp(x, &k);
  if (m < 0x1.6a09e667f3bcdp-1) {
    m *= 2.0;
    k -= 1;
  }
  const double whole = k;
  return std::fma(whole, kLog2High, std::fma(whole, kLog2Low, log_near_one(m - 1.0)));
}

// exp(y) with y = n ln 2 + r, |r| <= ln 2 / 2, by Taylor's polynomial of degree 13.
double pow_f64(double base, double exponent) {
  const double y = exponent * log_f64(base);
  const double n = std::floor(std::fma(y, 0x1.71547652b82fep+0, 0.5));
  const double r = std::fma(n, -kLog2Low, std::fma(n, -kLog2High, y));
  double p = 1.0 / 6227020800.0;
  double factorial = 6227020800.0;
  for (int i = 13; i >= 1; --i) {
    factorial /= i;
    p = std::fma(p, r, 1.0 / factorial);
  }
  return std::ldexp(p, static_cast<int>(n));
}

// 1 + x = 2^k (1 + f). In double precision, so that one rounding to float remains. k is 0 for small
// x, where f = x exactly.
float log1p_f32(float x) {
  const double u = 1.0 + static_cast<double>(x);
  if (!(u < 0x1p200)) return x;
  int k = 0;
  double f = x;
  if (u >= 0x1.6a09e667f3bcdp+0) {
    const double m = 2.0 * std::frexp(u, &k);
    k -= 1;
    f = m - 1.0;
    if (m >= 0x1.6a09e667f3bcdp+0) {
      f = 0.5 * m - 1.0;
      k += 1;
    }
  }
  return static_cast<float>(
      std::fma(static_cast<double>(k), 0x1.62e42fefa39efp-1, log_near_one(f)));
}

// x = n pi/2 + r with |r| <= pi/4: the two fused steps are exact enough for n below 2^22, since
// pi/2 stands in 106 bits. Taylor polynomials in double precision; one rounding to float remains.
void sincos_f32(float x, float* sin, float* cos) {
  const double wide = x;
  const double shifted = std::fma(wide, 0x1.45f306dc9c883p-1, 0x1.8p52);
  const double n = shifted - 0x1.8p52;
  double r = std::fma(n, -0x1.921fb54442d18p+0, wide);
  r = std::fma(n, -0x1.1a62633145c07p-54, r);
  const double z = r * r;

  double s = -1.0 / 1307674368000.0;
  s = std::fma(s, z, 1.0 / 6227020800.0);
  s = std::fma(s, z, -1.0 / 39916800.0);
  s = std::fma(s, z, 1.0 / 362880.0);
  s = std::fma(s, z, -1.0 / 5040.0);
  s = std::fma(s, z, 1.0 / 120.0);
  s = std::fma(s, z, -1.0 / 6.0);
  s = std::fma(s * z, r, r);

  double c = 1.0 / 20922789888000.0;
  c = std::fma(c, z, -1.0 / 87178291200.0);
  c = std::fma(c, z, 1.0 / 479001600.0);
  c = std::fma(c, z, -1.0 / 3628800.0);
  c = std::fma(c, z, 1.0 / 40320.0);
  c = std::fma(c, z, -1.0 / 720.0);
  c = std::fma(c, z, 1.0 / 24.0);
  c = std::fma(c, z, -0.5);
  c = std::fma(c, z, 1.0);

  const uint64_t quadrant = std::bit_cast<uint64_t>(shifted) & 3u;
  const double first = quadrant % 2 == 0 ? s : c;
  const double second = quadrant % 2 == 0 ? c : s;
  *sin = static_cast<float>(quadrant >= 2 ? -first : first);
  *cos = static_cast<float>(quadrant == 1 || quadrant == 2 ? -second : second);
}

}  // namespace fathom
