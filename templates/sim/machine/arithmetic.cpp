// Bit operations and 16-bit float arithmetic, exact and rounded once.
#include <bit>
#include <cmath>
#include <cstring>
#include "machine.hpp"

namespace sim {
namespace {

struct Shape {
  int mantissa, min_exponent;  // stored mantissa bits; exponent of the smallest normal number
  uint32_t infinity, nan;      // nan: the one NaN that the hardware's arithmetic returns
};
constexpr Shape kShapes[] = {{10, -14, 0x7c00, 0x7fff}, {7, -126, 0x7f80, 0x7fff}};

double to_double(const Shape& s, uint32_t bits) {
  const uint32_t magnitude = bits & 0x7fffu;
  const int exponent = static_cast<int>(magnitude >> s.mantissa);
  const double fraction = magnitude & ((1u << s.mantissa) - 1);
  double value;
  if (magnitude >= s.infinity) value = magnitude == s.infinity ? INFINITY : NAN;
  else if (exponent == 0) value = std::ldexp(fraction, s.min_exponent - s.mantissa);
  else value = std::ldexp(fraction + (1 << s.mantissa), exponent - 1 + s.min_exponent - s.mantissa);
  return bits & 0x8000u ? -value : value;
}

// Nearest even. The bits of a finite result are an integer that counts quanta, so a carry into the next binade, or into infinity,
// comes out right by itself.
uint32_t round_to(const Shape& s, double value) {
  if (std::isnan(value)) return s.nan;
  const uint32_t sign = std::signbit(value) ? 0x8000u : 0u;
  const double size = std::fabs(value);
  if (std::isinf(size)) return sign | s.infinity;
  if (size == 0) return sign;
  const int exponent = std::max(std::ilogb(size), s.min_exponent);
  const double quanta = std::nearbyint(std::ldexp(size, s.mantissa - exponent));
  const uint64_t bits = (static_cast<uint64_t>(exponent - s.min_exponent) << s.mantissa) + static_cast<uint64_t>(quanta);
  return sign | static_cast<uint32_t>(std::min<uint64_t>(bits, s.infinity));
}

// a + b rounded to odd: an inexact sum keeps its last bit set, so that rounding it again to a short format is as one rounding.
double add_to_odd(double a, double b) {
  const double sum = a + b;
  if (!std::isfinite(sum)) return sum;
  const double b_part = sum - a;
  const double error = (a - (sum - b_part)) + (b - b_part);  // exact (Knuth)
  if (error == 0 || (std::bit_cast<uint64_t>(sum) & 1)) return sum;
  return std::nextafter(sum, error > 0 ? INFINITY : -INFINITY);
}

uint32_t fma_one(const Shape& s, uint32_t a, uint32_t b, uint32_t c) {
  const double product = to_double(s, a) * to_double(s, b);  // at most 22 bits: exact
  return round_to(s, add_to_odd(product, to_double(s, c)));
}

const Shape& shape_of(Format format) { return kShapes[static_cast<int>(format)]; }

}  // namespace

uint32_t lop3(uint32_t a, uint32_t b, uint32_t c, int table) {
  uint32_t result = 0;
  for (int i = 0; i < 8; ++i) {
    if (table >> i & 1) result |= (i & 4 ? a : ~a) & (i & 2 ? b : ~b) & (i & 1 ? c : ~c);
  }
  return result;
}

uint32_t permute(uint32_t a, uint32_t b, uint32_t selector) {
  const uint64_t bytes = static_cast<uint64_t>(b) << 32 | a;
  uint32_t result = 0;
  for (int i = 0; i < 4; ++i) result |= static_cast<uint32_t>(bytes >> 8 * (selector >> 4 * i & 7) & 0xff) << 8 * i;
  return result;
}

uint32_t fma_pair(Format format, uint32_t a, uint32_t b, uint32_t c) {
  const Shape& s = shape_of(format);
  return fma_one(s, a & 0xffff, b & 0xffff, c & 0xffff) | fma_one(s, a >> 16, b >> 16, c >> 16) << 16;
}

float widen(Format format, uint32_t bits) {
  if (format == Format::bf16) return std::bit_cast<float>(bits << 16);
  return static_cast<float>(to_double(shape_of(format), bits));
}

uint32_t narrow_pair(Format format, float low, float high) {
  const Shape& s = shape_of(format);
  return round_to(s, low) | round_to(s, high) << 16;
}

}  // namespace sim
